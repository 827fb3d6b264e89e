// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>

#include "absl/strings/str_format.h"
#include "userspace/control/contention_state.h"

namespace cw::control {
namespace {

constexpr double kCapacityForgottenPerSecond = 0.01;
constexpr int kForgetAfterWindows = 50;

bool Congested(const FlowObservation& flow, const PathMemory& path, const ContentionState::Impl& state) {
  return flow.cnps > 0 || (path.queue.count() > 0 && path.queue.Back(0) > state.QueueLimitNs(path.base_ns));
}

// A name for a link that nobody else knows: FNV-1a, which is the same in every process, unlike absl::Hash.
uint64_t OwnLink(const PathId& path) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto add = [&](uint8_t byte) { hash = (hash ^ byte) * 0x100000001b3; };
  for (const uint8_t byte : path.pair.local.bytes) add(byte);
  for (const uint8_t byte : path.pair.remote.bytes) add(byte);
  add(path.slot);
  return hash;
}

// Links that every path of a pair takes (the receiver's own, say) tell nothing about how its flows are spread.
std::vector<uint64_t> CommonLinks(const PairObservation& pair) {
  if (pair.paths.size() < 2) return {};
  std::vector<uint64_t> common = pair.paths.front().links;
  for (const PathObservation& path : pair.paths) {
    std::erase_if(common, [&](uint64_t link) {
      return std::find(path.links.begin(), path.links.end(), link) == path.links.end();
    });
  }
  return common;
}

void RememberPath(const PathObservation& seen, const std::vector<uint64_t>& common, double keep, int64_t window,
                  PathMemory& path) {
  path.usable = seen.usable;
  path.links = seen.links;
  std::erase_if(path.links,
                [&](uint64_t link) { return std::find(common.begin(), common.end(), link) != common.end(); });
  path.last_window = window;
  path.marks.Add(seen.ecn_samples, seen.marked, keep);
  if (seen.queue_samples == 0) return;
  path.base_ns = seen.base_ns;
  path.queue.Add(seen.queue_ns);
}

// A move that took place, ours or the kernel's: the old rates say nothing about the new path.
void StartOnSlot(const FlowObservation& seen, const PairKey& pair, int64_t now_ns, ContentionState::Impl& state,
                 FlowMemory& flow) {
  const bool known = flow.slot != kSlotNone && flow.pair == pair;
  flow.trial = known && flow.asked == seen.slot && flow.rate.count() > 0;
  if (flow.trial) {
    flow.trial_from = flow.slot;
    flow.trial_before_bps = state.RateBps(flow);
    PathMemory& left = state.paths[{pair, flow.slot}];
    left.joined_bps = flow.trial_before_bps;
    left.joined_ns = now_ns;
    ++flow.moves;
    flow.forgiven_ns = now_ns;
  }
  flow.pair = pair;
  flow.slot = seen.slot;
  flow.windows_on_slot = 0;
  flow.congested_windows = 0;
  flow.hold = -1;
  flow.asked = kSlotNone;
  flow.rate.Clear();
}

void Forgive(int64_t now_ns, const ContentionRules& rules, FlowMemory& flow) {
  if (flow.moves == 0 || static_cast<double>(now_ns - flow.forgiven_ns) < 1e9 * rules.forgive_s) return;
  --flow.moves;
  flow.forgiven_ns = now_ns;
}

// A window that begins or ends with nothing under way tells what the flow had to send, not what its path gives. Jobs
// wait at barriers and go on: until it has rested for long, the flow is load, and then its rate is measured anew, since
// what it got while others rested is no measure.
bool Pauses(const FlowObservation& seen, int64_t now_ns, const ContentionRules& rules, FlowMemory& flow) {
  const bool whole = !seen.at_rest && !flow.at_rest;
  flow.at_rest = seen.at_rest;
  if (whole && flow.paused) {
    flow.rate.Clear();
    flow.windows_on_slot = 0;
  }
  if (whole) flow.whole_ns = now_ns;
  flow.paused = !whole && flow.whole_ns != 0 && static_cast<double>(now_ns - flow.whole_ns) < 1e9 * rules.pause_s;
  return flow.paused;
}

// Windows in a row without a byte say that the flow has nothing to send, and nothing about its path: the rates start
// anew with the first window that is sure to be a whole one. One alone may be a processor that was taken away.
void RememberRate(double bps, const ContentionRules& rules, FlowMemory& flow) {
  if (flow.at_rest && bps == 0) {
    flow.rate.Clear();
    flow.rate.Add(0);
    return;
  }
  const bool was_idle = flow.rate.count() == 1 && flow.rate.Back(0) == 0;
  if (was_idle && bps > 0) flow.rate.Clear();
  if (was_idle) return;
  if (flow.windows_on_slot == rules.settle_windows + 1) flow.rate.Clear();
  if (flow.windows_on_slot > rules.settle_windows || flow.windows_on_slot == 1) flow.rate.Add(bps);
  if (flow.rate.count() < rules.rate_windows || flow.rate.MeanOf(rules.rate_windows) > 0) return;
  flow.rate.Clear();
  flow.rate.Add(0);
}

void JudgeTrial(const FlowKey& key, int64_t now_ns, ContentionState::Impl& state, FlowMemory& flow, Decision& out) {
  flow.trial = false;
  const double after = state.RateBps(flow);
  PathMemory& path = state.paths[{flow.pair, flow.slot}];
  path.joined_bps = after;
  path.joined_ns = now_ns;
  const bool kept = after >= state.rules.kept_gain * flow.trial_before_bps;
  if (!kept && flow.trial_idle) {
    state.alone_ns = now_ns;
    state.alone_bps = std::max(after, flow.trial_before_bps);
  }
  Finding f{kept ? Finding::Kind::kMoveConfirmed : Finding::Kind::kMoveBroughtNothing, flow.pair, key, "", {}};
  f.text = absl::StrFormat("flow %s got %.0f Mbit/s on path %d, after %.0f Mbit/s on path %d", key.Id().ToString(),
                           after / 1e6, flow.slot, flow.trial_before_bps / 1e6, flow.trial_from);
  f.evidence = {{"before_mbps", absl::StrFormat("%.1f", flow.trial_before_bps / 1e6)},
                {"after_mbps", absl::StrFormat("%.1f", after / 1e6)}};
  out.findings.push_back(std::move(f));
}

void RememberFlow(const FlowObservation& seen, const PairObservation& pair, const Observation& all,
                  ContentionState::Impl& state, Decision& out) {
  FlowMemory& flow = state.flows[seen.key];
  flow.last_window = state.window;
  flow.locked = seen.locked;
  if (flow.slot != seen.slot || !(flow.pair == pair.pair)) StartOnSlot(seen, pair.pair, all.now_ns, state, flow);
  if (seen.slot == kSlotNone) return;
  if (Pauses(seen, all.now_ns, state.rules, flow)) {
    flow.congested_windows = 0;
    flow.hold = -1;
    return;
  }
  ++flow.windows_on_slot;
  Forgive(all.now_ns, state.rules, flow);
  RememberRate(8e9 * static_cast<double>(seen.bytes) / static_cast<double>(std::max<int64_t>(1, all.window_ns)),
               state.rules, flow);
  const bool congested = Congested(seen, state.paths[{pair.pair, seen.slot}], state);
  flow.congested_windows = congested ? flow.congested_windows + 1 : 0;
  if (!congested) flow.hold = -1;
  if (flow.asked != kSlotNone && ++flow.asked_windows > 2 * state.rules.settle_windows) flow.asked = kSlotNone;
  if (flow.trial && state.Settled(flow)) JudgeTrial(seen.key, all.now_ns, state, flow, out);
}

void Forget(ContentionState::Impl& state) {
  std::erase_if(state.flows, [&](const auto& e) { return e.second.last_window < state.window - kForgetAfterWindows; });
  std::erase_if(state.paths, [&](const auto& e) { return e.second.last_window < state.window - kForgetAfterWindows; });
}

// What others send on our flows' paths: the share that is missing to the capacity. Over all windows that are kept,
// because a flow's rate swings around its share.
void EstimateExternal(ContentionState::Impl& state) {
  const OwnLoad load(state);
  const double fastest = state.FastestBps();
  std::map<PathId, double> slowest;
  std::map<PathId, bool> unsettled;
  for (const auto& [key, flow] : state.flows) {
    if (!state.IsElephant(flow, fastest)) continue;
    const PathId path{flow.pair, flow.slot};
    if (!state.Settled(flow)) unsettled[path] = true;
    double& rate = slowest.try_emplace(path, 1e18).first->second;
    rate = std::min(rate, flow.rate.Mean());
  }
  for (const auto& [path, bps] : slowest) {
    if (unsettled.contains(path) || bps <= 0) continue;
    state.paths[path].external = std::max(0.0, state.capacity_bps / bps - load.On(path));
    state.paths[path].external_ns = state.now_ns;
  }
}

}  // namespace

