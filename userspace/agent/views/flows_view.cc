// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/views/flows_view.h"

#include <algorithm>
#include <string>
#include <tuple>

#include "absl/container/flat_hash_set.h"
#include "userspace/agent/placement.h"
#include "userspace/agent/views/view_words.h"

namespace cw::agent {
namespace {

constexpr uint8_t kTransportUd = 3;  // of the BTH
constexpr double kActiveS = 25;      // since its last packet: more than the uplink waits between two looks

std::string ReasonText(uint8_t reason) {
  return reason == CW_MOVE_NONE ? "" : std::string(MoveReasonName(static_cast<MoveReason>(reason)));
}

void AddFlowRecord(const cw_flow& record, v1::Flow& out) {
  out.set_transport(TransportName(record.transport));
  if (record.mtu != 0) out.set_path_mtu(record.mtu);
  out.set_packets(record.packets);
  out.set_bytes(record.bytes);
  out.set_gaps(record.req.gaps + record.resp.gaps);
  out.set_missing(record.req.missing + record.resp.missing);
  out.set_duplicates(record.req.duplicates + record.resp.duplicates);
  out.set_nak_seq(record.nak_seq);
  out.set_nak_other(record.nak_other);
  out.set_rnr(record.rnr);
  out.set_cnps(record.cnp);
  out.set_ce(record.ce);
}

const char* VerdictText(cw_inproc_verdict verdict) {
  switch (verdict) {
    case CW_INPROC_PLACED:
      return "";
    case CW_INPROC_NOT_ACTING:
      return "the mode does not act";
    case CW_INPROC_NO_PATHS:
      return "no peer, or its paths are not known";
    case CW_INPROC_NOT_YOURS:
      return "not the asking process's by RDMA netlink";
    case CW_INPROC_OVER_QUOTA:
      return "over quota";
    case CW_INPROC_BY_KERNEL:
      return "the kernel's program puts new flows of this NIC on paths";
  }
  return "";
}

}  // namespace

double FlowsView::AgoS(uint64_t jiffies) const {
  return static_cast<double>(monotonic_.NowNs() - asks_.at_ns(jiffies)) / 1e9;
}

v1::Flow FlowsView::Of(const FlowKey& key, const FlowEntry& flow) const {
  v1::Flow out;
  const int64_t now_ns = monotonic_.NowNs();
  const Addr& local = flow.received ? key.dst : key.src;
  const Addr& remote = flow.received ? key.src : key.dst;
  out.set_id(key.Id().ToString());
  out.set_local_address(local.ToString());
  out.set_remote_address(remote.ToString());
  if (const auto name = names_.names.find(remote); name != names_.names.end()) out.set_peer(name->second);
  out.set_received(flow.received);
  flow.received ? out.set_local_qpn(key.dqpn) : out.set_remote_qpn(key.dqpn);
  const std::optional<rdma::QpInfo> qp = flow.received ? qps_.ByReceivedFlow(key) : qps_.BySentFlow(key);
  AddNames(local, qp ? &*qp : nullptr, out);
  if (qp) {
    AddQp(*qp, out);
    out.set_remote_qpn(qp->rqpn);
    out.set_path_mtu(qp->path_mtu);
    out.set_flow_label(qp->flow_label);
    if (!flow.received) AddOwner(*qp, out);
  } else if (flow.flow().transport == kTransportUd) {
    AddDatagramOwner(local, flow.received ? key.dqpn : flow.flow().peer_qpn, out);
  }
  AddSteering(flow, out);
  out.set_reverts_s(deadlines_.FlowSecondsLeft(key, now_ns));
  if (!flow.received) {
    out.set_port_from(rdma::PortFromName(rdma::PortFrom::kPackets));
    FillDelay(flow.owd.Merged(), out.mutable_owd());
    AddCause(causes_.Of(PairKey{local, remote}, key), out);
    gaps_.Fill(key, now_ns, out);
  }
  out.set_owd_window_s(10);
  const std::optional<uint32_t> index = mesh_.Find({local, remote});
  if (const PairState* pair = index ? FindIn(pairs_, *index) : nullptr; pair != nullptr)
    out.set_owd_error_ns(static_cast<double>(pair->estimate.error_est_ns));
  AddFlowRecord(flow.flow(), out);
  out.set_rate_bps(flow.rate_bps);
  out.set_idle_s(std::max(AgoS(flow.flow().last_seen_jiffies), 0.0));
  return out;
}

v1::Flow FlowsView::OfUnseen(const rdma::QpInfo& qp, const rdma::NativePort& port) const {
  const FlowKey key = rdma::SentFlow(qp);
  FlowEntry entry;
  entry.tx.flow.sport = port.port;
  entry.tx.slot = entry.tx.want_slot = CW_SLOT_NONE;
  entry.tx.native_slot = owners_.SlotOf(qp, port.port);
  v1::Flow out = Of(key, entry);
  out.set_port_from(rdma::PortFromName(port.from));
  if (qp.raddr.is_zero()) {  // which the list of the kernel does not have
    out.clear_remote_address();
    AddNames(qp.laddr, &qp, out);
    AddQp(qp, out);
  }
  if (out.has_owner()) out.mutable_owner()->set_packets_seen(false);
  out.set_idle_s(0);
  return out;
}

void FlowsView::AddQp(const rdma::QpInfo& qp, v1::Flow& out) const {
  out.set_local_qpn(qp.lqpn);
  out.set_pid(qp.pid);
  out.set_process(qp.comm);
  AddLabel(qp, out);
  out.set_state(rdma::QpStateName(qp.state));
}

void FlowsView::AddOwner(const rdma::QpInfo& qp, v1::Flow& out) const {
  if (!qp.owner) return;
  v1::OwnerReport& owner = *out.mutable_owner();
  owner.set_placed(qp.owner->asked == CW_INPROC_PLACED);
  owner.set_not_placed(qp.owner->asked ? VerdictText(*qp.owner->asked) : "it did not ask");
  owner.set_messages(qp.owner->messages);
  owner.set_bytes(qp.owner->bytes);
  owner.set_errors(qp.owner->errors);
  owner.set_completion_samples(qp.owner->completion_samples);
  owner.set_completion_p50_ns(static_cast<double>(qp.owner->completion_p50_ns));
  owner.set_completion_max_ns(static_cast<double>(qp.owner->completion_max_ns));
  owner.set_told_ago_s(qp.owner->told_ns == 0 ? -1 : static_cast<double>(monotonic_.NowNs() - qp.owner->told_ns) / 1e9);
  owner.set_packets_seen(true);
  AddOwnerMoves(qp, owner);
}

void FlowsView::AddOwnerMoves(const rdma::QpInfo& qp, v1::OwnerReport& out) const {
  const std::string why_not = owners_.WhyNot(qp);
  const rdma::MoveBook::Entry entry = owners_.book().Of(qp);
  out.set_can_move(why_not.empty());
  out.set_cannot_move(why_not);
  out.set_udp_port(qp.udp_sport);
  out.set_last_refusal(entry.last_error == 0 ? "" : rdma::ErrnoText(entry.last_error));
  v1::OwnerMoves& moves = *out.mutable_moves();
  moves.set_done(entry.done);
  moves.set_refused(entry.refused);
  moves.set_to_port(entry.asked && entry.asked->port != 0 ? entry.asked->port : -1);
  moves.set_lag_port(qp.owner->lag_active);
  moves.set_lag_port_wanted(qp.owner->lag_wanted);
  moves.set_own_failover(rdma::OwnFailover(qp));
  moves.set_manual(entry.manual);
}

void FlowsView::AddLabel(const rdma::QpInfo& qp, v1::Flow& out) const {
  const Label* given = qp.label.empty() ? labels_.Of(qp.pid) : nullptr;
  if (given != nullptr) {
    out.set_label(given->label);
    out.set_label_from(given->pid != 0 ? "pid" : "cgroup");
    return;
  }
  out.set_label(qp.label);
  if (!qp.label.empty()) out.set_label_from("owner");
}

// A datagram names its sender's queue pair; to whom that is bound the kernel's list says.
void FlowsView::AddDatagramOwner(const Addr& local, uint32_t qpn, v1::Flow& out) const {
  out.set_local_qpn(qpn);
  const auto qp = datagrams_.find({local, qpn});
  if (qp == datagrams_.end()) return;
  out.set_nic(qp->second.device);
  AddQp(qp->second, out);
}

void FlowsView::AddNames(const Addr& local, const rdma::QpInfo* qp, v1::Flow& out) const {
  for (const NicState& nic : nics_) {
    if (nic.address != local) continue;
    out.set_device(nic.config.name);
    out.set_nic(nic.rdma_devices.size() == 1 ? nic.rdma_devices[0] : nic.config.name);
  }
  if (qp != nullptr && !qp->device.empty()) out.set_nic(qp->device);
}

void FlowsView::Locate(const rdma::QpInfo& qp, v1::CollectiveQp& out) const {
  const FlowKey key = rdma::SentFlow(qp);
  out.set_flow(key.Id().ToString());
  v1::Flow names;
  AddNames(qp.laddr, &qp, names);
  out.set_nic(names.nic());
  out.set_peer(names_.Of(qp.raddr));
  out.set_pair(PairText(qp.laddr, qp.raddr));
  const auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end()) return;
  const PairState* pair = FindIn(pairs_, flow->second.tx.pair);
  const uint8_t slot = flow->second.PathSlot();
  if (pair == nullptr || slot >= CW_MAX_SLOTS) return;
  out.set_slot(slot);
  // No more of the path than that: each queue pair of many operations is asked for.
  const probe::Hops* hops = asks_.hops(pair->index, slot);
  for (size_t i = 0; hops != nullptr && i < hops->size(); ++i)
    out.add_hops((*hops)[i].is_zero() ? "*" : (*hops)[i].ToString());
}

