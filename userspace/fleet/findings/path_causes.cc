// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostHostsNamed = 64;
// Agents count probes by whole seconds, and those whose answers may still come later: an interval's counts may reach
// back before it by so much.
constexpr absl::Duration kCountsLag = absl::Seconds(5);
constexpr double kLate = 0.05;  // of what a host's programs saw: its agent, and so its receiving, is late
constexpr size_t kMostOneOf = 4;
constexpr absl::Duration kQueueHolds = absl::Seconds(12);  // two intervals: a burst is no congestion

uint64_t TwoNics(const PathEvidence& path) {
  return absl::HashOf(std::min(path.source, path.destination), std::max(path.source, path.destination));
}

LocaliseRules QueueRules() {
  return {.error = 0.02, .least_rate = 0.95, .most_rate = 0.95, .prior = {0, -1, -1, -1, -1}, .least_agreement = 0.7};
}

LocaliseRules PausedRules() {
  LocaliseRules rules;
  rules.nic_links = false;
  return rules;
}

}  // namespace

// Which paths count: the newest word of hosts that speak, in time.
void Findings::Look(Scene& scene) {
  const Picture& p = scene.picture;
  scene.host_fresh.resize(p.hosts.size());
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const HostEvidence& host = p.hosts[h];
    scene.host_fresh[h] = host.connected && absl::Nanoseconds(p.now_ns - host.last_seen_ns) <= rules_.host_fresh &&
                          absl::AbsDuration(absl::Nanoseconds(p.now_ns - host.newest_ns)) <= rules_.clock_slack;
    if (scene.host_fresh[h]) scene.speaking.insert(host.name);
  }
  for (uint32_t i = 0; i < p.paths.size(); ++i) {
    const PathEvidence& path = p.paths[i];
    if (path.state == PathEvidence::State::kNoWord || path.host >= p.hosts.size()) continue;
    if (!scene.host_fresh[path.host]) continue;
    if (absl::Nanoseconds(p.hosts[path.host].newest_ns - path.time_ns) > rules_.path_fresh) continue;
    scene.paths.push_back(i);
    scene.needs.push_back(&components_.Of(path));
  }
  scene.explained.resize(scene.paths.size());
}

Suspicion Findings::Of(const Scene& scene, Cause cause, const Suspect& suspect) const {
  const Component& c = components_.at(suspect.component);
  Suspicion s{.what = {.cause = cause, .scope = c.scope, .links = c.links}, .component = suspect.component};
  std::set<std::string> hosts;
  for (const uint32_t i : suspect.explains) {
    if (hosts.size() < kMostHostsNamed)
      hosts.insert(scene.picture.hosts[scene.picture.paths[scene.paths[i]].host].name);
  }
  s.what.hosts = {hosts.begin(), hosts.end()};
  if (suspect.alike.empty()) return s;
  // What is a part of another one of them goes with that.
  std::set<std::string> one_of = {c.scope};
  std::set<LinkId> links(c.links.begin(), c.links.end());
  for (const int32_t other : suspect.alike) {
    one_of.insert(components_.at(other).scope);
    links.insert(components_.at(other).links.begin(), components_.at(other).links.end());
  }
  s.what.links = {links.begin(), links.end()};
  s.what.one_of = {one_of.begin(), one_of.end()};
  std::vector<std::string> shown = s.what.one_of;
  if (shown.size() > kMostOneOf) shown.resize(kMostOneOf);
  s.what.scope = absl::StrCat("one of: ", absl::StrJoin(shown, ", "));
  std::vector<std::string> places;
  for (const std::string& scope : shown) places.push_back(components_.PlaceOf(scope));
  s.what.place = absl::StrCat("one of: ", absl::StrJoin(places, ", "));
  if (shown.size() < s.what.one_of.size())
    absl::StrAppend(&s.what.scope, " and ", s.what.one_of.size() - shown.size(), " more");
  s.what.evidence.push_back("no path crosses one of them without the others");
  return s;
}

