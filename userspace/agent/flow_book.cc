// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flow_book.h"

#include <algorithm>
#include <cstring>

namespace cw::agent {
namespace {
constexpr int64_t kHalfNs = 5'000'000'000;
}  // namespace

cw_flow_key ToMap(const FlowKey& key) {
  cw_flow_key out{};
  std::memcpy(out.saddr, key.src.bytes.data(), 16);
  std::memcpy(out.daddr, key.dst.bytes.data(), 16);
  out.dqpn = key.dqpn;
  return out;
}

FlowKey FromMap(const cw_flow_key& key) {
  return {.src = Addr::FromBytes(key.saddr), .dst = Addr::FromBytes(key.daddr), .dqpn = key.dqpn};
}

void RecentDelays::Turn(int64_t now_ns) {
  if (now_ns - turned_ns < kHalfNs) return;
  if (now_ns - turned_ns < 2 * kHalfNs) {
    std::swap(now, before);
  } else {
    before.Clear();
  }
  now.Clear();
  turned_ns = now_ns;
}

void RecentDelays::Add(int64_t now_ns, int64_t owd_ns) {
  Turn(now_ns);
  now.Add(owd_ns);
}

void FlowEntry::AddDelay(int64_t now_ns, uint8_t on_slot, int64_t owd_ns) {
  if (owd_slot != on_slot) owd = {};
  owd_slot = on_slot;
  owd.Add(now_ns, owd_ns);
}

telemetry::Sketch RecentDelays::Merged() const {
  telemetry::Sketch all = now;
  all.Merge(before);
  return all;
}

}  // namespace cw::agent
