// SPDX-License-Identifier: Apache-2.0
// What has a finding and is still dead explains its paths before anything else is looked for. While agents restart, or
// something else dies, too, the evidence is thin and mixed for a while: a place that was found when it was whole is not
// given up for another one that explains the rest as well.
#include <algorithm>
#include <set>

#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr double kNearlyAll = 0.8;  // of the paths over it that anything is known of
constexpr uint32_t kLeastPaths = 2;

struct Tally {
  Suspect suspect;
  std::set<uint32_t> hosts, bad;
};

}  // namespace

// Where it is; a NIC's finding may be of one direction of its link.
std::vector<int32_t> Findings::PlacesOf(const Finding& open) const {
  std::vector<int32_t> places;
  const bool nic = open.cause == Cause::kNicDown;
  if (!nic && open.cause != Cause::kLinkDead && open.cause != Cause::kSwitchDead) return places;
  const int32_t c = components_.FindScope(open.scope);
  if (c < 0) return places;
  places.push_back(c);
  if (nic) {
    const std::vector<int32_t>& links = components_.OwnLinks(components_.at(c).nic);
    places.insert(places.end(), links.begin(), links.end());
  }
  return places;
}

// all: what would be accused if nothing had been found before. The observations of those that it returns say nothing
// more afterwards.
std::vector<Suspect> Findings::StillDead(const Scene& scene, const std::vector<Suspect>& all,
                                         std::vector<Observation>& seen) const {
  std::map<int32_t, Tally> tallies;
  std::vector<std::vector<int32_t>> findings;
  for (const Finding& open : ledger_.Open()) {
    findings.push_back(PlacesOf(open));
    for (const int32_t c : findings.back()) tallies[c].suspect = {.component = c, .rate = 1};
  }
  if (tallies.empty()) return {};
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const uint32_t host = scene.path(i).host;
    if (scene.word[i] == Word::kNeither || distrusted_.contains(scene.picture.hosts[host].name)) continue;
    for (const int32_t c : *scene.needs[i]) {
      const auto at = tallies.find(c);
      if (at == tallies.end()) continue;
      Tally& tally = at->second;
      tally.hosts.insert(host);
      if (scene.word[i] == Word::kGood) {
        ++tally.suspect.paths_well;
        continue;
      }
      ++tally.suspect.paths_bad;
      tally.bad.insert(host);
      tally.suspect.explains.push_back(i);
    }
  }
  // It was a part of what is dead as a whole, without doubt.
  const auto is_more = [&](int32_t c) {
    return std::any_of(all.begin(), all.end(), [&](const Suspect& s) {
      return s.component != c && components_.Contains(s.component, c) &&
             s.paths_bad >= kNearlyAll * (s.paths_bad + s.paths_well);
    });
  };
  const auto holds = [&](int32_t c) {
    const Tally& tally = tallies[c];
    const Suspect& s = tally.suspect;
    const size_t hosts_wanted = components_.at(c).at_nic ? 1 : 2;  // one who lies keeps nothing alive
    return s.paths_bad >= kLeastPaths && tally.bad.size() >= hosts_wanted &&
           s.paths_bad >= kNearlyAll * (s.paths_bad + s.paths_well) && !is_more(c);
  };
  std::set<int32_t> still;
  for (const std::vector<int32_t>& places : findings) {
    // A NIC as a whole before one direction of its link.
    const auto place = std::find_if(places.begin(), places.end(), holds);
    if (place != places.end()) still.insert(*place);
  }
  std::vector<Suspect> out;
  for (const int32_t c : still) {
    Tally& tally = tallies[c];
    tally.suspect.hosts = static_cast<uint32_t>(tally.hosts.size());
    tally.suspect.hosts_bad = static_cast<uint32_t>(tally.bad.size());
    out.push_back(std::move(tally.suspect));
  }
  for (Observation& o : seen) {
    const bool of_it = std::any_of(o.needs->begin(), o.needs->end(), [&](int32_t c) { return still.contains(c); });
    if (of_it) o.trials = o.bad = 0;
  }
  return out;
}

// A part of what is dead as a whole now is not told apart from it.
void Findings::JoinStillDead(const std::vector<Suspect>& still, std::vector<Suspect>& suspects) const {
  const auto whole_of = [&](const Suspect& part, const std::vector<Suspect>& among) {
    return std::find_if(among.begin(), among.end(), [&](const Suspect& other) {
      return other.component != part.component && components_.Contains(other.component, part.component);
    });
  };
  std::vector<Suspect> apart;
  for (const Suspect& s : still) {
    const auto whole = suspects.begin() + (whole_of(s, suspects) - suspects.cbegin());
    if (whole != suspects.end()) {
      whole->explains.insert(whole->explains.end(), s.explains.begin(), s.explains.end());
      whole->paths_bad += s.paths_bad;
    } else if (whole_of(s, still) == still.end()) {
      apart.push_back(s);
    }
  }
  suspects.insert(suspects.end(), apart.begin(), apart.end());
}

}  // namespace cw::fleet
