// SPDX-License-Identifier: Apache-2.0
//
// Whether the address of each NIC is still on this host, where its packets can use it: without it, peers get no answer
// and ours probe in vain. An address that goes, moves to another device, or comes back is an event, and the NIC's
// trouble meanwhile. Thread rule: the agent's loop.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/host_net.h"
#include "userspace/agent/nic_state.h"

namespace cw::agent {

class Addresses {
 public:
  // Of the kernel. An error: nothing is known, and all is as it was.
  struct Asks {
    std::function<absl::StatusOr<std::vector<HostAddress>>()> addresses;
    std::function<absl::StatusOr<std::vector<HostLink>>()> links;  // only where an address is not where it is expected
  };

  // All of them outlive it.
  Addresses(NicTable& nics, EventSink& events, Asks asks) : nics_(nics), events_(events), asks_(std::move(asks)) {}

  void LookAtAll();  // at the start, once a second, and when one of the addresses changed; after Carriers' look

 private:
  void Take(NicState& nic, std::string why);

  NicTable& nics_;
  EventSink& events_;
  const Asks asks_;
};

}  // namespace cw::agent
