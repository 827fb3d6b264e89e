// SPDX-License-Identifier: Apache-2.0
// The clock's benchmark between two virtual machines, whose clocks really differ: fleet time, chrony and ptp4l at the
// same time, held against what the machines' clocks show by one common counter (clock_vm_truth.h).
// docs/benchmarks.md says how each is configured and read. BENCH_FULL=1 samples five times as long;
// BENCH_CASE=vm_load_40 runs one case.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "tests/bench/clock_vm_peers.h"
#include "tests/bench/clock_vm_truth.h"
#include "tests/bench/error_rows.h"
#include "tests/lab/eventually.h"
#include "tests/vm/agents.h"
#include "tests/vm/perftest.h"
#include "tests/vm/rack.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"

namespace cw::bench {
namespace {

using vm::ClockRecord;

constexpr struct Case {
  const char* name;
  double load = 0;      // of each direction of each leaf-spine link: flows of the lab's hosts
  bool rdma = false;    // soft-RoCE between the machines, as fast as they can and at most 40 % of the links
  double slew_ppm = 0;  // machine 1's clock is made to run so much faster, then slower, in turn
} kCases[] = {{"vm_load_0"},
              {.name = "vm_load_40", .load = 0.4},
              {.name = "vm_load_80", .load = 0.8},
              {.name = "vm_rdma", .rdma = true},
              {.name = "vm_slew_30", .slew_ppm = 30}};

constexpr int kSpines = 2;
constexpr double kLinkMbps = 100;
constexpr absl::Duration kFirstSettle = absl::Seconds(45);  // ptp4l needs that long
constexpr absl::Duration kSettle = absl::Seconds(20);
constexpr absl::Duration kPeriod = absl::Milliseconds(50);
constexpr absl::Duration kFleetPeriod = absl::Milliseconds(10);
constexpr char kRecords[] = "/tmp/clock-records";
constexpr int64_t kMaxGapTicks = 1000;  // between the two readings of the counter around one of a clock

// Everything that is compared, in both machines.
struct Bed {
  std::unique_ptr<vm::Rack> rack;
  std::unique_ptr<vm::Agents> agents;
  std::vector<std::unique_ptr<VmPeer>> peers;

