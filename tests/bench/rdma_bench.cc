// SPDX-License-Identifier: Apache-2.0
// Real soft-RoCE between two virtual machines over four spines: perftest's four queue pairs without an agent ("none")
// and with agents. steer: queue pairs that ECMP put on three spines or fewer; the agents, which observed, are told to
// optimize, and nothing else. cut: a spine that carries some of them drops everything for four seconds. nic_down:
// machines with two NICs each; what leaves and reaches the one that two queue pairs use is dropped for eight seconds.
// place: eight queue pairs put on paths when they connect (rdma_place.h), BENCH_SEEDS=20 runs. BENCH_TRIALS=3 of each;
// BENCH_KERNEL=6.12 (6.1) is the machines' kernel; BENCH_CASE and BENCH_SYSTEM pick. Everything is emulated, so that no
// millisecond counts; throughput and stalls are the switches' own.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "maps/abi.h"
#include "tests/bench/rdma_place.h"
#include "tests/bench/wanted.h"
#include "tests/vm/agents.h"
#include "tests/vm/perftest.h"
#include "tests/vm/rack.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/monotonic.h"

namespace cw::bench {
namespace {

constexpr size_t kQueuePairs = 4;
// -u 18: acknowledgement timeout of one second (PerftestOptions). Ended by the benchmark.
constexpr char kPerftest[] = "-q 4 -D 150 -s 65536 -u 18";
// One message in flight each: queues that the emulated processors never work off would lose the probes, too.
constexpr size_t kNicQueuePairs = 2;
constexpr char kNicPerftest[] = "-q 2 -t 1 -D 150 -s 16384 -u 18";
constexpr absl::Duration kLook = absl::Seconds(4);
constexpr absl::Duration kNicLook = absl::Seconds(8);
constexpr absl::Duration kSpreadWithin = absl::Seconds(60);

struct Look {
  double mb_per_s = 0;  // of queue pairs' packets that reached machine 1, 10^6 bytes
  double stall_ms = 0;  // the longest that one of the queue pairs had none arrive, within 20 ms
};

struct Trial {
  Look before, during, after;
  int spines_before = 0, spines_after = 0;
  double spread_s = -1;  // steer: until all are on spines of their own; −1: not within a minute
  double qp_errors = 0;
};

struct Arrivals {
  uint64_t packets = 0, bytes = 0;
  int64_t last_ns = 0;
};

class Bed {
 public:
  static absl::StatusOr<std::unique_ptr<Bed>> Up(const std::string& kernel, bool two_nics) {
    auto bed = std::make_unique<Bed>();
    bed->two_nics_ = two_nics;
    vm::RackOptions options;
    options.lab = "benchrdma";
    options.second_nic = two_nics;
    if (two_nics) options.spines = 2;
    options.log_dir = CW_VM_LOG_DIR;
    options.image.kernel = kernel;
    options.image.files = vm::AgentFiles(CW_AGENTD, CW_CTL);
    auto rack = vm::Rack::Up(options);
    if (!rack.ok()) return rack.status();
    bed->rack_ = *std::move(rack);
    return bed;
  }

  absl::Status StartAgents() {
    config::Config config = vm::AgentConfig();
    config.mode = config::Mode::kObserve;
    // A probe per 10 ms and an emulated processor that stands still for tens of them: a window needs some probes.
    config.steering.contention_window = absl::Milliseconds(200);
    config.steering.path_gbps = 0.1;  // what a link carries, which operators tell before they let flows be moved
    if (two_nics_) {
      config.nics = {{.name = "eth0"}, {.name = "eth2"}};
      for (int i = 0; i < 2; ++i) config.peers[static_cast<size_t>(i)].addresses.push_back(vm::Rack::SecondAddress(i));
      config.steering.nic_failover = true;
    }
    auto agents = vm::Agents::Start(*rack_, config);
    if (!agents.ok()) return agents.status();
    agents_ = *std::move(agents);
    return agents_->WaitForPaths(absl::Seconds(120));
  }

