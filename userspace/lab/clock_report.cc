// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/clock_report.h"

#include <cmath>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/monotonic.h"

namespace cw::lab {
namespace {

constexpr absl::Duration kPeriod = absl::Milliseconds(5);
constexpr size_t kPoints = 600;  // of a chart's line: more than its page has pixels for

using ByHost = std::map<int, std::vector<FleetPair>>;

ByHost Split(const std::vector<FleetPair>& samples, int reference) {
  ByHost hosts;
  for (const FleetPair& sample : samples) {
    if (sample.other == reference && sample.host != reference) hosts[sample.host].push_back(sample);
  }
  return hosts;
}

std::vector<FleetPair> Thin(const std::vector<FleetPair>& samples, size_t points) {
  const size_t stretch = samples.size() / points + 1;
  std::vector<FleetPair> kept;
  for (size_t i = 0; i < samples.size(); ++i) {
    const bool larger = !kept.empty() && std::abs(samples[i].difference_ns) > std::abs(kept.back().difference_ns);
    if (i % stretch == 0) {
      kept.push_back(samples[i]);
    } else if (larger) {
      kept.back() = samples[i];
    }
  }
  return kept;
}

// The line with `reach` to either side: wherever the band does not hold zero, the host promised too much.
Series Band(const std::string& name, const std::vector<FleetPair>& samples, int64_t origin_ns,
            double FleetPair::*reach_ns) {
  Series series;
  series.name = name;
  for (const FleetPair& sample : samples) {
    const double value_us = sample.difference_ns / 1e3, reach_us = sample.*reach_ns / 1e3;
    series.at_s.push_back(static_cast<double>(sample.true_ns - origin_ns) / 1e9);
    series.values.push_back(value_us);
    series.low.push_back(value_us - reach_us);
    series.high.push_back(value_us + reach_us);
  }
  return series;
}

// A host has no page before it has found its first fleet time.
absl::StatusOr<std::unique_ptr<FleetSampler>> StartSampler(Testbed& testbed, const Truth& truth) {
  const absl::Time deadline = absl::Now() + absl::Seconds(20);
  while (true) {
    absl::StatusOr<std::unique_ptr<FleetSampler>> sampler = FleetSampler::Start(testbed, truth, kPeriod);
    if (sampler.ok() || absl::Now() > deadline) return sampler;
    absl::SleepFor(absl::Milliseconds(50));
  }
}

// Bounds speak of the host's reference, which is itself at first and may change as hosts hear of each other.
struct NamedReference {
  int host = -1;
  int64_t since_ns = 0;  // all hosts have named it since

