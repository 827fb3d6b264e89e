// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/losses.h"

#include <map>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/model/counted.h"

namespace cw::agent {

void Losses::Judge() {
  for (const auto& [index, pair] : pairs_) {
    if (pair->loss == nullptr) continue;
    for (const control::PairLoss::Verdict& verdict : pair->loss->Judge()) OnLoss(*pair, verdict);
  }
}

void Losses::OnLoss(PairState& pair, const control::PairLoss::Verdict& verdict) {
  const int64_t now_ns = monotonic_.NowNs();
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
  const Allowed allowed = allowed_(pair.index);
  const bool acts = allowed.Acts(Capability::kLoss);
  event.dry = !acts;
  event.evidence = {{"pair", PairText(pair.key.local, pair.key.remote)},
                    {"lost", absl::StrCat(verdict.lost)},
                    {"probes", absl::StrCat(verdict.rounds)},
                    {"loss", absl::StrFormat("%.4f", share)},
                    {"other_paths_loss", absl::StrFormat("%.4f", verdict.others)},
                    {"udp_port", absl::StrCat(mesh_.slots(pair.index).port(verdict.slot))}};
  if (event.dry && verdict.lossy && allowed.Decides(Capability::kLoss))
    dry_run_.TellLoss(pair, verdict.slot, share - verdict.others, event.evidence);
  if (allowed.Decides(Capability::kLoss)) events_.Log(std::move(event));
  control::PathDamping& damping = pair.slot[verdict.slot].damping;
  verdict.lossy ? damping.Down(now_ns) : damping.Up(now_ns);
  damping_.Update(pair);
  if (verdict.lossy) Publish(lost_, {.pair = pair, .slot = verdict.slot, .cause = LossCause::kLossy, .act = acts});
}

void Losses::JudgeStalls(int64_t now_ns) {
  std::map<uint32_t, std::vector<control::DataFlow>> flows;
  for (auto& [key, flow] : flows_.sent) {
    const PairState* pair = FindIn(pairs_, flow.tx.pair);
    if (pair == nullptr || pair->stalls == nullptr || pair->blind) continue;  // nobody knows the paths of its flows
    const control::TailView view = TailViewOf(flow.tx, *mesh_.shared(flow.tx.pair), allowed_(pair->index));
    if (flow.process == 0) {  // it does not change, and this is done for every flow in every window
      const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
      flow.process = qp ? qp->pid : 0;
    }
    flows[flow.tx.pair].push_back({.key = key,
                                   .slot = flow.PathSlot(),
                                   .next = view.next,
                                   .acked = view.acked,
                                   .answers = flow.answers.acks + flow.answers.rnr_naks + flow.answers.seq_naks,
                                   .resent = flow.tx.flow.req.duplicates,
                                   .known = view.known,
                                   .process = flow.process});
  }
  for (const auto& [index, pair] : pairs_) {
    if (pair->stalls == nullptr || pair->blind) continue;
    for (const control::DataStall::Verdict& verdict :
         pair->stalls->Step(now_ns, flows[index], JudgedSlots(*mesh_.shared(index))))
      OnStall(*pair, verdict);
  }
}

void Losses::OnStall(PairState& pair, const control::DataStall::Verdict& verdict) {
  const Allowed allowed = allowed_(pair.index);
  const bool acts = allowed.Acts(Capability::kLoss);
  const double quiet_ms = static_cast<double>(verdict.quiet_ns) / 1e6;
  telemetry::Event event{
      .type = "path", .severity = telemetry::Severity::kAlert, .peer = pair.peer, .slot = verdict.slot, .dry = !acts};
  event.text = absl::StrFormat(
      "path %d to %s delivers probes but no data: nothing of the %s on it was acknowledged for %.0f ms, while %d "
      "went on by other paths; it is left for %d s",
      verdict.slot, pair.peer, Counted(static_cast<uint64_t>(verdict.flows), "flow"), quiet_ms, verdict.witnesses,
      verdict.away_ns / 1'000'000'000);
  event.evidence = {{"pair", PairText(pair.key.local, pair.key.remote)},
                    {"stalled_flows", absl::StrCat(verdict.flows)},
                    {"quiet_ms", absl::StrFormat("%.0f", quiet_ms)},
                    {"witnesses", absl::StrCat(verdict.witnesses)},
                    {"udp_port", absl::StrCat(mesh_.slots(pair.index).port(verdict.slot))}};
  if (allowed.Decides(Capability::kLoss)) events_.Log(std::move(event));
  if (!acts) return pair.stalls->Forget(verdict.slot);
  damping_.Update(pair);
  Publish(lost_, {.pair = pair, .slot = verdict.slot, .cause = LossCause::kNoData, .act = true});
}

}  // namespace cw::agent