  static absl::StatusOr<Bed> Up() {
    vm::RackOptions options;
    options.lab = "benchckv";
    options.spines = kSpines;
    options.link_mbps = kLinkMbps;
    options.shared_memory = true;
    options.log_dir = CW_VM_LOG_DIR;
    options.image.files = vm::AgentFiles(CW_AGENTD, CW_CTL);
    options.image.files.emplace_back(CW_VM_CLOCK, "/usr/bin/cw_vm_clock");
    auto daemons = VmPeer::Files();
    if (!daemons.ok()) return daemons.status();
    options.image.files.insert(options.image.files.end(), daemons->begin(), daemons->end());
    Bed bed;
    auto rack = vm::Rack::Up(options);
    if (!rack.ok()) return rack.status();
    bed.rack = *std::move(rack);
    config::Config config = vm::AgentConfig();
    config.probe.budget_pps = 2000;
    auto agents = vm::Agents::Start(*bed.rack, config);
    if (!agents.ok()) return agents.status();
    bed.agents = *std::move(agents);
    for (VmPeer::Kind kind : {VmPeer::Kind::kChrony, VmPeer::Kind::kPtp4l}) {
      auto peer = VmPeer::Start(*bed.rack, kind);
      if (!peer.ok()) return peer.status();
      bed.peers.push_back(*std::move(peer));
    }
    return bed;
  }
};

absl::StatusOr<CounterDistance> MeasureDistance(vm::Rack& rack) {
  auto answer = rack.machine(1).Start("exec cw_vm_clock answer");
  if (!answer.ok()) return answer.status();
  auto text = rack.machine(0).Run("cw_vm_clock ask 40", absl::Seconds(40));
  if (!text.ok()) return text.status();
  auto ended = (*answer)->Wait(absl::Seconds(10));
  if (!ended.ok()) return ended.status();
  return ParseCounterDistance(*text);
}

absl::StatusOr<std::vector<ClockRecord>> Fetch(vm::Vm& machine) {
  auto bytes = machine.Get(kRecords);
  if (!bytes.ok()) return bytes.status();
  std::vector<ClockRecord> records(bytes->size() / sizeof(ClockRecord));
  std::memcpy(records.data(), bytes->data(), records.size() * sizeof(ClockRecord));
  return records;
}

// Samples of both machines' clocks, with the peers' pollers at the same time.
absl::StatusOr<std::array<std::vector<ClockRecord>, 2>> Sample(Bed& bed, absl::Duration length) {
  std::vector<std::unique_ptr<vm::Command>> samplers;
  for (int i = 0; i < 2; ++i) {
    // Longer than the peers are read, so that the truth covers them.
    auto sampler = bed.rack->machine(i).Start(absl::StrFormat("exec cw_vm_clock sample %g %d %s",
                                                              absl::ToDoubleSeconds(length) + 2,
                                                              absl::ToInt64Milliseconds(kFleetPeriod), kRecords));
    if (!sampler.ok()) return sampler.status();
    samplers.push_back(*std::move(sampler));
  }
  absl::SleepFor(absl::Seconds(1));
  for (auto& peer : bed.peers) {
    if (absl::Status status = peer->StartReading(length, kPeriod); !status.ok()) return status;
  }
  std::array<std::vector<ClockRecord>, 2> records;
  for (int i = 0; i < 2; ++i) {
    auto ended = samplers[static_cast<size_t>(i)]->Wait(length + absl::Seconds(60));
    if (!ended.ok()) return ended.status();
    if (ended->exit_code != 0) return absl::InternalError(absl::StrCat("machine ", i, ": ", ended->output));
    auto fetched = Fetch(bed.rack->machine(i));
    if (!fetched.ok()) return fetched.status();
    records[static_cast<size_t>(i)] = *std::move(fetched);
  }
  return records;
}

// The machine that the other's bound speaks of.
absl::StatusOr<size_t> Reference(vm::Agents& agents) {
  std::string names[2];
  for (int i = 0; i < 2; ++i) {
    auto clock = agents.Ctl(i, "clock tracking");
    if (!clock.ok()) return clock.status();
    names[i] = clock->value("reference", "");
  }
  if (names[0] != names[1] || (names[0] != "vm0" && names[0] != "vm1"))
    return absl::UnavailableError(absl::StrCat("the machines name the references ", names[0], " and ", names[1]));
  return names[0] == "vm0" ? 0 : 1;
}

// A machine that its load starves may answer nothing for half a minute.
absl::StatusOr<size_t> AgreedReference(vm::Agents& agents) {
  absl::StatusOr<size_t> reference = absl::UnknownError("");
  const auto agreed = [&] { return (reference = Reference(agents)).ok(); };
  (void)lab::Eventually(agreed, absl::Minutes(3), absl::Seconds(1));
  return reference;
}

absl::Status AddFleet(const Case& c, const VmTruth& truth, size_t reference, size_t least, Report& report) {
  std::vector<double> errors, error_est, bound;
  size_t in_error_est = 0, in_bound = 0;
  for (const FleetDifference& difference : truth.Fleet()) {
    errors.push_back(difference.ns);
    error_est.push_back(difference.error_est_ns);
    bound.push_back(difference.bound_ns[1 - reference]);
    in_error_est += std::abs(difference.ns) <= error_est.back() ? 1 : 0;
    in_bound += std::abs(difference.ns) <= bound.back() ? 1 : 0;
  }
  if (errors.size() < least) {
    return absl::InternalError(absl::StrCat("fleet time could be compared ", errors.size(), " times, ", least,
                                            " are wanted; refused: ", truth.Refused()));
  }
  PrintErrors(kProduct, errors);
  report.Add(c.name, kProduct, "abs_error", "ns", Absolute(errors));
  report.Add(c.name, kProduct, "error_est", "ns", error_est);
  AddPercent(c.name, kProduct, "coverage_error_est", in_error_est, errors.size(), report);
  report.Add(c.name, kProduct, "bound", "ns", bound);
  AddPercent(c.name, kProduct, "coverage_bound", in_bound, errors.size(), report);
  AddPercent(c.name, kProduct, "usable", errors.size(), errors.size() + truth.Refused(), report);
  return absl::OkStatus();
}

absl::Status AddPeer(const Case& c, VmPeer& peer, const VmTruth& truth, size_t least, Report& report) {
  absl::StatusOr<VmPeerReadings> readings = peer.Read(truth, least);
  if (!readings.ok()) return readings.status();
  const std::vector<double> errors = Absolute(readings->error_ns);
  PrintErrors(peer.name(), readings->error_ns);
  report.Add(c.name, peer.name(), "abs_error", "ns", errors);
  if (readings->bound_ns.empty()) {
    report.Add(c.name, peer.name(), "abs_error_1s_median", "ns",
               Absolute(Medians(readings->error_ns, static_cast<size_t>(absl::Seconds(1) / kPeriod))));
    return absl::OkStatus();
  }
  size_t inside = 0;
  for (size_t i = 0; i < errors.size(); ++i) inside += errors[i] <= readings->bound_ns[i] ? 1 : 0;
  report.Add(c.name, peer.name(), "bound", "ns", readings->bound_ns);
  AddPercent(c.name, peer.name(), "coverage_bound", inside, errors.size(), report);
  return absl::OkStatus();
}

// What the truth itself is worth.
void AddTruth(const Case& c, const CounterDistance& before, const CounterDistance& after, const VmTruth& truth,
              Report& report) {
  const double tick_ns = truth.NsPerTick();
  const auto add = [&](const char* metric, const char* unit, double value) {
    report.Add(c.name, "truth", metric, unit, {value});
  };
  const double error_ns = tick_ns * static_cast<double>(std::max(before.error, after.error));
  const double moved_ns = tick_ns * static_cast<double>(after.ticks - before.ticks);
  const double spread_ns = tick_ns * static_cast<double>(std::max(before.spread, after.spread));
  add("counter_distance_error", "ns", error_ns);
  add("counter_distance_moved", "ns", std::abs(moved_ns));
  add("counter_distance_spread", "ns", spread_ns);
  add("rate_difference", "ppm", truth.RateDifferencePpm());
  std::fprintf(stderr,
               "  truth: counters' distance known to %.0f ns (blocks spread by %.0f), moved by %+.0f ns; "
               "CLOCK_MONOTONIC of vm1 against vm0's %+.3f ppm\n",
               error_ns, spread_ns, moved_ns, truth.RateDifferencePpm());
}

absl::Status Compare(const Case& c, Bed& bed, absl::Duration length, Report& report) {
  absl::StatusOr<CounterDistance> before = MeasureDistance(*bed.rack);
  if (!before.ok()) return before.status();
  lab::LoadMeter meter(bed.rack->fabric());
  auto records = Sample(bed, length);
  const std::vector<double> shares = meter.Shares();
  if (!records.ok()) return records.status();
  absl::StatusOr<CounterDistance> after = MeasureDistance(*bed.rack);
  if (!after.ok()) return after.status();
  absl::StatusOr<size_t> reference = AgreedReference(*bed.agents);
  if (!reference.ok()) return reference.status();

  const VmTruth truth(*records, before->ticks + (after->ticks - before->ticks) / 2, kMaxGapTicks);
  // Of ten a second: an emulated machine stands still at times.
  const auto least = static_cast<size_t>(5 * absl::ToDoubleSeconds(length));
  AddTruth(c, *before, *after, truth, report);
  AddLoad(c.name, shares, report);
  absl::Status status = AddFleet(c, truth, *reference, least, report);
  for (auto& peer : bed.peers) {
    // How often a starved peer knew the time is part of its result: its rows say how many readings they have.
    if (status.ok()) status = AddPeer(c, *peer, truth, 1, report);
  }
  return status;
}

// Data of a read flows towards the reader, so both directions are loaded alike.
absl::Status StartRdma(vm::Rack& rack, std::vector<std::unique_ptr<vm::Perftest>>& running) {
  const double mib_per_s = 0.4 * kSpines * kLinkMbps * 1e6 / 8 / (1 << 20);
  int port = 18515;
  for (const char* tool : {"ib_write_bw", "ib_read_bw"}) {
    auto started =
        vm::Perftest::Start(rack, {.tool = tool,
                                   .arguments = absl::StrFormat("-q 4 -D 3600 -s 16384 -t 4 -u 18 --burst_size=4 "
                                                                "--rate_limit=%.1f --rate_units=M --rate_limit_type=SW",
                                                                mib_per_s),
                                   .port = port++});
    if (!started.ok()) return started.status();
    running.push_back(*std::move(started));
  }
  return absl::OkStatus();
}

// What a case adds to the machines and the fabric, for as long as the object lives.
struct Surroundings {
  std::unique_ptr<lab::Emulator> load;
  std::vector<std::unique_ptr<vm::Perftest>> rdma;
  std::unique_ptr<vm::Command> slew;

