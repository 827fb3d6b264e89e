// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_rows.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <iterator>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::bench {
namespace {

constexpr double kSteadyAfterS = 3;  // after a change of a clock's drift

// How long after a change of a clock's drift, s: where each class ends.
constexpr double kSinceS[] = {0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10};

// Errors of ordered pairs of hosts, gathered.
struct Errors {
  std::vector<double> all, steady, error_est, of_error_est;    // the last in percent
  std::map<double, std::vector<double>> by_age;                // since the last change
  std::map<std::pair<int, int>, std::vector<double>> by_pair;  // with their sign
  size_t in_error_est = 0;

  void Take(int host, int other, double error_ns, double likely_ns, double since_step_s) {
    all.push_back(std::abs(error_ns));
    if (since_step_s >= kSteadyAfterS) steady.push_back(std::abs(error_ns));
    const double* const age = std::lower_bound(std::begin(kSinceS), std::end(kSinceS), since_step_s);
    by_age[age == std::end(kSinceS) ? HUGE_VAL : *age].push_back(std::abs(error_ns));
    error_est.push_back(likely_ns);
    of_error_est.push_back(100 * std::abs(error_ns) / std::max(1.0, likely_ns));
    by_pair[{host, other}].push_back(error_ns);
    in_error_est += std::abs(error_ns) <= likely_ns ? 1 : 0;
  }

  void PrintByAge(const std::string& what) const {
    for (const auto& [age, errors_ns] : by_age) {
      std::fprintf(stderr, "  %s, up to %.2f s after a change of drift: |error| p50 %.0f p99 %.0f max %.0f ns\n",
                   what.c_str(), age, Quantile(errors_ns, 0.5), Quantile(errors_ns, 0.99), Quantile(errors_ns, 1));
    }
  }

  absl::Status Check(const char* what, int pairs, size_t least) const {
    if (static_cast<int>(by_pair.size()) != pairs) {
      return absl::InternalError(
          absl::StrFormat("%s: %d of %d pairs of hosts were told of", what, by_pair.size(), pairs));
    }
    for (const auto& [pair, errors] : by_pair) {
      if (errors.size() < least)
        return absl::InternalError(absl::StrFormat("%s: h%d and h%d could be compared only %d times", what, pair.first,
                                                   pair.second, errors.size()));
    }
    return absl::OkStatus();
  }

  const std::vector<double>& Worst() const {
    const std::vector<double>* worst = &by_pair.begin()->second;
    for (const auto& [pair, errors] : by_pair) {
      if (Quantile(Absolute(errors), 0.99) > Quantile(Absolute(*worst), 0.99)) worst = &errors;
    }
    return *worst;
  }

  void Add(const std::string& bench_case, const std::string& prefix, const std::string& suffix, Report& report) const {
    report.Add(bench_case, kProduct, prefix + "abs_error" + suffix, "ns", all);
    report.Add(bench_case, kProduct, prefix + "abs_error_steady" + suffix, "ns", steady);
    report.Add(bench_case, kProduct, prefix + "abs_error_worst_pair" + suffix, "ns", Absolute(Worst()));
    report.Add(bench_case, kProduct, prefix + "error_est" + suffix, "ns", error_est);
    report.Add(bench_case, kProduct, prefix + "error_of_error_est" + suffix, "percent", of_error_est);
    AddPercent(bench_case, kProduct, prefix + "coverage_error_est" + suffix, in_error_est, all.size(), report);
  }
};

}  // namespace

absl::Status AddPairs(const std::string& bench_case, const std::string& suffix, const lab::ClockSampler& sampler,
                      int hosts, size_t least, Report& report) {
  if (!sampler.failures().empty()) return absl::InternalError(sampler.failures()[0]);
  Errors errors;
  std::vector<double> bound;
  size_t in_bound = 0, synced = 0;
  for (const lab::PairSample& sample : sampler.pairs()) {
    errors.Take(sample.host, sample.peer, sample.error_ns, sample.error_est_ns, sample.since_step_s);
    bound.push_back(sample.bound_ns);
    in_bound += std::abs(sample.error_ns) <= sample.bound_ns ? 1 : 0;
    synced += sample.synced ? 1 : 0;
  }
  if (absl::Status status = errors.Check("pairs", hosts * (hosts - 1), least); !status.ok()) return status;
  for (const auto& [pair, signed_ns] : errors.by_pair)
    PrintErrors(absl::StrFormat("h%d about h%d%s", pair.first, pair.second, suffix), signed_ns);
  if (suffix == "_jumps") errors.PrintByAge("pairs");
  errors.Add(bench_case, "pair_", suffix, report);
  report.Add(bench_case, kProduct, "pair_bound" + suffix, "ns", bound);
  AddPercent(bench_case, kProduct, "pair_coverage_bound" + suffix, in_bound, bound.size(), report);
  AddPercent(bench_case, kProduct, "pair_synced" + suffix, synced, bound.size(), report);
  return absl::OkStatus();
}

