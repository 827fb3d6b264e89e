// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/best_of_two.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_format.h"
#include "userspace/control/contention.h"

namespace cw::control {
namespace {

bool SecondIsBetter(const ContentionRules& rules, const FreshLook& first, const FreshLook& second) {
  if (first.usable != second.usable) return second.usable;
  return first.queue_ns > QueueLimitNs(rules, first.base_ns) && second.queue_ns < rules.better_than * first.queue_ns;
}

}  // namespace

double QueueLimitNs(const ContentionRules& rules, double base_ns) {
  return std::max(rules.queue_over_base * base_ns, rules.queue_floor_ns);
}

Settled Settle(const ContentionRules& rules, const Reprobe& seen) {
  const auto& [first, second] = seen.candidates;
  Settled out{.pair = seen.pair, .flow = seen.flow, .first = first.slot};
  if (!seen.stays || (!first.usable && !second.usable)) return out;
  out.to = SecondIsBetter(rules, first, second) ? second.slot : first.slot;
  return out;
}

Move SettledMove(const ContentionRules& rules, Move move, const Reprobe& seen, const Settled& settled) {
  const bool turned = settled.to != settled.first;
  const FreshLook &target = seen.candidates[turned ? 1 : 0], &other = seen.candidates[turned ? 0 : 1];
  if (turned) {
    move.gain = move.second_gain;
    move.force = move.gain >= rules.force_gain;
    move.why = absl::StrFormat(
        "path %d is shared; path %d was preferred, but just before the move %s", move.from, settled.first,
        other.usable ? absl::StrFormat("path %d queues less", settled.to) : std::string("it is not to be used"));
  }
  move.to = settled.to;
  move.evidence.push_back({"other_path", absl::StrFormat("%d", other.slot)});
  move.evidence.push_back({"fresh_target_queue_us", absl::StrFormat("%.1f", target.queue_ns / 1e3)});
  move.evidence.push_back({"fresh_target_probes", absl::StrFormat("%d", target.samples)});
  move.evidence.push_back({"fresh_other_queue_us", absl::StrFormat("%.1f", other.queue_ns / 1e3)});
  move.evidence.push_back({"fresh_other_probes", absl::StrFormat("%d", other.samples)});
  const bool both = target.samples > 0 && other.samples > 0;
  move.evidence.push_back(
      {"fresh_delays", both ? "of both candidates" : "no answer in time where probes are 0: the last window's delay"});
  return move;
}

}  // namespace cw::control
