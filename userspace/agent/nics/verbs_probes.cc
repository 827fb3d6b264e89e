// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/verbs_probes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

probe_verbs::EndpointOptions VerbsProbes::OptionsOf(const NicState& nic) const {
  return {.ifindex = nic.ifindex,
          .netdev = nic.device,
          .address = nic.address,
          .soft_roce_ports = static_cast<uint32_t>(probe_.ports)};
}

absl::Status VerbsProbes::Open(const dataplane::ProgramRunner& runner, const probe::KeyRing* keys) {
  if (std::none_of(nics_.begin(), nics_.end(), [](const NicState& nic) { return nic.by_verbs || nic.hears_verbs; }))
    return absl::OkStatus();
  const probe_verbs::HostOptions options = {
      .hello_port = static_cast<uint16_t>(probe_.verbs_port),
      .responder = {.busy = probe_.verbs_wait == config::VerbsWait::kBusy, .fifo_priority = probe_.realtime ? 20 : 0}};
  host_ = std::make_unique<probe_verbs::VerbsHost>(options, runner, keys);
  for (NicState& nic : nics_) {
    if (nic.by_verbs) OpenNic(nic);
    if (nic.hears_verbs) OpenForPeers(nic);
  }
  return host_->Start();
}

// One that cannot be opened is left without probes. The agent is started anew when a device comes that was not there:
// not at each change of one that is there and cannot be opened.
void VerbsProbes::OpenNic(NicState& nic) {
  // RoCE v2's ports over verbs; only `offload`, which nobody had to choose, comes here with others.
  const absl::Status opened =
      probe_.first_port >= config::kFirstVerbsPort
          ? host_->OpenNic(OptionsOf(nic))
          : absl::FailedPreconditionError("ports there begin at 49152, and probe.first_port is below");
  if (!opened.ok()) {
    nic.no_probes = std::string(opened.message());
    if (!asks_.is_there(OptionsOf(nic))) without_device_.insert(nic.ifindex);
    return events_.Log(
        {.type = "nic",
         .severity = telemetry::Severity::kAlert,
         .text = absl::StrCat("NIC ", nic.config.name, " has no probes: they are to go by verbs, and ", nic.no_probes,
                              "; set transport = \"kernel\" for it, or repair that and restart the agent")});
  }
  const probe_verbs::UdEndpoint& endpoint = *host_->EndpointOf(nic.ifindex);
  spdlog::info("{}: probes go by verbs, device {}, queue pair {}", nic.config.name, endpoint.device(), endpoint.qpn());
  if (endpoint.max_payload() < probe_verbs::kMaxPayload)
    spdlog::warn("{}: the RoCE MTU leaves {} bytes, long messages between agents need {}: samples of delays are lost",
                 nic.config.name, endpoint.max_payload(), probe_verbs::kMaxPayload);
}

void VerbsProbes::OpenForPeers(const NicState& nic) {
  const absl::Status opened = host_->OpenKernelNic(nic.ifindex, nic.address);
  if (!opened.ok())
    spdlog::warn("{}: peers whose probes go by verbs are not understood: {}", nic.config.name,
                 std::string(opened.message()));
}

bool VerbsProbes::any() const {
  return std::any_of(nics_.begin(), nics_.end(), [](const NicState& nic) { return nic.by_verbs; });
}

const probe_verbs::UdEndpoint* VerbsProbes::EndpointOf(const NicState& nic) const {
  return host_ == nullptr ? nullptr : host_->EndpointOf(nic.ifindex);
}

bool VerbsProbes::IsByVerbs(const PairState& pair) const {
  const NicState* nic = NicOf(nics_, pair.ifindex);
  return nic != nullptr && nic->by_verbs;
}

probe_verbs::ArrivalStamps VerbsProbes::StampsOf(const NicState& nic) const {
  const probe_verbs::UdEndpoint* endpoint = EndpointOf(nic);
  return endpoint == nullptr ? probe_verbs::ArrivalStamps{} : endpoint->stamps();
}

// A device that goes takes its queue pairs along, and soft-RoCE's waits until nobody has it open. One that comes can be
// opened only by a thread with all rights.
void VerbsProbes::OnDevice(const std::string& device, bool gone) {
  for (const NicState& nic : nics_) {
    if (!nic.by_verbs) continue;
    const probe_verbs::UdEndpoint* endpoint = EndpointOf(nic);
    const bool lost = endpoint != nullptr && gone && endpoint->device() == device;
    const bool there = endpoint == nullptr && asks_.is_there(OptionsOf(nic));
    if (endpoint == nullptr && !there) without_device_.insert(nic.ifindex);
    const bool found = there && !gone && without_device_.contains(nic.ifindex);
    if (!lost && !found) continue;
    asks_.start_anew({.type = "nic",
                      .severity = lost ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
                      .text = absl::StrFormat(
                          "NIC %s: RDMA device %s, which its probes go by, %s: the agent ends, to be started anew",
                          nic.config.name, device, lost ? "is gone" : "is there"),
                      .evidence = {{"nic", nic.config.name}, {"device", device}}});
  }
}

void VerbsProbes::AddTransport(const NicState& nic, v1::NicStatus& out) const {
  out.set_transport(!nic.by_verbs ? "kernel" : nic.no_probes.empty() ? "verbs" : "none");
  out.set_transport_note(nic.no_probes);
  const probe_verbs::ArrivalStamps stamps = StampsOf(nic);
  const bool by_nic = stamps.by_device || (nic.attach.nic_stamps && nic.has_line);
  out.set_arrival_stamps(by_nic ? "hardware" : "software");
  out.set_arrivals_doubted(stamps.doubted);
  if (const probe_verbs::UdEndpoint* endpoint = EndpointOf(nic); endpoint != nullptr) {
    return out.set_transport_note(absl::StrFormat("probes by %s/qp0x%x%s", endpoint->device(), endpoint->qpn(),
                                                  stamps.by_device ? ", which stamps arrivals" : ""));
  }
  const uint32_t peers = host_ == nullptr ? 0 : host_->PeersByVerbs(nic.ifindex);
  if (peers > 0)
    out.set_transport_note(absl::StrCat("UD SENDs to ", peers, peers == 1 ? " peer by verbs" : " peers by verbs"));
}

void VerbsProbes::AddTo(v1::StatusReply& reply) {
  if (host_ == nullptr || host_->book().pairs() == 0) return;
  const probe_verbs::ResponderStats stats = host_->responder_stats();
  v1::VerbsStatus* out = reply.mutable_verbs();
  out->set_received(stats.received);
  out->set_answered(stats.answered);
  out->set_unanswered(stats.unanswered);
  out->set_malformed(stats.malformed);
  out->set_turn_p50_ns(static_cast<double>(stats.turn_p50_ns));
  out->set_turn_p99_ns(static_cast<double>(stats.turn_p99_ns));
  out->set_cpu_s(static_cast<double>(stats.cpu_ns) / 1e9);
  out->set_busy(host_->busy());
  out->set_peers(host_->book().pairs());
  out->set_peers_known(host_->book().known());
  out->set_hellos_refused(host_->hellos_refused());
}

}  // namespace cw::agent
