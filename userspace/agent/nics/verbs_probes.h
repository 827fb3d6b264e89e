// SPDX-License-Identifier: Apache-2.0
//
// NICs whose probes go by verbs, and the others' with peers by verbs: which they are, what opening them came to, what
// becomes of them with their RDMA devices, and what status says of it. Thread rule: the agent's loop, but any(), which
// any thread may ask once the agent has started.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/config/config.h"
#include "userspace/probe_verbs/verbs_host.h"

namespace cw::agent {

class VerbsProbes {
 public:
  struct Asks {
    std::function<bool(const probe_verbs::EndpointOptions& nic)> is_there;  // a device that it could be opened on
    std::function<void(telemetry::Event why)> start_anew;                   // the agent has to end
  };

  // All of them outlive it.
  VerbsProbes(NicTable& nics, const config::ProbeConfig& probe, EventSink& events, Asks asks)
      : nics_(nics), probe_(probe), events_(events), asks_(std::move(asks)) {}

  // Once the NICs are known. What cannot be opened has no probes, and is told; the agent goes on.
  absl::Status Open(const dataplane::ProgramRunner& runner, const probe::KeyRing* keys);
  bool any() const;                                                      // of our NICs
  probe_verbs::VerbsHost* host() { return host_.get(); }                 // null: there are none, nor peers by verbs
  const probe_verbs::UdEndpoint* EndpointOf(const NicState& nic) const;  // null: not by verbs, or not opened
  bool IsByVerbs(const PairState& pair) const;
  probe_verbs::ArrivalStamps StampsOf(const NicState& nic) const;  // of one by verbs; others have none

  // An RDMA device went, or came.
  void OnDevice(const std::string& device, bool gone);

  void AddTransport(const NicState& nic, ::cwfabric::v1::NicStatus& out) const;
  void AddTo(::cwfabric::v1::StatusReply& reply);

 private:
  probe_verbs::EndpointOptions OptionsOf(const NicState& nic) const;
  void OpenNic(NicState& nic);
  void OpenForPeers(const NicState& nic);

  NicTable& nics_;
  const config::ProbeConfig& probe_;
  EventSink& events_;
  const Asks asks_;
  std::unique_ptr<probe_verbs::VerbsHost> host_;
  std::set<uint32_t> without_device_;  // NICs by verbs that had none when it was looked at
};

}  // namespace cw::agent