// What switches that answer no trace hide is one suspicion, with all places where it may be.
void Findings::FindInGaps(Scene& scene, Cause cause, std::vector<Suspect>& suspects) {
  Suspicion s{.what = {.cause = cause}};
  std::set<std::string> scopes, hosts;
  std::erase_if(suspects, [&](const Suspect& suspect) {
    if (!components_.at(suspect.component).gap) return false;
    scopes.insert(components_.at(suspect.component).scope);
    for (const uint32_t i : suspect.explains) hosts.insert(scene.picture.hosts[scene.path(i).host].name);
    return true;
  });
  if (scopes.empty()) return;
  s.what.one_of = {scopes.begin(), scopes.end()};
  s.what.hosts = {hosts.begin(), hosts.end()};
  if (s.what.hosts.size() > kMostHostsNamed) s.what.hosts.resize(kMostHostsNamed);
  s.what.scope = "switches that answer no trace";
  s.what.evidence = {
      absl::StrFormat("on the paths of %d hosts, at %d places between ports that answer", hosts.size(), scopes.size())};
  Add(scene, std::move(s));
}

// Of several switches that answer no trace one holds up a part of what crosses the place where they are.
std::vector<Suspect> Findings::LeftInGaps(const std::vector<Observation>& seen,
                                          const std::vector<uint32_t>& place) const {
  std::map<int32_t, Suspect> by_gap;
  std::set<uint32_t> hosts;
  for (size_t i = 0; i < seen.size(); ++i) {
    for (const int32_t c : *seen[i].needs) {
      if (seen[i].bad == 0 || !components_.at(c).gap) continue;
      by_gap[c].component = c;
      by_gap[c].explains.push_back(place[i]);
      hosts.insert(seen[i].host);
    }
  }
  std::vector<Suspect> suspects;
  for (auto& [gap, suspect] : by_gap) {
    if (hosts.size() > 1) suspects.push_back(std::move(suspect));
  }
  return suspects;
}

// As of dead paths, but of those whose class alone is held up. Flow control holds up what comes towards it, so behind
// one receiver whole switches may stand: the fewest that explain it. Where a path's probes arrive what is held up is
// the path back.
void Findings::FindPaused(Scene& scene) {
  absl::flat_hash_set<std::pair<Addr, Addr>> arrives;
  for (const Arrival& arrival : scene.picture.arrivals) arrives.emplace(arrival.from, arrival.to);
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    if (scene.word[i] != Word::kGood || scene.explained[i]) continue;
    const bool paused = path.state == PathEvidence::State::kPaused;
    if (paused && arrives.contains({path.source, path.destination})) continue;
    seen.push_back({scene.needs[i], path.host, 1, paused ? 1.0 : 0.0});
    place.push_back(i);
  }
  std::vector<Suspect> suspects = Localise(seen, components_, PausedRules());
  for (Suspect& s : suspects) {
    for (const uint32_t i : s.explains) seen[i].bad = 0;
    for (uint32_t& i : s.explains) i = place[i];
  }
  for (Suspect& s : LeftInGaps(seen, place)) suspects.push_back(std::move(s));
  FindInGaps(scene, Cause::kClassPaused, suspects);
  for (const Suspect& s : suspects) {
    Suspicion suspicion = Of(scene, Cause::kClassPaused, s);
    suspicion.what.evidence.insert(suspicion.what.evidence.begin(),
                                   {absl::StrFormat("%d of %d paths over it are held up, reported by %d hosts",
                                                    s.paths_bad, s.paths_bad + s.paths_well, s.hosts_bad),
                                    "probes of another class go through"});
    Add(scene, std::move(suspicion));
  }
}

