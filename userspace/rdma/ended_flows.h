// SPDX-License-Identifier: Apache-2.0
// Flows whose queue pair has ended, by the kernel's list of queue pairs. The list may lack one that is alive: one that
// began since it was read, or all those of processes that the agent may not see. So a flow has ended when two lists in
// a row lack its queue pair and no packet of it came between them; where packets did come, the list does not know all
// of that address's, and none of them is taken for ended.
// Pure; one thread.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "userspace/model/flow.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::rdma {

class EndedFlows {
 public:
  struct Flow {
    FlowKey key;
    bool received = false;
    uint64_t packets = 0;
    uint32_t sender = 0;  // of a sent datagram: the QPN that it names, by which it is looked for; 0: of another kind
  };
  // flows: RC and UC ones, which alone have one queue pair at each end, and datagrams whose sender is known. The ended
  // ones; told again while they are there.
  std::vector<Flow> Step(const KernelCover& list, const std::vector<Flow>& flows);

  // Sent flows whose queue pair the kernel destroyed, kept until they are forgotten together: a job may end with
  // thousands.
  void Add(const FlowKey& sent) { destroyed_.push_back(sent); }
  std::vector<FlowKey> TakeDestroyed() { return std::exchange(destroyed_, {}); }

 private:
  std::vector<FlowKey> destroyed_;
  absl::flat_hash_map<std::pair<FlowKey, bool>, uint64_t> lacked_;  // by the last list; their packets then
};

}  // namespace cw::rdma
