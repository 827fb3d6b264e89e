// SPDX-License-Identifier: Apache-2.0
// Which NICs keep packets' departure times, told to the kernel programs: over those a flow that moves has its packets
// held until what is under way on its old path has arrived.
#include "userspace/agent/agent.h"
#include "userspace/dataplane/qdiscs.h"

namespace cw::agent {

// In between, the answer of before holds: a NIC whose fq was taken away holds nothing, and a flow that moves then may
// overtake itself, which costs a go-back-N.
void Agent::LookAtQueues() {
  for (Nic& nic : nics_) {
    const absl::StatusOr<std::vector<dataplane::Qdisc>> qdiscs = dataplane::QdiscsOf(nic.ifindex);
    nic.keeps_departures = qdiscs.ok() && dataplane::KeepsDepartures(*qdiscs);
    for (const auto& [index, pair] : pairs_) {
      if (pair->ifindex != nic.ifindex) continue;
      maps::PairsView::Store(dataplane_->pairs()[index].departs, static_cast<uint32_t>(nic.keeps_departures));
    }
  }
}

}  // namespace cw::agent
