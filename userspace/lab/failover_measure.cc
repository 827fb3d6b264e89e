// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/failover_measure.h"

#include <algorithm>

namespace cw::lab {

double LeftMs(const std::vector<FlowCounters>& counted, const std::string& source, uint32_t qpn,
              const LinkDirection& link, int64_t cut_ns, int64_t until_ns) {
  int64_t last_ns = cut_ns;
  for (const FlowCounters& c : counted) {
    if (c.link == link && !c.probe && c.source == source && c.dest_qpn == qpn) last_ns = std::max(last_ns, c.last_ns);
  }
  return last_ns > until_ns - 50'000'000 ? -1 : static_cast<double>(last_ns - cut_ns) / 1e6;
}

double RecoveryMs(const Emulator& emulator, int flow, int64_t cut_ns, int64_t until_ns, int64_t begins_ns) {
  int64_t previous_ns = cut_ns;
  int64_t longest_ns = 0, end_ns = -1;
  while (previous_ns <= cut_ns + begins_ns) {
    const ArrivalRing::After after = emulator.FirstDeliveryAfter(flow, previous_ns + 1);
    if (!after.any_ns.has_value() || *after.any_ns >= until_ns) return -1;
    if (*after.any_ns - previous_ns > longest_ns) {
      longest_ns = *after.any_ns - previous_ns;
      end_ns = *after.any_ns;
    }
    previous_ns = *after.any_ns;
  }
  return static_cast<double>(end_ns - cut_ns) / 1e6;
}

bool CutTime::Holds(int64_t begin_ns) const {
  constexpr int64_t kEarlyNs = 5'000'000;
  return begin_ns >= cut_ns - kEarlyNs && begin_ns < repaired_ns;
}

Stall LongestStall(const FlowReport& flow, int64_t taken_ns, const CutTime& time) {
  int64_t longest_ns = 0, end_ns = 0;
  for (const Gap& stall : flow.send.stalls) {
    if (!time.Holds(stall.begin_ns) || stall.Length() <= longest_ns) continue;
    longest_ns = stall.Length();
    end_ns = stall.end_ns;
  }
  // It stood still until it died at the least: which of its retries was the first is not kept.
  if (flow.dead) {
    const int64_t dead_ms = flow.send.dead_ns > time.cut_ns ? (flow.send.dead_ns - time.cut_ns) / 1'000'000 : 0;
    return {std::max(static_cast<double>(longest_ns) / 1e6, static_cast<double>(dead_ms)), end_ns, true};
  }
  if (time.Holds(flow.waiting_since_ns) && taken_ns - flow.waiting_since_ns > longest_ns) {
    longest_ns = taken_ns - flow.waiting_since_ns;
    end_ns = INT64_MAX;
  }
  return {static_cast<double>(longest_ns) / 1e6, end_ns, false};
}

int StillOn(const Fabric& fabric, const Snapshot& snapshot, const std::vector<int>& flows, int spine,
            bool acknowledgements, int64_t now_ns) {
  const absl::StatusOr<std::vector<FlowCounters>> counted = fabric.Flows();
  if (!counted.ok()) return 0;
  int still = 0;
  for (const FlowReport& flow : snapshot.flows) {
    if (std::find(flows.begin(), flows.end(), flow.id) == flows.end()) continue;
    const int from = acknowledgements ? flow.destination : flow.source;
    const uint32_t qpn = acknowledgements ? flow.source_qpn : flow.destination_qpn;
    const LinkDirection up = LinkDirection::LeafToSpine(fabric.HostLeaf(from), spine);
    const bool on = std::any_of(counted->begin(), counted->end(), [&](const FlowCounters& c) {
      return c.link == up && !c.probe && c.source == fabric.HostAddr(from) && c.dest_qpn == qpn &&
             c.last_ns > now_ns - 200'000'000;
    });
    still += on || flow.dead;
  }
  return still;
}

}  // namespace cw::lab
