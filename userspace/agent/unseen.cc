// SPDX-License-Identifier: Apache-2.0
// What is shown of queue pairs whose packets do not pass the kernel (flows/unseen.h), and what rdma_cm adds to RDMA
// netlink's list of them.
#include <set>

#include "absl/container/flat_hash_set.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/unseen.h"

namespace cw::agent {

namespace v1 = api::v1;

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

v1::Flow Agent::MakeUnseen(const rdma::QpInfo& qp, const rdma::NativePort& port, int64_t now_ns) {
  const FlowKey key = rdma::SentFlow(qp);
  FlowEntry entry;
  entry.tx.flow.sport = port.port;
  entry.tx.slot = entry.tx.want_slot = CW_SLOT_NONE;
  entry.tx.native_slot = unseen_->SlotOf(key, port.port);
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
