// SPDX-License-Identifier: Apache-2.0
// Queue pairs whose packets do not pass the kernel: known by what their owners tell, by RDMA netlink's lists and by
// rdma_cm. Their source port is told or computed, and a slot watches it, as it does for flows that are seen.
#include <set>

#include "absl/container/flat_hash_set.h"
#include "userspace/agent/agent.h"
#include "userspace/host/nic_checks.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;

constexpr size_t kMaxWatched = CW_MAX_SLOTS;  // of one pair: it has no more slots

FlowKey KeyOf(const rdma::QpInfo& qp) { return {.src = qp.laddr, .dst = qp.raddr, .dqpn = qp.rqpn}; }

// Of each device once.
class Drivers {
 public:
  const std::string& Of(const std::string& device) {
    const auto [at, added] = drivers_.try_emplace(device);
    if (added && !device.empty()) at->second = host::RdmaDriver(host::Roots(), device);
    return at->second;
  }

 private:
  std::map<std::string, std::string> drivers_;
};

}  // namespace

// rdma_cm knows both ends of its connections, and gives both the same flow label.
void Agent::AddConnections(const std::vector<rdma::Link>& links, std::vector<rdma::QpInfo>& list) {
  const bool lacks = std::any_of(list.begin(), list.end(), [](const rdma::QpInfo& qp) { return qp.raddr.is_zero(); });
  if (!lacks) return;
  const absl::StatusOr<std::vector<rdma::CmId>> ids = nldev_->CmIds();
  if (!ids.ok()) {
    nldev_.reset();  // what is left of a broken answer would be taken for the next one
    return;
  }
  std::set<std::pair<uint32_t, uint16_t>> listened;
  for (const rdma::CmId& id : *ids) {
    if (id.listens) listened.insert({id.device_index, id.local_port});
  }
  for (const rdma::CmId& id : *ids) {
    const auto link = std::find_if(links.begin(), links.end(),
                                   [&](const rdma::Link& l) { return l.device_index == id.device_index; });
    if (id.lqpn == 0 || id.remote.is_zero() || link == links.end()) continue;
    for (rdma::QpInfo& qp : list) {
      if (qp.lqpn != id.lqpn || qp.device != link->device || qp.laddr != id.local) continue;
      const bool accepted = listened.contains({id.device_index, id.local_port});
      qp.raddr = id.remote;
      qp.label_known = true;
      qp.flow_label = id.flowinfo != 0 ? id.flowinfo & 0xfffff
                      : accepted       ? rdma::LabelOfCmPorts(id.remote_port, id.local_port)
                                       : rdma::LabelOfCmPorts(id.local_port, id.remote_port);
    }
  }
}

// Where programs are attached, packets will tell. A soft-RoCE device's own probes have ports of their own only.
void Agent::FollowUnseen() {
  std::map<FlowKey, UnseenQp> wanted;
  std::map<uint32_t, size_t> watched;
  Drivers drivers;
  for (const rdma::QpInfo& qp : qps_.All()) {
    if (qp.rqpn == 0 || qp.raddr.is_zero() || flows_.sent.contains(KeyOf(qp))) continue;
    const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
    const PairState* pair = index ? FindPair(*index) : nullptr;
    if (pair == nullptr || !pair->table_seen || pair->blind) continue;
    const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.ifindex == pair->ifindex; });
    if (nic == nics_.end() || nic->attached || (nic->by_verbs && drivers.Of(qp.device) == "rdma_rxe")) continue;
    const uint16_t port = rdma::NativePortOf(qp, drivers.Of(qp.device)).port;
    if (port == 0 || ++watched[*index] > kMaxWatched) continue;
    wanted[KeyOf(qp)] = {.pair = *index, .port = port};
  }
  const std::map<FlowKey, UnseenQp> before = unseen_;
  for (const auto& [key, had] : before) {
    const auto now = wanted.find(key);
    if (now == wanted.end() || now->second.pair != had.pair || now->second.port != had.port) ReleaseUnseen(key);
  }
  for (const auto& [key, qp] : wanted) {
    const auto [at, added] = unseen_.try_emplace(key, qp);
    if (!added) continue;
    at->second.slot = engine_->EnsureNative(qp.pair, qp.port, NowNs(), /*label=*/0);
    ScheduleTick();
  }
}

