// SPDX-License-Identifier: Apache-2.0
//
// What the contention rule remembers between windows (internal to contention*.cc).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <random>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/control/contention.h"

namespace cw::control {

// The last few values of something sampled once per window.
template <int N>
class Recent {
 public:
  struct Raw {
    std::array<double, N> values{};
    int next = 0;
    int count = 0;
  };
  Raw& raw() { return raw_; }  // for snapshots

  void Add(double v) {
    raw_.values[raw_.next] = v;
    raw_.next = (raw_.next + 1) % N;
    if (raw_.count < N) ++raw_.count;
  }
  void Clear() { raw_.count = raw_.next = 0; }
  int count() const { return raw_.count; }
  double Back(int ago) const { return raw_.values[(raw_.next - 1 - ago + 2 * N) % N]; }  // 0 = newest
  double Mean() const { return MeanOf(raw_.count); }
  double MeanOf(int newest) const {
    double sum = 0;
    for (int i = 0; i < newest; ++i) sum += Back(i);
    return newest > 0 ? sum / newest : 0;
  }
  double SquaredDeviations() const {
    const double mean = Mean();
    double sum = 0;
    for (int i = 0; i < raw_.count; ++i) sum += (Back(i) - mean) * (Back(i) - mean);
    return sum;
  }

 private:
  Raw raw_;
};

inline constexpr int kQueueWindows = 6;
inline constexpr int kMaxRateWindows = 8;

// Probes that told how they arrived, and the marked ones among them.
struct Marks {
  // Over marks_memory_s; and over a fifth of it, for what has just ended.
  double told = 0, marked = 0, newest_told = 0, newest_marked = 0;
  double clean = 0;  // told since a window with a mark

  void Add(int more_told, int more_marked, double keep) {
    const double newest_keep = keep * keep * keep * keep * keep;
    told = keep * told + more_told;
    marked = keep * marked + more_marked;
    newest_told = newest_keep * newest_told + more_told;
    newest_marked = newest_keep * newest_marked + more_marked;
    clean = more_marked > 0 ? 0 : clean + more_told;
  }
  double Share() const {
    if (told <= 0 || newest_told <= 0) return 0;
    return std::min(marked / told, 2 * newest_marked / newest_told);
  }
};

struct PathMemory {
  Recent<kQueueWindows> queue;  // queueing delay, ns
  double base_ns = 0;
  Marks marks;
  bool usable = false;
  std::vector<uint64_t> links;
  double joined_bps = 0;  // what one flow of ours got here, when it last came or left; 0 = not known
  int64_t joined_ns = 0;
  double external = 0;      // flows of others, as far as our own elephants' shares tell …
  int64_t external_ns = 0;  // … and when they last did; 0: never
  int64_t last_window = 0;
};

struct FlowMemory {
  PairKey pair;
  uint8_t slot = kSlotNone;
  bool locked = false;
  int windows_on_slot = 0;
  int congested_windows = 0;
  int hold = -1;                 // windows left before it may move; -1 = not waiting
  Recent<kMaxRateWindows> rate;  // bit/s, since it is on this slot
  bool at_rest = false;          // nothing of it was under way when the last window ended
  bool paused = false;           // it has nothing to send, since shortly
  int64_t whole_ns = 0;          // when the last window ended in which it always had something to send; 0: none yet
  bool trial = false;            // a move of ours is being measured
  uint8_t trial_from = kSlotNone;
  bool trial_idle = false;  // the target looked idle when the move was decided
  double trial_before_bps = 0;
  uint8_t asked = kSlotNone;  // a move was decided and is not seen yet
  int asked_windows = 0;
  int moves = 0;            // of ours, lately
  int64_t forgiven_ns = 0;  // when the last of them was made or forgiven
  int64_t last_window = 0;
};

struct ContentionState::Impl {
  Impl(const ContentionRules& r, uint64_t seed) : rules(r), random(seed) {}

