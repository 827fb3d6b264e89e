// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/ended_flows.h"

#include <utility>

namespace cw::rdma {
namespace {

const Addr& LocalOf(const EndedFlows::Flow& flow) { return flow.received ? flow.key.dst : flow.key.src; }

bool IsListed(const KernelCover& list, const EndedFlows::Flow& flow) {
  if (flow.received) return list.there.contains({flow.key.dst, flow.key.dqpn});
  if (flow.sender != 0) return list.there.contains({flow.key.src, flow.sender});
  // Zero: the list alone does not know to whom.
  return list.sends.contains(flow.key) || list.sends.contains({.src = flow.key.src, .dst = {}, .dqpn = flow.key.dqpn});
}

}  // namespace

std::vector<EndedFlows::Flow> EndedFlows::Step(const KernelCover& list, const std::vector<Flow>& flows) {
  absl::flat_hash_map<std::pair<FlowKey, bool>, uint64_t> lacked;
  absl::flat_hash_set<Addr> lists_not_all;
  std::vector<Flow> silent;
  for (const Flow& flow : flows) {
    if (!list.addresses.contains(LocalOf(flow)) || IsListed(list, flow)) continue;
    const std::pair<FlowKey, bool> key{flow.key, flow.received};
    lacked[key] = flow.packets;
    const auto before = lacked_.find(key);
    if (before == lacked_.end()) continue;
    if (before->second == flow.packets) {
      silent.push_back(flow);
    } else if (!flow.received) {  // what arrives proves nothing: a peer resends into what is gone
      lists_not_all.insert(LocalOf(flow));
    }
  }
  lacked_ = std::move(lacked);
  std::erase_if(silent, [&](const Flow& flow) { return lists_not_all.contains(LocalOf(flow)); });
  return silent;
}

}  // namespace cw::rdma