void FlowsView::AddSteering(const FlowEntry& flow, v1::Flow& out) const {
  const bool acts = asks_.acts() && !flow.stays_native;
  auto number = [&](uint8_t slot) { return flow.received || slot == CW_SLOT_NONE ? -1 : static_cast<int>(slot); };
  out.set_slot(number(flow.SlotOfPackets(acts)));
  out.set_native_slot(number(flow.tx.native_slot));
  out.set_want_slot(acts ? number(PendingSlot(flow.tx)) : -1);
  out.set_udp_port(flow.received ? flow.flow().sport : flow.PortOfPackets(acts));
  out.set_udp_port_native(flow.flow().sport);
  const bool hard = (flow.tx.flags & CW_STEER_HARD_LOCKED) != 0, soft = (flow.tx.flags & CW_STEER_LOCKED) != 0;
  out.set_lock(hard ? v1::LOCK_HARD : soft ? v1::LOCK_SOFT : v1::LOCK_NONE);
  out.set_manual((flow.tx.flags & CW_STEER_MANUAL) != 0);
  out.set_moves(flow.tx.moves);
  out.set_last_reason(ReasonText(flow.tx.reason));
  out.set_moved_ago_s(flow.tx.moved_jiffies == 0 ? -1 : AgoS(flow.tx.moved_jiffies));
}

