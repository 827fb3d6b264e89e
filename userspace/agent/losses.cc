// SPDX-License-Identifier: Apache-2.0
// Paths that lose a share of their packets (control/path_loss.h), or data while probes pass (control/data_stall.h):
// left like dead ones, and taken back when clean, or after a time.
#include <algorithm>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

constexpr uint32_t kMuteRounds = 20;

}  // namespace

// Dead paths are the kernel's to judge; new ones have not answered yet.
uint16_t Agent::JudgedSlots(const PairState& pair) const {
  uint16_t judged = 0;
  const cw_pair& shared = dataplane_->pairs()[pair.index];
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint8_t state = probe::Load(shared.slot[s].state);
    if (state == CW_SLOT_UP || state == CW_SLOT_SUSPECT) judged |= static_cast<uint16_t>(1u << s);
  }
  return judged;
}

void Agent::JudgeLosses() {
  for (auto& [index, pair] : pairs_) {
    if (pair->loss == nullptr) continue;
    for (const control::PairLoss::Verdict& verdict : pair->loss->Judge()) OnLoss(*pair, verdict);
  }
}

void Agent::OnLoss(PairState& pair, const control::PairLoss::Verdict& verdict) {
  const int64_t now_ns = MonotonicNs();
  const double share = static_cast<double>(verdict.lost) / verdict.rounds;
  telemetry::Event event{.type = "path",
                         .severity = verdict.lossy ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
                         .peer = pair.peer,
                         .slot = verdict.slot};
  event.text = verdict.lossy ? absl::StrFormat(
                                   "path %d to %s loses packets: %d of %d probes, the other paths %.1f %%; it is left",
                                   verdict.slot, pair.peer, verdict.lost, verdict.rounds, 100 * verdict.others)
                             : absl::StrFormat("path %d to %s lost %d of the last %d probes: it may be used again",
                                               verdict.slot, pair.peer, verdict.lost, verdict.rounds);
  const bool acts = modes_->Acts(Capability::kLoss);
  event.dry = !acts;
  event.evidence = {{"lost", absl::StrCat(verdict.lost)},
                    {"probes", absl::StrCat(verdict.rounds)},
                    {"loss", absl::StrFormat("%.4f", share)},
                    {"other_paths_loss", absl::StrFormat("%.4f", verdict.others)},
                    {"udp_port", absl::StrCat(engine_->mesh().slots(pair.index).port(verdict.slot))}};
  if (event.dry && verdict.lossy && modes_->Observes(Capability::kLoss))
    dry_run_->TellLoss(pair, verdict.slot, share - verdict.others, event.evidence);
  if (acts || modes_->Observes(Capability::kLoss)) Log(std::move(event));
  control::PathDamping& damping = pair.slot[verdict.slot].damping;
  verdict.lossy ? damping.Down(now_ns) : damping.Up(now_ns);
  UpdateDamping(pair);
  if (verdict.lossy && acts) {
    // Before they go: what it lost last is asked for again, by the path they take.
    OnPathLost(pair, verdict.slot, TailCause::kLossy);
    LeavePath(pair, verdict.slot);
  }
  if (verdict.lossy) MoveOwnersOff(pair, verdict.slot, Capability::kLoss);
}

void Agent::JudgeStalls(int64_t now_ns) {
  std::map<uint32_t, std::vector<control::DataFlow>> flows;
  for (auto& [key, flow] : flows_.sent) {
    const PairState* pair = FindPair(flow.tx.pair);
    if (pair == nullptr || pair->stalls == nullptr || pair->blind) continue;  // nobody knows the paths of its flows
    const control::TailView view = TailOf(flow.tx);
    if (flow.process == 0) {  // it does not change, and this is done for every flow in every window
      const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
      flow.process = qp ? qp->pid : 0;
    }
    flows[flow.tx.pair].push_back({.key = key,
                                   .slot = flow.PathSlot(),
                                   .next = view.next,
                                   .acked = view.acked,
                                   .answers = flow.answers.acks + flow.answers.rnr_naks + flow.answers.seq_naks,
                                   .known = view.known,
                                   .process = flow.process});
  }
  for (auto& [index, pair] : pairs_) {
    if (pair->stalls == nullptr || pair->blind) continue;
    for (const control::DataStall::Verdict& verdict : pair->stalls->Step(now_ns, flows[index], JudgedSlots(*pair)))
      OnStall(*pair, verdict);
  }
}

