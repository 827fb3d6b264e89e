// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_vm_truth.h"

#include <algorithm>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace cw::bench {
namespace {

using vm::ClockRecord;

double Share(int64_t x, int64_t from, int64_t to) {
  return static_cast<double>(x - from) / static_cast<double>(to - from);
}

bool Usable(const ClockRecord& a, const ClockRecord& b) {
  return a.error == 0 && b.error == 0 && a.timeline == b.timeline;
}

}  // namespace

absl::StatusOr<CounterDistance> ParseCounterDistance(const std::string& text) {
  std::istringstream lines(text);
  CounterDistance best{.error = INT64_MAX};
  int64_t least = INT64_MAX, most = INT64_MIN;
  for (int64_t round_trip = 0, ticks = 0; lines >> round_trip >> ticks;) {
    least = std::min(least, ticks);
    most = std::max(most, ticks);
    if (round_trip / 2 < best.error) best = {.ticks = ticks, .error = round_trip / 2};
  }
  if (least > most) return absl::InternalError(absl::StrCat("cw_vm_clock ask printed no distance: ", text));
  best.spread = most - least;
  return best;
}

VmTruth::VmTruth(const std::array<std::vector<ClockRecord>, 2>& readings, int64_t distance_ticks, int64_t max_gap) {
  for (size_t machine = 0; machine < 2; ++machine) {
    const int64_t shift = machine == 0 ? distance_ticks : 0;
    for (ClockRecord record : readings[machine]) {
      record.monotonic.tsc += shift;
      record.realtime.tsc += shift;
      if (record.monotonic.gap <= max_gap) records_[machine].push_back(record);
      if (record.realtime.gap <= max_gap) realtime_[machine].push_back({record.realtime.tsc, record.realtime.ns});
    }
  }
  for (const Point& point : realtime_[1]) tsc_of_realtime_.push_back({point.y, point.x});
}

std::optional<double> VmTruth::At(const std::vector<Point>& line, int64_t x) {
  const auto after = std::upper_bound(line.begin(), line.end(), x, [](int64_t v, const Point& p) { return v < p.x; });
  if (after == line.begin() || after == line.end()) return std::nullopt;
  const Point &from = *(after - 1), &to = *after;
  // Relative to the first point: times since 1970 have more digits than a double.
  return Share(x, from.x, to.x) * static_cast<double>(to.y - from.y) + static_cast<double>(from.y - line[0].y);
}

std::optional<double> VmTruth::RealtimeDifferenceNs(int64_t tsc) const {
  const std::optional<double> ours = At(realtime_[1], tsc), theirs = At(realtime_[0], tsc);
  if (!ours.has_value() || !theirs.has_value()) return std::nullopt;
  return *ours - *theirs + static_cast<double>(realtime_[1][0].y - realtime_[0][0].y);
}

std::optional<int64_t> VmTruth::TscOfRealtime(int64_t ns) const {
  const std::optional<double> tsc = At(tsc_of_realtime_, ns);
  if (!tsc.has_value()) return std::nullopt;
  return tsc_of_realtime_[0].y + static_cast<int64_t>(*tsc);
}

std::vector<VmTruth::Instant> VmTruth::Instants() const {
  std::vector<Instant> instants;
  const std::vector<ClockRecord>& theirs = records_[0];
  size_t after = 1;
  for (const ClockRecord& ours : records_[1]) {
    while (after < theirs.size() && theirs[after].monotonic.tsc < ours.monotonic.tsc) ++after;
    if (after >= theirs.size()) break;
    if (theirs[after - 1].monotonic.tsc <= ours.monotonic.tsc)
      instants.push_back({&ours, &theirs[after - 1], &theirs[after]});
  }
  return instants;
}

std::vector<FleetDifference> VmTruth::Fleet() const {
  std::vector<FleetDifference> differences;
  for (const auto& [ours, before, after] : Instants()) {
    // An epoch's change between the two may be a step: nobody knows what was shown in between.
    if (!Usable(*ours, *before) || !Usable(*before, *after) || before->epoch != after->epoch) continue;
    const double share = Share(ours->monotonic.tsc, before->monotonic.tsc, after->monotonic.tsc);
    const double since_before_ns = share * static_cast<double>(after->fleet_ns - before->fleet_ns);
    differences.push_back(
        {.ns = static_cast<double>(ours->fleet_ns - before->fleet_ns) - since_before_ns,
         .error_est_ns = static_cast<double>(ours->error_est_ns + std::max(before->error_est_ns, after->error_est_ns)),
         .bound_ns = {static_cast<double>(std::max(before->bound_ns, after->bound_ns)),
                      static_cast<double>(ours->bound_ns)}});
  }
  return differences;
}

size_t VmTruth::Refused() const {
  size_t refused = 0;
  for (const auto& [ours, before, after] : Instants()) refused += Usable(*ours, *before) ? 0 : 1;
  return refused;
}

double VmTruth::NsPerTick() const {
  const ClockRecord &first = records_[0].front(), &last = records_[0].back();
  return static_cast<double>(last.monotonic.ns - first.monotonic.ns) /
         static_cast<double>(last.monotonic.tsc - first.monotonic.tsc);
}

double VmTruth::RateDifferencePpm() const {
  const ClockRecord &first = records_[1].front(), &last = records_[1].back();
  const double rate = static_cast<double>(last.monotonic.ns - first.monotonic.ns) /
                      static_cast<double>(last.monotonic.tsc - first.monotonic.tsc);
  return (rate / NsPerTick() - 1) * 1e6;
}

}  // namespace cw::bench
