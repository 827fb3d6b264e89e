// SPDX-License-Identifier: Apache-2.0
// Flows whose queue pair is gone leave the tables when the kernel says so: as it destroys it, or by RDMA netlink's list
// (rdma/ended_flows.h). Where no RDMA device tells, they leave when they were idle for long (flows.cc).
#include <algorithm>
#include <utility>

#include "userspace/agent/agent.h"
#include "userspace/agent/flows/owner_mover.h"

namespace cw::agent {
namespace {

// Of both ends' queue pairs a packet of these names one; any queue pair may send datagrams to any other.
bool HasOneSender(const FlowEntry& flow) { return flow.flow().transport <= 1; }  // RC, UC

}  // namespace

// list: the connected ones, whose peers the registry may know.
void Agent::ForgetEndedFlows(const std::vector<rdma::QpInfo>& list, rdma::KernelCover cover) {
  for (const rdma::QpInfo& qp : list) {
    const auto known = qps_.ByReceivedFlow({.dst = qp.laddr, .dqpn = qp.lqpn});
    cover.sends.insert({.src = qp.laddr, .dst = known ? known->raddr : Addr{}, .dqpn = qp.rqpn});
  }
  std::vector<rdma::EndedFlows::Flow> flows;
  for (const auto* book : {&flows_.sent, &flows_.received}) {
    for (const auto& [key, flow] : *book) {
      const uint32_t sender = flow.received || HasOneSender(flow) ? 0 : flow.flow().peer_qpn;
      if (HasOneSender(flow) || sender != 0) flows.push_back({key, flow.received, flow.flow().packets, sender});
    }
  }
  std::vector<FlowKey> sent;
  for (const rdma::EndedFlows::Flow& flow : ended_.Step(cover, flows)) {
    if (!flow.received) {
      sent.push_back(flow.key);
      continue;
    }
    (void)dataplane_->flows().Delete(ToMap(flow.key));
    flows_.received.erase(flow.key);
  }
  ForgetFlows(sent);
}

// Its last packets may leave after this: the list finds what they leave behind.
void Agent::OnQpEnds(const rdma::QpInfo& qp) {
  qps_.Unregister(qp);
  if (!rdma::FromKernel(qp)) owner_mover_->OnOwnerGone(qp);
  if (qp.rqpn == 0 || qp.raddr.is_zero()) return;
  const FlowKey received{.src = qp.raddr, .dst = qp.laddr, .dqpn = qp.lqpn};
  (void)dataplane_->flows().Delete(ToMap(received));
  flows_.received.erase(received);
  if (!qps_.BySentFlow(rdma::SentFlow(qp))) ended_.Add(rdma::SentFlow(qp));
}

}  // namespace cw::agent
