// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/gaps.h"

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

constexpr int kWindowS = 10;  // that of the flows' own delays
constexpr int64_t kWindowNs = int64_t{kWindowS} * 1'000'000'000;
constexpr int64_t kFreshNs = 7'000'000'000;  // RecentDelays turns with a sample, after five seconds
constexpr double kProbeBytes = 100;

// Each switch and both hosts put a packet onto a wire; the NIC's rate stands for all of them.
double LargerNs(const cw_flow& flow, size_t hops, double rate_bps) {
  if (flow.packets == 0 || rate_bps <= 0) return 0;
  const double bytes =
      std::max(static_cast<double>(flow.bytes) / static_cast<double>(flow.packets), static_cast<double>(flow.mtu));
  return std::max(0.0, bytes - kProbeBytes) * 8e9 / rate_bps * static_cast<double>(hops + 1);
}

// Within what both are measured over. A path that is silent now may as well be dead.
bool PausedLately(const SlotState& slot, int64_t now_ns) {
  if (slot.silence && slot.silence->watch.verdict() == control::Silence::kPaused) return true;
  return slot.paused_ns != 0 && now_ns - slot.paused_ns < kWindowNs;
}

// What a path's probes say, once for all of its flows.
class Meshes {
 public:
  explicit Meshes(int64_t now_ns) : now_ns_(now_ns) {}

  void Fill(const PairState& pair, uint8_t slot, control::GapLook& look) {
    const auto [at, added] = looks_.try_emplace({pair.index, slot});
    if (added) {
      const telemetry::DelayWindow mesh = pair.slot[slot].forward.Window(now_ns_, kWindowS);
      at->second.mesh_samples = mesh.owd.count();
      if (mesh.owd.count() > 0) {
        at->second.mesh_p50_ns = mesh.owd.QuantileNs(0.5);
        at->second.mesh_p99_ns = mesh.owd.QuantileNs(0.99);
      }
    }
    look.mesh_samples = at->second.mesh_samples;
    look.mesh_p50_ns = at->second.mesh_p50_ns;
    look.mesh_p99_ns = at->second.mesh_p99_ns;
  }

 private:
  const int64_t now_ns_;
  std::map<std::pair<uint32_t, uint8_t>, control::GapLook> looks_;
};

}  // namespace

Gaps::Gaps(const FlowBook& flows, const PairTable& pairs, const NicTable& nics, const probe::Mesh& mesh,
           PathFactsOf path_facts, const CauseBook& causes, const PeerNames& names, EventSink& events)
    : flows_(flows),
      pairs_(pairs),
      nics_(nics),
      mesh_(mesh),
      path_facts_(std::move(path_facts)),
      causes_(causes),
      names_(names),
      events_(events) {}

void Gaps::Judge(int64_t now_ns, bool acts) {
  Meshes meshes(now_ns);
  for (const auto& [key, flow] : flows_.sent) {
    const PairState* pair = FindIn(pairs_, flow.tx.pair);
    const uint8_t slot = flow.SlotOfPackets(acts);
    if (pair == nullptr || slot >= CW_MAX_SLOTS || pair->blind) continue;
    // What is kept of a flow that rests is old, and of one that has just moved it is another path's.
    const bool fresh = flow.owd_slot == slot && now_ns - flow.owd.turned_ns < kFreshNs;
    control::GapLook look{.flow_samples = fresh ? flow.owd.now.count() + flow.owd.before.count() : 0};
    if (look.flow_samples > 0) {
      const telemetry::Sketch own = flow.owd.Merged();
      look.flow_p50_ns = own.QuantileNs(0.5);
      look.flow_iqr_ns = own.QuantileNs(0.75) - own.QuantileNs(0.25);
      meshes.Fill(*pair, slot, look);
    }
    const PathFacts facts = path_facts_(pair->index, slot);
    const auto nic =
        std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.ifindex == pair->ifindex; });
    // Where the rate is not known, a slow link of 100 Mbit/s is allowed for.
    const double rate_bps = nic == nics_.end() || nic->rate_bps <= 0 ? 100e6 : nic->rate_bps;
    look.larger_ns = LargerNs(flow.flow(), facts.hops, rate_bps);
    const control::Cause cause = causes_.Of(PairKey{key.src, key.dst}, key).cause;
    const control::GapClues clues = {.flow_dscp = static_cast<uint8_t>(flow.flow().tos >> 2),
                                     .probe_dscp = mesh_.dscp(pair->index),
                                     .ports_choose = facts.ports_choose,
                                     .paused = PausedLately(pair->slot[slot], now_ns),
                                     .slow_receiver = cause == control::Cause::kSlowReceiver,
                                     .slow_sender = cause == control::Cause::kSlowSender};
    if (watch_.Step(key, now_ns, look, clues)) Tell(key, *watch_.Of(key));
  }
  watch_.ForgetOthers();
}

void Gaps::Tell(const FlowKey& key, const control::GapVerdict& verdict) {
  const std::string what = absl::StrFormat("queue pair to %s qp 0x%x", names_.Of(key.dst), key.dqpn);
  events_.Log({.type = "gap",
               .severity = verdict.finding ? telemetry::Severity::kNotice : telemetry::Severity::kInfo,
               .text = verdict.finding ? absl::StrCat(what, " is slower than its path: ", verdict.text)
                                       : absl::StrCat(what, " is as fast as its path again"),
               .flow = key.Id().ToString(),
               .peer = names_.Of(key.dst),
               .evidence = verdict.evidence});
}

void Gaps::Fill(const FlowKey& key, int64_t now_ns, v1::Flow& out) const {
  const control::GapVerdict* verdict = watch_.Of(key);
  if (verdict == nullptr || !verdict->known) return;
  v1::DelayGap& gap = *out.mutable_gap();
  gap.set_flow_p50_ns(verdict->look.flow_p50_ns);
  gap.set_mesh_p50_ns(verdict->look.mesh_p50_ns);
  gap.set_spread_ns(verdict->spread_ns);
  gap.set_lasting_s(verdict->since_ns == 0 ? 0 : static_cast<double>(now_ns - verdict->since_ns) / 1e9);
  gap.set_finding(verdict->finding);
  gap.set_cause(control::GapCauseName(verdict->cause));
  gap.set_text(verdict->text);
}

}  // namespace cw::agent
