// SPDX-License-Identifier: Apache-2.0
//
// cwlab traffic: RoCE traffic on a lab that is up, until it is ended.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/lab/cwlab_cli.h"
#include "userspace/lab/machine_drops.h"
#include "userspace/lab/testbed.h"
#include "userspace/lab/traffic.h"

namespace cw::lab {
namespace {

constexpr double kManyResent = 0.0005;  // the share of a flow's packets from which agents tell of losses

sigset_t EndSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&signals, signal);
  return signals;
}

// False: one of the signals came.
bool SleepUnlessEnded(const sigset_t& signals, absl::Time until) {
  const timespec time = absl::ToTimespec(std::max(absl::ZeroDuration(), until - absl::Now()));
  return sigtimedwait(&signals, nullptr, &time) < 0;
}

std::string TotalsText(const nlohmann::json& totals) {
  return absl::StrFormat("%.1f s: %d packets, %.1f MB delivered, %.1f Mbit/s goodput, %d packets sent again\n",
                         totals["seconds"].get<double>(), totals["packets"].get<uint64_t>(),
                         totals["bytes"].get<double>() / 1e6, totals["goodput_mbps"].get<double>(),
                         totals["resent"].get<uint64_t>());
}

// Between processors that are all busy packets overtake each other, and their receivers ask for them again.
std::string ResentText(const nlohmann::json& totals) {
  if (totals["resent"].get<double>() < kManyResent * totals["packets"].get<double>()) return "";
  return "packets were sent again: unless you broke something (cwlab status), this machine is too busy for that much, "
         "and "
         "what its agents call losses is no fault of the fabric\n";
}

// A line per second, until the time is over, a signal comes, or no queue pair is left.
Snapshot Watch(const Cli& cli, const Emulator& emulator, absl::Duration length) {
  const sigset_t signals = EndSignals();
  const absl::Time start = absl::Now();
  Snapshot last = emulator.TakeSnapshot();
  for (int second = 1;; ++second) {
    const absl::Time next = std::min(start + absl::Seconds(second), start + length);
    const bool ended = !SleepUnlessEnded(signals, next);
    Snapshot now = emulator.TakeSnapshot();
    if (!cli.json && !ended) std::cout << TrafficLine(last, now, next - start) << std::endl;
    last = std::move(now);
    const bool all_dead = last.FlowsDied() == static_cast<int>(last.flows.size());
    if (ended || all_dead || absl::Now() - start >= length) return last;
  }
}

absl::StatusOr<std::unique_ptr<Emulator>> StartTraffic(const Fabric& fabric, const JobSpec& job) {
  EmulatorConfig config = EmulatedHosts(fabric, /*agents=*/true);
  // Two at a time are two sets of queue pairs.
  config.seed = static_cast<uint64_t>(absl::ToUnixNanos(absl::Now())) + static_cast<uint64_t>(getpid());
  config.bin = config.longest_run = absl::Seconds(1);  // nobody asks for its goodput over time, nor for arrivals
  config.arrivals = 1;
  absl::StatusOr<std::unique_ptr<Emulator>> emulator = Emulator::Create(config);
  if (!emulator.ok()) return emulator.status();
  if (absl::StatusOr<int> added = (*emulator)->AddJob(job); !added.ok()) return added.status();
  if (absl::Status status = (*emulator)->Start(); !status.ok()) return status;
  return emulator;
}

void RunTraffic(Cli& cli, const TrafficOptions& options) {
  absl::StatusOr<absl::Duration> length = ParseTrafficTime(options.time);
  if (!length.ok()) return cli.Finish(length.status(), {}, "");
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  absl::StatusOr<JobSpec> job = TrafficJob(options, (*fabric)->spec());
  if (!job.ok()) return cli.Finish(job.status(), {}, "");
  const sigset_t signals = EndSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // before the emulator's threads are made
  const absl::Time start = absl::Now();
  const uint64_t drops_before = MachineDrops();
  absl::StatusOr<std::unique_ptr<Emulator>> emulator = StartTraffic(**fabric, *job);
  if (!emulator.ok()) return cli.Finish(emulator.status(), {}, "");
  (*fabric)->RecordProcess(getpid(), "traffic").IgnoreError();  // so that down ends it
  const size_t queue_pairs = FlowsOf(*job).size();
  if (!cli.json) {
    std::cout << absl::StrFormat(
                     "%d queue pairs of %g Mbit/s each on lab %s%s; see them: cwctl --socket %s/agent.sock qps",
                     queue_pairs, options.mbps, cli.lab, options.time.empty() ? ", until Ctrl-C" : "",
                     (*fabric)->HostRunDir(job->pairs.front().source))
              << std::endl;
  }
  const Snapshot last = Watch(cli, **emulator, *length);
  (*emulator)->Stop();
  (*fabric)->ForgetProcess(getpid());
  if (last.FlowsDied() == static_cast<int>(last.flows.size())) {
    return cli.Finish(
        absl::UnavailableError("every queue pair gave up: nothing came through for 8 s; cwlab fault clear "
                               "mends the fabric, then start again"),
        {}, "");
  }
  nlohmann::json totals = TrafficTotals(last, absl::Now() - start);
  totals["lab"] = cli.lab;
  const uint64_t drops = MachineDrops() - drops_before;
  totals["machine_drops"] = drops;
  cli.Finish(absl::OkStatus(), totals, TotalsText(totals) + MachineDropsText(drops) + ResentText(totals));
}

}  // namespace

void AddTrafficVerb(CLI::App& app, Cli& cli) {
  CLI::App* verb = app.add_subcommand("traffic", "send RoCE traffic on a lab that is up, until Ctrl-C");
  auto options = std::make_shared<TrafficOptions>();
  CLI::Option* pairs = verb->add_option(
      "--pairs", options->pairs, "hosts, as h0-h2,h1-h3 (from h0 to h2, ...); else each host to one on the next leaf");
  verb->add_flag("--all-to-all", options->all_to_all, "every host to every other one")->excludes(pairs);
  verb->add_option("--qps", options->qps, "queue pairs per pair of hosts")
      ->capture_default_str()
      ->check(CLI::Range(1, 64));
  verb->add_option("--mbps", options->mbps, "of each queue pair, Mbit/s")
      ->capture_default_str()
      ->check(CLI::Range(0.1, 10'000.0));
  verb->add_option("--for", options->time, "how long, as 30s or 5m; else until Ctrl-C");
  verb->callback([&cli, options] { RunTraffic(cli, *options); });
}

}  // namespace cw::lab
