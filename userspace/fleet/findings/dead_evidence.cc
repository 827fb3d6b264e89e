// SPDX-License-Identifier: Apache-2.0
// What paths that do not answer are worth: whose word counts, and who has not spoken since.
#include <algorithm>
#include <optional>

#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

using State = PathEvidence::State;

// What a living agent sees of its own NICs' silence it reports within so much.
constexpr absl::Duration kOwnWord = absl::Milliseconds(1500);
constexpr absl::Duration kOwnComplaint = absl::Seconds(1);  // who says so of silence that began about then speaks

int64_t Ns(absl::Duration d) { return absl::ToInt64Nanoseconds(d); }

using TwoNics = std::pair<Addr, Addr>;  // from, to

// Pairs with a path that answers, and NICs of known hosts: asked for only where a path never answered.
struct Known {
  absl::flat_hash_set<TwoNics> answer;
  absl::flat_hash_set<Addr> nics;
};

}  // namespace

// Silence has no witness: it counts where the other end does not hear the probes, either. Where it does, the path back
// is broken. A path that never answered is dead where another one to that NIC answers, or where that NIC is a host's
// that we know.
void Findings::Weigh(Scene& scene) {
  absl::flat_hash_set<TwoNics> arrives;
  for (const Arrival& arrival : scene.picture.arrivals) arrives.emplace(arrival.from, arrival.to);
  std::optional<Known> known;
  const auto look = [&] {
    known.emplace();
    for (const HostEvidence& host : scene.picture.hosts) {
      for (const NicFact& nic : host.nics) known->nics.insert(nic.address);
    }
    for (size_t i = 0; i < scene.paths.size(); ++i) {
      if (scene.path(i).state == State::kAlive) known->answer.emplace(scene.path(i).source, scene.path(i).destination);
    }
  };
  scene.word.resize(scene.paths.size());
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    const TwoNics pair{path.source, path.destination};
    switch (path.state) {
      case State::kAlive:
      case State::kPaused:  // another class goes through
        scene.word[i] = Word::kGood;
        break;
      case State::kDead:
        scene.word[i] = Word::kBad;
        break;
      case State::kSilent:
        scene.word[i] = arrives.contains(pair) ? Word::kGood : Word::kBad;
        break;
      case State::kNew:
        if (!known) look();
        scene.word[i] =
            known->answer.contains(pair) || (known->nics.contains(path.destination) && !arrives.contains(pair))
                ? Word::kBad
                : Word::kNeither;
        break;
      case State::kNoWord:
        scene.word[i] = Word::kNeither;
    }
  }
}

