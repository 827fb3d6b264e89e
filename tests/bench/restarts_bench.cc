// SPDX-License-Identifier: Apache-2.0
// Is anything lost when agents go and come back? Queue pairs fill the fabric while one agent after the other is killed,
// restarted, upgraded or told to read its configuration again, BENCH_CYCLES (100) times in all, with a cycle in which
// nobody does anything after every four. What is counted in a cycle is whatever changed since the one before ended.
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "tests/bench/full_load.h"
#include "tests/bench/losses.h"
#include "tests/bench/pinned_state.h"
#include "tests/bench/restart_cycles.h"
#include "tests/bench/wanted.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"
#include "userspace/lab/stall_witness.h"
#include "userspace/lab/testbed.h"

namespace {

using cw::bench::Cycle;
using cw::bench::Damage;
using cw::bench::Losses;
using cw::bench::PinnedState;
using cw::lab::Testbed;

constexpr double kLoad = 0.9;
constexpr absl::Duration kAfter = absl::Milliseconds(500);  // what a cycle may still cause belongs to it

// By kind of cycle.
struct Tally {
  std::vector<double> end_ms, down_ms, probes_ms, stall_ms;
  Losses lost;
  uint64_t steering_changed = 0, counters_back = 0, paths_died = 0, moves = 0;
};

struct Books {
  Losses losses;
  std::vector<PinnedState> hosts;
};

class Measurement {
 public:
  Measurement(Testbed& testbed, const cw::lab::Emulator& load, const cw::lab::StallWitness& machine)
      : testbed_(testbed), load_(load), machine_(machine) {}

  absl::Status Open() {
    absl::StatusOr<Books> books = Read();
    if (books.ok()) books_ = *std::move(books);
    return books.status();
  }

  absl::Status Run(int number, Cycle cycle, int host) {
    const int64_t began_ns = cw::lab::MonotonicNs();
    const auto times = cw::bench::Run(cycle, testbed_, host);
    if (!times.ok()) return times.status();
    if (absl::Status up = testbed_.WaitPathsUp(absl::Seconds(60)); !up.ok()) return up;
    absl::SleepFor(kAfter);
    absl::StatusOr<Books> books = Read();
    if (!books.ok()) return books.status();
    Tally& tally = tallies_[cycle];
    tally.end_ms.push_back(times->end_ms);
    tally.down_ms.push_back(times->down_ms);
    tally.probes_ms.push_back(times->probes_ms);
    tally.stall_ms.push_back(LongestStallMs(machine_.Stalls(), began_ns, cw::lab::MonotonicNs()));
    Count(number, cycle, host, *books, tally);
    books_ = *std::move(books);
    return absl::OkStatus();
  }

  // The control: a spine that loses packets for a moment has to be noticed.
  absl::StatusOr<uint64_t> SeesALoss() {
    const auto link = cw::lab::LinkDirection::LeafToSpine(0, 1);
    const auto lossy = cw::lab::Fault::Share(0.01, cw::lab::Fault::Match::kRoceData);
    if (absl::StatusOr<int64_t> at = testbed_.fabric().SetFault(link, lossy); !at.ok()) return at.status();
    absl::SleepFor(absl::Milliseconds(300));
    if (absl::StatusOr<int64_t> at = testbed_.fabric().ClearFault(link); !at.ok()) return at.status();
    absl::SleepFor(absl::Seconds(2));
    absl::StatusOr<Books> books = Read();
    if (!books.ok()) return books.status();
    const uint64_t noticed = (books->losses - books_.losses).Lost();
    if (noticed > 0) return noticed;
    return absl::InternalError("packets that were lost on purpose were not seen, so that none was lost means nothing");
  }

  const std::map<Cycle, Tally>& tallies() const { return tallies_; }

 private:
  absl::StatusOr<Books> Read() const {
    Books books;
    for (int host = 0; host < testbed_.fabric().hosts(); ++host) {
      auto state = cw::bench::ReadPinned(cw::lab::DescribeAgentHost(testbed_.fabric(), host).instance);
      if (!state.ok()) return state.status();
      books.hosts.push_back(*std::move(state));
    }
    absl::StatusOr<Losses> losses = cw::bench::ReadLosses(testbed_.fabric(), load_);
    if (!losses.ok()) return losses.status();
    books.losses = *losses;
    return books;
  }

  // Says at once what was lost, and where.
  void Count(int number, Cycle cycle, int host, const Books& now, Tally& tally) const {
    const Losses lost = now.losses - books_.losses;
    tally.lost = tally.lost + lost;
    std::vector<std::string> what;
    if (lost.Any()) what.push_back(lost.Text());
    for (size_t h = 0; h < now.hosts.size(); ++h) {
      const PinnedState &was = books_.hosts[h], &is = now.hosts[h];
      const Damage damage = cw::bench::Compare(was, is);
      tally.steering_changed += static_cast<uint64_t>(damage.steering_changed);
      tally.counters_back += static_cast<uint64_t>(damage.counters_back);
      const uint64_t died = is.counters.at("slots_died") - was.counters.at("slots_died");
      tally.paths_died += died;
      if (died > 0) what.push_back(absl::StrCat("h", h, " declared ", died, " paths dead"));
      for (const std::string& each : damage.what) what.push_back(absl::StrCat("h", h, ": ", each));
    }
    if (what.empty()) return;
    std::fprintf(stderr, "cycle %d, %s of h%d (the machine stood still for %.1f ms): %s\n", number,
                 cw::bench::NameOf(cycle).c_str(), host, tally.stall_ms.back(), absl::StrJoin(what, "; ").c_str());
  }

