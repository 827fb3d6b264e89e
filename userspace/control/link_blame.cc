// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/link_blame.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "userspace/control/link_faults.h"

namespace cw::control {
namespace {

constexpr size_t kMostOpen = 4096;  // beyond, a death is one more of what is known already
constexpr int64_t kAlways = std::numeric_limits<int64_t>::min();

bool Contains(absl::Span<const Addr> links, const Addr& link) {
  return std::find(links.begin(), links.end(), link) != links.end();
}

}  // namespace

void LinkBlame::Died(PathDeath death) {
  if (open_.size() >= kMostOpen) return;
  Open open{.death = std::move(death)};
  for (const Addr& link : open.death.proven) open.alive[link] = kAlways;
  const uint64_t path = open.death.path;
  open_[path] = std::move(open);
}

void LinkBlame::Back(uint64_t path, int64_t sent_ns) {
  const auto found = open_.find(path);
  if (found != open_.end() && found->second.back_ns == 0) found->second.back_ns = sent_ns;
}

void LinkBlame::Forget(uint64_t path) { open_.erase(path); }

// True: a path that shares a link in question has yet to speak.
bool LinkBlame::Hear(Open& open, absl::Span<const PathSign> signs) {
  bool waits = false;
  for (const PathSign& sign : signs) {
    const bool answered = sign.sent_ns > open.death.died_ns;
    if (sign.path == open.death.path || (!answered && sign.dead)) continue;
    for (const Addr& link : sign.links) {
      if (!Contains(open.death.links, link)) continue;
      if (answered) open.alive.try_emplace(link, sign.sent_ns);
      waits |= !open.alive.contains(link);
    }
  }
  return waits;
}

// The link was back for up to an interval before the path's own probe showed it, and what other paths sent then proves
// nothing.
std::vector<Addr> LinkBlame::Candidates(const Open& open) {
  std::vector<Addr> left;
  for (const Addr& link : open.death.links) {
    const auto shown = open.alive.find(link);
    const bool was_alive =
        shown != open.alive.end() && (open.back_ns == 0 || shown->second < open.back_ns - 2 * open.death.interval_ns);
    if (!was_alive) left.push_back(link);
  }
  return left;
}

std::vector<Blame> LinkBlame::Explain(const std::vector<Open>& ready) {
  std::vector<Addr> names;  // by number
  std::vector<PathHealth> healths;
  std::vector<Blame> found;
  for (const Open& open : ready) {
    PathHealth health{.dead = true, .links = {}};
    for (const Addr& link : Candidates(open)) {
      const auto known = std::find(names.begin(), names.end(), link);
      health.links.push_back(static_cast<uint64_t>(known - names.begin()));
      if (known == names.end()) names.push_back(link);
    }
    if (health.links.empty()) found.push_back({.links = {}, .deaths = {open.death}});
    healths.push_back(std::move(health));
  }
  for (const LinkFault& fault : FindLinkFaults(healths).faults) {
    Blame blame;
    for (const uint64_t link : fault.links) blame.links.push_back(names[link]);
    for (const size_t path : fault.paths) blame.deaths.push_back(ready[path].death);
    found.push_back(std::move(blame));
  }
  return found;
}

std::vector<Blame> LinkBlame::Step(absl::Span<const PathSign> signs, int64_t now_ns) {
  std::vector<Open> ready;
  for (auto it = open_.begin(); it != open_.end();) {
    Open& open = it->second;
    const bool waits = Hear(open, signs) && open.back_ns == 0 && now_ns - open.death.died_ns < longest_ns_;
    if (!waits) ready.push_back(std::move(open));
    it = waits ? std::next(it) : open_.erase(it);
  }
  std::sort(ready.begin(), ready.end(), [](const Open& a, const Open& b) { return a.death.died_ns < b.death.died_ns; });
  return Explain(ready);
}

}  // namespace cw::control