double StandardError(const PairObservation& pair, const ContentionState::Impl& state) {
  double sum = 0;
  int freedom = 0;
  for (const PathObservation& p : pair.paths) {
    const auto found = state.paths.find({pair.pair, p.slot});
    if (found == state.paths.end() || found->second.queue.count() < 2) continue;
    const PathMemory& m = found->second;
    sum += m.queue.SquaredDeviations();
    freedom += m.queue.count() - 1;
  }
  if (freedom == 0) return 1e18;
  return std::sqrt(sum / freedom / kQueueWindows);
}

void Remember(const Observation& seen, ContentionState::Impl& state, Decision& out) {
  ++state.window;
  state.now_ns = seen.now_ns;
  state.line_rate_bps = seen.line_rate_bps;
  const double seconds = static_cast<double>(seen.window_ns) * 1e-9;
  const double keep = std::exp(-std::max(0.0, seconds) / std::max(1e-3, state.rules.marks_memory_s));
  for (const PairObservation& pair : seen.pairs) {
    const std::vector<uint64_t> common = CommonLinks(pair);
    for (const PathObservation& path : pair.paths) {
      RememberPath(path, common, keep, state.window, state.paths[{pair.pair, path.slot}]);
    }
    for (const FlowObservation& flow : pair.flows) RememberFlow(flow, pair, seen, state, out);
  }
  if (state.window % kForgetAfterWindows == 0) Forget(state);
  state.capacity_bps *= 1 - std::min(1.0, kCapacityForgottenPerSecond * seconds);
  state.capacity_bps = std::max({state.capacity_bps, seen.line_rate_bps, OwnLoad(state).MaxLinkBps()});
  EstimateExternal(state);
}

