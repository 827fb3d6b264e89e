// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/contention_rules.h"

#include <cmath>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "userspace/control/contention_state.h"
#include "userspace/model/bytes.h"

namespace cw::control {
namespace {

using State = ContentionState::Impl;

constexpr double kMostRule = 1e12;
constexpr int64_t kMostNs = int64_t{1} << 61;
constexpr int kMostWindows = 1 << 28;

// Names every number of the rules in order. A recording that lacks one cannot be decided again, so this does not
// compile when one is added: name it here (recordings of before then keep its default), and in docs/cwctl.md.
template <typename Rules, typename Each>
void ForEachRule(Rules& rules, Each each) {
  static_assert(sizeof(ContentionRules) == 240);
  auto& [queue_over_base, queue_floor_ns, evidence_windows, better_than, idle_below, significance, min_gain, sure_gain,
         force_gain, kept_gain, settle_windows, rate_windows, hold_windows, join_probability, weak_significance,
         weak_probability, weak_after_windows, memory_s, long_memory_s, full_paths, full_alike, full_windows,
         max_moved_share, elephant_share, restless_moves, forgive_s, unknown_sharers, trial_gain, idle_marks,
         marks_memory_s, pause_s] = rules;
  each("queue_over_base", queue_over_base);
  each("queue_floor_ns", queue_floor_ns);
  each("evidence_windows", evidence_windows);
  each("better_than", better_than);
  each("idle_below", idle_below);
  each("significance", significance);
  each("min_gain", min_gain);
  each("sure_gain", sure_gain);
  each("force_gain", force_gain);
  each("kept_gain", kept_gain);
  each("settle_windows", settle_windows);
  each("rate_windows", rate_windows);
  each("hold_windows", hold_windows);
  each("join_probability", join_probability);
  each("weak_significance", weak_significance);
  each("weak_probability", weak_probability);
  each("weak_after_windows", weak_after_windows);
  each("memory_s", memory_s);
  each("long_memory_s", long_memory_s);
  each("full_paths", full_paths);
  each("full_alike", full_alike);
  each("full_windows", full_windows);
  each("max_moved_share", max_moved_share);
  each("elephant_share", elephant_share);
  each("restless_moves", restless_moves);
  each("forgive_s", forgive_s);
  each("unknown_sharers", unknown_sharers);
  each("trial_gain", trial_gain);
  each("idle_marks", idle_marks);
  each("marks_memory_s", marks_memory_s);
  each("pause_s", pause_s);
}

template <typename T>
bool Fits(double value) {
  if (!(value >= 0 && value <= kMostRule)) return false;
  return std::is_floating_point_v<T> || (value <= kMostWindows && value == std::floor(value));
}

template <typename Archive>
void Code(Archive& ar, ContentionRules& rules) {
  const uint32_t count = ar.Count(NamedRules(rules).size(), 12);
  if constexpr (Archive::kTakes) {
    for (uint32_t i = 0; i < count && ar.ok(); ++i) {
      std::string name;
      double value = 0;
      ar.Text(name);
      ar.Within(value, 0.0, kMostRule);
      if (ar.ok() && !SetRule(name, value, rules).ok()) ar.Fail();
    }
  } else {
    for (const NamedRule& rule : NamedRules(rules)) {
      ar.Text(rule.name);
      ar.Number(rule.value);
    }
  }
}

template <typename Archive, int N>
void Code(Archive& ar, Recent<N>& recent) {
  auto& [values, next, count] = recent.raw();
  ar.Within(next, 0, N - 1);
  ar.Within(count, 0, N);
  for (double& value : values) ar.Number(value);
}

template <typename Archive>
void Code(Archive& ar, PairKey& key) {
  ar.Address(key.local);
  ar.Address(key.remote);
}

template <typename Archive>
void Code(Archive& ar, FlowKey& key) {
  ar.Address(key.src);
  ar.Address(key.dst);
  ar.Number(key.dqpn);
}

template <typename Archive>
void Code(Archive& ar, PathId& id) {
  Code(ar, id.pair);
  ar.Number(id.slot);
}

template <typename Archive>
void Code(Archive& ar, Marks& marks) {
  ar.Number(marks.told);
  ar.Number(marks.marked);
  ar.Number(marks.newest_told);
  ar.Number(marks.newest_marked);
  ar.Number(marks.clean);
}

template <typename Archive>
void Code(Archive& ar, PathMemory& path) {
  auto& [queue, base_ns, marks, usable, links, joined_bps, joined_ns, external, external_ns, last_window] = path;
  Code(ar, queue);
  ar.Number(base_ns);
  Code(ar, marks);
  ar.Bool(usable);
  links.resize(ar.Count(links.size(), sizeof(uint64_t)));
  for (uint64_t& link : links) ar.Number(link);
  ar.Number(joined_bps);
  ar.Within(joined_ns, -kMostNs, kMostNs);
  ar.Number(external);
  ar.Within(external_ns, -kMostNs, kMostNs);
  ar.Within(last_window, int64_t{0}, kMostNs);
}

template <typename Archive>
void Code(Archive& ar, FlowMemory& flow) {
  auto& [pair, slot, locked, windows_on_slot, congested_windows, hold, rate, at_rest, paused, whole_ns, trial,
         trial_from, trial_idle, trial_before_bps, asked, asked_windows, moves, forgiven_ns, last_window] = flow;
  Code(ar, pair);
  ar.Number(slot);
  ar.Bool(locked);
  ar.Within(windows_on_slot, 0, kMostWindows);
  ar.Within(congested_windows, 0, kMostWindows);
  ar.Within(hold, -1, kMostWindows);
  Code(ar, rate);
  ar.Bool(at_rest);
  ar.Bool(paused);
  ar.Within(whole_ns, -kMostNs, kMostNs);
  ar.Bool(trial);
  ar.Number(trial_from);
  ar.Bool(trial_idle);
  ar.Number(trial_before_bps);
  ar.Number(asked);
  ar.Within(asked_windows, 0, kMostWindows);
  ar.Within(moves, 0, kMostWindows);
  ar.Within(forgiven_ns, -kMostNs, kMostNs);
  ar.Within(last_window, int64_t{0}, kMostNs);
}

template <typename Archive>
void Code(Archive& ar, int& windows) {
  ar.Within(windows, 0, kMostWindows);
}

template <typename Archive, typename Key, typename Value>
void Code(Archive& ar, std::map<Key, Value>& map) {
  const uint32_t count = ar.Count(map.size(), sizeof(Addr));
  if constexpr (Archive::kTakes) {
    map.clear();
    for (uint32_t i = 0; i < count && ar.ok(); ++i) {
      Key key{};
      Value value{};
      Code(ar, key);
      Code(ar, value);
      map[key] = std::move(value);
    }
  } else {
    for (auto& [key, value] : map) {
      Key copy = key;
      Code(ar, copy);
      Code(ar, value);
    }
  }
}

// The generator's words, as the standard says that they are written.
template <typename Archive>
void Code(Archive& ar, std::mt19937_64& random) {
  std::string words;
  if constexpr (Archive::kTakes) {
    ar.Text(words);
    std::istringstream in(words);
    if (!(in >> random)) ar.Fail();
  } else {
    std::ostringstream out;
    out << random;
    words = out.str();
    ar.Text(words);
  }
}

template <typename Archive>
void Code(Archive& ar, State& state) {
  Code(ar, state.rules);
  Code(ar, state.random);
  ar.Within(state.window, int64_t{0}, kMostNs);
  ar.Within(state.now_ns, -kMostNs, kMostNs);
  ar.Number(state.line_rate_bps);
  Code(ar, state.paths);
  Code(ar, state.flows);
  Code(ar, state.full_windows);
  ar.Number(state.capacity_bps);
  ar.Within(state.alone_ns, -kMostNs, kMostNs);
  ar.Number(state.alone_bps);
}

}  // namespace

std::vector<NamedRule> NamedRules(const ContentionRules& rules) {
  std::vector<NamedRule> out;
  ForEachRule(rules, [&](const char* name, const auto& value) { out.push_back({name, static_cast<double>(value)}); });
  return out;
}

absl::Status SetRule(absl::string_view name, double value, ContentionRules& rules) {
  bool known = false, fits = false;
  std::string names;
  ForEachRule(rules, [&](const char* rule, auto& field) {
    using T = std::remove_reference_t<decltype(field)>;
    absl::StrAppend(&names, names.empty() ? "" : ", ", rule);
    if (name != rule) return;
    known = true;
    fits = Fits<T>(value);
    if (fits) field = static_cast<T>(value);
  });
  if (!known) return absl::InvalidArgumentError(absl::StrCat("no rule is called \"", name, "\"; there are ", names));
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("rule ", name, " cannot be ", value,
                                                 ": 0 to 10^12 is wanted, whole where windows or flows are counted"));
}

const ContentionRules& RulesOf(const ContentionState& state) { return state.impl().rules; }

void SetRules(const ContentionRules& rules, ContentionState& state) { state.impl().rules = rules; }

std::string Snapshot(const ContentionState& state) {
  State copy = state.impl();  // naming the fields takes references
  ByteWriter out;
  Code(out, copy);
  return out.Take();
}

absl::StatusOr<ContentionState> Restore(absl::string_view snapshot) {
  ContentionState state(ContentionRules(), 0);
  ByteReader in(snapshot);
  Code(in, state.impl());
  if (in.done()) return state;
  return absl::InvalidArgumentError(
      absl::StrCat("the rule's memory cannot be read at byte ", in.at(), " of ", snapshot.size()));
}

}  // namespace cw::control
