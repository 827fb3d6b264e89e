// SPDX-License-Identifier: Apache-2.0
// What died with a path is asked for at once: see control/tail_repair.h for when, docs/tail-repair.md for why that is
// safe.
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/probe/nak_packet.h"

namespace cw::agent {
namespace {

constexpr absl::Duration kTailTick = absl::Milliseconds(1);
constexpr int64_t kTellAgainNs = 3'000'000;
constexpr uint8_t kTransportRc = 0;

uint8_t PathOf(const cw_tx_flow& flow) { return flow.port != 0 ? flow.slot : flow.native_slot; }

std::string CauseText(const WatchedTail& tail, const std::string& peer) {
  switch (tail.cause) {
    case TailCause::kLossy:
      return absl::StrFormat("path %d loses packets and was left", tail.slot);
    case TailCause::kNoData:
      return absl::StrFormat("path %d delivers no data and was left", tail.slot);
    case TailCause::kWayBack:
      return absl::StrFormat("%s left its path %d, and acknowledgements may be lost with it", peer, tail.slot);
    case TailCause::kChance:
      return "they are not acknowledged while a path is dead";
    case TailCause::kNic:
      return "they were lost with a NIC, another one carries them now";
    case TailCause::kDead:
      break;
  }
  return tail.slot == CW_SLOT_NONE ? "they died with a path" : absl::StrFormat("they died with path %d", tail.slot);
}

}  // namespace

absl::Status Agent::OpenTails() {
  if (!options_.config.steering.repair_tails) return absl::OkStatus();
  absl::StatusOr<dataplane::PacketInjector> injector = dataplane::PacketInjector::Create();
  if (injector.ok()) {
    injector_ = std::make_unique<dataplane::PacketInjector>(*std::move(injector));
    return absl::OkStatus();
  }
  Log({.type = "repair",
       .severity = telemetry::Severity::kNotice,
       .text =
           "what dies with a path waits for its queue pair's own timer: " + std::string(injector.status().message())});
  return absl::OkStatus();
}

bool Agent::RepairsTails() const { return injector_ != nullptr && modes_->allowed().Decides(Capability::kTails); }

control::TailView Agent::TailOf(const cw_tx_flow& flow) const {
  const cw_pair& pair = dataplane_->pairs()[flow.pair];
  const uint8_t path = PathOf(flow);
  const bool dead = path < CW_MAX_SLOTS && probe::Load(pair.slot[path].state) == CW_SLOT_DEAD;
  const bool stays = (flow.flags & CW_STEER_HARD_LOCKED) != 0;
  control::TailView view{.next = flow.flow.req.next, .acked = flow.acked_psn, .sent = flow.flow.req.packets};
  view.known = flow.acked_valid != 0 && flow.flow.req.seen == 1 && flow.flow.transport == kTransportRc;
  // Asking without failover is asking in vain; but what is only observed is observed whole.
  const bool leaves = modes_->Acts(Capability::kFailover) || !modes_->Acts(Capability::kTails);
  view.acks_seen = maps::PairsView::Load(pair.carried) == 0;
  view.can_go = !view.acks_seen || !dead || (leaves && !stays && probe::Load(pair.live_mask) != 0);
  return view;
}

void Agent::WatchTail(const FlowKey& key, const cw_tx_flow& flow, TailCause cause, uint8_t slot) {
  if (FindPair(flow.pair) == nullptr) return;
  const control::TailView view = TailOf(flow);
  if (control::Unacknowledged(view) == 0) return;
  auto known = tails_.watched.find(key);
  if (known != tails_.watched.end()) {
    known->second.watch.Extend(view, MonotonicNs());
    return;
  }
  ++tails_.counts.watched;
  tails_.watched.insert({key, {.watch = control::TailWatch(view, MonotonicNs()), .cause = cause, .slot = slot}});
  StartTailTicks();
}

// A path to a peer is dead, or left: our own data on it, and what we answered the peer's queue pairs over it.
void Agent::OnPathLost(PairState& pair, uint8_t slot, TailCause cause) {
  if (!RepairsTails()) return;
  std::vector<uint32_t> qpns;
  (void)dataplane_->tx_flows().ForEach([&](const cw_flow_key& key, const cw_tx_flow& flow) {
    if (flow.pair != pair.index || PathOf(flow) != slot) return;
    qpns.push_back(key.dqpn);
    WatchTail(FromMap(key), flow, cause, slot);
  });
  TellOfDeath(pair.index, slot, std::move(qpns));
}

// The kernel took a flow off a dead path, which may have been before the verdict was heard of here.
void Agent::OnMovedOffDead(const cw_ev_move& move) {
  if (!RepairsTails() || FindPair(move.pair) == nullptr) return;
  if (absl::StatusOr<cw_tx_flow> flow = dataplane_->tx_flows().Lookup(move.key); flow.ok()) {
    WatchTail(FromMap(move.key), *flow, TailCause::kDead, move.from_slot);
  }
  TellOfDeath(move.pair, move.from_slot, {move.key.dqpn});
}

// Another NIC carries the pair's packets from now on: what was under way went with the old one.
void Agent::OnCarried(uint32_t index) {
  if (!RepairsTails()) return;
  (void)dataplane_->tx_flows().ForEach([&](const cw_flow_key& key, const cw_tx_flow& flow) {
    if (flow.pair != index) return;
    tails_.watched.erase(FromMap(key));  // what its paths' death was worth before there was a way
    WatchTail(FromMap(key), flow, TailCause::kNic);
  });
}

void Agent::TellOfDeath(uint32_t pair, uint8_t slot, std::vector<uint32_t> qpns) {
  for (DeathNotice& notice : tails_.notices) {
    if (notice.pair != pair || notice.slot != slot || notice.left < 2) continue;
    notice.qpns.insert(notice.qpns.end(), qpns.begin(), qpns.end());
    return;
  }
  if (qpns.empty() || !modes_->Acts(Capability::kTails)) return;
  tails_.notices.push_back({.pair = pair, .slot = slot, .qpns = std::move(qpns), .due_ns = MonotonicNs()});
  StartTailTicks();
}

void Agent::SendNotices(int64_t now_ns) {
  for (DeathNotice& notice : tails_.notices) {
    if (notice.due_ns > now_ns) continue;
    for (size_t at = 0; at < notice.qpns.size(); at += probe::kMaxQpnsPerMessage) {
      const size_t end = std::min(notice.qpns.size(), at + probe::kMaxQpnsPerMessage);
      probe::PathDeath death{.slot = notice.slot};
      death.qpns.assign(notice.qpns.begin() + static_cast<std::ptrdiff_t>(at),
                        notice.qpns.begin() + static_cast<std::ptrdiff_t>(end));
      mail_->Send(notice.pair, death);
    }
    notice.due_ns = now_ns + kTellAgainNs;
    if (notice.left-- == 2) ++tails_.counts.told;
  }
  std::erase_if(tails_.notices, [](const DeathNotice& notice) { return notice.left <= 0; });
}

// The peer's path to us is dead: our own data may have arrived, and its acknowledgements not.
void Agent::OnPeersPathDied(const PairState& pair, const probe::PathDeath& death) {
  ++tails_.counts.heard;
  if (!RepairsTails()) return;
  for (uint32_t qpn : death.qpns) {
    const std::optional<rdma::QpInfo> qp =
        qps_.ByReceivedFlow({.src = pair.key.remote, .dst = pair.key.local, .dqpn = qpn});
    if (!qp || !rdma::IsProven(*qp) || qp->raddr != pair.key.remote) continue;
    const FlowKey key{.src = pair.key.local, .dst = pair.key.remote, .dqpn = qp->rqpn};
    if (absl::StatusOr<cw_tx_flow> flow = dataplane_->tx_flows().Lookup(ToMap(key)); flow.ok()) {
      WatchTail(key, *flow, TailCause::kWayBack, death.slot);
    }
  }
}

void Agent::TellTailCounts(const CounterSink& add) const {
  const TailCounts& counts = tails_.counts;
  add("tails_watched", counts.watched, "flows with packets under way on a path that died");
  add("tail_naks", counts.naks, "resends asked of own queue pairs, of what died with a path");
  add("tails_repaired", counts.repaired, "flows that went on after such a resend");
  add("flows_rerolled", rerolls_.rolls,
      "flows given another port by chance, where switches do not hash on ports alone");
  add("tails_given_up", counts.given_up, "flows that did not, and wait for their own timer");
  add("tails_qp_unknown", counts.qp_unknown,
      "flows not repaired because their own queue pair is not known for certain");
  add("tails_reads_left", counts.reads_left, "flows not repaired because their queue pair reads");
  add("path_deaths_told", counts.told, "dead paths told to the peers whose queue pairs were answered over them");
  add("path_deaths_heard", counts.heard, "dead paths that peers told of");
}

void Agent::StartTailTicks() {
  if (tails_.ticking) return;
  tails_.ticking = true;
  loop_->After(absl::ZeroDuration(), [this] { TailTick(); });
}

void Agent::TailTick() {
  const int64_t now_ns = MonotonicNs();
  SendNotices(now_ns);
  if (!RepairsTails()) tails_.watched.clear();
  absl::erase_if(tails_.watched, [&](auto& entry) { return LookAfter(entry.first, entry.second, now_ns); });
  tails_.ticking = !tails_.watched.empty() || !tails_.notices.empty();
  if (tails_.ticking) loop_->After(kTailTick, [this] { TailTick(); });
}

// True: the flow needs no more looking after.
bool Agent::LookAfter(const FlowKey& key, WatchedTail& tail, int64_t now_ns) {
  absl::StatusOr<cw_tx_flow> flow = dataplane_->tx_flows().Lookup(ToMap(key));
  if (!flow.ok()) return true;
  const control::TailView view = TailOf(*flow);
  switch (tail.watch.Step(view, now_ns)) {
    case control::TailStep::kWait:
      return false;
    case control::TailStep::kDone:
      if (tail.watch.naks() > 0) ++tails_.counts.repaired;
      return true;
    case control::TailStep::kGiveUp:
      if (!view.acks_seen) return true;  // whether it helped is not known
      ++tails_.counts.given_up;
      Log({.type = "repair",
           .severity = telemetry::Severity::kNotice,
           .text = absl::StrFormat(
               "queue pair to %s qp 0x%x still waits after %d requests to resend; its own timer is left",
               peer_names_.Of(key.dst), key.dqpn, tail.watch.naks()),
           .flow = key.Id().ToString(),
           .peer = peer_names_.Of(key.dst)});
      return true;
    case control::TailStep::kNak:
      break;
  }
  return !AskForResend(key, tail, *flow, view);
}

// Was the queue pair ever answered to a READ or an atomic operation, or cannot that be told? A NAK between two packets
// of a READ's answer is no error to the specification, but soft-RoCE (6.1, check_ack) ends the queue pair.
bool Agent::Reads(const FlowKey& sent, uint32_t lqpn) const {
  const auto received = dataplane_->flows().Lookup(ToMap(FlowKey{.src = sent.dst, .dst = sent.src, .dqpn = lqpn}));
  return !received.ok() || received->resp.packets != 0;
}

void Agent::TellDryTail(const FlowKey& key, const WatchedTail& tail, const control::TailView& view) {
  telemetry::Event event{
      .type = "repair",
      .text =
          absl::StrFormat("queue pair to %s qp 0x%x would be asked to resend %d packets: %s", peer_names_.Of(key.dst),
                          key.dqpn, control::Unacknowledged(view), CauseText(tail, peer_names_.Of(key.dst))),
      .flow = key.Id().ToString(),
      .peer = peer_names_.Of(key.dst),
      .slot = tail.OwnPath(),
      .dry = true,
      .evidence = {{"first_unacknowledged_psn", absl::StrCat(view.acked)}, {"next_psn", absl::StrCat(view.next)}}};
  report::Item item = dry_run_->ItemOf(key, "tails", event.slot, -1);
  item.text = event.text;
  item.evidence = event.evidence;
  dry_run_->Tell(std::move(item));
  Log(std::move(event));
}

bool Agent::AskForResend(const FlowKey& key, const WatchedTail& tail, const cw_tx_flow& flow,
                         const control::TailView& view) {
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
  const PairState* pair = FindPair(flow.pair);
  // A NAK goes into the queue pair of that number, and its PSN is another one's if a process lied.
  if (!qp || !rdma::IsProven(*qp) || pair == nullptr) {
    ++tails_.counts.qp_unknown;
    return false;
  }
  if (Reads(key, qp->lqpn)) {
    ++tails_.counts.reads_left;
    return false;
  }
  if (!modes_->Acts(Capability::kTails)) {
    TellDryTail(key, tail, view);
    return false;
  }
  const auto nak = probe::BuildSequenceNak({.from = key.dst, .to = key.src, .qpn = qp->lqpn, .psn = view.acked});
  if (!nak.ok()) return false;
  if (absl::Status sent = injector_->Deliver(pair->ifindex, *nak); !sent.ok()) {
    spdlog::warn("no resend asked of queue pair 0x{:x}: {}", qp->lqpn, std::string(sent.message()));
    return false;
  }
  ++tails_.counts.naks;
  const uint32_t packets = control::Unacknowledged(view);
  Log({.type = "repair",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrFormat("queue pair to %s qp 0x%x resends %d packets: %s", peer_names_.Of(key.dst), key.dqpn,
                               packets, CauseText(tail, pair->peer)),
       .flow = key.Id().ToString(),
       .peer = peer_names_.Of(key.dst),
       .slot = tail.OwnPath(),
       .evidence = {{"first_unacknowledged_psn", absl::StrCat(view.acked)},
                    {"next_psn", absl::StrCat(view.next)},
                    {"local_qpn", absl::StrFormat("0x%x", qp->lqpn)},
                    {"requests", absl::StrCat(tail.watch.naks())},
                    {"since_verdict_us", absl::StrCat((MonotonicNs() - tail.watch.began_ns()) / 1000)}}});
  return true;
}

}  // namespace cw::agent
