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
constexpr double kStillDead = 0.3;  // share of a dead component's paths: fewer, and it ended
constexpr double kStillLoses = 0.25;
constexpr absl::Duration kSettling = absl::Seconds(60);  // paths come back one by one
// Agents count probes by whole seconds, and those whose answers may still come later: an interval's counts may reach
// back before it by so much.
constexpr absl::Duration kCountsLag = absl::Seconds(3);
constexpr size_t kMostFlapsKept = 64;
constexpr uint32_t kSureHosts = 3, kSurePaths = 4;

uint64_t TwoNics(const PathEvidence& path) {
  return absl::HashOf(std::min(path.source, path.destination), std::max(path.source, path.destination));
}

LocaliseRules GreyRules(const FindingRules& rules) {
  return {.error = 2e-4,
          .least_rate = rules.least_loss,
          .most_rate = rules.most_loss,
          .least_gain = 12,
          .prior = {0, -1, -1, -1, -1},
          .least_agreement = 0,
          .most_contradicted = 0.2,
          .even_alone = true,
          .without_best = true};
}

LocaliseRules QueueRules() {
  return {.error = 0.02, .least_rate = 0.95, .most_rate = 0.95, .prior = {0, -1, -1, -1, -1}, .least_agreement = 0.7};
}

LocaliseRules DeadRules() {
  LocaliseRules rules;
  rules.nic_links = false;
  return rules;
}

bool IsAbove(const PathEvidence& path, const FindingRules& rules) {
  return path.queue_ns > std::max(rules.queue_floor_ns, rules.queue_over_base * path.base_ns);
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
  std::vector<std::string> alike;
  for (const int32_t other : suspect.alike) alike.push_back(components_.at(other).scope);
  if (alike.size() > 4) alike.resize(4);
  s.what.evidence.push_back(absl::StrCat("no path tells it from ", absl::StrJoin(alike, ", ")));
  return s;
}

// Hosts that all others find dead, as far as they have paths to them, and that say themselves that all is well: so they
// said it before. A living one tells within a second that its own paths are dead, or paused, and its words then count.
std::vector<bool> Findings::Unreached(const Scene& scene) const {
  const Picture& p = scene.picture;
  std::map<int32_t, std::set<uint32_t>> by;  // host → who finds it dead
  const auto each_other_end = [&](PathEvidence::State state, const auto& look) {
    for (size_t i = 0; i < scene.paths.size(); ++i) {
      const PathEvidence& path = p.paths[scene.paths[i]];
      if (path.state != state) continue;
      for (const int32_t c : *scene.needs[i]) {
        const Component& component = components_.at(c);
        if (component.part == Part::kNic && component.host >= 0 && component.host != static_cast<int32_t>(path.host))
          look(component.host, path.host);
      }
    }
  };
  each_other_end(PathEvidence::State::kDead, [&](int32_t host, uint32_t teller) { by[host].insert(teller); });
  std::vector<bool> unreached(p.hosts.size());
  if (by.empty()) return unreached;
  each_other_end(PathEvidence::State::kAlive, [&](int32_t host, uint32_t) { by.erase(host); });
  for (const PathEvidence& path : p.paths) {
    if (path.state != PathEvidence::State::kAlive) by.erase(static_cast<int32_t>(path.host));
  }
  const size_t wanted = scene.speaking.size() > 2 ? 2 : 1;
  for (const auto& [host, tellers] : by) unreached[static_cast<size_t>(host)] = tellers.size() >= wanted;
  return unreached;
}

// Of those whose trials are not 0: the others are neither for nor against.
std::vector<Suspect> Findings::LocaliseDead(const std::vector<Observation>& seen) const {
  std::vector<Observation> believed;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < seen.size(); ++i) {
    if (seen[i].trials == 0) continue;
    believed.push_back(seen[i]);
    place.push_back(i);
  }
  std::vector<Suspect> suspects = Localise(believed, components_, DeadRules());
  for (Suspect& s : suspects) {
    for (uint32_t& i : s.explains) i = place[i];
  }
  return suspects;
}

void Findings::FindDead(Scene& scene) {
  scene.unreached = Unreached(scene);
  std::vector<Observation> seen;
  seen.reserve(scene.paths.size());
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    const bool dead = path.state == PathEvidence::State::kDead;
    // What is held up lives: another class goes through.
    seen.push_back({scene.needs[i], path.host, dead || !scene.unreached[path.host] ? 1.0 : 0.0, dead ? 1.0 : 0.0});
  }
  std::vector<Suspect> suspects = LocaliseDead(seen);
  distrusted_.clear();
  Distrust(scene, suspects);
  if (!distrusted_.empty()) {
    for (size_t i = 0; i < seen.size(); ++i) {
      if (!distrusted_.contains(scene.picture.hosts[seen[i].host].name)) continue;
      seen[i].trials = seen[i].bad = 0;
      scene.explained[i] = true;
    }
    suspects = LocaliseDead(seen);
  }
  for (const Suspect& s : suspects) {
    scene.dead.push_back(s.component);
    for (const uint32_t i : s.explains) scene.explained[i] = true;
  }
  KeepDead(scene);
  for (const Suspect& s : suspects) TellDead(scene, s);
  CountFlaps(scene);
}

