// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_recovery.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "userspace/lab/experiment_clock.h"
#include "userspace/lab/monotonic.h"

namespace cw::bench {
namespace {

constexpr double kStepAfterS = 30;   // of the clock's own start, which is that of its agent
constexpr double kSteadyFromS = 12;  // after the last agent's start
constexpr double kSteadyTimes = 3;
constexpr int64_t kSecond = 1'000'000'000;

struct Phase {
  int64_t from_ns, to_ns;
};

using WantedRecovery = bool (*)(const lab::FleetPair& pair, int set_host);
bool AnyPair(const lab::FleetPair&, int) { return true; }
bool WithSetHost(const lab::FleetPair& pair, int set_host) { return pair.other == set_host; }
bool OtherHosts(const lab::FleetPair& pair, int set_host) { return pair.host != set_host && pair.other != set_host; }

std::vector<double> RecoveryErrors(const std::vector<lab::FleetPair>& pairs, const Phase& phase, WantedRecovery wanted,
                                   int set_host) {
  std::vector<double> errors;
  for (const lab::FleetPair& pair : pairs) {
    const bool within = pair.true_ns >= phase.from_ns && pair.true_ns < phase.to_ns;
    if (within && pair.host < pair.other && wanted(pair, set_host)) errors.push_back(std::abs(pair.difference_ns));
  }
  return errors;
}

// Seconds from the phase's beginning to the first reading of the last stretch in which all wanted pairs could be read
// and were within limit_ns; NaN: there is none.
double GoodAfterS(const std::vector<lab::FleetPair>& pairs, const Phase& phase, WantedRecovery wanted, int set_host,
                  size_t wanted_pairs, double limit_ns) {
  int64_t good_since_ns = 0, reading_ns = 0;
  size_t seen = 0;
  bool all_near = true;
  const auto judge = [&] {
    if (reading_ns == 0) return;
    const bool good = all_near && seen == wanted_pairs;
    if (!good) good_since_ns = 0;
    if (good && good_since_ns == 0) good_since_ns = reading_ns;
  };
  for (const lab::FleetPair& pair : pairs) {
    if (pair.true_ns < phase.from_ns || pair.true_ns >= phase.to_ns || pair.host > pair.other) continue;
    if (pair.true_ns != reading_ns) {
      judge();
      reading_ns = pair.true_ns;
      seen = 0;
      all_near = true;
    }
    if (!wanted(pair, set_host)) continue;
    ++seen;
    all_near &= std::abs(pair.difference_ns) <= limit_ns;
  }
  judge();
  return good_since_ns == 0 ? NAN : static_cast<double>(good_since_ns - phase.from_ns) * 1e-9;
}

// The pages are made by the agents' first publication.
absl::StatusOr<std::unique_ptr<lab::FleetSampler>> StartSampler(lab::Testbed& testbed, const lab::Truth& truth) {
  const absl::Time deadline = absl::Now() + absl::Seconds(10);
  while (true) {
    absl::StatusOr<std::unique_ptr<lab::FleetSampler>> sampler =
        lab::FleetSampler::Start(testbed, truth, absl::Milliseconds(5));
    if (sampler.ok() || absl::Now() > deadline) return sampler;
    absl::SleepFor(absl::Milliseconds(5));
  }
}

void AddOne(const std::string& bench_case, const char* metric, const char* unit, double value, Report& report) {
  std::fprintf(stderr, "  %s: %.3g %s\n", metric, value, unit);
  if (std::isnan(value)) return report.Add(Row{bench_case, "cwfabric", metric, unit, 0, 0, 0, 0});
  report.Add(Row{bench_case, "cwfabric", metric, unit, 1, value, value, value});
}

}  // namespace

absl::Status MeasureRecovery(lab::TestbedSpec spec, const std::string& bench_case, Report& report) {
  spec.wait_paths = false;
  const int set_host = static_cast<int>(spec.clocks.size()) - 1;
  for (lab::HiddenClockSpec& clock : spec.clocks) {
    clock.segment_s = kStepAfterS;
    clock.wander_ppm = 1e-6;  // one rate for the whole run
  }
  spec.clocks.back().step_ns = kSecond;
  absl::StatusOr<std::unique_ptr<lab::Testbed>> testbed = lab::Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  const absl::StatusOr<lab::Truth> truth = lab::Truth::Read((*testbed)->fabric());
  if (!truth.ok()) return truth.status();
  absl::StatusOr<std::unique_ptr<lab::FleetSampler>> sampler = StartSampler(**testbed, *truth);
  if (!sampler.ok()) return sampler.status();
  const absl::StatusOr<cw_lab_clock> set = lab::ReadHiddenClock((*testbed)->fabric(), set_host);
  if (!set.ok()) return set.status();
  // The last agent starts when its clock does.
  const auto started_ns = static_cast<int64_t>(set->start_ns[0]), step_ns = static_cast<int64_t>(set->start_ns[1]);
  absl::SleepFor(absl::Nanoseconds(step_ns + 15 * kSecond - lab::MonotonicNs()));
  (*sampler)->Stop();

  const std::vector<lab::FleetPair>& pairs = (*sampler)->pairs();
  // A line that is published just before a step of the local clock reaches beyond it.
  const Phase settled{started_ns + static_cast<int64_t>(kSteadyFromS * kSecond), step_ns - kSecond / 5};
  const std::vector<double> steady = RecoveryErrors(pairs, settled, AnyPair, set_host);
  if (steady.empty()) return absl::InternalError("recovery: fleet time was never usable: " + (*sampler)->refusal());
  const double limit_ns = kSteadyTimes * Quantile(steady, 0.99);
  const auto hosts = static_cast<size_t>(set_host) + 1;
  report.Add(bench_case, "cwfabric", "recovery_steady", "ns", steady);
  AddOne(bench_case, "start_to_3x_steady", "s",
         GoodAfterS(pairs, {started_ns, settled.to_ns}, AnyPair, set_host, hosts * (hosts - 1) / 2, limit_ns), report);
  AddOne(bench_case, "step_to_3x_steady", "s",
         GoodAfterS(pairs, {step_ns, step_ns + 15 * kSecond}, WithSetHost, set_host, hosts - 1, limit_ns), report);
  report.Add(bench_case, "cwfabric", "step_others_abs_error", "ns",
             RecoveryErrors(pairs, {step_ns, step_ns + 5 * kSecond}, OtherHosts, set_host));
  return absl::OkStatus();
}

}  // namespace cw::bench
