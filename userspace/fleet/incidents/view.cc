// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/incidents/view.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/incidents/timeline.h"
#include "userspace/model/packed_sketch.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
constexpr int64_t kOneSecondNs = 1'000'000'000;
constexpr int64_t kBehindNs = 10'000'000'000;
constexpr size_t kMostSteps = 5000, kPeersNamed = 3;
constexpr size_t kMostStories = 200'000, kMostDelays = 8000;  // paths, each way; seconds, of which there are 3000

// The worse the higher: dead, silent, paused, suspect, new, up.
int Badness(PathState state) {
  switch (state) {
    case PathState::kDead:
      return 5;
    case PathState::kSilent:
      return 4;
    case PathState::kPaused:
      return 3;
    case PathState::kSuspect:
      return 2;
    case PathState::kNew:
      return 1;
    case PathState::kUp:
      break;
  }
  return 0;
}

const char* Word(PathState state) {
  constexpr const char* kWords[] = {"up", "new", "suspect", "paused", "silent", "dead"};
  return kWords[Badness(state)];
}

// Of one direction of a path; before and behind the pivot.
struct Story {
  NamedPath path;
  struct Half {
    PackedSketch queue;
    uint64_t sent = 0, answered = 0, samples = 0;
  } half[2];
  PathState before = PathState::kUp, worst = PathState::kUp, last = PathState::kUp;
  bool seen = false;
  uint64_t base_ns = 0;
};

struct SecondOfAll {
  PackedSketch queue;
  std::map<std::pair<std::string, PathKey>, bool> up;  // whether it was, at the end
};

class Viewer {
 public:
  explicit Viewer(const Bundle& bundle) : bundle_(bundle), pivot_ns_(TurnOf(bundle)) {}

  pb::IncidentView View() {
    *out_.mutable_incident() = bundle_.head;
    out_.mutable_incident()->set_pivot_ns(pivot_ns_);
    out_.set_damaged_bytes(bundle_.damaged_bytes);
    out_.set_cut_off(bundle_.cut_off);
    for (const auto& [host, seconds] : bundle_.seconds) Host(host, seconds);
    Events();
    Steps();
    Paths();
    Delays();
    return std::move(out_);
  }

 private:
  // A finding comes a little behind its cause: before and after are told apart where paths began to change.
  static int64_t TurnOf(const Bundle& bundle) {
    int64_t turn_ns = bundle.head.pivot_ns();
    for (const auto& [host, seconds] : bundle.seconds) {
      std::map<std::pair<uint64_t, uint32_t>, PathState> last;
      for (const pb::RingSecond& second : seconds) {
        for (const pb::RingPath& path : second.paths()) {
          const auto [known, fresh] = last.try_emplace({second.run(), path.path()}, StateOf(path));
          const bool worse = !fresh && Badness(StateOf(path)) > Badness(known->second);
          known->second = StateOf(path);
          if (worse && second.from_ns() > bundle.head.pivot_ns() - kBehindNs)
            turn_ns = std::min(turn_ns, second.from_ns());
        }
      }
    }
    return turn_ns;
  }

  void Host(const std::string& host, const std::vector<pb::RingSecond>& seconds) {
    PathNames names;
    for (const pb::RingSecond& second : seconds) {
      names.Learn(second);
      // What became of paths within it, by what they were and are.
      std::map<std::pair<PathState, PathState>, std::vector<std::string>> changes;
      for (const pb::RingPath& path : second.paths()) {
        const NamedPath* name = names.Find(second.run(), path.path());
        if (name != nullptr) Path(host, second, path, *name, changes);
      }
      for (const auto& [change, peers] : changes) AddChange(host, second, change.first, change.second, peers);
    }
  }

  void Path(const std::string& host, const pb::RingSecond& second, const pb::RingPath& path, const NamedPath& name,
            std::map<std::pair<PathState, PathState>, std::vector<std::string>>& changes) {
    if (stories_.size() >= kMostStories && !stories_.contains({host, name.key})) return TooMuch(path);
    const int64_t at = second.from_ns() / kOneSecondNs;
    if (all_.size() >= kMostDelays && !all_.contains(at)) return TooMuch(path);
    Story& story = stories_[{host, name.key}];
    const PathState state = StateOf(path);
    const bool behind = second.to_ns() > pivot_ns_;
    // Nobody here judges the way back: its state is the way there's.
    if (story.seen && story.last != state && !name.key.reverse) changes[{story.last, state}].push_back(name.peer);
    if (!story.seen || !behind) story.before = state;
    if (behind && Badness(state) > Badness(story.worst)) story.worst = state;
    story.seen = true;
    story.last = state;
    story.path = name;
    if (path.base_ns() != 0) story.base_ns = path.base_ns();
    Story::Half& half = story.half[behind ? 1 : 0];
    half.sent += path.sent();
    half.answered += path.answered();
    half.samples += static_cast<uint64_t>(path.delay_ns_size());
    out_.set_samples(out_.samples() + static_cast<uint64_t>(path.delay_ns_size()));
    SecondOfAll& all = all_[at];
    if (!name.key.reverse) all.up[{host, name.key}] = state == PathState::kUp;
    const absl::StatusOr<PackedSketch> queue = PackedSketch::Unpack(path.queue());
    if (!queue.ok()) return;
    half.queue.Merge(*queue);
    all.queue.Merge(*queue);
  }