// Racks that others find dead, and that said nothing since. Where few or none have paths to each host, those of a rack
// share the word of all who ask. What dark racks said of each other before is no proof.
void Findings::FindDarkRacks(const Scene& scene, size_t wanted, std::map<int32_t, Unreached>& by) const {
  const Picture& p = scene.picture;
  std::vector<int> leaf_of;
  for (const HostEvidence& host : p.hosts)
    leaf_of.push_back(host.nics.empty() ? -1 : components_.LeafOf(host.nics.front().address));
  std::map<int, Unreached> racks;
  std::map<int, std::map<uint32_t, int64_t>> since;   // by leaf, by teller
  std::vector<int64_t> complains_ns(p.hosts.size());  // of a silence that began then
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const uint32_t teller = scene.path(i).host;
    const int leaf = components_.LeafOf(scene.path(i).destination);
    if (scene.word[i] == Word::kBad || scene.path(i).state == State::kSilent)
      complains_ns[teller] = std::max(complains_ns[teller], scene.SinceNs(i));
    if (scene.word[i] != Word::kBad || leaf < 0 || leaf == leaf_of[teller]) continue;
    racks[leaf].hosts.insert(teller);
    int64_t& its_ns = since[leaf][teller];
    its_ns = std::max(its_ns, scene.SinceNs(i));
  }
  for (auto& [leaf, rack] : racks) rack.since_ns = SecondNewest(since[leaf]);
  const auto spoke = [&](size_t host, int64_t since_ns) {
    return p.hosts[host].last_seen_ns > since_ns + Ns(kOwnWord) || complains_ns[host] > since_ns - Ns(kOwnComplaint);
  };
  std::erase_if(racks, [&](const auto& rack) { return rack.second.hosts.size() < wanted; });
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const auto own = racks.find(leaf_of[h]);
    if (own != racks.end() && spoke(h, own->second.since_ns)) racks.erase(own);
  }
  for (size_t i = 0; i < scene.paths.size() && !racks.empty(); ++i) {
    const uint32_t teller = scene.path(i).host;
    const auto rack = racks.find(components_.LeafOf(scene.path(i).destination));
    if (scene.word[i] != Word::kGood || rack == racks.end()) continue;
    if (!racks.contains(leaf_of[teller]) || scene.SaidNs(i) > rack->second.since_ns + Ns(kOwnWord)) racks.erase(rack);
  }
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const auto dark = [&](const NicFact& nic) { return racks.contains(components_.LeafOf(nic.address)); };
    if (leaf_of[h] >= 0 && std::all_of(p.hosts[h].nics.begin(), p.hosts[h].nics.end(), dark))
      by[static_cast<int32_t>(h)] = racks[leaf_of[h]];
  }
}

// What a host said before it fell silent is no proof that anything lives. A living agent says within a second that its
// own paths are silent, and its words then count.
void Findings::FindUnreached(Scene& scene) {
  const Picture& p = scene.picture;
  std::map<int32_t, Unreached> by;  // by host
  const auto other_end = [&](size_t i) {
    for (const int32_t c : *scene.needs[i]) {
      const Component& nic = components_.at(c);
      if (nic.part == Part::kNic && nic.nic == scene.path(i).destination && nic.host >= 0 &&
          nic.host != static_cast<int32_t>(scene.path(i).host))
        return nic.host;
    }
    return int32_t{-1};
  };
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    if (scene.word[i] != Word::kBad) continue;
    if (const int32_t host = other_end(i); host >= 0) {
      by[host].hosts.insert(scene.path(i).host);
      by[host].since_ns = std::max(by[host].since_ns, scene.SinceNs(i));
    }
  }
  const std::map<int32_t, Unreached> suspected = by;
  for (size_t i = 0; i < scene.paths.size() && !by.empty(); ++i) {
    // Hosts of one rack vouched for each other before its power went.
    const auto teller = suspected.find(static_cast<int32_t>(scene.path(i).host));
    const bool before = teller != suspected.end() && p.hosts[scene.path(i).host].last_seen_ns < teller->second.since_ns;
    if (scene.word[i] == Word::kGood && !before) by.erase(other_end(i));
    // It told that its class is held up: others may well not be answered.
    if (scene.path(i).state == State::kPaused) by.erase(static_cast<int32_t>(scene.path(i).host));
  }
  const size_t wanted = scene.speaking.size() > 2 ? 2 : 1;
  FindDarkRacks(scene, wanted, by);
  // Most of its own paths are dead by its own word: it spoke since then.
  std::map<int32_t, std::pair<size_t, size_t>> own;  // bad, all
  for (size_t i = 0; i < scene.paths.size() && !by.empty(); ++i) {
    auto& [bad, all] = own[static_cast<int32_t>(scene.path(i).host)];
    // That others hear its probes makes them no evidence; it has told of them all the same.
    bad += scene.word[i] == Word::kBad || scene.path(i).state == State::kSilent;
    ++all;
  }
  for (const auto& [host, counts] : own) {
    if (2 * counts.first >= counts.second) by.erase(host);
  }
  scene.unreached_ns.assign(p.hosts.size(), 0);
  std::map<std::string, int64_t> since;  // what was said of it first holds
  for (const auto& [host, who] : by) {
    const auto h = static_cast<size_t>(host);
    if (who.hosts.size() < wanted) continue;
    const auto before = unanswered_since_.find(p.hosts[h].name);
    const int64_t since_ns = before == unanswered_since_.end() ? who.since_ns : before->second;
    since.emplace(p.hosts[h].name, since_ns);
    if (p.hosts[h].last_seen_ns <= since_ns + Ns(kOwnWord)) scene.unreached_ns[h] = since_ns;
  }
  unanswered_since_ = std::move(since);
  for (size_t i = 0; i < scene.paths.size() && !unanswered_since_.empty(); ++i) {
    if (scene.word[i] == Word::kGood && scene.unreached_ns[scene.path(i).host] != 0) scene.word[i] = Word::kNeither;
  }
}