  absl::StatusOr<Trial> Steer() {
    Trial trial;
    if (absl::Status status = StartColliding(); !status.ok()) return status;
    const auto errors = Errors();
    if (!errors.ok()) return errors.status();
    trial.spines_before = static_cast<int>(SpinesNow().size());
    trial.before = Watch(kLook);
    if (agents_) {
      if (absl::Status status = SetMode("optimize"); !status.ok()) return status;
      const absl::Time asked = absl::Now();
      while (absl::Now() - asked < kSpreadWithin && trial.spread_s < 0) {
        trial.during = Watch(absl::Seconds(1));
        if (SpinesNow().size() == kQueuePairs) trial.spread_s = absl::ToDoubleSeconds(absl::Now() - asked);
      }
    }
    trial.after = Watch(kLook);
    trial.spines_after = static_cast<int>(SpinesNow().size());
    TellDecisions();
    return Finish(*errors, trial);
  }

  absl::StatusOr<Trial> Cut() {
    Trial trial;
    if (agents_) {
      if (absl::Status status = SetMode("protect"); !status.ok()) return status;
    }
    if (absl::Status status = StartPerftest(kPerftest, kQueuePairs); !status.ok()) return status;
    const auto errors = Errors();
    if (!errors.ok()) return errors.status();
    trial.before = Watch(kLook);
    const std::set<int> used = SpinesNow();
    if (used.empty()) return absl::InternalError("no queue pair crosses any spine");
    trial.spines_before = static_cast<int>(used.size());
    const auto link = lab::LinkDirection::SpineToLeaf(*used.begin(), 1);
    if (auto at = rack_->fabric().SetFault(link, lab::Fault::Drop()); !at.ok()) return at.status();
    trial.during = Watch(kLook);
    if (auto at = rack_->fabric().ClearFault(link); !at.ok()) return at.status();
    trial.after = Watch(kLook);
    trial.spines_after = static_cast<int>(SpinesNow().size());
    return Finish(*errors, trial);
  }

  absl::StatusOr<Trial> NicDown() {
    Trial trial;
    for (int i = 0; agents_ && i < 2; ++i) {
      if (absl::Status status = agents_->CtlText(i, "mode protect").status(); !status.ok()) return status;
    }
    if (absl::Status status = StartPerftest(kNicPerftest, kNicQueuePairs); !status.ok()) return status;
    const auto errors = Errors();
    if (!errors.ok()) return errors.status();
    trial.before = Watch(kLook);
    const int port = rack_->port(0);
    const lab::LinkDirection both[] = {lab::LinkDirection::HostToLeaf(port), lab::LinkDirection::LeafToHost(port)};
    for (const auto& link : both) {
      if (auto at = rack_->fabric().SetFault(link, lab::Fault::Drop()); !at.ok()) return at.status();
    }
    trial.during = Watch(kNicLook);
    for (const auto& link : both) {
      if (auto at = rack_->fabric().ClearFault(link); !at.ok()) return at.status();
    }
    trial.after = Watch(kNicLook);
    return Finish(*errors, trial);
  }

 private:
  absl::Status SetMode(const std::string& mode) { return agents_->CtlText(0, absl::StrCat("mode ", mode)).status(); }

  // BENCH_VERBOSE: why machine 0's queue pairs are where they are.
  void TellDecisions() {
    if (std::getenv("BENCH_VERBOSE") == nullptr || !agents_) return;
    const auto told = agents_->CtlText(0, "events --last 60");
    std::fprintf(stderr, "%s\n", told.ok() ? told->c_str() : std::string(told.status().message()).c_str());
  }

  absl::Status StartPerftest(const char* arguments, size_t queue_pairs) {
    run_.reset();
    auto run = vm::Perftest::Start(*rack_, {.arguments = arguments});
    if (!run.ok()) return run.status();
    run_ = *std::move(run);
    if (auto pairs = vm::WaitForQueuePairs(rack_->machine(0), queue_pairs, absl::Seconds(60)); !pairs.ok())
      return pairs.status();
    absl::SleepFor(absl::Seconds(3));
    return absl::OkStatus();
  }

  // New queue pairs have new ports: nine of ten runs have two of them on one spine.
  absl::Status StartColliding() {
    for (int attempt = 0; attempt < 6; ++attempt) {
      if (agents_) {
        if (absl::Status status = SetMode("observe"); !status.ok()) return status;
      }
      if (absl::Status status = StartPerftest(kPerftest, kQueuePairs); !status.ok()) return status;
      const size_t used = SpinesNow().size();
      if (used > 0 && used < kQueuePairs) return absl::OkStatus();
    }
    return absl::InternalError("ECMP gave each queue pair a spine of its own, six times");
  }

