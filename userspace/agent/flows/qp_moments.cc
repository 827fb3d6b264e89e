// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/qp_moments.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/rdma/native_port.h"

namespace cw::agent {

void QpMoments::Open(const std::function<absl::Status(int fd, std::function<void()> readable)>& add_fd) {
  absl::StatusOr<std::unique_ptr<rdma::QpMonitor>> opened =
      rdma::QpMonitor::Open([this](const cw_ev_qp& event) { On(event); });
  absl::Status status = opened.status();
  if (opened.ok()) status = add_fd((*opened)->fd(), [this] { monitor_->Poll(); });
  why_not_ = std::string(status.message());
  if (status.ok()) monitor_ = *std::move(opened);
}

void QpMoments::On(const cw_ev_qp& event) {
  for (const rdma::Link& link : listed_.links()) {
    if (link.device != event.device) continue;
    for (const NicState& nic : nics_) {
      if (nic.ifindex == link.ifindex) OnNic(nic, link.device, event);
    }
  }
}

void QpMoments::OnNic(const NicState& nic, const std::string& device, const cw_ev_qp& event) {
  const std::optional<rdma::QpInfo> known = qps_.ByReceivedFlow({.dst = nic.address, .dqpn = event.qpn});
  if (event.type == CW_QP_ENDS) {
    if (!known) return;
    qps_.Unregister(*known);
    if (!rdma::FromKernel(*known)) owners_.OnOwnerGone(*known);
    return ends_.OnQpEnds(*known);
  }
  // What its process announced stands, unless the kernel knows better.
  const bool connects = event.type == CW_QP_CONNECTS;
  const bool claimed = known && !rdma::FromKernel(*known);
  const bool stands = claimed && (!connects || (known->pid == event.pid && known->rqpn == event.remote_qpn));
  if (claimed && !stands) owners_.OnOwnerGone(*known);
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
  qp.device = device;
  qp.state = connects ? rdma::kQpStateRtr : rdma::kQpStateRts;
  if (qp.rqpn == 0) return;
  qps_.Register(qp);
  if (connects && !nic.attached) Tell(qp, event);  // where packets are seen, the first one is told
}

void QpMoments::Tell(const rdma::QpInfo& qp, const cw_ev_qp& event) {
  const int64_t after_ns = monotonic_.NowNs() - static_cast<int64_t>(event.ns);
  const rdma::NativePort port = rdma::NativePortOf(qp, Drivers().Of(qp.device));
  events_.Log(
      {.type = "flow",
       .text =
           absl::StrFormat("queue pair %s/qp0x%x of %s connects to %s qp 0x%x%s", qp.device, qp.lqpn,
                           qp.pid == 0 ? "the kernel" : absl::StrFormat("%s[%d]", qp.comm, qp.pid), names_.Of(qp.raddr),
                           qp.rqpn, port.port == 0 ? "" : absl::StrFormat(", udp-port %d", port.port)),
       .flow = rdma::SentFlow(qp).Id().ToString(),
       .peer = names_.Of(qp.raddr),
       .evidence = {{"told_after_us", absl::StrCat(after_ns / 1000)}, {"port_from", rdma::PortFromName(port.from)}}});
}

}  // namespace cw::agent
