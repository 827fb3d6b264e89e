// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/queues.h"

namespace cw::agent {

void LookAtQueues(NicTable& nics, const PairTable& pairs, const QueueAsks& asks) {
  for (NicState& nic : nics) {
    const absl::StatusOr<std::vector<dataplane::Qdisc>> qdiscs = asks.qdiscs(nic.ifindex);
    nic.keeps_departures = qdiscs.ok() && dataplane::KeepsDepartures(*qdiscs);
    for (const auto& [index, pair] : pairs) {
      if (pair->ifindex == nic.ifindex) asks.tell(index, nic.keeps_departures);
    }
  }
}

}  // namespace cw::agent
