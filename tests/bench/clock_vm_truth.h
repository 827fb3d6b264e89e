// SPDX-License-Identifier: Apache-2.0
//
// What the clocks of two virtual machines really show at one instant. An emulated time stamp counter is the host's plus
// a constant, so both machines' counters are one clock, up to the constant between them: that is measured through
// memory that both machines see (cw_vm_clock ask), and wrong by half of the fastest round trip at most. Each machine
// reads its clocks between two readings of its counter; between such readings its clocks are taken to be straight.
// Pure. Counters are in ticks, times in ns. Machine 1's counter is the common one.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/vm/clock_record.h"

namespace cw::bench {

// Machine 1's counter − machine 0's.
struct CounterDistance {
  int64_t ticks = 0;
  int64_t error = 0;   // half of the fastest round trip: it can't be more
  int64_t spread = 0;  // between the blocks' answers
};
// Of what `cw_vm_clock ask` prints.
absl::StatusOr<CounterDistance> ParseCounterDistance(const std::string& text);

// Two machines' fleet times at one instant.
struct FleetDifference {
  double ns = 0;            // machine 1's − machine 0's; the truth is 0
  double error_est_ns = 0;  // both ends' together
  std::array<double, 2> bound_ns = {};
};

class VmTruth {
 public:
  // Readings in the order of time. Those between which the machine was away for longer than `max_gap` ticks are left
  // out.
  VmTruth(const std::array<std::vector<vm::ClockRecord>, 2>& readings, int64_t distance_ticks, int64_t max_gap);

  // Machine 1's CLOCK_REALTIME − machine 0's. nullopt: not between two readings of both.
  std::optional<double> RealtimeDifferenceNs(int64_t tsc) const;
  // When machine 1's CLOCK_REALTIME showed that.
  std::optional<int64_t> TscOfRealtime(int64_t ns) const;
  // At each reading of machine 1 that machine 0 has an answer for.
  std::vector<FleetDifference> Fleet() const;
  // Readings of machine 1 at which one of the two refused to tell fleet time, or they were on different timelines.
  size_t Refused() const;
  // How much faster machine 1's CLOCK_MONOTONIC ran than machine 0's.
  double RateDifferencePpm() const;
  double NsPerTick() const;

 private:
  struct Point {
    int64_t x = 0, y = 0;
  };
  struct Instant {
    const vm::ClockRecord* ours;            // machine 1's reading
    const vm::ClockRecord *before, *after;  // machine 0's on either side of it
  };
  static std::optional<double> At(const std::vector<Point>& line, int64_t x);
  std::vector<Instant> Instants() const;

  std::array<std::vector<vm::ClockRecord>, 2> records_;  // both by the common counter
  std::array<std::vector<Point>, 2> realtime_;           // over the counter
  std::vector<Point> tsc_of_realtime_;                   // machine 1's
};

}  // namespace cw::bench
