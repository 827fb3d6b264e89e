// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/recovery/tails.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/flow_book.h"
#include "userspace/probe/nak_packet.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kTailTick = absl::Milliseconds(1);
constexpr int64_t kTellAgainNs = 3'000'000;
constexpr uint8_t kTransportRc = 0;

uint8_t PathOf(const cw_tx_flow& flow) { return flow.port != 0 ? flow.slot : flow.native_slot; }

}  // namespace

control::TailView TailViewOf(const cw_tx_flow& flow, const cw_pair& pair, Allowed allowed) {
  const uint8_t path = PathOf(flow);
  const bool dead = path < CW_MAX_SLOTS && probe::Load(pair.slot[path].state) == CW_SLOT_DEAD;
  const bool stays = (flow.flags & CW_STEER_HARD_LOCKED) != 0;
  control::TailView view{.next = flow.flow.req.next, .acked = flow.acked_psn, .sent = flow.flow.req.packets};
  view.known = flow.acked_valid != 0 && flow.flow.req.seen == 1 && flow.flow.transport == kTransportRc;
  // Asking without failover is asking in vain; but what is only observed is observed whole.
  const bool leaves = allowed.Acts(Capability::kFailover) || !allowed.Acts(Capability::kTails);
  view.acks_seen = probe::Load(pair.carried) == 0;
  view.can_go = !view.acks_seen || !dead || (leaves && !stays && probe::Load(pair.live_mask) != 0);
  return view;
}

control::TailView Tails::ViewOf(const FlowKey& key, const cw_tx_flow& flow) const {
  return TailViewOf(flow, *mesh_.shared(flow.pair), asks_.allowed(flow.pair, key));
}

Tails::Cause Tails::CauseOf(LossCause cause) {
  if (cause == LossCause::kDead) return Cause::kDead;
  return cause == LossCause::kLossy ? Cause::kLossy : Cause::kNoData;
}

std::string Tails::CauseText(const Watched& tail, const std::string& peer) {
  switch (tail.cause) {
    case Cause::kLossy:
      return absl::StrFormat("path %d loses packets and was left", tail.slot);
    case Cause::kNoData:
      return absl::StrFormat("path %d delivers no data and was left", tail.slot);
    case Cause::kWayBack:
      return absl::StrFormat("%s left its path %d, and acknowledgements may be lost with it", peer, tail.slot);
    case Cause::kChance:
      return "they are not acknowledged while a path is dead";
    case Cause::kNic:
      return "they were lost with a NIC, another one carries them now";
    case Cause::kDead:
      break;
  }
  return tail.slot == CW_SLOT_NONE ? "they died with a path" : absl::StrFormat("they died with path %d", tail.slot);
}

void Tails::Watch(const FlowKey& key, const cw_tx_flow& flow, Cause cause, uint8_t slot) {
  if (FindIn(pairs_, flow.pair) == nullptr) return;
  const control::TailView view = ViewOf(key, flow);
  if (control::Unacknowledged(view) == 0) return;
  auto known = watched_.find(key);
  if (known != watched_.end()) {
    known->second.watch.Extend(view, monotonic_.NowNs());
    return;
  }
  ++counts_.watched;
  watched_.insert({key, {.watch = control::TailWatch(view, monotonic_.NowNs()), .cause = cause, .slot = slot}});
  StartTicks();
}

void Tails::OnPathLost(const PathLost& lost) {
  if (!Repairs() || !lost.act) return;
  std::vector<uint32_t> qpns;
  flows_.ForEachSent([&](const FlowKey& key, const cw_tx_flow& flow) {
    if (flow.pair != lost.pair.index || PathOf(flow) != lost.slot) return;
    if (asks_.allowed(flow.pair, key).Acts(Capability::kTails)) qpns.push_back(key.dqpn);
    Watch(key, flow, CauseOf(lost.cause), lost.slot);
  });
  TellPeer(lost.pair.index, lost.slot, std::move(qpns));
}

void Tails::OnMovedOffDead(const cw_ev_move& move) {
  if (!Repairs() || FindIn(pairs_, move.pair) == nullptr) return;
  const FlowKey key = FromMap(move.key);
  if (const absl::StatusOr<cw_tx_flow> flow = flows_.Sent(key); flow.ok())
    Watch(key, *flow, Cause::kDead, move.from_slot);
  if (asks_.allowed(move.pair, key).Acts(Capability::kTails)) TellPeer(move.pair, move.from_slot, {key.dqpn});
}

