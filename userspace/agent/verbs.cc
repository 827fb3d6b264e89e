// SPDX-License-Identifier: Apache-2.0
// NICs whose probes go by verbs, and the others' with peers by verbs.
#include "userspace/probe_verbs/verbs_host.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"

namespace cw::agent {

probe_verbs::EndpointOptions Agent::EndpointOptionsOf(const Nic& nic) const {
  return {.ifindex = nic.ifindex,
          .netdev = nic.config.name,
          .address = nic.address,
          .soft_roce_ports = static_cast<uint32_t>(options_.config.probe.ports)};
}

// One that cannot be opened is told, and left without probes until its device changes; the agent goes on.
void Agent::OpenVerbsOf(Nic& nic) {
  // RoCE v2's ports over verbs; only `offload`, which nobody had to choose, comes here with others.
  const bool ports_fit = options_.config.probe.first_port >= config::kFirstVerbsPort;
  const absl::Status opened =
      ports_fit ? verbs_->OpenNic(EndpointOptionsOf(nic))
                : absl::FailedPreconditionError("ports there begin at 49152, and probe.first_port is below");
  if (opened.ok()) {
    const probe_verbs::UdEndpoint& endpoint = *verbs_->EndpointOf(nic.ifindex);
    spdlog::info("{}: probes go by verbs, device {}, queue pair {}", nic.config.name, endpoint.device(),
                 endpoint.qpn());
    if (endpoint.max_payload() < probe_verbs::kMaxPayload) {
      spdlog::warn("{}: the RoCE MTU leaves {} bytes, long messages between agents need {}: samples of delays are lost",
                   nic.config.name, endpoint.max_payload(), probe_verbs::kMaxPayload);
    }
    return;
  }
  nic.no_probes = std::string(opened.message());
  Log({.type = "nic",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrCat("NIC ", nic.config.name, " has no probes: they are to go by verbs, and ", nic.no_probes,
                            "; set transport = \"kernel\" for it, or repair that")});
}

// A device that goes takes its queue pairs along, and soft-RoCE's waits until nobody has it open. One that comes can be
// opened only by a thread with all rights.
void Agent::OnRdmaDevice(const std::string& device, bool gone) {
  for (const Nic& nic : nics_) {
    if (!nic.by_verbs) continue;
    const probe_verbs::UdEndpoint* endpoint = verbs_->EndpointOf(nic.ifindex);
    const bool lost = endpoint != nullptr && gone && endpoint->device() == device;
    const bool found = endpoint == nullptr && !gone && probe_verbs::UdEndpoint::IsThere(EndpointOptionsOf(nic));
    if (!lost && !found) continue;
    StartAnew({.type = "nic",
               .severity = lost ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
               .text = absl::StrFormat(
                   "NIC %s: RDMA device %s, which its probes go by, %s: the agent ends, to be started anew",
                   nic.config.name, device, lost ? "is gone" : "is there"),
               .evidence = {{"nic", nic.config.name}, {"device", device}}});
  }
}

void Agent::OpenForPeersByVerbs(const Nic& nic) {
  const absl::Status opened = verbs_->OpenKernelNic(nic.ifindex, nic.address);
  if (!opened.ok())
    spdlog::warn("{}: peers whose probes go by verbs are not understood: {}", nic.config.name,
                 std::string(opened.message()));
}

bool Agent::ProbesByVerbs() const {
  return std::any_of(nics_.begin(), nics_.end(), [](const Nic& nic) { return nic.by_verbs; });
}

absl::Status Agent::OpenVerbs() {
  const config::ProbeConfig& probe = options_.config.probe;
  if (std::none_of(nics_.begin(), nics_.end(), [](const Nic& nic) { return nic.by_verbs || nic.hears_verbs; })) {
    return absl::OkStatus();
  }
  const probe_verbs::HostOptions options = {
      .hello_port = static_cast<uint16_t>(probe.verbs_port),
      .responder = {.busy = probe.verbs_wait == config::VerbsWait::kBusy, .fifo_priority = probe.realtime ? 20 : 0}};
  verbs_ = std::make_unique<probe_verbs::VerbsHost>(
      options, dataplane::ProgramRunner(dataplane_->xdp_fd(), dataplane_->tc_fd()), &keys_.ring());
  for (Nic& nic : nics_) {
    if (nic.by_verbs) OpenVerbsOf(nic);
    if (nic.hears_verbs) OpenForPeersByVerbs(nic);
  }
  absl::Status status = verbs_->Start();
  for (const int fd : verbs_->fds()) status.Update(loop_->AddFd(fd, [this] { verbs_->OnReadable(MonotonicNs()); }));
  status.Update(loop_->AddTimer(probe_verbs::VerbsHost::kTickPeriod, [this] { verbs_->Tick(MonotonicNs()); }));
  return status;
}

// Of a NIC whose probes go by verbs; others have none.
probe_verbs::ArrivalStamps Agent::DeviceStamps(const Nic& nic) const {
  const probe_verbs::UdEndpoint* endpoint = verbs_ == nullptr ? nullptr : verbs_->EndpointOf(nic.ifindex);
  return endpoint == nullptr ? probe_verbs::ArrivalStamps{} : endpoint->stamps();
}

bool Agent::IsByVerbs(const PairState& pair) {
  const Nic* nic = NicOf(nics_, pair.ifindex);
  return nic != nullptr && nic->by_verbs;
}

void Agent::AddTransport(const Nic& nic, api::v1::NicStatus& out) const {
  out.set_transport(!nic.by_verbs ? "kernel" : nic.no_probes.empty() ? "verbs" : "none");
  out.set_transport_note(nic.no_probes);
  const probe_verbs::ArrivalStamps stamps = DeviceStamps(nic);
  const bool by_nic = stamps.by_device || (nic.attach.nic_stamps && nic.has_line);
  out.set_arrival_stamps(by_nic ? "hardware" : "software");
  out.set_arrivals_doubted(stamps.doubted);
  const probe_verbs::UdEndpoint* endpoint = verbs_ == nullptr ? nullptr : verbs_->EndpointOf(nic.ifindex);
  if (endpoint == nullptr) {
    const uint32_t peers = verbs_ == nullptr ? 0 : verbs_->PeersByVerbs(nic.ifindex);
    if (peers > 0)
      out.set_transport_note(absl::StrCat("UD SENDs to ", peers, peers == 1 ? " peer by verbs" : " peers by verbs"));
    return;
  }
  out.set_transport_note(absl::StrFormat("probes by %s/qp0x%x%s", endpoint->device(), endpoint->qpn(),
                                         stamps.by_device ? ", which stamps arrivals" : ""));
}

void Agent::AddVerbs(api::v1::StatusReply& reply) {
  if (verbs_ == nullptr || verbs_->book().pairs() == 0) return;
  const probe_verbs::ResponderStats stats = verbs_->responder_stats();
  api::v1::VerbsStatus* out = reply.mutable_verbs();
  out->set_received(stats.received);
  out->set_answered(stats.answered);
  out->set_unanswered(stats.unanswered);
  out->set_malformed(stats.malformed);
  out->set_turn_p50_ns(static_cast<double>(stats.turn_p50_ns));
  out->set_turn_p99_ns(static_cast<double>(stats.turn_p99_ns));
  out->set_cpu_s(static_cast<double>(stats.cpu_ns) / 1e9);
  out->set_busy(verbs_->busy());
  out->set_peers(verbs_->book().pairs());
  out->set_peers_known(verbs_->book().known());
  out->set_hellos_refused(verbs_->hellos_refused());
}

}  // namespace cw::agent