  Testbed& testbed_;
  const cw::lab::Emulator& load_;
  const cw::lab::StallWitness& machine_;
  Books books_;
  std::map<Cycle, Tally> tallies_;
};

void AddRows(cw::bench::Report& report, Cycle cycle, const Tally& tally) {
  const std::string name = cw::bench::NameOf(cycle);
  const auto count = [&](const char* metric, uint64_t value) {
    report.Add(name, "cwfabric", metric, "count", {static_cast<double>(value)});
  };
  count("cycles", tally.down_ms.size());
  count("lost", tally.lost.Lost());
  count("naks", tally.lost.naks);
  count("out_of_order", tally.lost.out_of_order);
  count("timeouts", tally.lost.timeouts);
  count("icrc_errors", tally.lost.icrc_errors);
  count("sent_again", tally.lost.retransmissions);
  count("interface_drops", tally.lost.interface_drops);
  count("emulator_drops", tally.lost.emulator_drops);
  count("qps_died", tally.lost.died);
  count("steering_changed", tally.steering_changed);
  count("counters_back", tally.counters_back);
  count("paths_died", tally.paths_died);
  report.Add(name, "machine", "machine_stall", "ms", tally.stall_ms);
  if (cycle == Cycle::kNothing) return;
  report.Add(name, "cwfabric", cycle == Cycle::kReload ? "read" : "down", "ms", tally.down_ms);
  if (cycle == Cycle::kReload) return;
  report.Add(name, "cwfabric", "ending", "ms", tally.end_ms);
  report.Add(name, "cwfabric", "no_probes", "ms", tally.probes_ms);
}

absl::Status Measure(int cycles, const cw::bench::Wanted& wanted, cw::bench::Report& report) {
  cw::lab::TestbedSpec spec;
  spec.fabric = {.lab = "restarts", .link_mbps = 200, .ecmp_seed = 1};
  spec.mode = "protect";
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  auto load = cw::bench::StartFullLoad(**testbed, kLoad, 1);
  if (!load.ok()) return load.status();
  absl::SleepFor(absl::Seconds(3));
  auto machine = cw::lab::StallWitness::Start();
  if (!machine.ok()) return machine.status();
  cw::lab::LoadMeter meter((*testbed)->fabric());
  Measurement measurement(**testbed, **load, **machine);
  if (absl::Status status = measurement.Open(); !status.ok()) return status;

  std::vector<Cycle> kinds;
  for (const Cycle cycle : cw::bench::kCycles) {
    if (cycle == Cycle::kNothing || wanted.Has(cw::bench::NameOf(cycle))) kinds.push_back(cycle);
  }
  const int hosts = (*testbed)->fabric().hosts(), in_turn = static_cast<int>(kinds.size());
  for (int number = 0, done = 0; done < cycles; ++number) {
    const Cycle cycle = kinds[static_cast<size_t>(number % in_turn)];
    done += cycle == Cycle::kNothing ? 0 : 1;
    if (absl::Status status = measurement.Run(number, cycle, number / in_turn % hosts); !status.ok()) return status;
    if (number % 10 == 9) std::fprintf(stderr, "%d cycles over\n", number + 1);
  }
  for (const auto& [cycle, tally] : measurement.tallies()) AddRows(report, cycle, tally);
  std::vector<double> shares = meter.Shares();
  for (double& share : shares) share *= 100;
  report.Add("all", "cwfabric", "load", "percent", shares);
  const absl::StatusOr<uint64_t> seen = measurement.SeesALoss();
  if (!seen.ok()) return seen.status();
  report.Add("control", "cwfabric", "lost", "count", {static_cast<double>(*seen)});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  int cycles = 100;
  if (const char* given = std::getenv("BENCH_CYCLES");
      given != nullptr && (!absl::SimpleAtoi(given, &cycles) || cycles < 1)) {
    std::fprintf(stderr, "BENCH_CYCLES: '%s' is no number of cycles above 0\n", given);
    return 2;
  }
  std::vector<std::string> names;
  for (const Cycle cycle : cw::bench::kCycles) {
    if (cycle != Cycle::kNothing) names.push_back(cw::bench::NameOf(cycle));
  }
  const auto wanted = cw::bench::Wanted::Parse(std::getenv("BENCH_CASE"), names);
  if (!wanted.ok()) {
    std::fprintf(stderr, "%s\n", std::string(wanted.status().message()).c_str());
    return 2;
  }
  cw::bench::Report report("restarts");
  absl::Status status = Measure(cycles, *wanted, report);
  if (status.ok()) status = report.Write(cw::bench::OutPath(argc, argv, "build/bench/restarts.json"));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
