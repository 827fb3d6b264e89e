// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs by RDMA netlink's lists, with what rdma_cm adds to them, and the kernel's word on one that a process
// claims. Thread rule: the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/nic_state.h"
#include "userspace/rdma/nldev.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

// UD queue pairs, of which each sends to many, so that none has one flow.
using DatagramQps = absl::flat_hash_map<rdma::QpKey, rdma::QpInfo>;

class KernelQps {
 public:
  using Open = std::function<absl::StatusOr<std::unique_ptr<rdma::QpLists>>()>;

  // open: the RDMA modules may be loaded at any time. All of them outlive it.
  KernelQps(NicTable& nics, rdma::QpRegistry& qps, OwnerMover& owners, FlowEnds& ends, Open open)
      : nics_(nics), qps_(qps), owners_(owners), ends_(ends), open_(std::move(open)) {}

  void Read();  // every few seconds
  // Asks the kernel. Of an address that is no NIC of ours it may know all or nothing: no claim on it is ever proven.
  rdma::KernelWord WordOn(const rdma::QpInfo& qp);
  const std::vector<rdma::Link>& links() const { return links_; }  // as told last
  const DatagramQps& datagrams() const { return datagrams_; }

 private:
  void NameRdmaDevices();
  void TakeQps(const NicState& nic, const rdma::Link& link, const std::vector<rdma::Qp>& qps,
               std::vector<rdma::QpInfo>& list, rdma::KernelCover& cover);
  void AddConnections(std::vector<rdma::QpInfo>& list);

  NicTable& nics_;
  rdma::QpRegistry& qps_;
  OwnerMover& owners_;
  FlowEnds& ends_;
  const Open open_;

  std::unique_ptr<rdma::QpLists> lists_;  // null: no RDMA subsystem, or what is left of a broken answer
  std::vector<rdma::Link> links_;
  DatagramQps datagrams_;
};

}  // namespace cw::agent