  ContentionRules rules;
  std::mt19937_64 random;
  int64_t window = 0;        // counts calls
  int64_t now_ns = 0;        // of the last observation
  double line_rate_bps = 0;  // of the last observation
  // Ordered, so that sums and random draws come out the same wherever the same observations are decided again.
  std::map<PathId, PathMemory> paths;
  std::map<FlowKey, FlowMemory> flows;
  std::map<PairKey, int> full_windows;  // windows in a row in which every path was busy alike
  double capacity_bps = 0;              // the most that our flows together got on one link, slowly forgotten
  int64_t alone_ns = 0;                 // when a flow of ours last gained nothing on an idle path; 0: never
  double alone_bps = 0;                 // what it had: all that a flow gets

  bool Settled(const FlowMemory& f) const {
    return f.windows_on_slot >= rules.settle_windows + rules.rate_windows && f.rate.count() >= rules.rate_windows;
  }
  // Where everything is full, every place is as good as the next, and a flow that wanders gains nothing.
  bool Rested(const FlowMemory& f) const {
    const int more = std::min(f.moves - rules.restless_moves, 20);
    return more <= 0 || f.windows_on_slot >= (rules.settle_windows + rules.rate_windows) << more;
  }
  double RateBps(const FlowMemory& f) const { return f.rate.MeanOf(std::min(f.rate.count(), rules.rate_windows)); }
  // Of the flows in this window, bit/s.
  double FastestBps() const {
    double most = 0;
    for (const auto& [key, flow] : flows) {
      if (flow.last_window == window) most = std::max(most, RateBps(flow));
    }
    return most;
  }
  // It sends, and not little beside the fastest: what links are shared by. RememberFlow empties the rates of a flow
  // that has stopped.
  bool IsElephant(const FlowMemory& f, double fastest_bps) const {
    const double bps = RateBps(f);
    return f.last_window == window && f.slot != kSlotNone && bps > 0 && bps >= rules.elephant_share * fastest_bps;
  }
  // A flow that has as much as one alone on an idle path was seen to get gains nowhere.
  bool HasAll(const FlowMemory& f) const {
    return alone_ns != 0 && static_cast<double>(now_ns - alone_ns) < 1e9 * rules.long_memory_s &&
           RateBps(f) * rules.kept_gain >= alone_bps;
  }
  // Queueing from which on a path is congested, ns.
  double QueueLimitNs(double base_ns) const { return control::QueueLimitNs(rules, base_ns); }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(random); }
};

// Takes a window's observations into the state: rates, queues, trials, capacity. Adds findings about moves.
void Remember(const Observation& seen, ContentionState::Impl& state, Decision& out);

// Standard error of a mean over the last windows, pooled over the pair's paths: six windows of one path alone are too
// few to know their spread. 1e18: nothing is known.
double StandardError(const PairObservation& pair, const ContentionState::Impl& state);

// Queueing delay of a path as the sum of its links' queues, which all paths of this host tell together.
struct FittedQueue {
  double queue_ns = 0;
  double error_ns = 0;  // standard error
};
// Of the paths that share a link with a path to another receiver; the others' own delays say as much.
std::map<PathId, FittedQueue> FitPaths(const Observation& seen, const ContentionState::Impl& state);

// Own flows per link and path, kept up to date while a plan grows, so that each move counts at once.
class OwnLoad {
 public:
  explicit OwnLoad(const ContentionState::Impl& state);  // of its elephants
  // Flows of this host on the path's most used link.
  int On(const PathId& path) const;
  void Moved(const PathId& from, const PathId& to);
  // Sum of own rates on the most used link of any path, bit/s.
  double MaxLinkBps() const;

 private:
  struct Link {
    int flows = 0;
    double bps = 0;
  };
  // A path without known links is a link of its own.
  std::vector<uint64_t> LinksOf(const PathId& path) const;

  const ContentionState::Impl& state_;
  absl::flat_hash_map<uint64_t, Link> links_;
};

}  // namespace cw::control