  // Watches for that long. Unavailable: they do not name the same in the end.
  static absl::StatusOr<NamedReference> Watch(Testbed& testbed, absl::Duration length) {
    NamedReference named;
    absl::Status status;
    for (const absl::Time end = absl::Now() + length; absl::Now() < end; absl::SleepFor(absl::Milliseconds(200))) {
      absl::StatusOr<int> reference = FleetReference(testbed);
      status = reference.status();
      if (reference.ok() && *reference == named.host) continue;
      named = {.host = reference.value_or(-1), .since_ns = MonotonicNs()};
    }
    if (!status.ok()) return status;
    return named;
  }
};

absl::StatusOr<std::vector<Mark>> DriftMarks(const Fabric& fabric, int64_t origin_ns, int64_t end_ns) {
  std::vector<Mark> marks;
  for (int host = 0; host < fabric.hosts(); ++host) {
    absl::StatusOr<cw_lab_clock> clock = ReadHiddenClock(fabric, host);
    if (!clock.ok()) return clock.status();
    for (uint32_t i = 0; i < clock->segments; ++i) {
      const auto start_ns = static_cast<int64_t>(clock->start_ns[i]);
      if (start_ns < origin_ns || start_ns > end_ns) continue;
      marks.push_back({static_cast<double>(start_ns - origin_ns) / 1e9, "drift",
                       absl::StrCat("the drift of h", host, "'s clock changes")});
    }
  }
  return marks;
}

}  // namespace

std::vector<Chart> ClockCharts(const std::vector<FleetPair>& samples, int reference, int64_t origin_ns, size_t points) {
  std::vector<Chart> charts;
  for (const auto& [host, all] : Split(samples, reference)) {
    const std::vector<FleetPair> kept = Thin(all, points);
    const std::string name = absl::StrFormat("h%d: fleet time less h%d's", host, reference);
    charts.push_back({.title = name + ", and error_est around it",
                      .unit = "µs",
                      .series = {Band("error ± error_est", kept, origin_ns, &FleetPair::error_est_ns)}});
    charts.push_back({.title = name + ", and bound around it",
                      .unit = "µs",
                      .series = {Band("error ± bound", kept, origin_ns, &FleetPair::bound_ns)}});
  }
  return charts;
}

Table ClockTable(const std::vector<FleetPair>& samples, int reference) {
  Table table{.title = absl::StrFormat("Fleet time against h%d's at the same true instant, µs", reference),
              .header = {"", "p50", "p99", "max", "error_est p50", "covers", "bound p50", "covers"},
              .rows = {}};
  for (const auto& [host, all] : Split(samples, reference)) {
    std::vector<double> error, error_est, bound;
    double in_error_est = 0, in_bound = 0;
    for (const FleetPair& sample : all) {
      error.push_back(std::abs(sample.difference_ns) / 1e3);
      error_est.push_back(sample.error_est_ns / 1e3);
      bound.push_back(sample.bound_ns / 1e3);
      in_error_est += error.back() <= error_est.back() ? 1 : 0;
      in_bound += error.back() <= bound.back() ? 1 : 0;
    }
    const auto us = [](const std::vector<double>& values, double q) {
      return absl::StrFormat("%.3f", bench::Quantile(values, q));
    };
    const auto percent = [&](double inside) {
      return absl::StrFormat("%.2f %%", 100 * inside / static_cast<double>(error.size()));
    };
    table.rows.push_back({absl::StrCat("h", host), us(error, 0.5), us(error, 0.99), us(error, 1), us(error_est, 0.5),
                          percent(in_error_est), us(bound, 0.5), percent(in_bound)});
  }
  return table;
}

absl::StatusOr<ClockResult> RunClock(const ClockSpec& spec) {
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec.testbed);
  if (!testbed.ok()) return testbed.status();
  const Fabric& fabric = (*testbed)->fabric();
  std::unique_ptr<Emulator> load;
  if (spec.load > 0) {
    auto started = StartEvenLoad(fabric, /*agents=*/true, spec.load, spec.seed);
    if (!started.ok()) return started.status();
    load = std::move(*started);
  }
  absl::StatusOr<Truth> truth = Truth::Read(fabric);
  if (!truth.ok()) return truth.status();
  LoadMeter meter(fabric);
  const int64_t origin_ns = (*testbed)->origin_ns();
  absl::StatusOr<std::unique_ptr<FleetSampler>> sampler = StartSampler(**testbed, *truth);
  if (!sampler.ok()) return sampler.status();
  absl::StatusOr<NamedReference> reference = NamedReference::Watch(**testbed, spec.length);
  (*sampler)->Stop();
  if (!reference.ok()) return reference.status();

  ClockResult result{.reference = reference->host,
                     .refused = (*sampler)->refused(),
                     .readings = (*sampler)->readings(),
                     .load = meter.Shares()};
  for (const FleetPair& pair : (*sampler)->pairs()) {
    if (pair.other == result.reference && pair.true_ns >= reference->since_ns) result.samples.push_back(pair);
  }
  if (result.samples.empty()) {
    return absl::DeadlineExceededError(
        absl::StrCat("no fleet time within ", absl::FormatDuration(spec.length), ": ", (*sampler)->refusal()));
  }
  absl::StatusOr<std::vector<Mark>> marks = DriftMarks(fabric, origin_ns, result.samples.back().true_ns);
  if (!marks.ok()) return marks.status();
  result.table = ClockTable(result.samples, result.reference);
  result.phase = {.name = "fleet time",
                  .charts = ClockCharts(result.samples, result.reference, origin_ns, kPoints),
                  .marks = std::move(*marks)};
  return result;
}

}  // namespace cw::lab
