// SPDX-License-Identifier: Apache-2.0
// Queue pairs at the moment the kernel connects and destroys them, so that they are known before their first packet and
// with their peers, which RDMA netlink's list does not have. Where that cannot be had, the list is read as before.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/host/nic_checks.h"
#include "userspace/rdma/qp_monitor.h"

namespace cw::agent {

// When the agent starts: it gives up the right to load such programs (CAP_PERFMON) then.
void Agent::OpenQpMonitor() {
  absl::StatusOr<std::unique_ptr<rdma::QpMonitor>> opened =
      rdma::QpMonitor::Open([this](const cw_ev_qp& event) { OnQpMoment(event); });
  if (!opened.ok()) {
    no_qp_monitor_ = std::string(opened.status().message());
    return;
  }
  if (const absl::Status status = loop_->AddFd((*opened)->fd(), [this] { qp_monitor_->Poll(); }); !status.ok()) {
    no_qp_monitor_ = std::string(status.message());
    return;
  }
  qp_monitor_ = *std::move(opened);
  no_qp_monitor_.clear();
}

void Agent::OnQpMoment(const cw_ev_qp& event) {
  for (const rdma::Link& link : rdma_links_) {
    if (link.device != event.device) continue;
    for (const Nic& nic : nics_) {
      if (nic.ifindex != link.ifindex) continue;
      const std::optional<rdma::QpInfo> known = qps_.ByReceivedFlow({.dst = nic.address, .dqpn = event.qpn});
      if (event.type == CW_QP_ENDS) {
        if (known) OnQpEnds(*known);
        continue;
      }
      // What its process announced stands, unless the kernel knows better.
      const bool connects = event.type == CW_QP_CONNECTS;
      const bool claimed = known && !rdma::FromKernel(*known);
      const bool stands = claimed && (!connects || (known->pid == event.pid && known->rqpn == event.remote_qpn));
      if (claimed && !stands) owner_mover_->OnOwnerGone(*known);
      rdma::QpInfo qp = known ? *known : rdma::QpInfo{.lqpn = event.qpn, .laddr = nic.address, .source = "hook"};
      if (connects && !stands) {
        qp = {.lqpn = event.qpn,
              .rqpn = event.remote_qpn,
              .laddr = nic.address,
              .pid = event.pid,
              .comm = event.comm,
              .source = "hook"};
      }
      if (connects && stands) qp.proven = true;
      if (event.has_av != 0) {
        qp.raddr = Addr::FromBytes(event.remote);
        qp.raddr_by_kernel = true;
        qp.flow_label = event.flow_label & 0xfffff;
        qp.label_known = true;
      }
      qp.device = link.device;
      qp.state = event.type == CW_QP_CONNECTS ? rdma::kQpStateRtr : rdma::kQpStateRts;
      if (qp.rqpn == 0) continue;
      qps_.Register(qp);
      // Where packets are seen, the first one is told.
      if (event.type == CW_QP_CONNECTS && !nic.attached) TellQpMoment(qp, event);
    }
  }
}

void Agent::TellQpMoment(const rdma::QpInfo& qp, const cw_ev_qp& event) {
  const int64_t after_ns = MonotonicNs() - static_cast<int64_t>(event.ns);
  const rdma::NativePort port = rdma::NativePortOf(qp, host::RdmaDriver(host::Roots(), qp.device));
  Log({.type = "flow",
       .text = absl::StrFormat("queue pair %s/qp0x%x of %s connects to %s qp 0x%x%s", qp.device, qp.lqpn,
                               qp.pid == 0 ? "the kernel" : absl::StrFormat("%s[%d]", qp.comm, qp.pid),
                               peer_names_.Of(qp.raddr), qp.rqpn,
                               port.port == 0 ? "" : absl::StrFormat(", udp-port %d", port.port)),
       .flow = FlowKey{.src = qp.laddr, .dst = qp.raddr, .dqpn = qp.rqpn}.Id().ToString(),
       .peer = peer_names_.Of(qp.raddr),
       .evidence = {{"told_after_us", absl::StrCat(after_ns / 1000)}, {"port_from", rdma::PortFromName(port.from)}}});
}

}  // namespace cw::agent
