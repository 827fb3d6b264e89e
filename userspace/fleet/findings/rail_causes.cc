// SPDX-License-Identifier: Apache-2.0
// Rails, which are what NICs can reach of each other: one that is silent as a whole; and dead paths without a cause.
#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr size_t kLeastHosts = 3;  // of a rail: between two it may as well be one of their NICs
constexpr size_t kMostListed = 16;
constexpr absl::Duration kStaysDead = absl::Seconds(6);  // what loses packets is dead now and then

// Which NICs probe each other.
class Groups {
 public:
  int Of(const Addr& nic) {
    const auto [at, added] = place_.emplace(nic, static_cast<int>(up_.size()));
    if (added) up_.push_back(at->second);
    int root = at->second;
    while (up_[static_cast<size_t>(root)] != root) root = up_[static_cast<size_t>(root)];
    up_[static_cast<size_t>(at->second)] = root;
    return root;
  }
  void Join(const Addr& a, const Addr& b) {
    const int one = Of(a), other = Of(b);
    up_[static_cast<size_t>(one)] = other;
  }

 private:
  std::map<Addr, int> place_;
  std::vector<int> up_;
};

// What all these NICs are called: their rail, or their own name where it is the same on all hosts.
std::string NameOfRail(const Picture& picture, const std::set<Addr>& nics) {
  std::set<std::string> rails, names;
  for (const HostEvidence& host : picture.hosts) {
    for (const NicFact& nic : host.nics) {
      if (!nics.contains(nic.address)) continue;
      rails.insert(nic.rail);
      names.insert(nic.name);
    }
  }
  if (rails.size() == 1 && !rails.begin()->empty()) return "rail " + *rails.begin();
  if (names.size() == 1) return "rail " + *names.begin();
  return absl::StrCat("rail of ", nics.size(), " NICs");
}

// Components that all of these need, ascending.
std::vector<int32_t> SharedBy(const std::vector<const std::vector<int32_t>*>& needs, const std::vector<uint32_t>& of) {
  std::vector<int32_t> shared = *needs[of[0]];
  for (const uint32_t i : of) {
    std::vector<int32_t> both;
    std::set_intersection(shared.begin(), shared.end(), needs[i]->begin(), needs[i]->end(), std::back_inserter(both));
    shared = std::move(both);
  }
  return shared;
}

}  // namespace

// Nothing lives between any of its NICs, and no single part explains that.
void Findings::FindRails(Scene& scene, std::vector<Suspect>& suspects) {
  if (suspects.size() < 2) return;
  struct Rail {
    size_t good = 0, bad = 0;
    std::set<Addr> nics;
    std::set<uint32_t> hosts;
    std::vector<uint32_t> paths;
    std::set<size_t> suspects;
    int64_t since_ns = INT64_MAX;
  };
  Groups groups;
  for (size_t i = 0; i < scene.paths.size(); ++i) groups.Join(scene.path(i).source, scene.path(i).destination);
  std::map<int, Rail> rails;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    Rail& rail = rails[groups.Of(path.source)];
    rail.good += scene.word[i] == Word::kGood;
    rail.nics.insert(path.source);
    rail.nics.insert(path.destination);
    if (scene.word[i] != Word::kBad) continue;
    ++rail.bad;
    rail.hosts.insert(path.host);
    rail.paths.push_back(i);
    rail.since_ns = std::min(rail.since_ns, scene.SinceNs(i));
  }
  for (size_t s = 0; s < suspects.size(); ++s) {
    if (!suspects[s].explains.empty()) rails[groups.Of(scene.path(suspects[s].explains[0]).source)].suspects.insert(s);
  }
  std::set<size_t> dropped;
  for (const auto& [root, rail] : rails) {
    if (rail.good > 0 || rail.hosts.size() < kLeastHosts || rail.suspects.size() < 2) continue;
    Suspicion s{.what = {.cause = Cause::kRailDown, .scope = NameOfRail(scene.picture, rail.nics)}};
    s.what.start_ns = rail.since_ns;
    s.what.evidence = {absl::StrFormat("none of %d paths between its %d NICs answers, reported by %d hosts", rail.bad,
                                       rail.nics.size(), rail.hosts.size())};
    for (const uint32_t host : rail.hosts) {
      if (s.what.hosts.size() < kMostListed) s.what.hosts.push_back(scene.picture.hosts[host].name);
      scene.explained_hosts.insert(scene.picture.hosts[host].name);
    }
    std::sort(s.what.hosts.begin(), s.what.hosts.end());
    for (const uint32_t i : rail.paths) scene.explained[i] = true;
    dropped.insert(rail.suspects.begin(), rail.suspects.end());
    Add(scene, std::move(s));
  }
  for (auto s = dropped.rbegin(); s != dropped.rend(); ++s)
    suspects.erase(suspects.begin() + static_cast<std::ptrdiff_t>(*s));
}

