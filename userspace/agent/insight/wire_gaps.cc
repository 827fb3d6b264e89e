// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/wire_gaps.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace cw::agent {
namespace {

constexpr int32_t kNewRecord = 1 << 24;  // packets apart: the peer's record began anew
constexpr int kWaits = 3;                // windows without an answer

}  // namespace

WireGaps::Count WireGaps::Look(uint32_t pair, const FlowKey& key, uint64_t naks, uint64_t sent) {
  auto [at, fresh] = flows_.try_emplace(key, Flow{.pair = pair, .naks = naks});
  Flow& flow = at->second;
  flow.seen = true;
  flow.pair = pair;
  const bool again = naks != flow.naks && flow.windows > 1;
  if (again) flow.answers = std::min(flow.answers, kCompared);  // the last ones are of an earlier loss
  flow.refused = flow.refused || naks != flow.naks;
  flow.ask = flow.ask || naks != flow.naks ||
             (flow.refused && flow.answers < kKnownAfter && !flow.cannot && flow.asked <= kWaits);
  flow.naks = naks;
  flow.sent = sent;
  const bool enough = flow.answers >= kKnownAfter;
  return {.known = flow.windows <= 1 && enough,
          .pending = !enough && flow.refused && !flow.cannot && flow.asked <= kWaits,
          .gaps = flow.gaps,
          .missing = flow.missing};
}

std::vector<std::pair<uint32_t, probe::GapReport>> WireGaps::Questions() {
  absl::erase_if(flows_, [](const auto& entry) { return !entry.second.seen; });
  std::vector<std::pair<uint32_t, Flow*>> asks;  // those first for which the last message had no room
  for (auto& [key, flow] : flows_) {
    flow.seen = false;
    flow.windows = std::min(flow.windows + 1, kNever);
    if (flow.ask) asks.emplace_back(key.dqpn, &flow);
  }
  std::stable_partition(asks.begin(), asks.end(), [](const auto& ask) { return ask.second->waits; });
  std::map<uint32_t, probe::GapReport> by_pair;
  for (const auto& [qpn, flow] : asks) {
    probe::GapReport& question = by_pair[flow->pair];
    flow->waits = question.flows.size() == probe::kMaxGapsPerMessage;
    if (flow->waits) continue;
    flow->ask = false;
    flow->asked_at = static_cast<uint32_t>(flow->sent);
    if (flow->refused) flow->asked = std::min(flow->asked + 1, kNever);
    question.flows.push_back({.qpn = qpn});
  }
  return {by_pair.begin(), by_pair.end()};
}

void WireGaps::Take(Flow& flow, const probe::GapReport::Flow& told) {
  flow.windows = flow.asked = 0;
  const uint32_t lacks = flow.asked_at - told.packets;
  const auto more_than_first = [&](uint32_t lacked) { return static_cast<int32_t>(lacked - flow.first[0]); };
  const auto gaps = static_cast<int32_t>(told.gaps - flow.first_gaps);
  if (flow.answers == 0 || gaps < 0 || std::abs(more_than_first(lacks)) > kNewRecord) {
    flow.answers = 1;
    flow.first_gaps = told.gaps;
    flow.first.fill(lacks);
    flow.last.fill(lacks);
    flow.gaps = flow.missing = 0;
    return;
  }
  if (flow.answers < kCompared) flow.first[static_cast<size_t>(flow.answers)] = lacks;
  flow.last[static_cast<size_t>(flow.answers % kCompared)] = lacks;
  ++flow.answers;
  flow.gaps = static_cast<uint64_t>(gaps);
  if (flow.answers < 2 * kCompared) return;
  int32_t most = 0, least = INT32_MAX;
  for (const uint32_t lacked : flow.first) most = std::max(most, more_than_first(lacked));
  for (const uint32_t lacked : flow.last) least = std::min(least, more_than_first(lacked));
  flow.missing = std::max(flow.missing, static_cast<uint64_t>(std::max(least - most, 0)));
}

void WireGaps::Answered(const PairKey& pair, const probe::GapReport& answer) {
  for (const probe::GapReport::Flow& told : answer.flows) {
    const auto at = flows_.find(FlowKey{.src = pair.local, .dst = pair.remote, .dqpn = told.qpn});
    if (at == flows_.end()) continue;
    at->second.cannot = !told.known;
    if (told.known) Take(at->second, told);
  }
}

}  // namespace cw::agent