// NICs that are down by their own hosts' word.
std::set<Addr> Findings::DownByOwnWord(const Scene& scene) const {
  std::set<Addr> down;
  const Picture& p = scene.picture;
  for (size_t h = 0; h < p.hosts.size(); ++h) {
    const auto book = events_.hosts().find(p.hosts[h].name);
    if (book == events_.hosts().end() || !scene.host_fresh[h] || !book->second.IsOf(p.hosts[h].run)) continue;
    for (const NicFact& nic : p.hosts[h].nics) {
      if (book->second.nics_down.contains(nic.name) && !nic.address.is_zero()) down.insert(nic.address);
    }
  }
  return down;
}

// Such a NIC explains all of its paths, but where a leaf took it along: then that explains it.
void Findings::ExplainByOwnWord(Scene& scene, std::vector<Suspect>& suspects) const {
  const std::set<Addr> down = DownByOwnWord(scene);
  if (down.empty()) return;
  const auto touches = [&](uint32_t i) {
    return down.contains(scene.path(i).source) || down.contains(scene.path(i).destination);
  };
  std::erase_if(suspects, [&](const Suspect& s) {
    if (!std::all_of(s.explains.begin(), s.explains.end(), touches)) return false;
    std::vector<Addr> inside;
    for (const int32_t part : components_.at(s.component).inside) {
      const Component& nic = components_.at(part);
      if (nic.part == Part::kNic && down.contains(nic.nic)) inside.push_back(nic.nic);
    }
    if (components_.at(s.component).part != Part::kSwitch || inside.size() < 2) return true;
    scene.taken_along.insert(inside.begin(), inside.end());
    return false;
  });
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    if (touches(i)) scene.explained[i] = true;
  }
}

// Each path once, of one that was never whole but for what answers its traces; of a cut one also that what it crosses
// up to there lives, and that the link behind does not.
std::vector<Observation> Findings::DeadObservations(Scene& scene) {
  std::vector<Observation> seen;
  seen.reserve(scene.paths.size());
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const bool bad = scene.word[i] == Word::kBad;
    const bool never = bad && scene.path(i).state == State::kNew;
    seen.push_back({never ? &components_.Unproven(scene.path(i)) : scene.needs[i], scene.path(i).host,
                    scene.word[i] == Word::kNeither ? 0.0 : 1.0, bad ? 1.0 : 0.0});
  }
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    if (scene.word[i] != Word::kBad || path.hops == nullptr || path.reached == 0) continue;
    seen.push_back({&components_.Reached(path), path.host, 1, 0});
    if (const std::vector<int32_t>& behind = components_.Behind(path); !behind.empty())
      seen.push_back({&behind, path.host, 1, 1});
  }
  for (size_t h = 0; h < scene.picture.hosts.size(); ++h) {
    if (scene.unreached_ns[h] == 0) continue;
    for (const NicFact& nic : scene.picture.hosts[h].nics) {
      scene.silent_needs.push_back(components_.AtEnd(nic.address));
      seen.push_back({&scene.silent_needs.back(), static_cast<uint32_t>(h), 1, 1});
    }
  }
  return seen;
}

}  // namespace cw::fleet
