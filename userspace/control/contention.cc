// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/contention.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "absl/strings/str_format.h"
#include "userspace/control/contention_state.h"
#include "userspace/control/explain.h"

namespace cw::control {
namespace {

using State = ContentionState::Impl;

// A path that a flow could move to, and what that should bring.
struct Target {
  uint8_t slot = kSlotNone;
  double gain = 0;  // expected rate ÷ present rate
  double queue_ns = 0;
  double probability = 1;  // per window: below 1 where other hosts may see the same and follow
  const char* reason = "";
  bool idle = false;  // nobody else seems to be there
};

// By how many standard errors `there` queues less than `here`.
double LowerBy(const PathMemory& there, const PathMemory& here, double standard_error) {
  return (here.queue.Mean() - there.queue.Mean()) / (std::sqrt(2.0) * standard_error);
}

// Queueing on `there` ÷ `here`, if there is lower beyond noise and in each of the last windows.
std::optional<double> LowerQueue(const PathMemory& there, const PathMemory& here, double standard_error,
                                 const ContentionRules& rules) {
  const int windows = rules.evidence_windows;
  if (there.queue.count() < windows || here.queue.count() < windows) return std::nullopt;
  for (int i = 0; i < windows; ++i) {
    if (there.queue.Back(i) > rules.better_than * here.queue.Back(i)) return std::nullopt;
  }
  if (LowerBy(there, here, standard_error) < rules.significance) return std::nullopt;
  const double now = there.queue.MeanOf(windows) / std::max(1.0, here.queue.MeanOf(windows));
  return std::max(now, there.queue.Mean() / std::max(1.0, here.queue.Mean()));
}

// Marks that `there` would have shown since its last one if it were as busy as `here`.
double MissingMarks(const PathMemory& there, const PathMemory& here) { return here.marks.Share() * there.marks.clean; }

std::string MarkedText(const PathMemory& path) {
  return path.marks.told > 0 ? absl::StrFormat("%.4f", path.marks.Share()) : "not told";
}

// Plans the moves of one window.
class Planner {
 public:
  Planner(const Observation& seen, State& state)
      : seen_(seen), state_(state), fastest_(state.FastestBps()), load_(state) {}

  std::vector<Move> Plan();
  Standing StandingOf(const FlowMemory& flow) const;
  void ExplainInto(const PairObservation& pair, const FlowMemory& flow, Explanation& out);

 private:
  PathExplanation ExplainPath(const PathId& path);
  CandidateExplanation ExplainCandidate(const PairObservation& pair, const FlowMemory& flow,
                                        const PathObservation& path, double noise);
  bool MayMove(const FlowMemory& flow) const { return StandingOf(flow) == Standing::kMayMove; }
  bool HoldOver(FlowMemory& flow);
  std::vector<Target> Find(const PairObservation& pair, const FlowMemory& flow);
  Target Judge(const PairObservation& pair, const FlowMemory& flow, uint8_t slot, double noise);
  Target ByOwnFlows(const FlowMemory& flow, const PathId& here, const PathId& there);
  Target ByLinks(const FlowMemory& flow, const PathId& here, const PathId& there, double noise);
  Target ByMarks(const FlowMemory& flow, const PathId& here, const PathId& there, double noise);
  Target ByDelay(const FlowMemory& flow, const PathId& here, const PathId& there, double noise);
  // From the rates of this window, not of flows that rest or have just come.
  bool ExternalKnown(const PathId& path) { return state_.paths[path].external_ns == seen_.now_ns; }
  bool SeenForLong(const FlowMemory& flow) const { return flow.rate.count() >= 2 * state_.rules.rate_windows; }
  double Sharers(const FlowMemory& flow, const PathId& path);
  double ExternalElsewhere(const FlowMemory& flow, double here);
  double LastQueueNs(const PathId& path) const {
    const auto found = state_.paths.find(path);
    return found == state_.paths.end() || found->second.queue.count() == 0 ? 0 : found->second.queue.Back(0);
  }
  Move Make(const PairObservation& pair, const FlowKey& key, const FlowMemory& flow,
            const std::vector<Target>& candidates);