  // Of queue pairs whose data came within the last second.
  std::set<int> SpinesNow() {
    std::map<uint32_t, std::pair<int64_t, int>> newest;
    const auto flows = rack_->fabric().Flows();
    for (const lab::FlowCounters& flow : flows.ok() ? *flows : std::vector<lab::FlowCounters>()) {
      const bool up = flow.link.tier == lab::LinkDirection::Tier::kSpine &&
                      flow.link.toward == lab::LinkDirection::Toward::kUp && flow.link.leaf == 0;
      if (!up || flow.probe || flow.source != vm::Rack::FabricAddress(0)) continue;
      auto& last = newest[flow.dest_qpn];
      last = std::max(last, {flow.last_ns, flow.link.spine});
    }
    std::set<int> spines;
    for (const auto& [qpn, last] : newest) {
      if (last.first > lab::MonotonicNs() - 1'000'000'000) spines.insert(last.second);
    }
    return spines;
  }

  // What arrives at machine 1, by queue pair: by whichever NIC, as sent by whichever (with a tag in the QPN then).
  std::map<uint32_t, Arrivals> Arrived() {
    std::map<uint32_t, Arrivals> all;
    const auto flows = rack_->fabric().Flows();
    for (const lab::FlowCounters& flow : flows.ok() ? *flows : std::vector<lab::FlowCounters>()) {
      const bool here = flow.link == lab::LinkDirection::LeafToHost(rack_->port(1)) ||
                        (two_nics_ && flow.link == lab::LinkDirection::LeafToHost(rack_->second_port(1)));
      const bool ours = flow.source == vm::Rack::FabricAddress(0) || flow.source == vm::Rack::SecondAddress(0);
      if (!here || !ours || flow.probe) continue;
      Arrivals& sum = all[flow.dest_qpn & ((1u << CW_CARRY_TAG_SHIFT) - 1)];
      sum.packets += flow.packets;
      sum.bytes += flow.bytes;
      sum.last_ns = std::max(sum.last_ns, flow.last_ns);
    }
    return all;
  }

  Look Watch(absl::Duration length) {
    const int64_t begin_ns = lab::MonotonicNs();
    const auto first = Arrived();
    auto last = first;
    Look look;
    for (const absl::Time end = absl::Now() + length; absl::Now() < end; absl::SleepFor(absl::Milliseconds(20))) {
      last = Arrived();
      const int64_t now_ns = lab::MonotonicNs();
      for (const auto& [qpn, flow] : last) {
        // One of an earlier run, or still in its handshake, is none of these.
        if (flow.last_ns < begin_ns - 1'000'000'000 || flow.packets < 100) continue;
        look.stall_ms = std::max(look.stall_ms, static_cast<double>(now_ns - flow.last_ns) / 1e6);
      }
    }
    double bytes = 0;
    for (const auto& [qpn, flow] : last) {
      const auto before = first.find(qpn);
      bytes += static_cast<double>(flow.bytes - (before == first.end() ? 0 : before->second.bytes));
    }
    look.mb_per_s = bytes * 1e3 / static_cast<double>(lab::MonotonicNs() - begin_ns);
    return look;
  }

  // Queue pairs that soft-RoCE gave up, in both machines.
  absl::StatusOr<double> Errors() {
    double sum = 0;
    for (int i = 0; i < 2; ++i) {
      auto counters = vm::RxeCounters(rack_->machine(i));
      if (!counters.ok()) return counters.status();
      for (const char* name : {"retry_exceeded_err", "retry_rnr_exceeded_err"})
        sum += static_cast<double>((*counters)[name]);
    }
    return sum;
  }

  absl::StatusOr<Trial> Finish(double errors_before, Trial trial) {
    const auto errors = Errors();
    if (!errors.ok()) return errors.status();
    // perftest ends when a queue pair of its dies.
    trial.qp_errors = std::max(*errors - errors_before, run_->running() ? 0.0 : 1.0);
    run_.reset();
    return trial;
  }

  bool two_nics_ = false;
  std::unique_ptr<vm::Rack> rack_;
  std::unique_ptr<vm::Agents> agents_;  // after rack_: they end first
  std::unique_ptr<vm::Perftest> run_;
};

struct Case {
  const char* name;
  absl::StatusOr<Trial> (Bed::*run)();
  bool two_nics;
};
constexpr Case kCases[] = {{"steer", &Bed::Steer, false}, {"cut", &Bed::Cut, false}, {"nic_down", &Bed::NicDown, true}};

void AddRows(Report& report, const std::string& name, const std::string& system, const std::vector<Trial>& trials) {
  const auto add = [&](const char* metric, const char* unit, auto value) {
    std::vector<double> samples;
    for (const Trial& trial : trials) samples.push_back(value(trial));
    report.Add(name, system, metric, unit, samples);
  };
  add("throughput_before", "MB/s", [](const Trial& t) { return t.before.mb_per_s; });
  const bool steers = name.rfind("steer", 0) == 0;
  if (!steers || system == "cwfabric")
    add("throughput_during", "MB/s", [](const Trial& t) { return t.during.mb_per_s; });
  add("throughput_after", "MB/s", [](const Trial& t) { return t.after.mb_per_s; });
  add("stall", "ms", [](const Trial& t) { return std::max(t.during.stall_ms, t.after.stall_ms); });
  if (name.rfind("nic_down", 0) != 0) {
    add("spines_before", "count", [](const Trial& t) { return t.spines_before; });
    add("spines_after", "count", [](const Trial& t) { return t.spines_after; });
  }
  add("qp_errors", "count", [](const Trial& t) { return t.qp_errors; });
  std::vector<double> spread;
  for (const Trial& trial : trials) {
    if (trial.spread_s >= 0) spread.push_back(trial.spread_s);
  }
  if (steers && system == "cwfabric") report.Add(name, system, "spread", "s", spread);
}

// Of the cases with one NIC per machine, or two.
absl::Status Measure(const std::string& kernel, bool two_nics, int trials, const Wanted& cases, const Wanted& systems,
                     Report& report) {
  const auto wanted = [&](const Case& c) { return c.two_nics == two_nics && cases.Has(c.name); };
  if (std::none_of(std::begin(kCases), std::end(kCases), wanted)) return absl::OkStatus();
  auto bed = Bed::Up(kernel, two_nics);
  if (!bed.ok()) return bed.status();
  for (const std::string system : {"none", "cwfabric"}) {
    if (!systems.Has(system)) continue;
    if (system == "cwfabric") {
      if (absl::Status status = (*bed)->StartAgents(); !status.ok()) return status;
    }
    for (const Case& c : kCases) {
      if (!wanted(c)) continue;
      std::vector<Trial> all;
      for (int i = 0; i < trials; ++i) {
        absl::StatusOr<Trial> trial = ((**bed).*c.run)();
        if (!trial.ok()) return trial.status();
        std::fprintf(stderr, "%s, %s: %.1f, %.1f, %.1f MB/s; %d spines, then %d, spread after %.1f s; stall %.0f ms\n",
                     c.name, system.c_str(), trial->before.mb_per_s, trial->during.mb_per_s, trial->after.mb_per_s,
                     trial->spines_before, trial->spines_after, trial->spread_s, trial->during.stall_ms);
        all.push_back(*trial);
      }
      AddRows(report, absl::StrCat(c.name, "_", kernel), system, all);
    }
  }
  return absl::OkStatus();
}

bool ReadNumber(const char* name, int* number) {
  const char* given = std::getenv(name);
  if (given == nullptr || (absl::SimpleAtoi(given, number) && *number > 0)) return true;
  std::fprintf(stderr, "%s: '%s' is no number above 0\n", name, given);
  return false;
}

int Main(int argc, char** argv) {
  int trials = 3, seeds = 20;
  if (!ReadNumber("BENCH_TRIALS", &trials) || !ReadNumber("BENCH_SEEDS", &seeds)) return 2;
  const char* kernel = std::getenv("BENCH_KERNEL");
  const auto cases = Wanted::Parse(std::getenv("BENCH_CASE"), {"steer", "cut", "nic_down", "place"});
  const auto systems = Wanted::Parse(std::getenv("BENCH_SYSTEM"), {"none", "ecmp", "cwfabric"});
  for (const auto* wanted : {&cases, &systems}) {
    if (wanted->ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(wanted->status().message()).c_str());
    return 2;
  }
  Report report("rdma");
  absl::Status status;
  for (const bool two_nics : {false, true}) {
    if (status.ok()) status = Measure(kernel == nullptr ? "6.1" : kernel, two_nics, trials, *cases, *systems, report);
  }
  if (status.ok() && cases->Has("place"))
    status = MeasurePlaces(kernel == nullptr ? "6.1" : kernel, seeds, *systems, report);
  if (status.ok()) status = report.Write(OutPath(argc, argv, "build/bench/rdma.json"));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) { return cw::bench::Main(argc, argv); }