  void TooMuch(const pb::RingPath& path) { out_.set_damaged_bytes(out_.damaged_bytes() + path.ByteSizeLong()); }

  void AddChange(const std::string& host, const pb::RingSecond& second, PathState was, PathState is,
                 std::vector<std::string> peers) {
    const size_t paths = peers.size();
    std::sort(peers.begin(), peers.end());
    peers.erase(std::unique(peers.begin(), peers.end()), peers.end());
    const size_t more = peers.size() > kPeersNamed ? peers.size() - kPeersNamed : 0;
    peers.resize(peers.size() - more);
    pb::IncidentStep step;
    step.set_time_ns(second.from_ns());
    step.set_bound_ns(static_cast<uint64_t>(second.to_ns() - second.from_ns()));
    step.set_host(host);
    step.set_what("paths");
    step.set_words(absl::StrCat(paths, paths == 1 ? " path to " : " paths to ", absl::StrJoin(peers, ", "),
                                more > 0 ? absl::StrCat(" and ", more, " hosts more") : "", ": ", Word(was), ", then ",
                                Word(is)));
    steps_.push_back(std::move(step));
  }

  void Events() {
    for (const pb::FleetEventOf& event : bundle_.events) {
      pb::IncidentStep step;
      step.set_time_ns(event.event().time_ns());
      step.set_bound_ns(event.event().bound_ns());
      step.set_host(event.host());
      step.set_what(event.event().event().type());
      step.set_words(event.event().event().text());
      steps_.push_back(std::move(step));
    }
  }

  void Steps() {
    std::stable_sort(steps_.begin(), steps_.end(),
                     [](const auto& a, const auto& b) { return a.time_ns() < b.time_ns(); });
    for (size_t i = 0; i < steps_.size() && i < kMostSteps; ++i) *out_.add_steps() = std::move(steps_[i]);
  }

  void Paths() {
    const auto lost = [](const Story& s) {
      return s.half[1].sent > s.half[1].answered ? s.half[1].sent - s.half[1].answered : 0;
    };
    const auto rank = [&](const Story& s) {
      return std::tuple(Badness(s.worst), lost(s) * 100 / std::max<uint64_t>(1, s.half[1].sent),
                        s.half[1].queue.QuantileNs(0.99));
    };
    using Rank = decltype(rank(Story{}));
    std::vector<std::pair<Rank, decltype(stories_)::const_iterator>> order;
    for (auto story = stories_.cbegin(); story != stories_.cend(); ++story)
      order.emplace_back(rank(story->second), story);
    std::stable_sort(order.begin(), order.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
    for (const auto& [worst, story] : order) AddPath(story->first.first, story->second);
  }

  void AddPath(const std::string& host, const Story& story) {
    pb::IncidentPath& out = *out_.add_paths();
    out.set_host(host);
    out.set_local(story.path.key.local.ToString());
    out.set_remote(story.path.key.remote.ToString());
    out.set_peer(story.path.peer);
    out.set_udp_port(story.path.key.udp_port);
    out.set_reverse(story.path.key.reverse);
    out.set_before(static_cast<pb::PathState>(story.before));
    out.set_worst(static_cast<pb::PathState>(story.worst));
    out.set_last(static_cast<pb::PathState>(story.last));
    out.set_base_ns(story.base_ns);
    const auto [before, after] = std::pair(story.half[0], story.half[1]);
    const auto quantile = [](const PackedSketch& s, double q) { return static_cast<uint64_t>(s.QuantileNs(q)); };
    const auto missing = [](const Story::Half& h) { return h.sent > h.answered ? h.sent - h.answered : 0; };
    out.set_p50_before_ns(quantile(before.queue, 0.5));
    out.set_p99_before_ns(quantile(before.queue, 0.99));
    out.set_p50_after_ns(quantile(after.queue, 0.5));
    out.set_p99_after_ns(quantile(after.queue, 0.99));
    out.set_sent_before(before.sent);
    out.set_lost_before(missing(before));
    out.set_sent_after(after.sent);
    out.set_lost_after(missing(after));
    out.set_samples_before(before.samples);
    out.set_samples_after(after.samples);
    for (const Addr& hop : story.path.hops) out.add_hops(hop.is_zero() ? "*" : hop.ToString());
  }

  void Delays() {
    for (const auto& [second, all] : all_) {
      pb::IncidentDelay& out = *out_.add_delays();
      out.set_from_ns(second * kOneSecondNs);
      out.set_count(all.queue.Count());
      out.set_p50_ns(static_cast<uint64_t>(all.queue.QuantileNs(0.5)));
      out.set_p99_ns(static_cast<uint64_t>(all.queue.QuantileNs(0.99)));
      out.set_max_ns(all.queue.max_ns);
      for (const auto& [path, up] : all.up) up ? out.set_up(out.up() + 1) : out.set_not_up(out.not_up() + 1);
    }
  }

  const Bundle& bundle_;
  const int64_t pivot_ns_;
  pb::IncidentView out_;
  std::vector<pb::IncidentStep> steps_;
  std::map<std::pair<std::string, PathKey>, Story> stories_;
  std::map<int64_t, SecondOfAll> all_;
};

}  // namespace

pb::IncidentView ViewOf(const Bundle& bundle) { return Viewer(bundle).View(); }

}  // namespace cw::fleet