void Agent::OnStall(PairState& pair, const control::DataStall::Verdict& verdict) {
  const bool acts = modes_->Acts(Capability::kLoss);
  const double quiet_ms = static_cast<double>(verdict.quiet_ns) / 1e6;
  telemetry::Event event{
      .type = "path", .severity = telemetry::Severity::kAlert, .peer = pair.peer, .slot = verdict.slot, .dry = !acts};
  event.text = absl::StrFormat(
      "path %d to %s delivers probes but no data: nothing of the %s on it was acknowledged for %.0f ms, while %d "
      "went on by other paths; it is left for %d s",
      verdict.slot, pair.peer, Counted(static_cast<uint64_t>(verdict.flows), "flow"), quiet_ms, verdict.witnesses,
      verdict.away_ns / 1'000'000'000);
  event.evidence = {{"stalled_flows", absl::StrCat(verdict.flows)},
                    {"quiet_ms", absl::StrFormat("%.0f", quiet_ms)},
                    {"witnesses", absl::StrCat(verdict.witnesses)},
                    {"udp_port", absl::StrCat(engine_->mesh().slots(pair.index).port(verdict.slot))}};
  if (acts || modes_->Observes(Capability::kLoss)) Log(std::move(event));
  if (!acts) return pair.stalls->Forget(verdict.slot);
  UpdateDamping(pair);
  // Before they go: what was under way is asked for again, by the path they take.
  OnPathLost(pair, verdict.slot, TailCause::kNoData);
  LeavePath(pair, verdict.slot);
}

// A native port that is probed for itself and never answers, while other paths do. The kernel judges paths that were
// alive once.
bool Agent::IsMute(const PairState& pair, uint8_t slot) const {
  const cw_pair& shared = dataplane_->pairs()[pair.index];
  if (pair.blind || probe::Load(shared.live_mask) == 0 || engine_->mesh().slots(pair.index).is_path(slot)) return false;
  const uint32_t rounds = probe::Load(shared.cur_round) - probe::Load(shared.slot[slot].progress_round);
  return probe::Load(shared.slot[slot].state) == CW_SLOT_NEW && rounds >= kMuteRounds;
}

// While ports are dealt out anew none is believed to take another's path, and slots may not suffice for all: no verdict
// would move flows on the rest.
void Agent::LeaveUnwatchedPorts() {
  if (!modes_->Acts(Capability::kFailover)) return;
  std::set<uint32_t> pairs;
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.port == 0 && flow.PathSlot() == CW_SLOT_NONE) pairs.insert(flow.tx.pair);
  }
  for (const uint32_t index : pairs) {
    PairState* pair = FindPair(index);
    const probe::Discovery* discovery = engine_->discovery(index);
    if (pair == nullptr || !pair->active || pair->blind) continue;
    if (discovery == nullptr || !discovery->InMotion()) continue;
    const int left = LeavePath(*pair, CW_SLOT_NONE, /*steered_to=*/0);
    if (left == 0) continue;
    Log({.type = "path",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrFormat(
             "paths to %s change, and no slot is left to watch the ports of %s: put on paths that are watched",
             pair->peer, Counted(static_cast<uint64_t>(left), "flow")),
         .peer = pair->peer});
  }
}

void Agent::LeaveMutePorts() {
  if (!modes_->Acts(Capability::kFailover)) return;
  for (auto& [index, pair] : pairs_) {
    if (!pair->active) continue;
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (!IsMute(*pair, s)) continue;
      const cw_slot& slot = dataplane_->pairs()[index].slot[s];
      const uint32_t rounds = probe::Load(dataplane_->pairs()[index].cur_round) - probe::Load(slot.progress_round);
      const int left = LeavePath(*pair, s);
      if (left == 0) continue;
      Log({.type = "path",
           .severity = telemetry::Severity::kAlert,
           .text = absl::StrFormat("udp-port %d to %s never answered while other paths did: %s put on others",
                                   probe::Load(slot.port), pair->peer, Counted(static_cast<uint64_t>(left), "flow")),
           .peer = pair->peer,
           .slot = s,
           .evidence = {{"rounds", absl::StrCat(rounds)}}});
    }
  }
}

// Each flow of the path goes to the usable one that has the fewest then. At once: what is in flight is lost in part
// anyway. steered_to: only those that were steered to this port, which is no path any more, so nobody returns to it.
// Returns how many go.
int Agent::LeavePath(PairState& pair, uint8_t slot, std::optional<uint16_t> steered_to) {
  const probe::SlotTable& slots = engine_->mesh().slots(pair.index);
  const uint16_t judged = JudgedSlots(pair);
  std::array<int, CW_MAX_SLOTS> flows{};
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair == pair.index && flow.PathSlot() < CW_MAX_SLOTS) ++flows[flow.PathSlot()];
  }
  std::vector<uint8_t> targets;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots.is_path(s) && (judged >> s & 1) != 0 && (pair.blocked >> s & 1) == 0) targets.push_back(s);
  }
  int left = 0;
  if (targets.empty()) return left;
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair != pair.index || flow.PathSlot() != slot || (flow.tx.flags & CW_STEER_HARD_LOCKED) != 0) continue;
    if (steered_to && flow.tx.port != *steered_to) continue;
    const bool going =
        flow.tx.want_force != 0 && std::find(targets.begin(), targets.end(), flow.tx.want_slot) != targets.end();
    if (going) continue;  // with its next packet
    const uint8_t to =
        *std::min_element(targets.begin(), targets.end(), [&](uint8_t a, uint8_t b) { return flows[a] < flows[b]; });
    ++flows[to];
    if (!dataplane_->flow_editor().Want(ToMap(key), to, slots.port(to), /*force=*/true).ok()) continue;
    ++left;
    if (!steered_to) LeftBadPath(key, pair.index, slot, flow.tx.port, to, slots.port(to));
  }
  return left;
}

}  // namespace cw::agent