void Tails::OnCarried(uint32_t index) {
  if (!Repairs()) return;
  flows_.ForEachSent([&](const FlowKey& key, const cw_tx_flow& flow) {
    if (flow.pair != index) return;
    watched_.erase(key);  // what its paths' death was worth before there was a way
    Watch(key, flow, Cause::kNic);
  });
}

void Tails::OnRerolled(const FlowKey& key) {
  if (!Repairs()) return;
  const absl::StatusOr<cw_tx_flow> flow = flows_.Sent(key);
  if (!flow.ok()) return;
  watched_.erase(key);  // another throw, another attempt
  Watch(key, *flow, Cause::kChance);
}

void Tails::Forget(uint32_t pair) {
  std::erase_if(notices_, [&](const Notice& notice) { return notice.pair == pair; });
}

void Tails::TellPeer(uint32_t pair, uint8_t slot, std::vector<uint32_t> qpns) {
  for (Notice& notice : notices_) {
    if (notice.pair != pair || notice.slot != slot || notice.left < 2) continue;
    notice.qpns.insert(notice.qpns.end(), qpns.begin(), qpns.end());
    return;
  }
  if (qpns.empty() || !asks_.allowed(pair).Acts(Capability::kTails)) return;
  notices_.push_back({.pair = pair, .slot = slot, .qpns = std::move(qpns), .due_ns = monotonic_.NowNs()});
  StartTicks();
}

void Tails::SendNotices(int64_t now_ns) {
  for (Notice& notice : notices_) {
    if (notice.due_ns > now_ns) continue;
    for (size_t at = 0; at < notice.qpns.size(); at += probe::kMaxQpnsPerMessage) {
      const size_t end = std::min(notice.qpns.size(), at + probe::kMaxQpnsPerMessage);
      probe::PathDeath death{.slot = notice.slot};
      death.qpns.assign(notice.qpns.begin() + static_cast<std::ptrdiff_t>(at),
                        notice.qpns.begin() + static_cast<std::ptrdiff_t>(end));
      mail_.Send(notice.pair, death);
    }
    notice.due_ns = now_ns + kTellAgainNs;
    if (notice.left-- == 2) ++counts_.told;
  }
  std::erase_if(notices_, [](const Notice& notice) { return notice.left <= 0; });
}

void Tails::OnPeersPathDied(const PairState& pair, const probe::PathDeath& death) {
  ++counts_.heard;
  if (!Repairs()) return;
  for (uint32_t qpn : death.qpns) {
    const std::optional<rdma::QpInfo> qp =
        qps_.ByReceivedFlow({.src = pair.key.remote, .dst = pair.key.local, .dqpn = qpn});
    if (!qp || !rdma::IsProven(*qp) || qp->raddr != pair.key.remote) continue;
    const FlowKey key{.src = pair.key.local, .dst = pair.key.remote, .dqpn = qp->rqpn};
    if (const absl::StatusOr<cw_tx_flow> flow = flows_.Sent(key); flow.ok())
      Watch(key, *flow, Cause::kWayBack, death.slot);
  }
}

void Tails::TellCounts(const CounterSink& add) const {
  add("tails_watched", counts_.watched, "flows with packets under way on a path that died");
  add("tail_naks", counts_.naks, "resends asked of own queue pairs, of what died with a path");
  add("tails_repaired", counts_.repaired, "flows that went on after such a resend");
  add("tails_given_up", counts_.given_up, "flows that did not, and wait for their own timer");
  add("tails_qp_unknown", counts_.qp_unknown,
      "flows not repaired because their own queue pair is not known for certain");
  add("tails_reads_left", counts_.reads_left, "flows not repaired because their queue pair reads");
  add("path_deaths_told", counts_.told, "dead paths told to the peers whose queue pairs were answered over them");
  add("path_deaths_heard", counts_.heard, "dead paths that peers told of");
}

void Tails::StartTicks() {
  if (ticking_) return;
  ticking_ = true;
  timers_.After(absl::ZeroDuration(), [this] { Tick(); });
}

void Tails::Tick() {
  const int64_t now_ns = monotonic_.NowNs();
  SendNotices(now_ns);
  if (!Repairs()) watched_.clear();
  absl::erase_if(watched_, [&](auto& entry) { return LookAfter(entry.first, entry.second, now_ns); });
  ticking_ = !watched_.empty() || !notices_.empty();
  if (ticking_) timers_.After(kTailTick, [this] { Tick(); });
}