// Its trace ends at a switch of which one of these is a part, or which is one: where it would go on nobody knows.
bool Findings::IsCutAt(const Scene& scene, uint32_t i, const std::vector<int32_t>& what) const {
  const std::vector<Addr>* hops = scene.path(i).hops;
  if (hops == nullptr || std::none_of(hops->begin(), hops->end(), [](const Addr& hop) { return hop.is_zero(); }))
    return false;
  return std::any_of(scene.needs[i]->begin(), scene.needs[i]->end(), [&](int32_t c) {
    return components_.at(c).part == Part::kSwitch &&
           std::any_of(what.begin(), what.end(), [&](int32_t part) { return components_.Contains(c, part); });
  });
}

// A port that never answered, and was reported once: its host may use it no more.
bool Findings::IsOnceNew(const PathEvidence& path) {
  const Memory& m = MemoryOf(path);
  return path.state == PathEvidence::State::kNew && m.time_ns == m.new_ns;
}

// Switches that answer no trace, one of parallel links, a member of a LAG: what the dead paths have in common.
// The switch behind which the traces of all of them end: what comes before it lives. −1: there is none.
int32_t Findings::EndOfAll(const Scene& scene, const std::vector<uint32_t>& paths) const {
  const int32_t end = components_.EndOf(scene.path(paths[0]));
  const auto same = [&](uint32_t i) { return components_.EndOf(scene.path(i)) == end; };
  return std::all_of(paths.begin(), paths.end(), same) ? end : -1;
}

void Findings::FindUnexplained(Scene& scene) {
  std::vector<uint32_t> left;
  std::set<uint32_t> hosts;
  int64_t since_ns = INT64_MAX;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    if (scene.word[i] != Word::kBad || scene.explained[i]) continue;
    const int64_t bad_ns = MemoryOf(scene.path(i)).bad_ns;
    if (bad_ns == 0 || absl::Nanoseconds(scene.picture.now_ns - bad_ns) < kStaysDead) continue;
    if (CrossesAny(*scene.needs[i], scene.lossy) || CrossesAny(*scene.needs[i], scene.flapping) ||
        IsCutAt(scene, i, scene.dead) || IsOnceNew(scene.path(i)))
      continue;
    left.push_back(i);
    hosts.insert(scene.path(i).host);
    since_ns = std::min(since_ns, scene.SinceNs(i));
  }
  if (left.size() < 2 || (scene.speaking.size() > 3 && hosts.size() < 2)) return;  // nobody else can check it
  std::vector<int32_t> shared = SharedBy(scene.needs, left);
  if (const int32_t end = EndOfAll(scene, left); end >= 0) shared = {end};
  Suspicion s{.what = {.cause = Cause::kPathsDead, .scope = "paths of the fabric"}};
  s.what.start_ns = since_ns;
  s.what.evidence = {absl::StrFormat("%d paths of %d hosts are dead, and no switch, link or NIC explains it",
                                     left.size(), hosts.size())};
  s.what.one_of = {scene.gaps.begin(), scene.gaps.end()};
  std::vector<std::string> names;
  for (const int32_t c : shared) {
    if (names.size() < kMostListed) names.push_back(components_.at(c).scope);
  }
  if (names.size() == 1) s.what.scope = "paths over " + names[0];
  if (!names.empty()) s.what.evidence.push_back("all of them cross " + absl::StrJoin(names, ", "));
  for (const uint32_t host : hosts) {
    if (s.what.hosts.size() < kMostListed) s.what.hosts.push_back(scene.picture.hosts[host].name);
  }
  std::sort(s.what.hosts.begin(), s.what.hosts.end());
  Add(scene, std::move(s));
}

}  // namespace cw::fleet