void Agent::ReleaseUnseen(const FlowKey& key) {
  const auto at = unseen_.find(key);
  if (at == unseen_.end()) return;
  const UnseenQp gone = at->second;
  unseen_.erase(at);
  // Its packets are seen now, and its port is watched for them.
  const auto sent = flows_.sent.find(key);
  if (sent != flows_.sent.end() && sent->second.flow().sport == gone.port) return;
  if (FindPair(gone.pair) != nullptr) ReleaseNative(gone.pair, gone.port, key);
}

void Agent::OnUnseenNative(uint32_t pair, const probe::NativeChange& change) {
  for (auto& [key, qp] : unseen_) {
    if (qp.pair == pair && qp.port == change.port) qp.slot = change.slot;
  }
}

FlowEntry Agent::UnseenEntry(const FlowKey& key, const rdma::NativePort& port) const {
  FlowEntry entry;
  entry.tx.flow.sport = port.port;
  entry.tx.slot = entry.tx.native_slot = entry.tx.want_slot = CW_SLOT_NONE;
  const auto watched = unseen_.find(key);
  if (watched != unseen_.end()) entry.tx.native_slot = watched->second.slot;
  if (entry.tx.native_slot == CW_SLOT_NONE && port.port != 0)
    entry.tx.native_slot = SlotOfUntracked({key.src, key.dst}, port.port);
  return entry;
}

uint8_t Agent::SlotOfUntracked(const PairKey& pair, uint16_t port) const {
  const std::optional<uint32_t> index = engine_->mesh().Find(pair);
  if (!index) return CW_SLOT_NONE;
  const uint16_t path = engine_->discovery(*index)->Fold(port).value_or(port);
  return engine_->mesh().slots(*index).SlotOfPort(path).value_or(CW_SLOT_NONE);
}

void Agent::AddUnseen(const v1::QpsRequest& request, int64_t now_ns, v1::QpsReply& reply) {
  // A flow that is there, and which queue pair it is of will be known with the first packet received.
  absl::flat_hash_set<std::pair<Addr, uint32_t>> sent;
  for (const auto& [key, flow] : flows_.sent) sent.insert({key.src, key.dqpn});
  Drivers drivers;
  for (const rdma::QpInfo& qp : qps_.All()) {
    if (qp.rqpn == 0 || flows_.sent.contains(KeyOf(qp))) continue;
    if (qp.raddr.is_zero() && sent.contains({qp.laddr, qp.rqpn})) continue;
    // What a process says of itself alone counts where packets cannot tell, or where its library counts.
    const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.address == qp.laddr; });
    if (qp.source == "inproc" && !qp.owner && nic != nics_.end() && nic->attached) continue;
    const FlowKey key = KeyOf(qp);
    if (!request.flow().empty() && request.flow() != key.Id().ToString()) continue;
    if (!request.remote().empty() && request.remote() != qp.raddr.ToString() && request.remote() != PeerName(qp.raddr))
      continue;
    const rdma::NativePort port = rdma::NativePortOf(qp, drivers.Of(qp.device));
    v1::Flow out = MakeFlow(key, UnseenEntry(key, port), now_ns);
    out.set_port_from(rdma::PortFromName(port.from));
    if (qp.raddr.is_zero()) {  // which the list of the kernel does not have
      out.clear_remote_address();
      AddNames(qp.laddr, &qp, out);
      out.set_local_qpn(qp.lqpn);
      out.set_pid(qp.pid);
      out.set_process(qp.comm);
      AddLabel(qp, out);
      out.set_state(rdma::QpStateName(qp.state));
    }
    if (out.has_owner()) out.mutable_owner()->set_packets_seen(false);
    out.set_idle_s(0);
    *reply.add_flows() = std::move(out);
  }
}

}  // namespace cw::agent