// True: the flow needs no more looking after.
bool Tails::LookAfter(const FlowKey& key, Watched& tail, int64_t now_ns) {
  absl::StatusOr<cw_tx_flow> flow = flows_.Sent(key);
  if (!flow.ok()) return true;
  const control::TailView view = ViewOf(key, *flow);
  switch (tail.watch.Step(view, now_ns)) {
    case control::TailStep::kWait:
      return false;
    case control::TailStep::kDone:
      if (tail.watch.naks() > 0) ++counts_.repaired;
      return true;
    case control::TailStep::kGiveUp:
      if (!view.acks_seen) return true;  // whether it helped is not known
      ++counts_.given_up;
      TellGivenUp(key, tail.watch.naks());
      return true;
    case control::TailStep::kNak:
      break;
  }
  return !AskForResend(key, tail, *flow, view);
}

void Tails::TellGivenUp(const FlowKey& key, int naks) {
  const std::string peer = names_.Of(key.dst);
  events_.Log({.type = "repair",
               .severity = telemetry::Severity::kNotice,
               .text = absl::StrFormat(
                   "queue pair to %s qp 0x%x still waits after %d requests to resend; its own timer is left", peer,
                   key.dqpn, naks),
               .flow = key.Id().ToString(),
               .peer = peer});
}

// Was the queue pair ever answered to a READ or an atomic operation, or cannot that be told? A NAK between two packets
// of a READ's answer is no error to the specification, but soft-RoCE (6.1, check_ack) ends the queue pair.
bool Tails::Reads(const FlowKey& sent, uint32_t lqpn) const {
  const auto received = flows_.Received({.src = sent.dst, .dst = sent.src, .dqpn = lqpn});
  return !received.ok() || received->resp.packets != 0;
}

void Tails::TellDry(const FlowKey& key, const Watched& tail, const control::TailView& view) {
  telemetry::Event event{
      .type = "repair",
      .text = absl::StrFormat("queue pair to %s qp 0x%x would be asked to resend %d packets: %s", names_.Of(key.dst),
                              key.dqpn, control::Unacknowledged(view), CauseText(tail, names_.Of(key.dst))),
      .flow = key.Id().ToString(),
      .peer = names_.Of(key.dst),
      .slot = tail.OwnPath(),
      .dry = true,
      .evidence = {{"first_unacknowledged_psn", absl::StrCat(view.acked)}, {"next_psn", absl::StrCat(view.next)}}};
  report::Item item = dry_run_.ItemOf(key, "tails", event.slot, -1);
  item.text = event.text;
  item.evidence = event.evidence;
  dry_run_.Tell(std::move(item));
  events_.Log(std::move(event));
}

bool Tails::AskForResend(const FlowKey& key, const Watched& tail, const cw_tx_flow& flow,
                         const control::TailView& view) {
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
  const PairState* pair = FindIn(pairs_, flow.pair);
  // A NAK goes into the queue pair of that number, and its PSN is another one's if a process lied.
  if (!qp || !rdma::IsProven(*qp) || pair == nullptr) {
    ++counts_.qp_unknown;
    return false;
  }
  if (Reads(key, qp->lqpn)) {
    ++counts_.reads_left;
    return false;
  }
  if (!asks_.allowed(flow.pair, key).Acts(Capability::kTails)) {
    TellDry(key, tail, view);
    return false;
  }
  const auto nak = probe::BuildSequenceNak({.from = key.dst, .to = key.src, .qpn = qp->lqpn, .psn = view.acked});
  if (!nak.ok()) return false;
  if (absl::Status sent = asks_.deliver(pair->ifindex, *nak); !sent.ok()) {
    spdlog::warn("no resend asked of queue pair 0x{:x}: {}", qp->lqpn, std::string(sent.message()));
    return false;
  }
  ++counts_.naks;
  TellAsked(key, tail, view, qp->lqpn);
  return true;
}

void Tails::TellAsked(const FlowKey& key, const Watched& tail, const control::TailView& view, uint32_t lqpn) {
  const std::string peer = names_.Of(key.dst);
  events_.Log({.type = "repair",
               .severity = telemetry::Severity::kNotice,
               .text = absl::StrFormat("queue pair to %s qp 0x%x resends %d packets: %s", peer, key.dqpn,
                                       control::Unacknowledged(view), CauseText(tail, peer)),
               .flow = key.Id().ToString(),
               .peer = peer,
               .slot = tail.OwnPath(),
               .evidence = {{"first_unacknowledged_psn", absl::StrCat(view.acked)},
                            {"next_psn", absl::StrCat(view.next)},
                            {"local_qpn", absl::StrFormat("0x%x", lqpn)},
                            {"requests", absl::StrCat(tail.watch.naks())},
                            {"since_verdict_us", absl::StrCat((monotonic_.NowNs() - tail.watch.began_ns()) / 1000)}}});
}

}  // namespace cw::agent
