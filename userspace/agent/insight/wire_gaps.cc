// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/wire_gaps.h"

#include <algorithm>
#include <map>

namespace cw::agent {
namespace {

constexpr int32_t kNewRecord = 1 << 24;  // packets apart: the peer's record began anew

}  // namespace

WireGaps::Count WireGaps::Look(uint32_t pair, const FlowKey& key, uint64_t naks, uint64_t sent) {
  auto [at, fresh] = flows_.try_emplace(key, Flow{.pair = pair, .naks = naks});
  Flow& flow = at->second;
  flow.seen = true;
  flow.pair = pair;
  flow.ask = flow.ask || naks != flow.naks;
  flow.naks = naks;
  flow.sent = sent;
  return {.known = flow.windows <= 1 && flow.answers > 1, .gaps = flow.gaps, .missing = flow.missing};
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
    flow.asked_at = static_cast<uint32_t>(flow.sent);
    question.flows.push_back({.qpn = key.dqpn});
  }
  return {by_pair.begin(), by_pair.end()};
}

// Packets under way are unheard, too. They are a window's at most, however long it lasts, and what is lost adds up: so
// what counts is how far the unheard ones rise above the fewest.
void WireGaps::Take(Flow& flow, const probe::GapReport::Flow& told) {
  flow.windows = 0;
  const uint32_t unheard = flow.asked_at - told.packets;
  const auto more = static_cast<int32_t>(unheard - flow.least_unheard);
  const auto gaps = static_cast<int32_t>(told.gaps - flow.first_gaps);
  if (flow.answers == 0 || gaps < 0 || more > kNewRecord || more < -kNewRecord) {
    flow.answers = 1;
    flow.first_gaps = told.gaps;
    flow.least_unheard = unheard;
    flow.gaps = flow.missing = 0;
    return;
  }
  ++flow.answers;
  flow.gaps = static_cast<uint64_t>(gaps);
  if (more < 0) flow.least_unheard = unheard;
  flow.missing = std::max(flow.missing, static_cast<uint64_t>(std::max(more, 0)));
}

void WireGaps::Answered(const PairKey& pair, const probe::GapReport& answer) {
  for (const probe::GapReport::Flow& told : answer.flows) {
    const auto at = flows_.find(FlowKey{.src = pair.local, .dst = pair.remote, .dqpn = told.qpn});
    if (at == flows_.end() || !told.known) continue;
    Take(at->second, told);
  }
}

}  // namespace cw::agent
