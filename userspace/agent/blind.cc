// SPDX-License-Identifier: Apache-2.0
// Pairs whose flows do not take the paths of the probes with their ports (probe::ProbesFollowFlows): flows keep their
// own ports and belong to no slot, so that no verdict about a slot moves them. Where switches hash on ports and on
// something else besides, control/reroll.h is what is left of failover.
#include <algorithm>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kBlindTick = absl::Milliseconds(4);
constexpr int64_t kAfterDeathNs = 2'000'000'000;  // a revived path's flows may still wait

}  // namespace

void Agent::SetBlind(PairState& pair, bool blind) {
  if (pair.blind == blind) return;
  pair.blind = blind;
  for (auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair != pair.index) continue;
    if (!blind) {
      flow.native_asked = 0;  // ReadFlows asks for its slot
      continue;
    }
    if (flow.native_asked != 0) engine_->ReleaseNative(pair.index, flow.native_asked, NowNs());
    flow.native_asked = 0;
    (void)dataplane_->flow_editor().SetNativeSlot(ToMap(key), CW_SLOT_NONE);
    if ((flow.tx.flags & CW_STEER_MANUAL) == 0) (void)dataplane_->flow_editor().Place(ToMap(key), CW_SLOT_NONE, 0);
  }
  PublishBlocked(pair);
}

// Whether another port may help a flow of the pair: a path is dead, or was until just now, and ports matter.
bool Agent::MayReroll(const PairState& pair, int64_t now_ns) const {
  if (!modes_->Acts(Capability::kFailover)) return false;
  const probe::Discovery* discovery = engine_->discovery(pair.index);
  if (discovery == nullptr) return false;
  // Data with another TTL than the probes' are on other paths, too.
  if (discovery->hashing() != probe::Hashing::kQpn && discovery->hashing() != probe::Hashing::kTtl) return false;
  if (pair.died_ns != 0 && now_ns - pair.died_ns < kAfterDeathNs) return true;
  const cw_pair& shared = dataplane_->pairs()[pair.index];
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (probe::Load(shared.slot[s].state) == CW_SLOT_DEAD) return true;
  }
  return false;
}

void Agent::StartRerolls(PairState& pair) {
  pair.died_ns = MonotonicNs();
  if (rerolls_.ticking || !MayReroll(pair, pair.died_ns)) return;
  rerolls_.ticking = true;
  loop_->After(kBlindTick, [this] { RerollTick(); });
}

void Agent::RerollTick() {
  const int64_t now_ns = MonotonicNs();
  std::set<uint32_t> open;
  for (const auto& [index, pair] : pairs_) {
    if (MayReroll(*pair, now_ns)) open.insert(index);
  }
  std::vector<std::pair<FlowKey, cw_tx_flow>> stuck;
  if (!open.empty()) {
    (void)dataplane_->tx_flows().ForEach([&](const cw_flow_key& map_key, const cw_tx_flow& flow) {
      if (!open.contains(flow.pair) || (flow.flags & CW_STEER_HARD_LOCKED) != 0) return;
      const FlowKey key = FromMap(map_key);
      if (rerolls_.watched[key].Step(TailOf(flow), now_ns)) stuck.emplace_back(key, flow);
    });
  }
  for (const auto& [key, flow] : stuck) Reroll(key, flow, now_ns);
  rerolls_.ticking = !open.empty();
  if (rerolls_.ticking) {
    // A tenth of the loop's time at most, however many flows there are.
    loop_->After(std::max(kBlindTick, 10 * absl::Nanoseconds(MonotonicNs() - now_ns)), [this] { RerollTick(); });
  } else {
    rerolls_.watched.clear();
  }
}

void Agent::Reroll(const FlowKey& key, const cw_tx_flow& flow, int64_t now_ns) {
  const probe::DiscoveryOptions range;  // ports that may be chosen
  const uint16_t before = flow.port != 0 ? flow.port : flow.flow.sport;
  uint16_t port = before;
  while (port == before) port = static_cast<uint16_t>(range.first_port + rerolls_.random() % range.port_count);
  if (!dataplane_->flow_editor().Place(ToMap(key), CW_SLOT_NONE, port).ok()) return;
  ++rerolls_.rolls;
  const control::RerollWatch& watch = rerolls_.watched[key];
  Log({.type = "move",
       .severity = telemetry::Severity::kNotice,
       .text =
           absl::StrFormat("queue pair to %s qp 0x%x takes udp-port %d by chance: it gets no acknowledgements, a path "
                           "is dead, and switches do not hash on ports alone",
                           peer_names_.Of(key.dst), key.dqpn, port),
       .flow = key.Id().ToString(),
       .peer = peer_names_.Of(key.dst),
       .evidence = {{"udp_port_before", absl::StrCat(before)},
                    {"udp_port", absl::StrCat(port)},
                    {"silence_us", absl::StrCat(watch.quiet_ns(now_ns) / 1000)},
                    {"try", absl::StrCat(watch.rolls())}}});
  // Its packets are dead: it would wait for its own timer.
  if (!RepairsTails()) return;
  if (absl::StatusOr<cw_tx_flow> fresh = dataplane_->tx_flows().Lookup(ToMap(key)); fresh.ok()) {
    tails_.watched.erase(key);  // another throw, another attempt
    WatchTail(key, *fresh, TailCause::kChance);
  }
}

}  // namespace cw::agent
