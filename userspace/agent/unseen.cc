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

}  // namespace cw::agent
