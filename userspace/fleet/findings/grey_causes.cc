// SPDX-License-Identifier: Apache-2.0
// What loses packets and is not dead: a direction of a link, a cable, a switch.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr double kStillLoses = 0.25;
constexpr double kMostWell = 0.25;  // of the paths over a cable or a switch that loses
constexpr absl::Duration kBothDirections = absl::Seconds(60);

// wholes: cables and switches may be accused, too.
LocaliseRules GreyRules(const FindingRules& rules, bool wholes) {
  LocaliseRules grey = {.error = 2e-4,
                        .least_rate = rules.least_loss,
                        .most_rate = rules.most_loss,
                        .least_gain = 12,
                        .prior = {0, -1, -1, -1, -1},
                        .least_agreement = 0,
                        .most_contradicted = 0.2,
                        .even_alone = true,
                        .without_best = true};
  if (wholes) grey.prior[static_cast<size_t>(Part::kCable)] = 3.5;
  if (wholes) grey.prior[static_cast<size_t>(Part::kSwitch)] = 3;
  return grey;
}

// Of a cable or a switch nearly all paths have to lose; else it is some of its links.
std::vector<Suspect> LocaliseGrey(const std::vector<Observation>& seen, const Components& components,
                                  const FindingRules& rules) {
  std::vector<Suspect> suspects = Localise(seen, components, GreyRules(rules, true));
  const bool mixed = std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& s) {
    return components.at(s.component).part != Part::kLink && s.paths_well > kMostWell * (s.paths_bad + s.paths_well);
  });
  return mixed ? Localise(seen, components, GreyRules(rules, false)) : suspects;
}

}  // namespace

// Directions of links, each with what its paths lost. Silence neither proves that nothing is lost nor that something
// is.
std::vector<Findings::Grey> Findings::GreyLinks(Scene& scene) {
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    const Memory& m = MemoryOf(path);
    if (path.state != PathEvidence::State::kAlive || scene.word[i] != Word::kGood || scene.explained[i] || m.sent < 1)
      continue;
    seen.push_back({scene.needs[i], path.host, m.sent, m.lost < 0.5 ? 0 : m.lost});
    place.push_back(i);
  }
  std::vector<Grey> grey;
  for (Suspect& s : LocaliseGrey(seen, components_, rules_)) {
    Grey g;
    double past_sent = 0, past_lost = 0, queues = 0;
    for (uint32_t& i : s.explains) {
      past_sent += seen[i].trials;
      past_lost += seen[i].bad;
      i = place[i];
      const PathEvidence& path = scene.path(i);
      g.sent += path.sent;
      g.lost += path.lost;
      queues += IsAbove(path, rules_);
    }
    // Where only one host crosses a link its word stands alone; that on its own link nobody else could give.
    const Component& c = components_.at(s.component);
    const bool own = c.at_nic && c.links[0].first == c.nic;
    if (scene.speaking.size() > 3 && (own ? s.paths_bad < 2 : s.hosts_bad < 2)) continue;
    if (g.lost < 1 || g.lost / std::max(g.sent, 1.0) < kStillLoses * past_lost / past_sent) continue;  // it is over
    if (queues > 0.5 * static_cast<double>(s.explains.size())) continue;  // a queue that overflows: congestion
    scene.lossy.push_back(s.component);
    g.suspect = std::move(s);
    grey.push_back(std::move(g));
  }
  return grey;
}

// One for those at these places, which are parts of the whole.
Findings::Grey Findings::JoinGrey(const Scene& scene, int32_t whole, const std::vector<const Grey*>& parts) {
  Grey out{.suspect = {.component = whole}};
  std::set<uint32_t> bad, hosts;
  for (const Grey* part : parts) {
    const Suspect& s = part->suspect;
    out.sent += part->sent;
    out.lost += part->lost;
    out.suspect.paths_well += s.paths_well;
    out.suspect.hosts = std::max(out.suspect.hosts, s.hosts);
    bad.insert(s.explains.begin(), s.explains.end());
  }
  for (const uint32_t i : bad) hosts.insert(scene.path(i).host);
  out.suspect.explains.assign(bad.begin(), bad.end());
  out.suspect.paths_bad = static_cast<uint32_t>(bad.size());
  out.suspect.hosts_bad = static_cast<uint32_t>(hosts.size());
  out.suspect.hosts = std::max(out.suspect.hosts, out.suspect.hosts_bad);
  return out;
}

// Both directions of a cable, found apart or one of them a moment ago, are the cable.
void Findings::FoldGrey(const Scene& scene, std::vector<Grey>& grey) const {
  std::map<int32_t, std::vector<const Grey*>> by_cable;
  for (const Grey& g : grey) {
    if (components_.at(g.suspect.component).part != Part::kLink) continue;
    if (const int32_t cable = components_.CableOf(g.suspect.component); cable >= 0) by_cable[cable].push_back(&g);
  }
  std::set<const Grey*> gone;
  std::vector<Grey> joined;
  for (const auto& [cable, parts] : by_cable) {
    const std::string& scope = components_.at(cable).scope;
    if (parts.size() < 2 && !ledger_.Lately(Cause::kLinkGrey, scope, scene.picture.now_ns, kBothDirections)) continue;
    gone.insert(parts.begin(), parts.end());
    joined.push_back(JoinGrey(scene, cable, parts));
  }
  std::vector<Grey> out;
  for (Grey& g : grey) {
    if (!gone.contains(&g)) out.push_back(std::move(g));
  }
  out.insert(out.end(), joined.begin(), joined.end());
  grey = std::move(out);
}

void Findings::FindGrey(Scene& scene) {
  std::vector<Grey> grey = GreyLinks(scene);
  std::vector<Suspect> in_gaps;
  std::erase_if(grey, [&](Grey& g) {
    if (!components_.at(g.suspect.component).gap) return false;
    in_gaps.push_back(std::move(g.suspect));
    return true;
  });
  FoldGrey(scene, grey);
  for (const Grey& g : grey) {
    const Suspect& s = g.suspect;
    Suspicion suspicion = Of(scene, Cause::kLinkGrey, s);
    suspicion.what.evidence.insert(
        suspicion.what.evidence.begin(),
        {absl::StrFormat(
             "it loses %.2f %% of the probes: %.0f of %.0f within the newest reports, on %d paths of %d hosts",
             100 * g.lost / std::max(g.sent, 1.0), g.lost, g.sent, s.paths_bad, s.hosts_bad),
         absl::StrFormat("%d paths of %d hosts cross it, %d without loss", s.paths_bad + s.paths_well, s.hosts,
                         s.paths_well)});
    Add(scene, std::move(suspicion));
  }
  FindInGaps(scene, Cause::kLinkGrey, in_gaps);
}

// What is over proves nothing any more: when it loses again, it is by new losses.
void Findings::ForgetLosses(const Scene& scene, const std::vector<Finding>& changed) {
  for (const Finding& f : changed) {
    const int32_t c = f.cause == Cause::kLinkGrey && f.end_ns != 0 ? components_.FindScope(f.scope) : -1;
    for (size_t i = 0; c >= 0 && i < scene.paths.size(); ++i) {
      if (!CrossesAny(*scene.needs[i], {c})) continue;
      Memory& m = memory_[PathKey(scene.path(i))];
      m.sent = m.lost = 0;
    }
  }
}

}  // namespace cw::fleet
