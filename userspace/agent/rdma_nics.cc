// SPDX-License-Identifier: Apache-2.0
// RDMA devices of this host: looked after beside the loop, told in events and by cwctl nics.
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/qp_moments.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/nics/verbs_probes.h"
#include "userspace/agent/rdma_watch.h"

namespace cw::agent {

absl::Status Agent::OpenRdmaWatch() {
  RdmaWatch::Options options;
  for (const NicState& nic : nics_) {
    if (const probe_verbs::UdEndpoint* endpoint = verbs_->EndpointOf(nic); endpoint != nullptr)
      options.held.insert(endpoint->device());
  }
  options.tell = [this](telemetry::Event event) {
    loop_->Post([this, event = std::move(event)]() mutable { Log(std::move(event)); });
  };
  options.port = [this](const std::string& netdev, bool up) {
    loop_->Post([this, netdev, up] { carriers_->OnRdmaPort(netdev, up); });
  };
  options.device = [this](const std::string& device, bool gone) {
    loop_->Post([this, device, gone] { verbs_->OnDevice(device, gone); });
  };
  rdma_watch_ = std::make_unique<RdmaWatch>(std::move(options));
  kernel_qps_->Read();
  if (!kernel_qps_->links().empty())
    qp_moments_->Open([this](int fd, Loop::Callback readable) { return loop_->AddFd(fd, std::move(readable)); });
  return absl::OkStatus();
}

// On the caller's thread, as it opens devices; what our NICs are called now is the loop's.
absl::StatusOr<api::v1::NicsReply> Agent::Nics(const api::v1::NicsRequest&, const api::Caller&) {
  using Names = std::vector<std::pair<std::string, std::string>>;  // of the device, of the NIC
  const absl::StatusOr<Names> names = loop_->Call<Names>([this]() -> absl::StatusOr<Names> {
    Names out;
    for (const NicState& own : nics_)
      if (!own.removed) out.emplace_back(own.device, own.config.name);
    return out;
  });
  if (!names.ok()) return names.status();
  api::v1::NicsReply reply = rdma_watch_->Look();
  for (api::v1::RdmaNic& nic : *reply.mutable_nics()) {
    for (const api::v1::RdmaNicPort& port : nic.ports()) {
      for (const auto& [device, name] : *names) {
        if (device == port.netdev()) nic.add_agent_nics(name);
      }
    }
  }
  return reply;
}

}  // namespace cw::agent