// A host most of whose dead paths others' living ones contradict.
void Findings::Distrust(Scene& scene, const std::vector<Suspect>& suspects) {
  std::vector<bool> explained(scene.paths.size());
  for (const Suspect& s : suspects) {
    for (const uint32_t i : s.explains) explained[i] = true;
  }
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> by_host;  // dead, of them unexplained
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    if (path.state != PathEvidence::State::kDead) continue;
    auto& [dead, unexplained] = by_host[path.host];
    ++dead;
    unexplained += !explained[i];
  }
  for (const auto& [host, counts] : by_host) {
    if (counts.second >= 2 && counts.second > rules_.distrusted_share * counts.first)
      distrusted_.insert(scene.picture.hosts[host].name);
  }
}

// What is dead ends when most of its paths live, not when the first one does.
void Findings::KeepDead(Scene& scene) {
  for (const Finding& open : ledger_.Open()) {
    if (open.cause != Cause::kLinkDead && open.cause != Cause::kSwitchDead) continue;
    const int32_t c = components_.FindScope(open.scope);
    if (c < 0) continue;
    const bool told =
        std::any_of(scene.dead.begin(), scene.dead.end(), [&](int32_t dead) { return components_.Contains(dead, c); });
    if (told) continue;
    uint32_t all = 0, dead = 0;
    for (size_t i = 0; i < scene.paths.size(); ++i) {
      if (!std::binary_search(scene.needs[i]->begin(), scene.needs[i]->end(), c)) continue;
      ++all;
      dead += scene.picture.paths[scene.paths[i]].state == PathEvidence::State::kDead;
    }
    if (dead == 0 || dead < kStillDead * all) continue;
    scene.dead.push_back(c);
    Suspicion s{.what = open, .component = c};
    s.what.id = 0;
    Add(scene, std::move(s));
  }
}

// Many hosts, all paths over it, and nothing that it is a part of could be the cause: of each such thing at least two
// of those hosts say, with the same word, that another part lives. (A word of before the death would prove nothing.)
bool Findings::IsSure(const Scene& scene, const Suspect& suspect) const {
  const size_t hosts_wanted = std::clamp<size_t>(scene.speaking.size(), 2, kSureHosts);
  if (suspect.paths_well > 0 || !suspect.alike.empty() || suspect.hosts_bad < hosts_wanted ||
      suspect.paths_bad < kSurePaths)
    return false;
  std::set<int32_t> wholes;
  std::map<uint32_t, int64_t> told;  // host → time of its word
  for (const uint32_t i : suspect.explains) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    told[path.host] = std::max(told[path.host], path.time_ns);
    for (const int32_t c : *scene.needs[i]) {
      if (c != suspect.component && components_.Contains(c, suspect.component)) wholes.insert(c);
    }
  }
  std::map<int32_t, std::set<uint32_t>> lives;
  for (size_t i = 0; i < scene.paths.size() && !wholes.empty(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    const auto at = path.state == PathEvidence::State::kAlive ? told.find(path.host) : told.end();
    if (at == told.end() || path.time_ns < at->second) continue;
    for (const int32_t c : *scene.needs[i]) {
      if (wholes.contains(c)) lives[c].insert(path.host);
    }
  }
  return std::all_of(wholes.begin(), wholes.end(),
                     [&](int32_t c) { return lives.contains(c) && lives.at(c).size() >= 2; });
}

// A living agent tells of its paths' death within a second. This one has said nothing since then, and no NIC of its
// host answers anybody.
bool Findings::IsMute(const Scene& scene, int32_t host, int64_t since_ns) const {
  const auto h = static_cast<size_t>(host);
  return scene.unreached[h] && !distrusted_.contains(scene.picture.hosts[h].name) &&
         scene.picture.hosts[h].last_seen_ns <= since_ns &&
         absl::Nanoseconds(scene.picture.now_ns - since_ns) >= rules_.host_mute;
}