  const Observation& seen_;
  State& state_;
  double fastest_;
  OwnLoad load_;
  std::optional<std::map<PathId, FittedQueue>> fitted_;  // made when a flow first asks
};

Standing Planner::StandingOf(const FlowMemory& flow) const {
  if (flow.slot == kSlotNone) return Standing::kPathUnknown;
  if (flow.locked) return Standing::kHeld;
  if (flow.asked != kSlotNone) return Standing::kAsked;
  if (flow.trial) return Standing::kTrial;
  if (!state_.Settled(flow)) return Standing::kSettling;
  if (flow.congested_windows < state_.rules.evidence_windows) return Standing::kNotCongested;
  if (!state_.Rested(flow)) return Standing::kRests;
  if (!state_.IsElephant(flow, fastest_)) return Standing::kSmall;
  return Standing::kMayMove;
}

// Starts or continues the random wait. A flow whose evidence goes away in between starts anew.
bool Planner::HoldOver(FlowMemory& flow) {
  if (flow.hold < 0) {
    flow.hold = 1 + static_cast<int>(state_.Uniform() * state_.rules.hold_windows);
  }
  if (flow.hold > 0) --flow.hold;
  return flow.hold == 0;
}

// Flows that share the flow's bottleneck, itself included.
double Planner::Sharers(const FlowMemory& flow, const PathId& path) {
  const double rate = std::max(1.0, state_.RateBps(flow));
  const int own = load_.On(path);
  const bool known = state_.capacity_bps >= state_.rules.min_gain * rate * std::max(1, own) || seen_.line_rate_bps > 0;
  const double sharers = std::max<double>(own, own + state_.paths[path].external);
  return known ? sharers : std::max<double>(sharers, state_.rules.unknown_sharers);
}

// Our own flows there tell what that path carries.
Target Planner::ByOwnFlows(const FlowMemory& flow, const PathId& here, const PathId& there) {
  Target t{.reason = "fewer flows share that path"};
  if (!ExternalKnown(here) || !ExternalKnown(there)) return t;
  t.gain = (load_.On(here) + state_.paths[here].external) / (load_.On(there) + state_.paths[there].external + 1);
  if (!SeenForLong(flow) && t.gain < state_.rules.sure_gain) t.gain = 0;
  return t;
}

// None of our flows is there: what the links on both paths do to all paths of this host that take them tells more than
// the few probes of the two. Weak evidence all the same: which links have no queue is the simplest explanation, not a
// measurement.
Target Planner::ByLinks(const FlowMemory& flow, const PathId& here, const PathId& there, double noise) {
  const ContentionRules& rules = state_.rules;
  if (flow.windows_on_slot <= rules.weak_after_windows) return {};
  if (LowerBy(state_.paths[there], state_.paths[here], noise) <= 0) return {};
  if (!fitted_) fitted_ = FitPaths(seen_, state_);
  const auto from = fitted_->find(here), to = fitted_->find(there);
  if (from == fitted_->end() || to == fitted_->end()) return {};
  const FittedQueue &mine = from->second, &other = to->second;
  if (mine.queue_ns <= state_.QueueLimitNs(state_.paths[here].base_ns)) return {};
  if (other.queue_ns > rules.better_than * mine.queue_ns) return {};
  if (mine.queue_ns - other.queue_ns < rules.significance * std::hypot(mine.error_ns, other.error_ns)) return {};
  return {.gain = Sharers(flow, here) / 2,
          .probability = rules.weak_probability,
          .reason = "the links of that path queue less"};
}

// None of our flows is there, and it queues no more than here: where links mark before they queue, only idle ones never
// mark. How many flows a busy one has its marks do not tell: their share swings by more than that.
Target Planner::ByMarks(const FlowMemory& flow, const PathId& here, const PathId& there, double noise) {
  const PathMemory &from = state_.paths[here], &to = state_.paths[there];
  if (state_.HasAll(flow) || flow.windows_on_slot <= state_.rules.weak_after_windows) return {};
  if (LowerBy(to, from, noise) < 0) return {};
  if (MissingMarks(to, from) < state_.rules.idle_marks) return {};
  return {.gain = Sharers(flow, here),
          .probability = state_.rules.join_probability,
          .reason = "that path marks no probes",
          .idle = true};
}

// Flows of others on a path that none of ours takes, as on those that ours take, or took lately.
double Planner::ExternalElsewhere(const FlowMemory& flow, double here) {
  double sum = here;
  int paths = 1;
  for (auto p = state_.paths.lower_bound({flow.pair, 0}); p != state_.paths.end() && p->first.pair == flow.pair; ++p) {
    const double age_ns = static_cast<double>(seen_.now_ns - p->second.external_ns);
    if (p->first.slot == flow.slot || p->second.external_ns == 0 || age_ns > 1e9 * state_.rules.memory_s) continue;
    sum += p->second.external;
    ++paths;
  }
  return sum / paths;
}

// None of our flows is there: queueing delay is all that shows how many of others are.
Target Planner::ByDelay(const FlowMemory& flow, const PathId& here, const PathId& there, double noise) {
  const ContentionRules& rules = state_.rules;
  const PathMemory &from = state_.paths[here], &to = state_.paths[there];
  const double age_s = to.joined_bps > 0 ? static_cast<double>(seen_.now_ns - to.joined_ns) * 1e-9 : 1e18;
  if (age_s < rules.memory_s) {
    const double gain = to.joined_bps / std::max(1.0, state_.RateBps(flow));
    if (gain < rules.min_gain) return {};
    // What others got there tells no more of what there is: they may have been alone while the rest paused.
    const bool left = there.slot == flow.trial_from && (SeenForLong(flow) || gain >= rules.sure_gain);
    if (left) return {.gain = gain, .reason = "the flow was faster there"};
  }
  if (const auto ratio = LowerQueue(to, from, noise, rules)) {
    const bool idle = *ratio < rules.idle_below;
    return {.gain = Sharers(flow, here) / (idle ? 1 : 2),
            .probability = rules.join_probability,
            .reason = idle ? "that path is idle" : "that path queues less",
            .idle = idle};
  }
  if (const Target t = ByMarks(flow, here, there, noise); t.gain > 0) return t;
  if (age_s < rules.long_memory_s) return {};
  if (const Target t = ByLinks(flow, here, there, noise); t.gain >= rules.min_gain) return t;
  const double lower_by = LowerBy(to, from, noise);
  if (lower_by > rules.weak_significance && flow.windows_on_slot > rules.weak_after_windows) {
    const double gain = Sharers(flow, here) / 2;
    if (gain >= rules.min_gain) {
      return {.gain = gain, .probability = rules.weak_probability, .reason = "that path may queue less"};
    }
  }
  // Our own flows are spread before any path takes two.
  if (load_.On(here) >= 2 && lower_by > -rules.significance && ExternalKnown(here)) {
    const double gain = (load_.On(here) + from.external) / (ExternalElsewhere(flow, from.external) + 1);
    if (gain >= rules.trial_gain) return {.gain = gain, .reason = "it has none of our flows"};
  }
  return {};
}

Target Planner::Judge(const PairObservation& pair, const FlowMemory& flow, uint8_t slot, double noise) {
  const PathId here{pair.pair, flow.slot}, there{pair.pair, slot};
  Target t = load_.On(there) > 0 ? ByOwnFlows(flow, here, there) : ByDelay(flow, here, there, noise);
  t.slot = slot;
  t.queue_ns = state_.paths[there].queue.Mean();
  return t;
}

// Two random candidates at most, the better one first; none: no path is better, or it is not this window's turn.
std::vector<Target> Planner::Find(const PairObservation& pair, const FlowMemory& flow) {
  const double noise = StandardError(pair, state_);
  std::vector<Target> targets;
  for (const PathObservation& path : pair.paths) {
    if (!path.usable || path.slot == flow.slot) continue;
    const Target t = Judge(pair, flow, path.slot, noise);
    if (t.gain >= state_.rules.min_gain) targets.push_back(t);
  }
  if (targets.empty()) return {};
  std::shuffle(targets.begin(), targets.end(), state_.random);
  if (targets.size() > 2) targets.erase(targets.begin() + 2, targets.end());
  const auto better = [](const Target& a, const Target& b) {
    return a.gain != b.gain ? a.gain > b.gain : a.queue_ns < b.queue_ns;
  };
  if (targets.size() == 2 && better(targets[1], targets[0])) std::swap(targets[0], targets[1]);
  const double probability = targets.front().probability;
  if (probability < 1 && state_.Uniform() > probability) return {};
  return targets;
}

Move Planner::Make(const PairObservation& pair, const FlowKey& key, const FlowMemory& flow,
                   const std::vector<Target>& candidates) {
  const Target& target = candidates.front();
  const PathMemory& from = state_.paths[{pair.pair, flow.slot}];
  Move m{.pair = pair.pair,
         .flow = key,
         .from = flow.slot,
         .to = target.slot,
         .force = target.gain >= state_.rules.force_gain,
         .gain = target.gain,
         .why = "",
         .evidence = {},
         .queue_ns = LastQueueNs({pair.pair, target.slot})};
  if (candidates.size() > 1) {
    m.second = candidates[1].slot;
    m.second_gain = candidates[1].gain;
    m.second_queue_ns = LastQueueNs({pair.pair, m.second});
  }
  m.why = absl::StrFormat("path %d is shared and %s (path %d): about %.1f times the rate expected", flow.slot,
                          target.reason, target.slot, target.gain);
  m.evidence = {{"rate_mbps", absl::StrFormat("%.1f", state_.RateBps(flow) / 1e6)},
                {"queue_us", absl::StrFormat("%.1f", from.queue.Mean() / 1e3)},
                {"target_queue_us", absl::StrFormat("%.1f", target.queue_ns / 1e3)},
                {"own_flows", absl::StrFormat("%d", load_.On({pair.pair, flow.slot}))},
                {"marked_share", MarkedText(from)},
                {"target_marked_share", MarkedText(state_.paths[{pair.pair, target.slot}])},
                {"target_own_flows", absl::StrFormat("%d", load_.On({pair.pair, target.slot}))},
                {"expected_gain", absl::StrFormat("%.2f", target.gain)}};
  return m;
}

std::vector<Move> Planner::Plan() {
  struct Candidate {
    const PairObservation* pair;
    FlowKey key;
  };
  std::vector<Candidate> candidates;
  size_t flows = 0;
  absl::flat_hash_map<PairKey, size_t> of_pair, moved;
  for (const PairObservation& pair : seen_.pairs) {
    for (const FlowObservation& f : pair.flows) {
      const FlowMemory& flow = state_.flows[f.key];
      if (!state_.IsElephant(flow, fastest_)) continue;
      ++flows;
      ++of_pair[pair.pair];
      if (pair.table_valid && MayMove(flow)) candidates.push_back({&pair, f.key});
    }
  }
  std::shuffle(candidates.begin(), candidates.end(), state_.random);
  const auto cap = std::max<size_t>(1, static_cast<size_t>(state_.rules.max_moved_share * static_cast<double>(flows)));
  std::vector<Move> moves;
  for (const Candidate& c : candidates) {
    FlowMemory& flow = state_.flows[c.key];
    const size_t all = of_pair[c.pair->pair];
    const bool last_of_pair = all > 1 && moved[c.pair->pair] + 1 >= all;
    if (moves.size() >= cap || last_of_pair) continue;
    const std::vector<Target> targets = Find(*c.pair, flow);
    if (targets.empty()) flow.hold = -1;
    if (targets.empty() || !HoldOver(flow)) continue;
    const Target& target = targets.front();
    moves.push_back(Make(*c.pair, c.key, flow, targets));
    load_.Moved({c.pair->pair, flow.slot}, {c.pair->pair, target.slot});
    ++moved[c.pair->pair];
    flow.asked = target.slot;
    flow.asked_windows = 0;
    flow.trial_idle = target.idle;
  }
  return moves;
}

PathExplanation Planner::ExplainPath(const PathId& path) {
  const PathMemory& m = state_.paths[path];
  return {.slot = path.slot,
          .usable = m.usable,
          .queue_windows = m.queue.count(),
          .queue_ns = m.queue.Mean(),
          .queue_limit_ns = state_.QueueLimitNs(m.base_ns),
          .marked_share = m.marks.Share(),
          .marks_known = m.marks.told > 0,
          .own_flows = load_.On(path),
          .others = m.external};
}

CandidateExplanation Planner::ExplainCandidate(const PairObservation& pair, const FlowMemory& flow,
                                               const PathObservation& path, double noise) {
  const PathId here{pair.pair, flow.slot}, there{pair.pair, path.slot};
  CandidateExplanation out{.path = ExplainPath(there), .text = {}};
  if (!path.usable) {
    out.text = "no flow is put there now";
    return out;
  }
  const Target target = Judge(pair, flow, path.slot, noise);
  out.gain = target.gain;
  out.probability = target.probability;
  out.enough = target.gain >= state_.rules.min_gain;
  if (out.enough) {
    out.text = absl::StrFormat("%s: %.2f times the rate expected", target.reason, target.gain);
  } else if (target.gain > 0) {
    out.text = absl::StrFormat("%.2f times the rate expected, %.2f wanted", target.gain, state_.rules.min_gain);
  } else if (out.path.own_flows > 0) {
    out.text = "too little to gain from so short a look";
  } else if (state_.paths[there].queue.count() == 0 || state_.paths[here].queue.count() == 0) {
    out.text = "queueing delays are not measured yet";
  } else {
    out.text = absl::StrFormat(
        "its queue is lower by %.1f standard errors, %.1f wanted; no mark where %.1f were to come, %.1f wanted%s",
        LowerBy(state_.paths[there], state_.paths[here], noise), state_.rules.significance,
        MissingMarks(state_.paths[there], state_.paths[here]), state_.rules.idle_marks,
        state_.HasAll(flow) ? "; a flow got no more on an idle path lately" : "");
  }
  return out;
}

std::string StandingText(const Explanation& e, const FlowMemory& flow, const ContentionRules& rules) {
  switch (e.standing) {
    case Standing::kUnknown:
      return "it was not in the rule's last window: it sends nothing, or acknowledgements only";
    case Standing::kPathUnknown:
      return "its path is not probed, so nothing is known of it";
    case Standing::kHeld:
      return "it is locked, placed by an operator, or a move of it is pending";
    case Standing::kAsked:
      return absl::StrFormat("a move to path %d was decided and is not seen yet", flow.asked);
    case Standing::kTrial:
      return absl::StrFormat("what the move from path %d brings is being measured", flow.trial_from);
    case Standing::kSettling:
      return absl::StrFormat("it is on its path for %d windows, and is judged after %d", e.windows_on_path,
                             rules.settle_windows + rules.rate_windows);
    case Standing::kNotCongested:
      return absl::StrFormat("its path was congested in %d windows in a row, %d are wanted", e.congested_windows,
                             e.congested_wanted);
    case Standing::kRests:
      return absl::StrFormat("it has moved %d times lately and rests for longer each time", flow.moves);
    case Standing::kSmall:
      return absl::StrFormat("it sends less than %.0f %% of this host's fastest flow", 100 * rules.elephant_share);
    case Standing::kNoBetter:
      return absl::StrFormat("its path is congested, but no other promises %.2f times the rate", rules.min_gain);
    case Standing::kWaits:
    case Standing::kMayMove:
      break;
  }
  return "a better path is known; it waits for its random turn, so that hosts do not jump together";
}

void Planner::ExplainInto(const PairObservation& pair, const FlowMemory& flow, Explanation& out) {
  const double noise = StandardError(pair, state_);
  out.standing = StandingOf(flow);
  out.pair = pair.pair;
  out.rate_bps = state_.RateBps(flow);
  out.capacity_bps = state_.capacity_bps;
  out.windows_on_path = flow.windows_on_slot;
  out.congested_windows = flow.congested_windows;
  out.congested_wanted = state_.rules.evidence_windows;
  bool better = false;
  if (flow.slot != kSlotNone) {
    out.here = ExplainPath({pair.pair, flow.slot});
    for (const PathObservation& path : pair.paths) {
      if (path.slot == flow.slot) continue;
      out.candidates.push_back(ExplainCandidate(pair, flow, path, noise));
      better = better || out.candidates.back().enough;
    }
  }
  if (out.standing == Standing::kMayMove) out.standing = better ? Standing::kWaits : Standing::kNoBetter;
}

// The move that is waited for is the one that was chosen at the last look.
Settled TakeSettled(const Reprobe& seen, State& state) {
  const Settled settled = Settle(state.rules, seen);
  const auto found = state.flows.find(settled.flow);
  if (found == state.flows.end() || settled.to == settled.first) return settled;
  FlowMemory& flow = found->second;
  if (flow.asked != settled.first || !(flow.pair == settled.pair)) return settled;
  flow.asked = settled.to;
  flow.trial_idle = false;  // that was said of the first choice
  if (settled.to == kSlotNone) flow.hold = -1;
  return settled;
}

// Every path busy alike is either a receiver's link or a full fabric: moving flows cures neither.
void FindFullPairs(const Observation& seen, State& state, Decision& out) {
  for (const PairObservation& pair : seen.pairs) {
    double least = 1e18, most = 0;
    int busy = 0, usable = 0;
    for (const PathObservation& p : pair.paths) {
      const PathMemory& path = state.paths[{pair.pair, p.slot}];
      if (!p.usable || path.queue.count() < kQueueWindows) continue;
      const double queue_ns = path.queue.Mean();
      ++usable;
      busy += queue_ns > state.QueueLimitNs(p.base_ns);
      least = std::min(least, queue_ns);
      most = std::max(most, queue_ns);
    }
    const bool full = usable > 1 && busy >= state.rules.full_paths * usable && least > state.rules.full_alike * most;
    int& windows = state.full_windows[pair.pair];
    windows = full ? windows + 1 : 0;
    if (windows != state.rules.full_windows) continue;
    Finding f{Finding::Kind::kReceiverOrEveryPath, pair.pair, {}, "", {}};
    f.text = "every path to this receiver queues alike: its own link or the whole fabric has it, so no flow is moved";
    f.evidence = {{"least_queue_us", absl::StrFormat("%.1f", least / 1e3)},
                  {"most_queue_us", absl::StrFormat("%.1f", most / 1e3)}};
    out.findings.push_back(std::move(f));
  }
}

}  // namespace

ContentionState::ContentionState(const ContentionRules& rules, uint64_t seed)
    : impl_(std::make_unique<Impl>(rules, seed)) {}
ContentionState::~ContentionState() = default;
ContentionState::ContentionState(ContentionState&&) noexcept = default;

Decision DecideMoves(const Observation& seen, ContentionState& state) {
  Decision out;
  for (const Reprobe& reprobe : seen.reprobed) out.settled.push_back(TakeSettled(reprobe, state.impl()));
  Remember(seen, state.impl(), out);
  out.moves = Planner(seen, state.impl()).Plan();
  FindFullPairs(seen, state.impl(), out);
  return out;
}

const char* StandingName(Standing standing) {
  static constexpr const char* kNames[] = {"unknown",       "path_unknown", "held",  "asked",     "trial", "settling",
                                           "not_congested", "rests",        "small", "no_better", "waits", "may_move"};
  return kNames[static_cast<int>(standing)];
}

Explanation Explain(const ContentionState& state, const FlowKey& key) {
  State copy = state.impl();  // judging makes entries
  Explanation out;
  const auto found = copy.flows.find(key);
  const FlowMemory flow = found == copy.flows.end() ? FlowMemory() : found->second;
  if (found != copy.flows.end() && flow.last_window == copy.window) {
    const Observation seen{.now_ns = copy.now_ns, .line_rate_bps = copy.line_rate_bps, .pairs = {}};
    PairObservation pair{.pair = flow.pair, .paths = {}, .flows = {}};
    for (auto path = copy.paths.lower_bound({flow.pair, 0}); path != copy.paths.end() && path->first.pair == flow.pair;
         ++path) {
      if (path->second.last_window != copy.window) continue;
      pair.paths.push_back({.slot = path->first.slot, .usable = path->second.usable, .links = {}});
    }
    Planner(seen, copy).ExplainInto(pair, flow, out);
  }
  out.text = StandingText(out, flow, copy.rules);
  return out;
}

}  // namespace cw::control
