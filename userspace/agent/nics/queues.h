// SPDX-License-Identifier: Apache-2.0
//
// Which NICs keep packets' departure times (fq does), told to the kernel programs: over those a flow that moves has its
// packets held until what is under way on its old path has arrived. Between two looks the answer of before holds: a NIC
// whose fq was taken away holds nothing, and a flow that moves then may overtake itself, which costs a go-back-N.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/dataplane/qdiscs.h"

namespace cw::agent {

struct QueueAsks {
  std::function<absl::StatusOr<std::vector<dataplane::Qdisc>>(uint32_t ifindex)> qdiscs;
  std::function<void(uint32_t pair, bool keeps_departures)> tell;
};

// A NIC whose queues cannot be read counts as one that keeps none.
void LookAtQueues(NicTable& nics, const PairTable& pairs, const QueueAsks& asks);

}  // namespace cw::agent
