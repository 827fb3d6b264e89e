// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/recovery/rerolls.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/recovery/tails.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kBlindTick = absl::Milliseconds(4);
constexpr int64_t kAfterDeathNs = 2'000'000'000;  // a revived path's flows may still wait

}  // namespace

// Whether another port may help a flow of the pair: a path is dead, or was until just now, and ports matter.
bool Rerolls::MayReroll(const PairState& pair, int64_t now_ns) const {
  if (!asks_.allowed(pair.index).Acts(Capability::kFailover)) return false;
  // Data with another TTL than the probes' are on other paths, too.
  const std::optional<probe::Hashing> hashing = asks_.hashing(pair.index);
  if (hashing != probe::Hashing::kQpn && hashing != probe::Hashing::kTtl) return false;
  if (pair.died_ns != 0 && now_ns - pair.died_ns < kAfterDeathNs) return true;
  const cw_pair& shared = *mesh_.shared(pair.index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (probe::Load(shared.slot[s].state) == CW_SLOT_DEAD) return true;
  }
  return false;
}

void Rerolls::OnPathLost(const PathLost& lost) {
  if (lost.cause != LossCause::kDead) return;
  lost.pair.died_ns = monotonic_.NowNs();
  if (ticking_ || !MayReroll(lost.pair, lost.pair.died_ns)) return;
  ticking_ = true;
  timers_.After(kBlindTick, [this] { Tick(); });
}

void Rerolls::Tick() {
  const int64_t now_ns = monotonic_.NowNs();
  std::set<uint32_t> open;
  for (const auto& [index, pair] : pairs_) {
    if (MayReroll(*pair, now_ns)) open.insert(index);
  }
  std::vector<std::pair<FlowKey, cw_tx_flow>> stuck;
  if (!open.empty()) {
    flows_.ForEachSent([&](const FlowKey& key, const cw_tx_flow& flow) {
      if (!open.contains(flow.pair) || (flow.flags & CW_STEER_HARD_LOCKED) != 0) return;
      const Allowed allowed = asks_.allowed(flow.pair, key);
      if (!allowed.Acts(Capability::kFailover)) return;
      const control::TailView view = TailViewOf(flow, *mesh_.shared(flow.pair), allowed);
      if (watched_[key].Step(view, now_ns)) stuck.emplace_back(key, flow);
    });
  }
  for (const auto& [key, flow] : stuck) Reroll(key, flow, now_ns);
  ticking_ = !open.empty();
  if (ticking_) {
    // A tenth of the loop's time at most, however many flows there are.
    timers_.After(std::max(kBlindTick, 10 * absl::Nanoseconds(monotonic_.NowNs() - now_ns)), [this] { Tick(); });
  } else {
    watched_.clear();
  }
}

void Rerolls::Reroll(const FlowKey& key, const cw_tx_flow& flow, int64_t now_ns) {
  const probe::DiscoveryOptions range;  // ports that may be chosen
  const uint16_t before = flow.port != 0 ? flow.port : flow.flow.sport;
  uint16_t port = before;
  while (port == before) port = static_cast<uint16_t>(range.first_port + random_() % range.port_count);
  if (!flows_.Place(key, CW_SLOT_NONE, port).ok()) return;
  ++rolls_;
  const control::RerollWatch& watch = watched_[key];
  events_.Log({.type = "move",
               .severity = telemetry::Severity::kNotice,
               .text = absl::StrFormat(
                   "queue pair to %s qp 0x%x takes udp-port %d by chance: it gets no acknowledgements, a path "
                   "is dead, and switches do not hash on ports alone",
                   names_.Of(key.dst), key.dqpn, port),
               .flow = key.Id().ToString(),
               .peer = names_.Of(key.dst),
               .evidence = {{"udp_port_before", absl::StrCat(before)},
                            {"udp_port", absl::StrCat(port)},
                            {"silence_us", absl::StrCat(watch.quiet_ns(now_ns) / 1000)},
                            {"try", absl::StrCat(watch.rolls())}}});
  asks_.rolled(key);  // its packets are dead: it would wait for its own timer
}

}  // namespace cw::agent