// What paths lost, fading, and how long they have queued.
void Findings::Remember(Scene& scene) {
  const int64_t now_ns = scene.picture.now_ns;
  std::vector<int32_t> died = scene.flapping;
  for (const auto& [scope, last_ns] : dead_lately_) {
    if (const int32_t c = components_.FindScope(scope); c >= 0) died.push_back(c);
  }
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    Memory& m = memory_[PathKey(path)];
    if (path.time_ns <= m.time_ns) continue;
    const double fade = std::exp(-static_cast<double>(path.time_ns - m.time_ns) /
                                 static_cast<double>(absl::ToInt64Nanoseconds(rules_.loss_memory)));
    // What was lost while a path was dead or held up is no grey loss, nor just before and behind that, nor over what
    // flaps.
    const bool dead = path.state != PathEvidence::State::kAlive;
    int64_t& stirred_ns = stirred_ns_[TwoNics(path)];
    if (dead != m.dead) stirred_ns = std::max(stirred_ns, path.time_ns);
    const bool counts = !dead && !scene.explained[i] && !CrossesAny(*scene.needs[i], died) &&
                        m.time_ns >= stirred_ns + absl::ToInt64Nanoseconds(kCountsLag);
    const int64_t queues_ns = !IsAbove(path, rules_) ? 0 : m.queues_ns != 0 ? m.queues_ns : m.time_ns;
    const int64_t small_ns = path.largest_bytes == 0 ? 0 : m.small_ns != 0 ? m.small_ns : path.time_ns;
    const int64_t new_ns = path.state != PathEvidence::State::kNew ? 0 : m.new_ns != 0 ? m.new_ns : path.time_ns;
    const int64_t bad_ns = scene.word[i] != Word::kBad ? 0 : m.bad_ns != 0 ? m.bad_ns : now_ns;
    m = {.time_ns = path.time_ns,
         .sent = m.sent * fade + (counts ? path.sent : 0),
         .lost = m.lost * fade + (counts ? path.lost : 0),
         .dead = dead,
         .bad_ns = bad_ns,
         .new_ns = new_ns,
         .small_ns = small_ns,
         .queues_ns = queues_ns};
  }
  if (now_ns - memory_swept_ns_ <= absl::ToInt64Nanoseconds(absl::Minutes(1))) return;
  memory_swept_ns_ = now_ns;
  const int64_t old_ns = now_ns - absl::ToInt64Nanoseconds(absl::Minutes(5));
  absl::erase_if(memory_, [&](const auto& entry) { return entry.second.time_ns < old_ns; });
  absl::erase_if(stirred_ns_, [&](const auto& entry) { return entry.second < old_ns; });
}

uint64_t Findings::PathKey(const PathEvidence& path) {
  return absl::HashOf(path.source, path.destination, path.udp_port, path.hops_id);
}

const Findings::Memory& Findings::MemoryOf(const PathEvidence& path) { return memory_[PathKey(path)]; }

// What waits in a host before it leaves is no queue of the fabric, nor is what a host that is late takes in late.
void Findings::LeaveOutOwnQueues(const Scene& scene, std::vector<Suspect>& suspects) const {
  const auto sends = [&](const Component& c) { return c.at_nic && c.links[0].first == c.nic; };
  std::set<std::string> late;
  for (const HostEvidence& host : scene.picture.hosts) {
    if (host.late_share > kLate) late.insert(host.name);
  }
  for (const Suspect& s : suspects) {
    if (sends(components_.at(s.component))) late.insert(components_.HostAt(s.component));
  }
  std::erase_if(suspects, [&](const Suspect& s) {
    const Component& c = components_.at(s.component);
    return sends(c) || (c.at_nic && late.contains(components_.HostAt(s.component)));
  });
}

void Findings::FindQueues(Scene& scene) {
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    if (path.state != PathEvidence::State::kAlive || path.hops == nullptr) continue;
    const int64_t since_ns = MemoryOf(path).queues_ns;
    const bool queues = since_ns != 0 && absl::Nanoseconds(path.time_ns - since_ns) >= kQueueHolds;
    seen.push_back({scene.needs[i], path.host, 1, queues ? 1.0 : 0.0});
    place.push_back(i);
  }
  std::vector<Suspect> suspects = Localise(seen, components_, QueueRules());
  for (Suspect& s : suspects) {
    for (uint32_t& i : s.explains) i = place[i];
  }
  FindInGaps(scene, Cause::kCongestion, suspects);
  LeaveOutOwnQueues(scene, suspects);
  for (const Suspect& s : suspects) {
    double least_ns = INFINITY, sum_ns = 0;
    for (const uint32_t i : s.explains) {
      const double queue_ns = scene.picture.paths[scene.paths[i]].queue_ns;
      least_ns = std::min(least_ns, queue_ns);
      sum_ns += queue_ns;
    }
    const Component& c = components_.at(s.component);
    const bool incast = c.at_nic && c.links[0].second == c.nic;
    if (incast) crowded_ns_[components_.HostAt(s.component)] = scene.picture.now_ns;
    Suspicion suspicion = Of(scene, incast ? Cause::kIncast : Cause::kCongestion, s);
    suspicion.what.evidence.insert(
        suspicion.what.evidence.begin(),
        {absl::StrFormat("%d of %d paths over it queue, reported by %d hosts", s.paths_bad, s.paths_bad + s.paths_well,
                         s.hosts_bad),
         absl::StrFormat("typical queueing delay %.0f us, at least %.0f us on each",
                         sum_ns / 1e3 / static_cast<double>(s.explains.size()), least_ns / 1e3)});
    Add(scene, std::move(suspicion));
  }
}

}  // namespace cw::fleet