void Findings::TellDead(Scene& scene, const Suspect& suspect) {
  const Picture& p = scene.picture;
  const Component& c = components_.at(suspect.component);
  // A part of what is dead, or was a moment ago: its paths come back one by one.
  for (const Cause cause : {Cause::kSwitchDead, Cause::kLinkDead}) {
    for (const Finding& open : ledger_.Open()) {
      const int32_t whole = open.cause == cause ? components_.FindScope(open.scope) : -1;
      if (whole >= 0 && whole != suspect.component && components_.Contains(whole, suspect.component) &&
          ledger_.Lately(cause, open.scope, p.now_ns, kSettling))
        return;
    }
  }
  Cause cause = c.part == Part::kSwitch ? Cause::kSwitchDead : Cause::kLinkDead;
  Suspicion s = Of(scene, cause, suspect);
  const int64_t since_ns = dead_since_.emplace(c.scope, p.now_ns).first->second;
  s.what.start_ns = since_ns;
  s.at_once = IsSure(scene, suspect);
  s.what.evidence.insert(
      s.what.evidence.begin(),
      {absl::StrFormat("%d of %d paths over it are dead, by the word of %d hosts", suspect.paths_bad,
                       suspect.paths_bad + suspect.paths_well, suspect.hosts_bad),
       absl::StrFormat("%d hosts have paths over it, %d of these paths live", suspect.hosts, suspect.paths_well)});
  if (c.part == Part::kSwitch) {
    for (const int32_t part : c.inside) {
      const int32_t host = components_.at(part).host;
      if (host >= 0) scene.explained_hosts.insert(p.hosts[static_cast<size_t>(host)].name);
    }
  }
  if (c.part == Part::kNic || c.part == Part::kHost) {
    const HostEvidence* host = c.host < 0 ? nullptr : &p.hosts[static_cast<size_t>(c.host)];
    const absl::Duration silent =
        host == nullptr ? absl::InfiniteDuration() : absl::Nanoseconds(p.now_ns - host->last_seen_ns);
    // Its own word that its paths are dead is younger than their death.
    const bool speaks = std::any_of(suspect.explains.begin(), suspect.explains.end(), [&](uint32_t i) {
      return static_cast<int32_t>(p.paths[scene.paths[i]].host) == c.host;
    });
    s.what.cause = Cause::kNicDown;
    const bool mute = host != nullptr && !speaks && IsMute(scene, c.host, since_ns);
    if (host != nullptr && (!host->connected || silent > rules_.host_silent || mute)) {
      s.at_once |= mute;  // it had its time
      s.what.cause = Cause::kHostDown;
      s.what.scope = absl::StrCat("host ", host->name);
      s.what.evidence.emplace_back("its agent is silent, too");
    } else if (host != nullptr && !speaks) {
      scene.explained_hosts.insert(host->name);
      return;  // a NIC or the whole host: its agent's next word tells
    }
    if (host != nullptr) scene.explained_hosts.insert(host->name);
    s.what.hosts.clear();
    if (host != nullptr) s.what.hosts.push_back(host->name);
  }
  Add(scene, std::move(s));
}

// Each time that something dies counts, however soon it lives again.
void Findings::CountFlaps(Scene& scene) {
  const int64_t now_ns = scene.picture.now_ns, hour_ns = absl::ToInt64Nanoseconds(absl::Hours(1));
  std::set<std::string> now;
  for (const int32_t c : scene.dead) {
    const Component& component = components_.at(c);
    now.insert(component.scope);
    if (!dead_since_.contains(component.scope)) dead_since_[component.scope] = now_ns;
    if (dead_since_[component.scope] != now_ns) continue;
    std::deque<int64_t>& times = flaps_[component.scope];
    times.push_back(now_ns);
    if (times.size() > kMostFlapsKept) times.pop_front();
  }
  std::erase_if(dead_since_, [&](const auto& entry) { return !now.contains(entry.first); });
  for (auto& [scope, times] : flaps_) {
    while (!times.empty() && times.front() < now_ns - hour_ns) times.pop_front();
  }
  std::erase_if(flaps_, [](const auto& entry) { return entry.second.empty(); });
}

// As of dead paths, but of those whose class alone is held up. Flow control holds up what comes towards it, so behind
// one receiver whole switches may stand: the fewest that explain it.
void Findings::FindPaused(Scene& scene) {
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    if (path.state == PathEvidence::State::kDead || scene.explained[i]) continue;
    seen.push_back({scene.needs[i], path.host, 1, path.state == PathEvidence::State::kPaused ? 1.0 : 0.0});
    place.push_back(i);
  }
  for (Suspect& s : Localise(seen, components_, DeadRules())) {
    for (uint32_t& i : s.explains) i = place[i];
    Suspicion suspicion = Of(scene, Cause::kClassPaused, s);
    suspicion.what.evidence.insert(suspicion.what.evidence.begin(),
                                   {absl::StrFormat("%d of %d paths over it are held up, by the word of %d hosts",
                                                    s.paths_bad, s.paths_bad + s.paths_well, s.hosts_bad),
                                    "probes of another class go through"});
    Add(scene, std::move(suspicion));
  }
}