OwnLoad::OwnLoad(const ContentionState::Impl& state) : state_(state) {
  const double fastest = state.FastestBps();
  for (const auto& [key, flow] : state.flows) {
    if (!state.IsElephant(flow, fastest)) continue;
    const double bps = state.RateBps(flow);
    for (const uint64_t link : LinksOf({flow.pair, flow.slot})) {
      ++links_[link].flows;
      if (state.Settled(flow)) links_[link].bps += bps;
    }
  }
}

std::vector<uint64_t> OwnLoad::LinksOf(const PathId& path) const {
  const auto it = state_.paths.find(path);
  if (it != state_.paths.end() && !it->second.links.empty()) return it->second.links;
  return {OwnLink(path)};
}

int OwnLoad::On(const PathId& path) const {
  int most = 0;
  for (const uint64_t link : LinksOf(path)) {
    const auto it = links_.find(link);
    if (it != links_.end()) most = std::max(most, it->second.flows);
  }
  return most;
}

void OwnLoad::Moved(const PathId& from, const PathId& to) {
  for (const uint64_t link : LinksOf(from)) --links_[link].flows;
  for (const uint64_t link : LinksOf(to)) ++links_[link].flows;
}

double OwnLoad::MaxLinkBps() const {
  double most = 0;
  for (const auto& [id, link] : links_) most = std::max(most, link.bps);
  return most;
}

}  // namespace cw::control