void FlowsView::Count(v1::FlowCounts& out) const {
  out.set_transmitted(static_cast<uint32_t>(flows_.sent.size()));
  out.set_received(static_cast<uint32_t>(flows_.received.size()));
  for (const auto& [key, flow] : flows_.sent) {
    const bool acts = asks_.acts() && !flow.stays_native;
    if (acts && flow.tx.port != 0) out.set_steered(out.steered() + 1);
    if ((flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED)) != 0) out.set_locked(out.locked() + 1);
    if (acts && PendingSlot(flow.tx) != CW_SLOT_NONE) out.set_pending(out.pending() + 1);
  }
}

bool FlowsView::Asked(const v1::QpsRequest& request, const FlowKey& key, const Addr& remote) const {
  if (!request.flow().empty() && request.flow() != key.Id().ToString()) return false;
  return request.remote().empty() || request.remote() == remote.ToString() || request.remote() == names_.Of(remote);
}

v1::QpsReply FlowsView::All(const v1::QpsRequest& request) const {
  v1::QpsReply reply;
  for (const auto* book : {&flows_.sent, &flows_.received}) {
    if (book == &flows_.received && !request.received()) continue;
    for (const auto& [key, flow] : *book) {
      if (Asked(request, key, flow.received ? key.src : key.dst)) *reply.add_flows() = Of(key, flow);
    }
  }
  AddUnseen(request, reply);
  std::sort(reply.mutable_flows()->begin(), reply.mutable_flows()->end(), [](const v1::Flow& a, const v1::Flow& b) {
    return std::tuple(a.received(), a.remote_address(), a.local_qpn(), a.id()) <
           std::tuple(b.received(), b.remote_address(), b.local_qpn(), b.id());
  });
  return reply;
}

