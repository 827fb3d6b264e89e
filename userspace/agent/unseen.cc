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

constexpr size_t kMaxWatched = CW_MAX_SLOTS;  // ports of one pair: it has no more slots

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
      qp.raddr_by_kernel = true;
      qp.label_known = true;
      qp.flow_label = id.flowinfo != 0 ? id.flowinfo & 0xfffff
                      : accepted       ? rdma::LabelOfCmPorts(id.remote_port, id.local_port)
                                       : rdma::LabelOfCmPorts(id.local_port, id.remote_port);
    }
  }
}

// Where programs are attached, packets will tell, but for those that an owner's library speaks of and no program sees.
bool Agent::IsUnseen(const rdma::QpInfo& qp, const Nic& nic) const {
  if (flows_.sent.contains(rdma::SentFlow(qp))) return false;
  return qp.owner ? !KernelHas(qp) : !nic.attached;
}

// A soft-RoCE device's own probes have ports of their own only.
void Agent::FollowUnseen() {
  std::map<FlowKey, UnseenQp> wanted;
  std::map<uint32_t, std::set<uint16_t>> watched;
  Drivers drivers;
  std::vector<rdma::QpInfo> all = qps_.All();
  // Those that are watched stay so, whatever else wants a slot.
  std::partition(all.begin(), all.end(), [&](const auto& qp) { return unseen_.contains(rdma::SentFlow(qp)); });
  for (const rdma::QpInfo& qp : all) {
    if (qp.rqpn == 0 || qp.raddr.is_zero()) continue;
    const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
    const PairState* pair = index ? FindPair(*index) : nullptr;
    if (pair == nullptr || !pair->table_seen || pair->blind) continue;
    const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.ifindex == pair->ifindex; });
    if (nic == nics_.end() || !IsUnseen(qp, *nic)) continue;
    if (nic->by_verbs && drivers.Of(qp.device) == "rdma_rxe") continue;
    const uint16_t port = rdma::NativePortOf(qp, drivers.Of(qp.device)).port;
    std::set<uint16_t>& ports = watched[*index];
    if (port == 0 || (ports.size() >= kMaxWatched && !ports.contains(port))) continue;
    ports.insert(port);
    wanted[rdma::SentFlow(qp)] = {.pair = *index, .port = port};
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

std::vector<Agent::QpOnPath> Agent::UnseenOnPaths() const {
  std::vector<QpOnPath> out;
  Drivers drivers;
  for (rdma::QpInfo& qp : qps_.All()) {
    if (qp.rqpn == 0 || qp.raddr.is_zero()) continue;
    const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
    const auto pair = index ? pairs_.find(*index) : pairs_.end();
    if (pair == pairs_.end()) continue;
    const uint32_t ifindex = pair->second->ifindex;
    const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.ifindex == ifindex; });
    if (nic == nics_.end() || !IsUnseen(qp, *nic)) continue;
    const uint16_t port = rdma::NativePortOf(qp, drivers.Of(qp.device)).port;
    const uint8_t slot = SlotOfUnseen(rdma::SentFlow(qp), port);
    out.push_back({.qp = std::move(qp), .pair = *index, .slot = slot});
  }
  return out;
}

uint8_t Agent::SlotOfUnseen(const FlowKey& key, uint16_t port) const {
  const auto watched = unseen_.find(key);
  if (watched != unseen_.end() && watched->second.port == port && watched->second.slot != CW_SLOT_NONE)
    return watched->second.slot;
  const std::optional<uint32_t> index = engine_->mesh().Find({key.src, key.dst});
  if (!index || port == 0) return CW_SLOT_NONE;
  const uint16_t path = engine_->discovery(*index)->Fold(port).value_or(port);
  return engine_->mesh().slots(*index).SlotOfPort(path).value_or(CW_SLOT_NONE);
}

v1::Flow Agent::MakeUnseen(const rdma::QpInfo& qp, const rdma::NativePort& port, int64_t now_ns) {
  const FlowKey key = rdma::SentFlow(qp);
  FlowEntry entry;
  entry.tx.flow.sport = port.port;
  entry.tx.slot = entry.tx.want_slot = CW_SLOT_NONE;
  entry.tx.native_slot = SlotOfUnseen(key, port.port);
  v1::Flow out = MakeFlow(key, entry, now_ns);
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
  return out;
}

void Agent::AddUnseen(const v1::QpsRequest& request, int64_t now_ns, v1::QpsReply& reply) {
  // A flow that is there, and which queue pair it is of will be known with the first packet received.
  absl::flat_hash_set<std::pair<Addr, uint32_t>> sent;
  for (const auto& [key, flow] : flows_.sent) sent.insert({key.src, key.dqpn});
  Drivers drivers;
  for (const rdma::QpInfo& qp : qps_.All()) {
    const FlowKey key = rdma::SentFlow(qp);
    if (qp.rqpn == 0 || flows_.sent.contains(key)) continue;
    if (qp.raddr.is_zero() && sent.contains({qp.laddr, qp.rqpn})) continue;
    // What a process says of itself alone counts where packets cannot tell, or where its library counts.
    const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.address == qp.laddr; });
    if (qp.source == "inproc" && !qp.owner && nic != nics_.end() && nic->attached) continue;
    if (!request.flow().empty() && request.flow() != key.Id().ToString()) continue;
    if (!request.remote().empty() && request.remote() != qp.raddr.ToString() &&
        request.remote() != peer_names_.Of(qp.raddr))
      continue;
    *reply.add_flows() = MakeUnseen(qp, rdma::NativePortOf(qp, drivers.Of(qp.device)), now_ns);
  }
}

}  // namespace cw::agent