  absl::Status Start(const Case& c, vm::Rack& rack) {
    if (c.load > 0) {
      auto started = lab::StartEvenLoad(rack.fabric(), /*agents=*/false, c.load, 1);
      if (!started.ok()) return started.status();
      load = *std::move(started);
    }
    if (c.rdma) return StartRdma(rack, rdma);
    if (c.slew_ppm == 0) return absl::OkStatus();
    const auto frequency = static_cast<int64_t>(c.slew_ppm * 65536);
    auto started = rack.machine(1).Start(
        absl::StrFormat("while :; do adjtimex -f %d >/dev/null; sleep 10; adjtimex -f -%d >/dev/null; sleep 10; done",
                        frequency, frequency));
    if (!started.ok()) return started.status();
    slew = *std::move(started);
    return absl::OkStatus();
  }

  absl::Status Check() const {
    for (const auto& run : rdma) {
      if (!run->running()) return absl::InternalError("perftest ended before the measurement did");
    }
    return absl::OkStatus();
  }
};

absl::Status RunCase(const Case& c, Bed& bed, absl::Duration length, Report& report) {
  Surroundings surroundings;
  absl::Status status = surroundings.Start(c, *bed.rack);
  if (!status.ok()) return status;
  absl::SleepFor(kSettle);
  status = Compare(c, bed, length, report);
  return status.ok() ? surroundings.Check() : status;
}

absl::Status RunAll(Report& report) {
  const char* only = std::getenv("BENCH_CASE");
  const int factor = std::getenv("BENCH_FULL") != nullptr ? 5 : 1;
  absl::StatusOr<Bed> bed = Bed::Up();
  if (!bed.ok()) return bed.status();
  absl::SleepFor(kFirstSettle - kSettle);
  // A case that fails leaves the others' rows as they are; the first error is told.
  absl::Status first;
  for (const Case& c : kCases) {
    if (only != nullptr && std::string(only) != c.name) continue;
    std::fprintf(stderr, "%s ...\n", c.name);
    const absl::Status status = RunCase(c, *bed, absl::Seconds(60) * factor, report);
    if (status.ok()) continue;
    std::fprintf(stderr, "%s: %s\n", c.name, std::string(status.message()).c_str());
    if (first.ok()) first = absl::Status(status.code(), absl::StrCat(c.name, ": ", std::string(status.message())));
  }
  return first;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) {
  cw::bench::Report report("clock");
  const std::string path = cw::bench::OutPath(argc, argv, "build/bench/clock_vm.json");
  absl::Status status = cw::bench::RunAll(report);
  // What was measured is not lost, and no result either.
  const absl::Status written = report.Write(status.ok() ? path : path + ".incomplete");
  if (status.ok()) status = written;
  if (!status.ok()) {
    std::fprintf(stderr, "clock_vm: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