void Findings::FindGrey(Scene& scene) {
  const int64_t now_ns = scene.picture.now_ns;
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    Memory& m = memory_[absl::HashOf(path.source, path.destination, path.udp_port, path.hops_id)];
    if (path.time_ns > m.time_ns) {
      const double fade = std::exp(-static_cast<double>(path.time_ns - m.time_ns) /
                                   static_cast<double>(absl::ToInt64Nanoseconds(rules_.loss_memory)));
      // What was lost while a path was dead or held up is no grey loss, nor are answers that would have come by it.
      const bool dead = path.state != PathEvidence::State::kAlive;
      int64_t& stirred_ns = stirred_ns_[TwoNics(path)];
      if (dead != m.dead) stirred_ns = std::max(stirred_ns, path.time_ns);
      const bool counts = path.state == PathEvidence::State::kAlive && !scene.explained[i] &&
                          m.time_ns >= stirred_ns + absl::ToInt64Nanoseconds(kCountsLag);
      m = {path.time_ns, m.sent * fade + (counts ? path.sent : 0), m.lost * fade + (counts ? path.lost : 0), dead};
    }
    if (path.state != PathEvidence::State::kAlive || scene.explained[i] || m.sent < 1) continue;
    seen.push_back({scene.needs[i], path.host, m.sent, m.lost < 0.5 ? 0 : m.lost});
    place.push_back(i);
  }
  if (now_ns - memory_swept_ns_ > absl::ToInt64Nanoseconds(absl::Minutes(1))) {
    memory_swept_ns_ = now_ns;
    const int64_t old_ns = now_ns - absl::ToInt64Nanoseconds(absl::Minutes(5));
    absl::erase_if(memory_, [&](const auto& entry) { return entry.second.time_ns < old_ns; });
    absl::erase_if(stirred_ns_, [&](const auto& entry) { return entry.second < old_ns; });
  }
  for (Suspect& s : Localise(seen, components_, GreyRules(rules_))) {
    double sent = 0, lost = 0, past_sent = 0, past_lost = 0, queues = 0;
    for (uint32_t& i : s.explains) {
      past_sent += seen[i].trials;
      past_lost += seen[i].bad;
      i = place[i];
      const PathEvidence& path = scene.picture.paths[scene.paths[i]];
      sent += path.sent;
      lost += path.lost;
      queues += IsAbove(path, rules_);
    }
    // Where only one host crosses a link its word stands alone; that on its own link nobody else could give.
    const Component& c = components_.at(s.component);
    const bool own = c.at_nic && c.links[0].first == c.nic;
    if (scene.speaking.size() > 3 && (own ? s.paths_bad < 2 : s.hosts_bad < 2)) continue;
    if (lost < 1 || lost / std::max(sent, 1.0) < kStillLoses * past_lost / past_sent) continue;  // it is over
    if (queues > 0.5 * static_cast<double>(s.explains.size())) continue;  // a queue that overflows: congestion
    Suspicion suspicion = Of(scene, Cause::kLinkGrey, s);
    suspicion.what.evidence.insert(
        suspicion.what.evidence.begin(),
        {absl::StrFormat("it loses %.2f %% of the probes: %.0f of %.0f, on %d paths of %d hosts", 100 * s.rate, s.bad,
                         s.trials, s.paths_bad, s.hosts_bad),
         absl::StrFormat("%d paths of %d hosts cross it, %d without loss", s.paths_bad + s.paths_well, s.hosts,
                         s.paths_well)});
    Add(scene, std::move(suspicion));
  }
}

void Findings::FindQueues(Scene& scene) {
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.picture.paths[scene.paths[i]];
    if (path.state != PathEvidence::State::kAlive || path.hops == nullptr) continue;
    seen.push_back({scene.needs[i], path.host, 1, IsAbove(path, rules_) ? 1.0 : 0.0});
    place.push_back(i);
  }
  for (Suspect& s : Localise(seen, components_, QueueRules())) {
    double least_ns = INFINITY, sum_ns = 0;
    for (uint32_t& i : s.explains) {
      i = place[i];
      const double queue_ns = scene.picture.paths[scene.paths[i]].queue_ns;
      least_ns = std::min(least_ns, queue_ns);
      sum_ns += queue_ns;
    }
    const Component& c = components_.at(s.component);
    const bool incast = c.at_nic && c.links[0].second == c.nic;
    Suspicion suspicion = Of(scene, incast ? Cause::kIncast : Cause::kCongestion, s);
    suspicion.what.evidence.insert(
        suspicion.what.evidence.begin(),
        {absl::StrFormat("%d of %d paths over it queue, by the word of %d hosts", s.paths_bad,
                         s.paths_bad + s.paths_well, s.hosts_bad),
         absl::StrFormat("typical queueing delay %.0f us, at least %.0f us on each",
                         sum_ns / 1e3 / static_cast<double>(s.explains.size()), least_ns / 1e3)});
    Add(scene, std::move(suspicion));
  }
}

}  // namespace cw::fleet