// Those whose packets are listed are no queue pairs besides.
bool FlowsView::IsShown(const rdma::QpInfo& qp, const absl::flat_hash_set<std::pair<Addr, uint32_t>>& sent) const {
  if (qp.rqpn == 0 || flows_.sent.contains(rdma::SentFlow(qp))) return false;
  if (qp.raddr.is_zero() && sent.contains({qp.laddr, qp.rqpn})) return false;
  // What a process says of itself alone counts where packets cannot tell, or where its library counts.
  const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.address == qp.laddr; });
  return qp.source != "inproc" || qp.owner || nic == nics_.end() || !nic->attached;
}

void FlowsView::AddUnseen(const v1::QpsRequest& request, v1::QpsReply& reply) const {
  // A flow that is there, and which queue pair it is of will be known with the first packet received.
  absl::flat_hash_set<std::pair<Addr, uint32_t>> sent;
  for (const auto& [key, flow] : flows_.sent) sent.insert({key.src, key.dqpn});
  Drivers drivers;
  for (const rdma::QpInfo& qp : qps_.All()) {
    if (IsShown(qp, sent) && Asked(request, rdma::SentFlow(qp), qp.raddr))
      *reply.add_flows() = OfUnseen(qp, rdma::NativePortOf(qp, drivers.Of(qp.device)));
  }
}

void FlowsView::NameSeen(const rdma::QpInfo& qp, uplink::FlowSeen& out) const {
  v1::Flow named;
  AddLabel(qp, named);
  out.qpn = qp.lqpn;
  out.pid = qp.pid;
  out.process = qp.comm;
  out.label = named.label();
}

uplink::FlowSeen FlowsView::SeenOf(const FlowKey& key, const FlowEntry& flow) const {
  const cw_flow& record = flow.flow();
  uplink::FlowSeen out{.key = key, .bytes = record.bytes};
  out.retransmits = record.req.duplicates + record.resp.duplicates;
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(key);
  if (qp) {
    const auto back = flows_.received.find({.src = key.dst, .dst = key.src, .dqpn = qp->lqpn});
    if (back != flows_.received.end()) out.ce = back->second.flow().ce;
    if (back != flows_.received.end()) out.cnps = back->second.flow().cnp;
  }
  out.active = AgoS(record.last_seen_jiffies) < kActiveS;
  if (!out.active) return out;
  out.peer = names_.Of(key.dst);
  if (qp) NameSeen(*qp, out);
  const PairState* pair = FindIn(pairs_, flow.tx.pair);
  const uint8_t slot = flow.SlotOfPackets(asks_.acts());
  if (pair == nullptr || pair->key.remote != key.dst || slot >= CW_MAX_SLOTS) return out;
  out.path_port = mesh_.slots(pair->index).port(slot);
  const int64_t base_ns = pair->slot[slot].forward.BaseNs();
  if (flow.owd_slot == slot && base_ns != INT64_MAX) out.queue = flow.owd.Merged().Above(base_ns);
  return out;
}

// Only what its process says of it is known.
uplink::FlowSeen FlowsView::SeenOfUnseen(const rdma::QpInfo& qp) const {
  uplink::FlowSeen out{.key = rdma::SentFlow(qp), .posted = true, .active = true, .peer = names_.Of(qp.raddr)};
  if (qp.owner) out.bytes = qp.owner->bytes;
  NameSeen(qp, out);
  const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
  const uint8_t slot = index ? owners_.SlotOf(qp, qp.udp_sport) : uint8_t{CW_SLOT_NONE};
  if (slot < CW_MAX_SLOTS) out.path_port = mesh_.slots(*index).port(slot);
  return out;
}

std::vector<uplink::FlowSeen> FlowsView::Seen() const {
  std::vector<uplink::FlowSeen> seen;
  absl::flat_hash_set<std::pair<Addr, uint32_t>> sent;
  for (const auto& [key, flow] : flows_.sent) {
    seen.push_back(SeenOf(key, flow));
    sent.insert({key.src, key.dqpn});
  }
  qps_.ForEach([&](const rdma::QpInfo& qp) {
    if (qp.owner && !qp.raddr.is_zero() && IsShown(qp, sent)) seen.push_back(SeenOfUnseen(qp));
  });
  return seen;
}

}  // namespace cw::agent
