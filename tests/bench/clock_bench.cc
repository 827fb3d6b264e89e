// SPDX-License-Identifier: Apache-2.0
// The error of the fleet's clocks beside chrony's and ptp4l's, all on one fabric at the same time, at three loads, with
// clocks that drift as crystals do; the product alone with drifts that jump, and with none, which is what the peers
// have to deal with; and what the lab's time stamps themselves are worth. docs/benchmarks.md says how each is
// configured and read. Thirteen minutes. BENCH_FULL=1 samples five times as long; BENCH_CASE=load_40 runs one load,
// BENCH_PART=compare, jumps, no_drift or stamps one part of each.
#include <cstdio>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/bench/clock_guard.h"
#include "tests/bench/clock_peers.h"
#include "tests/bench/clock_recovery.h"
#include "tests/bench/clock_rows.h"
#include "tests/bench/clock_stamps.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"

namespace cw::bench {
namespace {

constexpr struct Case {
  const char* name;
  double share;
} kCases[] = {{"load_0", 0}, {"load_40", 0.4}, {"load_80", 0.8}};

constexpr absl::Duration kPeerSettle = absl::Seconds(45);  // ptp4l needs that long
constexpr absl::Duration kSettle = absl::Seconds(15);
constexpr absl::Duration kPeriod = absl::Milliseconds(50);
constexpr absl::Duration kFleetPeriod = absl::Milliseconds(1);  // a million samples in a run
constexpr absl::Duration kStampInterval =
    absl::Milliseconds(2);  // four spines: 2000 packets per second, as the agents have
constexpr int kHosts = 4;

enum class Drift { kNone, kWanders, kJumps };

// Of a crystal: up to 100 ppm wrong, and a random walk of its rate of 2.2 ppb per root second, twice what chrony
// assumes in its own simulations. The last segment goes on.
constexpr double kWanderPpm = 0.005, kWanderSegmentS = 1.75;
constexpr double kJumpSegmentS = 30;  // nothing in nature: up to 200 ppm at once, all hosts in the same moment

lab::TestbedSpec BedSpec(bool agents, Drift drift) {
  lab::TestbedSpec spec;
  spec.fabric = {.lab = "benchck", .leaves = 2, .spines = 4, .hosts_per_leaf = 2, .link_mbps = 200, .ecmp_seed = 1};
  spec.agents = agents;
  spec.mode = "observe";
  spec.all_hosts = true;
  spec.probe_budget_pps = 2000;
  spec.clock_neighbours = 4;
  spec.clocks = {{.offset_ns = 1'000'000'000, .drift_ppm = 100, .seed = 11},
                 {.offset_ns = -700'000'000, .drift_ppm = -80, .seed = 12},
                 {.offset_ns = 3'000'000, .drift_ppm = 60, .seed = 13},
                 {.offset_ns = 250'000'000, .drift_ppm = -20, .seed = 14}};
  for (lab::HiddenClockSpec& clock : spec.clocks) {
    if (drift == Drift::kNone) clock.drift_ppm = 0;
    if (drift == Drift::kWanders) clock.wander_ppm = kWanderPpm;
    clock.segment_s = drift == Drift::kWanders ? kWanderSegmentS : kJumpSegmentS;
  }
  return spec;
}

// A fabric with its load, for as long as the object lives.
struct Bed {
  std::unique_ptr<lab::Testbed> testbed;
  std::unique_ptr<lab::Emulator> emulator;  // none: no load; goes first

  static absl::StatusOr<Bed> Up(const lab::TestbedSpec& spec, double share) {
    Bed bed;
    absl::StatusOr<std::unique_ptr<lab::Testbed>> testbed = lab::Testbed::Up(spec);
    if (!testbed.ok()) return testbed.status();
    bed.testbed = std::move(*testbed);
    if (share == 0) return bed;
    absl::StatusOr<std::unique_ptr<lab::Emulator>> load =
        lab::StartEvenLoad(bed.testbed->fabric(), spec.agents, share, 1);
    if (!load.ok()) return load.status();
    bed.emulator = std::move(*load);
    return bed;
  }
};

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

// Hosts whose clocks just jumped may name different references for a moment: they have ten seconds to agree.
absl::StatusOr<int> AgreedReference(lab::Testbed& testbed) {
  absl::StatusOr<int> reference = lab::FleetReference(testbed);
  const auto agreed = [&] { return (reference = lab::FleetReference(testbed)).ok(); };
  if (!reference.ok()) (void)lab::Eventually(agreed, absl::Seconds(10), absl::Milliseconds(200));
  return reference;
}

// Samples of what the product says, in both its forms.
class ProductSampler {
 public:
  static absl::StatusOr<std::unique_ptr<ProductSampler>> Start(lab::Testbed& testbed) {
    absl::StatusOr<lab::Truth> truth = lab::Truth::Read(testbed.fabric());
    if (!truth.ok()) return truth.status();
    absl::StatusOr<int> reference = AgreedReference(testbed);
    if (!reference.ok()) return reference.status();
    absl::StatusOr<std::unique_ptr<lab::FleetSampler>> fleet = lab::FleetSampler::Start(testbed, *truth, kFleetPeriod);
    if (!fleet.ok()) return fleet.status();
    return std::unique_ptr<ProductSampler>(new ProductSampler(testbed, *truth, *reference, std::move(*fleet)));
  }

  void Stop() {
    pairs_.Stop();
    fleet_->Stop();
  }

  absl::Status Add(const char* bench_case, const char* suffix, size_t least, Report& report) const {
    absl::StatusOr<int> reference = AgreedReference(testbed_);
    if (!reference.ok()) return reference.status();
    if (*reference != reference_) return absl::InternalError("the bounds' reference changed during the run");
    absl::Status status = AddFleet(bench_case, suffix, *fleet_, kHosts, reference_, least, report);
    if (status.ok()) status = AddPairs(bench_case, suffix, pairs_, kHosts, least, report);
    return status;
  }

 private:
  ProductSampler(lab::Testbed& testbed, const lab::Truth& truth, int reference,
                 std::unique_ptr<lab::FleetSampler> fleet)
      : testbed_(testbed), reference_(reference), fleet_(std::move(fleet)), pairs_(testbed, truth, kPeriod) {}

  lab::Testbed& testbed_;
  int reference_;
  std::unique_ptr<lab::FleetSampler> fleet_;
  lab::ClockSampler pairs_;
};

size_t TenPerSecond(absl::Duration length) { return static_cast<size_t>(10 * absl::ToDoubleSeconds(length)); }

// Everybody at once, hidden clocks that drift as crystals do.
absl::Status Compare(const Case& c, absl::Duration length, Report& report) {
  absl::StatusOr<Bed> bed = Bed::Up(BedSpec(/*agents=*/true, Drift::kWanders), c.share);
  if (!bed.ok()) return bed.status();
  lab::Testbed& testbed = *bed->testbed;
  absl::StatusOr<std::vector<std::unique_ptr<ClockPeer>>> peers = StartPeers(testbed.fabric());
  if (!peers.ok()) return peers.status();
  absl::SleepFor(kPeerSettle);

  lab::LoadMeter meter(testbed.fabric());
  absl::StatusOr<std::unique_ptr<ProductSampler>> sampler = ProductSampler::Start(testbed);
  if (!sampler.ok()) return sampler.status();
  for (auto& peer : *peers) {
    if (absl::Status status = peer->StartReading(kPeriod); !status.ok()) return status;
  }
  absl::SleepFor(length);
  const std::vector<double> shares = meter.Shares();
  (*sampler)->Stop();

  AddLoad(c.name, shares, report);
  absl::Status status = (*sampler)->Add(c.name, "", TenPerSecond(length), report);
  if (status.ok()) status = AddCost(c.name, testbed, report);
  for (auto& peer : *peers) {
    if (status.ok())
      status = AddPeer(c.name, *peer, static_cast<size_t>(absl::Seconds(1) / kPeriod), TenPerSecond(length), report);
  }
  return status;
}

// The product alone, with clocks that jump, or that differ by their offset only, which is the peers' own problem.
absl::Status Alone(const Case& c, Drift drift, const char* suffix, absl::Duration length, Report& report) {
  absl::StatusOr<Bed> bed = Bed::Up(BedSpec(/*agents=*/true, drift), c.share);
  if (!bed.ok()) return bed.status();
  absl::SleepFor(kSettle);
  absl::StatusOr<std::unique_ptr<ProductSampler>> sampler = ProductSampler::Start(*bed->testbed);
  if (!sampler.ok()) return sampler.status();
  absl::SleepFor(length);
  (*sampler)->Stop();
  return (*sampler)->Add(c.name, suffix, TenPerSecond(length), report);
}

absl::Status StampsAlone(const Case& c, absl::Duration length, Report& report) {
  absl::StatusOr<Bed> bed = Bed::Up(BedSpec(/*agents=*/false, Drift::kNone), c.share);
  if (!bed.ok()) return bed.status();
  absl::SleepFor(absl::Seconds(2));
  absl::StatusOr<StampRun> run = MeasureStamps(bed->testbed->fabric(), 0, 2, kStampInterval, length);
  if (!run.ok()) return run.status();
  AddStamps(c.name, *run, bed->testbed->fabric().spec().spines, report);
  return absl::OkStatus();
}

bool Wanted(const char* part) {
  const char* only = std::getenv("BENCH_PART");
  return only == nullptr || std::string(only) == part;
}

// All parts of one load. One that fails leaves the others' rows as they are; the first error is told.
absl::Status RunCase(const Case& c, int factor, Report& report) {
  absl::Status first;
  const auto run = [&](const char* part, auto measure) {
    if (!Wanted(part)) return;
    const absl::Status status = measure();
    if (status.ok()) return;
    std::fprintf(stderr, "%s, %s: %s\n", c.name, part, std::string(status.message()).c_str());
    if (first.ok())
      first = absl::Status(status.code(), absl::StrCat(c.name, ", ", part, ": ", std::string(status.message())));
  };
  const auto alone = [&](Drift drift, const char* suffix, int seconds) {
    return Alone(c, drift, suffix, absl::Seconds(seconds) * factor, report);
  };
  run("compare", [&] { return Compare(c, absl::Seconds(60) * factor, report); });
  // The two ends show what jumps do at any load, and the whole stays below a quarter of an hour.
  if (c.share != 0.4) run("jumps", [&] { return alone(Drift::kJumps, "_jumps", 60); });
  run("no_drift", [&] { return alone(Drift::kNone, "_no_drift", 30); });
  run("stamps", [&] { return StampsAlone(c, absl::Seconds(15) * factor, report); });
  if (c.share == 0)
    run("recovery", [&] { return MeasureRecovery(BedSpec(/*agents=*/true, Drift::kWanders), c.name, report); });
  return first;
}

absl::Status RunAll(Report& report) {
  const char* only = std::getenv("BENCH_CASE");
  const int factor = std::getenv("BENCH_FULL") != nullptr ? 5 : 1;
  const KernelClock before = KernelClock::Read();
  absl::Status first;
  for (const Case& c : kCases) {
    if (only != nullptr && std::string(only) != c.name) continue;
    std::fprintf(stderr, "%s ...\n", c.name);
    const absl::Status status = RunCase(c, factor, report);
    if (first.ok()) first = status;
  }
  if (absl::Status untouched = Untouched(before, KernelClock::Read()); !untouched.ok()) return untouched;
  return first;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) {
  cw::bench::Report report("clock");
  const std::string path = cw::bench::OutPath(argc, argv, "build/bench/clock.json");
  absl::Status status = cw::bench::RunAll(report);
  // What was measured is not lost, and no result either.
  const absl::Status written = report.Write(status.ok() ? path : path + ".incomplete");
  if (status.ok()) status = written;
  if (!status.ok()) {
    std::fprintf(stderr, "clock: %s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}