absl::Status AddFleet(const std::string& bench_case, const std::string& suffix, const lab::FleetSampler& sampler,
                      int hosts, int reference, size_t least, Report& report) {
  Errors errors;
  std::vector<double> bound;
  size_t in_bound = 0;
  for (const lab::FleetPair& pair : sampler.pairs()) {
    // Both orders of a pair are one difference; the bound is the host's alone.
    if (pair.host < pair.other)
      errors.Take(pair.host, pair.other, pair.difference_ns, pair.error_est_ns, pair.since_step_s);
    if (pair.other != reference) continue;
    bound.push_back(pair.bound_ns);
    in_bound += std::abs(pair.difference_ns) <= pair.bound_ns ? 1 : 0;
  }
  if (absl::Status status = errors.Check("fleet time", hosts * (hosts - 1) / 2, least); !status.ok()) {
    return absl::InternalError(absl::StrCat(std::string(status.message()), "; refused: ", sampler.refusal()));
  }
  for (const auto& [pair, signed_ns] : errors.by_pair)
    PrintErrors(absl::StrFormat("fleet time, h%d less h%d%s", pair.first, pair.second, suffix), signed_ns);
  if (suffix == "_jumps") errors.PrintByAge("fleet time");
  errors.Add(bench_case, "", suffix, report);
  report.Add(bench_case, kProduct, "bound" + suffix, "ns", bound);
  AddPercent(bench_case, kProduct, "coverage_bound" + suffix, in_bound, bound.size(), report);
  AddPercent(bench_case, kProduct, "usable" + suffix, sampler.readings() - sampler.refused(), sampler.readings(),
             report);
  return absl::OkStatus();
}

absl::Status AddCost(const std::string& bench_case, lab::Testbed& testbed, Report& report) {
  std::vector<double> rate, cpu;
  for (int host = 0; host < testbed.fabric().hosts(); ++host) {
    absl::StatusOr<api::v1::StatusReply> status = testbed.agent(host).Status();
    if (!status.ok()) return status.status();
    rate.push_back(status->prober().rate_pps());
    cpu.push_back(status->cpu_percent());
  }
  report.Add(bench_case, kProduct, "probe_rate", "pps", rate);
  report.Add(bench_case, kProduct, "cpu", "percent", cpu);
  return absl::OkStatus();
}

absl::Status AddPeer(const std::string& bench_case, ClockPeer& peer, size_t per_second, size_t least, Report& report) {
  absl::StatusOr<PeerReadings> readings = peer.StopReading(least);
  if (!readings.ok()) return readings.status();
  const std::vector<double>& signed_ns = readings->error_ns;
  const std::vector<double> errors = Absolute(signed_ns);
  PrintErrors(peer.name(), signed_ns, "; " + readings->stamps);
  report.Add(bench_case, peer.name(), "abs_error", "ns", errors);
  if (readings->bound_ns.empty()) {
    report.Add(bench_case, peer.name(), "abs_error_1s_median", "ns", Absolute(Medians(signed_ns, per_second)));
    return absl::OkStatus();
  }
  size_t inside = 0;
  for (size_t i = 0; i < errors.size(); ++i) inside += errors[i] <= readings->bound_ns[i] ? 1 : 0;
  report.Add(bench_case, peer.name(), "bound", "ns", readings->bound_ns);
  AddPercent(bench_case, peer.name(), "coverage_bound", inside, errors.size(), report);
  return absl::OkStatus();
}

void AddStamps(const std::string& bench_case, const StampRun& run, int spines, Report& report) {
  for (const auto& [name, stamps] :
       {std::pair{"delay_forward", &run.forward}, std::pair{"delay_reverse", &run.reverse}}) {
    std::vector<double> delays;
    for (const Stamp& stamp : *stamps) delays.push_back(stamp.DelayNs());
    std::fprintf(stderr, "  stamps, %s: least %.0f p10 %.0f p50 %.0f p99 %.0f ns\n", name, Quantile(delays, 0),
                 Quantile(delays, 0.1), Quantile(delays, 0.5), Quantile(delays, 0.99));
    report.Add(bench_case, "stamps", name, "ns", delays);
  }
  for (const auto& [name, window] : {std::pair{"100ms", absl::Milliseconds(100)}, std::pair{"1s", absl::Seconds(1)},
                                     std::pair{"4s", absl::Seconds(4)}}) {
    const std::vector<double> floors = run.FloorNs(window);
    PrintErrors(absl::StrCat("stamps, minimum of ", name, " over all paths"), floors);
    report.Add(bench_case, "stamps", absl::StrCat("floor_", name), "ns", Absolute(floors));
  }
  for (int path = 0; path < spines; ++path)
    PrintErrors(absl::StrFormat("stamps, minimum of 1s over spine %d", path), run.FloorNs(absl::Seconds(1), path));
}

}  // namespace cw::bench
