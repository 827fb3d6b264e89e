// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/wire_gaps.h"

#include <algorithm>
#include <map>

namespace cw::agent {

WireGaps::Count WireGaps::Look(uint32_t pair, const FlowKey& key, uint64_t naks) {
  auto [at, fresh] = flows_.try_emplace(key, Flow{.pair = pair, .naks = naks});
  Flow& flow = at->second;
  flow.seen = true;
  flow.pair = pair;
  flow.ask = flow.ask || naks != flow.naks;
  flow.naks = naks;
  return {.known = flow.windows <= 1, .gaps = flow.gaps};
}

std::vector<std::pair<uint32_t, probe::GapReport>> WireGaps::Questions() {
  absl::erase_if(flows_, [](const auto& entry) { return !entry.second.seen; });
  std::map<uint32_t, probe::GapReport> by_pair;
  for (auto& [key, flow] : flows_) {
    flow.seen = false;
    flow.windows = std::min(flow.windows + 1, kNever);
    if (!flow.ask) continue;
    probe::GapReport& question = by_pair[flow.pair];
    if (question.flows.size() == probe::kMaxGapsPerMessage) continue;  // in the next window
    flow.ask = false;
    question.flows.push_back({.qpn = key.dqpn});
  }
  return {by_pair.begin(), by_pair.end()};
}

void WireGaps::Answered(const PairKey& pair, const probe::GapReport& answer) {
  for (const probe::GapReport::Flow& told : answer.flows) {
    const auto at = flows_.find(FlowKey{.src = pair.local, .dst = pair.remote, .dqpn = told.qpn});
    if (at == flows_.end() || !told.known) continue;
    at->second.windows = 0;
    at->second.gaps = told.gaps;
  }
}

}  // namespace cw::agent
