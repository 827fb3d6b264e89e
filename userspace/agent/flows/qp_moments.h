// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs at the moment the kernel connects and destroys them, so that they are known before their first packet and
// with their peers, which RDMA netlink's list does not have. Where that cannot be had, the list is read as before.
// Thread rule: the agent's loop.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "maps/qp_watch.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/model/clock.h"
#include "userspace/rdma/qp_monitor.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class QpMoments {
 public:
  // All of them outlive it.
  QpMoments(const NicTable& nics, rdma::QpRegistry& qps, const KernelQps& listed, OwnerMover& owners, FlowEnds& ends,
            const PeerNames& names, const Clock& monotonic, EventSink& events)
      : nics_(nics),
        qps_(qps),
        listed_(listed),
        owners_(owners),
        ends_(ends),
        names_(names),
        monotonic_(monotonic),
        events_(events) {}

  // When the agent starts: it gives up the right to load such programs (CAP_PERFMON) then. add_fd: to what the agent
  // waits for.
  void Open(const std::function<absl::Status(int fd, std::function<void()> readable)>& add_fd);
  const std::string& why_not() const { return why_not_; }  // "": it is open
  void On(const cw_ev_qp& event);

 private:
  void OnNic(const NicState& nic, const std::string& device, const cw_ev_qp& event);
  void Tell(const rdma::QpInfo& qp, const cw_ev_qp& event);

  const NicTable& nics_;
  rdma::QpRegistry& qps_;
  const KernelQps& listed_;
  OwnerMover& owners_;
  FlowEnds& ends_;
  const PeerNames& names_;
  const Clock& monotonic_;
  EventSink& events_;

  std::unique_ptr<rdma::QpMonitor> monitor_;
  std::string why_not_ = "no RDMA device was there when the agent started";
};

}  // namespace cw::agent
