// SPDX-License-Identifier: Apache-2.0
// The error of the fleet's clocks beside chrony's and ptp4l's, all on one fabric at the same time, at three loads.
// docs/benchmarks.md says how each is configured and read. BENCH_FULL=1 samples five times as long; BENCH_CASE=load_40
// runs one load.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/clock_guard.h"
#include "tests/bench/clock_peers.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"

namespace cw::bench {
namespace {

constexpr struct {
  const char* name;
  double share;
} kCases[] = {{"load_0", 0}, {"load_40", 0.4}, {"load_80", 0.8}};

constexpr absl::Duration kSettle = absl::Seconds(45);  // ptp4l needs that long
constexpr absl::Duration kPeriod = absl::Milliseconds(50);
constexpr double kSteadyAfterS = 3;  // after a change of a clock's drift

lab::TestbedSpec BedSpec() {
  lab::TestbedSpec spec;
  spec.fabric = {.lab = "benchck", .leaves = 2, .spines = 4, .hosts_per_leaf = 2, .link_mbps = 200, .ecmp_seed = 1};
  spec.mode = "observe";
  spec.all_hosts = true;
  spec.probe_budget_pps = 2000;
  spec.clocks = {{.offset_ns = 1'000'000'000, .drift_ppm = 100, .segment_s = 30, .seed = 11},
                 {.offset_ns = -700'000'000, .drift_ppm = -80, .segment_s = 30, .seed = 12},
                 {.offset_ns = 3'000'000, .drift_ppm = 60, .segment_s = 30, .seed = 13},
                 {.offset_ns = 250'000'000, .drift_ppm = -20, .segment_s = 30, .seed = 14}};
  return spec;
}

std::vector<double> Absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

double Percent(size_t part, size_t whole) {
  return whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
}

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// |median| of each second of readings: what a user of an unfiltered offset would do first.
std::vector<double> MediansPerSecond(const std::vector<double>& values, size_t per_second) {
  std::vector<double> medians;
  for (size_t i = 0; i + per_second <= values.size(); i += per_second) {
    medians.push_back(std::abs(Quantile(
        {values.begin() + static_cast<std::ptrdiff_t>(i), values.begin() + static_cast<std::ptrdiff_t>(i + per_second)},
        0.5)));
  }
  return medians;
}

absl::Status AddProduct(const char* bench_case, const lab::ClockSampler& sampler, size_t least, Report& report) {
  if (!sampler.failures().empty()) return absl::InternalError(sampler.failures()[0]);
  std::vector<double> errors, steady, error_est, bound;
  std::map<std::pair<int, int>, std::vector<double>> by_pair;
  size_t in_bound = 0, in_error_est = 0, synced = 0;
  for (const lab::PairSample& sample : sampler.pairs()) {
    const double error_ns = std::abs(sample.error_ns);
    synced += sample.synced ? 1 : 0;
    in_bound += error_ns <= sample.bound_ns ? 1 : 0;
    in_error_est += error_ns <= sample.error_est_ns ? 1 : 0;
    errors.push_back(error_ns);
    if (sample.since_step_s >= kSteadyAfterS) steady.push_back(error_ns);
    error_est.push_back(sample.error_est_ns);
    bound.push_back(sample.bound_ns);
    by_pair[{sample.host, sample.peer}].push_back(sample.error_ns);
  }
  if (by_pair.size() != 12)
    return absl::InternalError(absl::StrCat(by_pair.size(), " of 12 ordered pairs of hosts were told of"));
  std::vector<double> worst;
  for (const auto& [pair, signed_ns] : by_pair) {
    if (signed_ns.size() < least)
      return absl::InternalError(
          absl::StrFormat("h%d told of h%d only %d times", pair.first, pair.second, signed_ns.size()));
    const std::vector<double> absolute = Absolute(signed_ns);
    std::fprintf(stderr, "  h%d about h%d: mean %+.0f ns, |error| p50 %.0f p99 %.0f max %.0f ns\n", pair.first,
                 pair.second, Mean(signed_ns), Quantile(absolute, 0.5), Quantile(absolute, 0.99),
                 Quantile(absolute, 1));
    if (worst.empty() || Quantile(absolute, 0.99) > Quantile(worst, 0.99)) worst = absolute;
  }
  const size_t n = errors.size();
  report.Add(bench_case, "cwfabric", "abs_error", "ns", errors);
  report.Add(bench_case, "cwfabric", "abs_error_steady", "ns", steady);
  report.Add(bench_case, "cwfabric", "abs_error_worst_pair", "ns", worst);
  report.Add(bench_case, "cwfabric", "error_est", "ns", error_est);
  report.Add(bench_case, "cwfabric", "bound", "ns", bound);
  report.Add(Row{bench_case, "cwfabric", "coverage_bound", "percent", n, Percent(in_bound, n), Percent(in_bound, n),
                 Percent(in_bound, n)});
  report.Add(Row{bench_case, "cwfabric", "coverage_error_est", "percent", n, Percent(in_error_est, n),
                 Percent(in_error_est, n), Percent(in_error_est, n)});
  report.Add(
      Row{bench_case, "cwfabric", "synced", "percent", n, Percent(synced, n), Percent(synced, n), Percent(synced, n)});
  return absl::OkStatus();
}

absl::Status AddCost(const char* bench_case, lab::Testbed& testbed, Report& report) {
  std::vector<double> rate, cpu;
  for (int host = 0; host < testbed.fabric().hosts(); ++host) {
    absl::StatusOr<api::v1::StatusReply> status = testbed.agent(host).Status();
    if (!status.ok()) return status.status();
    rate.push_back(status->prober().rate_pps());
    cpu.push_back(status->cpu_percent());
  }
  report.Add(bench_case, "cwfabric", "probe_rate", "pps", rate);
  report.Add(bench_case, "cwfabric", "cpu", "percent", cpu);
  return absl::OkStatus();
}

absl::Status AddPeer(const char* bench_case, ClockPeer& peer, size_t least, Report& report) {
  absl::StatusOr<PeerReadings> readings = peer.StopReading(least);
  if (!readings.ok()) return readings.status();
  const std::vector<double> errors = Absolute(readings->error_ns);
  std::fprintf(stderr, "  %s: mean %+.0f ns, |error| p50 %.0f p99 %.0f max %.0f ns; %s\n", peer.name().c_str(),
               Mean(readings->error_ns), Quantile(errors, 0.5), Quantile(errors, 0.99), Quantile(errors, 1),
               readings->stamps.c_str());
  report.Add(bench_case, peer.name(), "abs_error", "ns", errors);
  if (readings->bound_ns.empty()) {
    report.Add(bench_case, peer.name(), "abs_error_1s_median", "ns",
               MediansPerSecond(readings->error_ns, static_cast<size_t>(absl::Seconds(1) / kPeriod)));
    return absl::OkStatus();
  }
  size_t inside = 0;
  for (size_t i = 0; i < errors.size(); ++i) inside += errors[i] <= readings->bound_ns[i] ? 1 : 0;
  const double percent = Percent(inside, errors.size());
  report.Add(bench_case, peer.name(), "bound", "ns", readings->bound_ns);
  report.Add(Row{bench_case, peer.name(), "coverage_bound", "percent", errors.size(), percent, percent, percent});
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::unique_ptr<ClockPeer>>> StartPeers(lab::Fabric& fabric) {
  std::vector<std::unique_ptr<ClockPeer>> peers;
  const auto add = [&](absl::StatusOr<std::unique_ptr<ClockPeer>> peer) {
    if (peer.ok()) peers.push_back(std::move(*peer));
    return peer.status();
  };
  // Hosts 0 and 1 are on one leaf, 2 and 3 on the other.
  absl::Status status = add(StartChrony(fabric, 0, 2, 123, /*hwts=*/false));
  if (status.ok()) status = add(StartChrony(fabric, 1, 3, 1123, /*hwts=*/true));
  if (status.ok()) status = add(StartPtp4l(fabric, 1, 3));
  if (!status.ok()) return status;
  return peers;
}

absl::Status RunCase(const char* name, double share, absl::Duration length, Report& report) {
  absl::StatusOr<std::unique_ptr<lab::Testbed>> testbed = lab::Testbed::Up(BedSpec());
  if (!testbed.ok()) return testbed.status();
  absl::StatusOr<lab::Truth> truth = lab::Truth::Read((*testbed)->fabric());
  if (!truth.ok()) return truth.status();
  std::unique_ptr<lab::Emulator> emulator;
  if (share > 0) {
    absl::StatusOr<std::unique_ptr<lab::Emulator>> load = lab::StartEvenLoad(**testbed, share, 1);
    if (!load.ok()) return load.status();
    emulator = std::move(*load);
  }
  absl::StatusOr<std::vector<std::unique_ptr<ClockPeer>>> peers = StartPeers((*testbed)->fabric());
  if (!peers.ok()) return peers.status();
  absl::SleepFor(kSettle);

  lab::LoadMeter meter((*testbed)->fabric());
  lab::ClockSampler sampler(**testbed, *truth, kPeriod);
  for (auto& peer : *peers) {
    if (absl::Status status = peer->StartReading(kPeriod); !status.ok()) return status;
  }
  absl::SleepFor(length);
  const std::vector<double> shares = meter.Shares();
  sampler.Stop();

  const auto least = static_cast<size_t>(10 * absl::ToDoubleSeconds(length));  // ten a second
  std::vector<double> percent;
  for (double link : shares) percent.push_back(100 * link);
  report.Add(name, "cwfabric", "load", "percent", percent);
  std::fprintf(stderr, "  load of the %d link directions: mean %.1f, least %.1f, most %.1f %%\n",
               static_cast<int>(percent.size()), Mean(percent), Quantile(percent, 0), Quantile(percent, 1));
  if (absl::Status status = AddProduct(name, sampler, least, report); !status.ok()) return status;
  if (absl::Status status = AddCost(name, **testbed, report); !status.ok()) return status;
  for (auto& peer : *peers) {
    if (absl::Status status = AddPeer(name, *peer, least, report); !status.ok()) return status;
  }
  if (emulator) emulator->Stop();
  return absl::OkStatus();
}

absl::Status RunAll(Report& report) {
  const char* only = std::getenv("BENCH_CASE");
  const absl::Duration length = std::getenv("BENCH_FULL") != nullptr ? absl::Minutes(5) : absl::Seconds(60);
  const KernelClock before = KernelClock::Read();
  absl::Status status;
  for (const auto& c : kCases) {
    if (only != nullptr && std::string(only) != c.name) continue;
    std::fprintf(stderr, "%s ...\n", c.name);
    status = RunCase(c.name, c.share, length, report);
    if (!status.ok()) {
      status = absl::Status(status.code(), absl::StrCat(c.name, ": ", std::string(status.message())));
      break;
    }
  }
  if (absl::Status untouched = Untouched(before, KernelClock::Read()); !untouched.ok()) return untouched;
  return status;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) {
  cw::bench::Report report("clock");
  absl::Status status = cw::bench::RunAll(report);
  if (status.ok()) status = report.Write(cw::bench::OutPath(argc, argv, "build/bench/clock.json"));
  if (!status.ok()) {
    std::fprintf(stderr, "clock: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
