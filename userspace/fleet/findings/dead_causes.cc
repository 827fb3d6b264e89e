// SPDX-License-Identifier: Apache-2.0
// What is dead: links, cables, switches, NICs, hosts, rails; and paths of which nothing says why.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr double kStillDead = 0.3;                       // share of a dead component's paths: fewer, and it ended
constexpr absl::Duration kSettling = absl::Seconds(60);  // paths come back one by one
constexpr absl::Duration kStarts = absl::Seconds(10);
constexpr double kWell = 0.15;                            // of a switch's paths: where more pass it lives
constexpr absl::Duration kLate = absl::Seconds(1);        // a word of before the death comes so late at most
constexpr absl::Duration kClassShows = absl::Seconds(5);  // until agents know that another class goes through
constexpr absl::Duration kDecides = absl::Seconds(3);  // until hosts behind a dead leaf would say that they are cut off
constexpr uint32_t kSureHosts = 3, kSurePaths = 4;

}  // namespace

// Of those whose trials are not 0: the others are neither for nor against. The first so many are the paths themselves.
std::vector<Suspect> Findings::LocaliseDead(const std::vector<Observation>& seen, size_t paths, bool nic_links) const {
  if (std::none_of(seen.begin(), seen.end(), [](const Observation& o) { return o.bad > 0; })) return {};
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < seen.size(); ++i) {
    if (seen[i].trials > 0) place.push_back(i);
  }
  // Those of one host stand together.
  if (seen.size() > paths)
    std::stable_sort(place.begin(), place.end(), [&](uint32_t a, uint32_t b) { return seen[a].host < seen[b].host; });
  std::vector<Observation> believed;
  believed.reserve(place.size());
  for (const uint32_t i : place) believed.push_back(seen[i]);
  std::vector<Suspect> suspects = Localise(believed, components_, {.nic_links = nic_links, .lives = &living_});
  for (Suspect& s : suspects) {
    for (uint32_t& i : s.explains) i = place[i];
    std::erase_if(s.explains, [&](uint32_t i) { return i >= paths; });
    s.paths_bad = static_cast<uint32_t>(s.explains.size());
    std::set<uint32_t> hosts;
    for (const uint32_t i : s.explains) hosts.insert(seen[i].host);
    s.hosts_bad = static_cast<uint32_t>(hosts.size());
  }
  std::erase_if(suspects, [](const Suspect& s) { return s.explains.empty(); });
  return suspects;
}

// Switches over which something passes, by what two hosts said after the newest death there: paths between hosts behind
// it, which cross nothing else, or a good part of all. Where nothing else passes what hosts behind it said before
// counts when they had the time to say that it holds no more; until then it is not decided.
void Findings::FindLiving(const Scene& scene) {
  living_.clear();
  undecided_.clear();
  struct Over {
    std::map<uint32_t, int64_t> died_by_host;
    int64_t died_ns = 0;  // as two of them say
    size_t bad = 0, well = 0;
    std::set<uint32_t> hosts, inside;    // who says so; of paths that cross nothing else
    std::set<uint32_t> through, before;  // at any time: of paths that cross others, too; of those that do not
  };
  std::map<int32_t, Over> switches;
  const auto over = [&](size_t i) {
    std::vector<int32_t> found;
    for (const int32_t c : *scene.needs[i]) {
      if (components_.at(c).part == Part::kSwitch) found.push_back(c);
    }
    return found;
  };
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    if (scene.word[i] != Word::kBad) continue;
    for (const int32_t c : over(i)) {
      int64_t& died_ns = switches[c].died_by_host[scene.path(i).host];
      died_ns = std::max(died_ns, scene.SinceNs(i));
      ++switches[c].bad;
    }
  }
  for (auto& [c, s] : switches) s.died_ns = SecondNewest(s.died_by_host);
  for (size_t i = 0; i < scene.paths.size() && !switches.empty(); ++i) {
    if (scene.word[i] != Word::kGood) continue;
    const std::vector<int32_t> crossed = over(i);
    for (const int32_t c : crossed) {
      const auto at = switches.find(c);
      if (at == switches.end()) continue;
      (crossed.size() == 1 ? at->second.before : at->second.through).insert(scene.path(i).host);
      if (scene.path(i).time_ns < at->second.died_ns + absl::ToInt64Nanoseconds(kLate)) continue;
      ++at->second.well;
      at->second.hosts.insert(scene.path(i).host);
      if (crossed.size() == 1) at->second.inside.insert(scene.path(i).host);
    }
  }
  for (const auto& [c, s] : switches) {
    const bool much = s.hosts.size() >= 2 && static_cast<double>(s.well) > kWell * static_cast<double>(s.well + s.bad);
    const bool early = s.through.size() < 2 && s.before.size() >= 2;
    const bool decided = absl::Nanoseconds(scene.picture.now_ns - s.died_ns) >= kDecides;
    if (much || s.inside.size() >= 2 || (early && decided)) living_.insert(c);
    if (early && !decided && !living_.contains(c)) undecided_.insert(c);
  }
}

void Findings::HoldUndecided(Scene& scene, std::vector<Suspect>& suspects) const {
  std::erase_if(suspects, [&](const Suspect& s) {
    const auto holds = [&](int32_t c) { return components_.Contains(c, s.component); };
    if (std::none_of(undecided_.begin(), undecided_.end(), holds)) return false;
    for (const uint32_t i : s.explains) scene.explained[i] = true;
    return true;
  });
}

void Findings::FindDead(Scene& scene) {
  FindFlapping(scene);
  std::vector<Observation> seen;
  if (std::find(scene.word.begin(), scene.word.end(), Word::kBad) != scene.word.end()) seen = DeadObservations(scene);
  FindLiving(scene);
  std::vector<Suspect> suspects = LocaliseDead(seen, scene.paths.size());
  FindOwnLinks(scene, seen, suspects);
  distrusted_.clear();
  Distrust(scene, suspects);
  if (!distrusted_.empty()) {
    for (Observation& o : seen) {
      if (distrusted_.contains(scene.picture.hosts[o.host].name)) o.trials = o.bad = 0;
    }
    for (size_t i = 0; i < scene.paths.size(); ++i) {
      if (distrusted_.contains(scene.picture.hosts[scene.path(i).host].name)) scene.explained[i] = true;
    }
    suspects = LocaliseDead(seen, scene.paths.size());
    FindOwnLinks(scene, seen, suspects);
  }
  SplitRacks(scene, suspects);
  FindRails(scene, suspects);
  DeathAround(scene, suspects);
  LeaveOut(scene, suspects);
  ExplainByOwnWord(scene, suspects);
  HoldUndecided(scene, suspects);
  for (const Suspect& s : suspects) {
    scene.dead.push_back(s.component);
    for (const uint32_t i : s.explains) scene.explained[i] = true;
  }
  KeepDead(scene);
  for (const Suspect& s : suspects) TellDead(scene, s);
  ExplainByThePast(scene);
  NoteDead(scene);
}

Suspect Findings::NicOf(const Scene& scene, int32_t nic, std::vector<uint32_t> explains) const {
  std::set<uint32_t> hosts;
  for (const uint32_t i : explains) hosts.insert(scene.path(i).host);
  const auto paths = static_cast<uint32_t>(explains.size()), tellers = static_cast<uint32_t>(hosts.size());
  return {.component = nic,
          .rate = 1,
          .trials = static_cast<double>(paths),
          .bad = static_cast<double>(paths),
          .paths_bad = paths,
          .hosts_bad = tellers,
          .hosts = tellers,
          .explains = std::move(explains)};
}

// A leaf takes all of its hosts' NICs along, and the word of all of them or of none: of those whose agents talk over
// it. Where one host still reports and one or two others fell silent with their NICs, those hosts are down, and what is
// left is that one's NIC. Until it is known who reports, it is neither.
void Findings::SplitRacks(Scene& scene, std::vector<Suspect>& suspects) const {
  std::vector<Suspect> split;
  std::erase_if(suspects, [&](const Suspect& s) {
    const Component& leaf = components_.at(s.component);
    if (leaf.part != Part::kSwitch) return false;
    std::vector<int32_t> fell_silent, report;  // NICs
    bool young = false;
    for (const int32_t part : leaf.inside) {
      const Component& nic = components_.at(part);
      if (nic.part != Part::kNic || nic.host < 0) continue;
      const auto h = static_cast<size_t>(nic.host);
      const int64_t since_ns = scene.unreached_ns[h];
      if (since_ns != 0) fell_silent.push_back(part);
      if (since_ns == 0 && scene.host_fresh[h]) report.push_back(part);
      young |= since_ns != 0 && absl::Nanoseconds(scene.picture.now_ns - since_ns) < rules_.host_mute;
    }
    // Of a larger rack it would be many faults at once.
    if (fell_silent.empty() || fell_silent.size() > 2 || report.size() != 1) return false;
    for (const uint32_t i : s.explains) scene.explained[i] = true;
    if (young) return true;
    fell_silent.push_back(report[0]);
    std::map<int32_t, std::vector<uint32_t>> of;
    for (const uint32_t i : s.explains) {
      for (const int32_t nic : fell_silent) {
        if (!CrossesAny(*scene.needs[i], {nic})) continue;
        of[nic].push_back(i);
        break;
      }
    }
    for (auto& [nic, explains] : of) split.push_back(NicOf(scene, nic, std::move(explains)));
    return true;
  });
  suspects.insert(suspects.end(), std::make_move_iterator(split.begin()), std::make_move_iterator(split.end()));
}

// What is no answer: switches that answer no trace; NICs behind a leaf that nobody knows, when several are silent; and
// hosts and NICs that a dead leaf took along.
void Findings::LeaveOut(Scene& scene, std::vector<Suspect>& suspects) const {
  std::set<int32_t> behind_nothing;
  std::set<std::string> hosts;
  for (const Suspect& s : suspects) {
    const Component& c = components_.at(s.component);
    if (c.gap) scene.gaps.insert(c.scope);
    const bool mute = c.host >= 0 && scene.unreached_ns[static_cast<size_t>(c.host)] != 0;
    if (c.part != Part::kNic || components_.KnowsLeafOf(c.nic) || mute) continue;
    behind_nothing.insert(s.component);
    hosts.insert(c.scope);
  }
  if (hosts.size() < 2) behind_nothing.clear();
  const auto within = [&](int32_t part) {
    return std::any_of(suspects.begin(), suspects.end(), [&](const Suspect& s) {
      return components_.at(s.component).part == Part::kSwitch && components_.Contains(s.component, part);
    });
  };
  std::erase_if(suspects, [&](const Suspect& s) {
    const Component& c = components_.at(s.component);
    if (c.gap || behind_nothing.contains(s.component)) return true;
    const bool taken = c.part == Part::kHost ? std::all_of(c.inside.begin(), c.inside.end(), within)
                                             : c.part == Part::kNic && within(s.component);
    for (const uint32_t i : s.explains) scene.explained[i] = scene.explained[i] || taken;
    return taken;
  });
}

// A host most of whose dead paths others' living ones contradict. Where switches are silent nobody can contradict it.
void Findings::Distrust(Scene& scene, const std::vector<Suspect>& suspects) {
  std::vector<bool> explained(scene.paths.size());
  for (const Suspect& s : suspects) {
    for (const uint32_t i : s.explains) explained[i] = true;
  }
  std::map<uint32_t, std::pair<uint32_t, uint32_t>> by_host;  // dead, of them unexplained
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    const bool whole = path.hops != nullptr && std::none_of(path.hops->begin(), path.hops->end(),
                                                            [](const Addr& hop) { return hop.is_zero(); });
    if (scene.word[i] != Word::kBad || !whole) continue;
    auto& [dead, unexplained] = by_host[path.host];
    ++dead;
    unexplained += !explained[i] && !CrossesAny(*scene.needs[i], scene.flapping);
  }
  std::set<std::string> odd;
  for (const auto& [host, counts] : by_host) {
    if (counts.second >= 2 && counts.second > rules_.distrusted_share * counts.first)
      odd.insert(scene.picture.hosts[host].name);
  }
  // Where many hosts are contradicted it is the map of the fabric that is wrong: parallel links, say.
  if (odd.size() <= std::max<size_t>(1, scene.speaking.size() / 5)) distrusted_ = std::move(odd);
}

// Of the paths over this component those that nothing explained yet: how many. It explains them now.
uint32_t Findings::ExplainOver(Scene& scene, int32_t component) {
  uint32_t dead = 0;
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    if (scene.word[i] != Word::kBad || scene.explained[i]) continue;
    if (!std::binary_search(scene.needs[i]->begin(), scene.needs[i]->end(), component)) continue;
    scene.explained[i] = true;
    ++dead;
  }
  return dead;
}

uint32_t Findings::OverIt(const Scene& scene, int32_t component) {
  return static_cast<uint32_t>(std::count_if(scene.needs.begin(), scene.needs.end(), [&](const auto* needs) {
    return std::binary_search(needs->begin(), needs->end(), component);
  }));
}

// What is dead ends when most of its paths live, not when the first one does.
void Findings::KeepDead(Scene& scene) {
  for (const Finding& open : ledger_.Open()) {
    if (open.cause != Cause::kLinkDead && open.cause != Cause::kSwitchDead) continue;
    const int32_t c = components_.FindScope(open.scope);
    if (c < 0) continue;
    const uint32_t all = OverIt(scene, c), still = ExplainOver(scene, c);
    const bool told =
        std::any_of(scene.dead.begin(), scene.dead.end(), [&](int32_t dead) { return components_.Contains(dead, c); });
    if (told || still == 0 || still < kStillDead * all) continue;
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
    const PathEvidence& path = scene.path(i);
    told[path.host] = std::max(told[path.host], path.time_ns);
    for (const int32_t c : *scene.needs[i]) {
      if (c != suspect.component && components_.Contains(c, suspect.component)) wholes.insert(c);
    }
  }
  std::map<int32_t, std::set<uint32_t>> lives;
  for (size_t i = 0; i < scene.paths.size() && !wholes.empty(); ++i) {
    const auto at = scene.word[i] == Word::kGood ? told.find(scene.path(i).host) : told.end();
    if (at == told.end() || scene.path(i).time_ns < at->second) continue;
    for (const int32_t c : *scene.needs[i]) {
      if (wholes.contains(c)) lives[c].insert(scene.path(i).host);
    }
  }
  return std::all_of(wholes.begin(), wholes.end(),
                     [&](int32_t c) { return lives.contains(c) && lives.at(c).size() >= 2; });
}

// Of a cable that is not known any more, since one of its directions was last traced by an agent that ended.
bool Findings::EndsAtPortOf(const Component& c, const Finding& open) {
  return c.part == Part::kLink && !c.links.empty() && open.one_of.empty() &&
         std::any_of(open.links.begin(), open.links.end(),
                     [&](const LinkId& link) { return link.second == c.links[0].second; });
}

// A part of what is dead, or was a moment ago: its paths come back one by one. A link that was never seen is the one
// between the same switches that is known to be dead.
bool Findings::IsPartOfOpen(int32_t component, int64_t now_ns) const {
  const Component& c = components_.at(component);
  for (const Cause cause : {Cause::kSwitchDead, Cause::kLinkDead}) {
    for (const Finding& open : ledger_.Open()) {
      const int32_t whole = open.cause == cause ? components_.FindScope(open.scope) : -1;
      if (open.cause != cause || whole == component) continue;
      const bool same = c.unseen && whole >= 0 && components_.at(whole).between == c.between;
      const bool part = whole >= 0 ? components_.Contains(whole, component) : EndsAtPortOf(c, open);
      if ((same || part) && ledger_.Lately(cause, open.scope, now_ns, kSettling)) return true;
    }
  }
  return false;
}

// When most of its paths did: some may have been dead before, of something else.
int64_t Findings::DiedNs(const Scene& scene, const Suspect& suspect) {
  std::vector<int64_t> since;
  for (const uint32_t i : suspect.explains) since.push_back(scene.SinceNs(i));
  if (since.empty()) return scene.picture.now_ns;
  const auto middle = since.begin() + static_cast<std::ptrdiff_t>(since.size() / 2);
  std::nth_element(since.begin(), middle, since.end());
  return std::min(*middle, scene.picture.now_ns);
}

void Findings::TellDead(Scene& scene, const Suspect& found) {
  const Picture& p = scene.picture;
  Suspect suspect = found;
  suspect.component = WholeLately(found.component, p.now_ns);
  if (suspect.component != found.component)
    std::erase_if(suspect.alike, [&](int32_t other) { return components_.Contains(suspect.component, other); });
  const Component& c = components_.at(suspect.component);
  Suspicion s;
  if (IsPartOfOpen(suspect.component, p.now_ns)) return ExplainHostsBehind(scene, suspect, s);
  s = Of(scene, c.part == Part::kSwitch ? Cause::kSwitchDead : Cause::kLinkDead, suspect);
  s.what.start_ns = dead_since_.emplace(c.scope, DiedNs(scene, suspect)).first->second;
  s.at_once = IsSure(scene, suspect);
  s.goes_on = c.part == Part::kCable;
  for (const int32_t part : c.inside) {
    if (s.goes_on) s.parts.push_back(components_.at(part).scope);
  }
  s.what.evidence.insert(
      s.what.evidence.begin(),
      {absl::StrFormat("%d of %d paths over it are dead, reported by %d hosts", suspect.paths_bad,
                       suspect.paths_bad + suspect.paths_well, suspect.hosts_bad),
       absl::StrFormat("%d hosts have paths over it, %d of these paths live", suspect.hosts, suspect.paths_well)});
  ExplainHostsBehind(scene, suspect, s);
  if (c.at_nic && !c.gap) {
    if (absl::Nanoseconds(p.now_ns - s.what.start_ns) < kClassShows) return;  // a class held up there looks the same
    s.at_once = true;
    TellOwnLink(suspect.component, s);
  }
  if ((c.part == Part::kNic || c.part == Part::kHost) && !TellHost(scene, suspect, s)) return;
  Add(scene, std::move(s));
}

// A living path there would be answered over it: who claims so alone is not believed.
bool Findings::OtherWayArrives(const Scene& scene, const Component& link) {
  const bool sends = link.links[0].first == link.nic;
  bool arrives = false;
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    if (scene.word[i] != Word::kGood || (sends ? path.destination : path.source) != link.nic) continue;
    if (path.state == PathEvidence::State::kAlive) return false;
    arrives = true;
  }
  return arrives;
}

// NICs' own links that are dead in one direction: what goes the other way arrives. Otherwise it is the NIC.
std::vector<Suspect> Findings::OwnLinks(const Scene& scene, const std::vector<Observation>& seen) const {
  std::vector<Suspect> own = LocaliseDead(seen, scene.paths.size(), true);
  std::erase_if(own, [&](const Suspect& s) {
    const Component& c = components_.at(s.component);
    return !c.at_nic || c.gap || s.paths_bad < 2 || !OtherWayArrives(scene, c);
  });
  return own;
}

// Of what nothing else explains. And where the others of a rack say nothing, all links of its leaf look dead to the one
// whose NIC is mute or deaf: one cause of all its paths is likelier than several of some each.
void Findings::FindOwnLinks(const Scene& scene, std::vector<Observation> seen, std::vector<Suspect>& suspects) const {
  const auto is_link = [&](const Suspect& s) {
    const Part part = components_.at(s.component).part;
    return part == Part::kLink || part == Part::kCable;
  };
  if (std::count_if(suspects.begin(), suspects.end(), is_link) > 1) {
    for (Suspect& own : OwnLinks(scene, seen)) {
      std::sort(own.explains.begin(), own.explains.end());
      const auto covered = [&](const Suspect& s) {
        return is_link(s) && std::all_of(s.explains.begin(), s.explains.end(), [&](uint32_t i) {
                 return std::binary_search(own.explains.begin(), own.explains.end(), i);
               });
      };
      if (std::count_if(suspects.begin(), suspects.end(), covered) < 2) continue;
      std::erase_if(suspects, covered);
      suspects.push_back(std::move(own));
    }
  }
  for (const Suspect& s : suspects) {
    for (const uint32_t i : s.explains) seen[i].trials = seen[i].bad = 0;
  }
  for (Suspect& own : OwnLinks(scene, seen)) suspects.push_back(std::move(own));
}

// One direction of a NIC's own link: what it sends does not arrive, or nothing arrives at it.
void Findings::TellOwnLink(int32_t component, Suspicion& s) const {
  const Component& c = components_.at(component);
  const bool sends = c.links[0].first == c.nic;
  s.what.cause = Cause::kNicDown;
  s.what.scope = absl::StrCat("NIC ", c.nic.ToString());
  s.what.one_of.clear();
  s.what.place.clear();
  s.what.evidence.emplace_back(sends ? "what it sends does not arrive; what is sent to it does"
                                     : "nothing that is sent to it arrives; what it sends does");
  if (const std::string host = components_.HostAt(component); !host.empty()) s.what.hosts = {host};
}

void Findings::ExplainHostsBehind(Scene& scene, const Suspect& suspect, Suspicion& s) const {
  std::vector<int32_t> all = suspect.alike;
  all.push_back(suspect.component);
  for (const int32_t c : all) {
    if (components_.at(c).part == Part::kSwitch) ExplainHostsOf(scene, c, s);
  }
}

// Behind a dead leaf: whether they live nobody can see by the fabric.
void Findings::ExplainHostsOf(Scene& scene, int32_t leaf, Suspicion& s) const {
  size_t all = 0, silent = 0;
  for (const int32_t part : components_.at(leaf).inside) {
    const int32_t host = components_.at(part).host;
    if (components_.at(part).part != Part::kNic || host < 0) continue;
    const auto h = static_cast<size_t>(host);
    ++all;
    silent += !scene.picture.hosts[h].connected || scene.unreached_ns[h] != 0;
    scene.explained_hosts.insert(scene.picture.hosts[h].name);
  }
  if (all > 0 && silent == all)
    s.what.evidence.push_back(absl::StrFormat("none of its %d hosts reports, either: see the rack's power", all));
}

// A NIC, or its whole host, whose agent reports nothing since. False: its agent's next word tells.
bool Findings::TellHost(Scene& scene, const Suspect& suspect, Suspicion& s) const {
  const Picture& p = scene.picture;
  const Component& c = components_.at(suspect.component);
  s.what.cause = Cause::kNicDown;
  s.what.hosts.clear();
  if (c.host < 0) return true;
  const HostEvidence& host = p.hosts[static_cast<size_t>(c.host)];
  scene.explained_hosts.insert(host.name);
  s.what.hosts.push_back(host.name);
  const absl::Duration silent = absl::Nanoseconds(p.now_ns - host.last_seen_ns);
  const int64_t unreached_ns = scene.unreached_ns[static_cast<size_t>(c.host)];
  const bool mute = unreached_ns != 0 && !distrusted_.contains(host.name) &&
                    absl::Nanoseconds(p.now_ns - unreached_ns) >= rules_.host_mute;
  if (!host.connected || silent > rules_.host_silent || mute) {
    s.at_once |= mute;  // it had its time
    s.what.cause = Cause::kHostDown;
    s.what.scope = absl::StrCat("host ", host.name);
    s.what.one_of.clear();
    s.what.place.clear();
    s.what.evidence.emplace_back("its agent is silent, too");
    return true;
  }
  // One that has just started looks for its peers, and they for it.
  if (unreached_ns != 0 || absl::Nanoseconds(p.now_ns - host.began_ns) < kStarts) return false;
  // Its own word that its paths do not answer is younger than their death.
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    if (static_cast<int32_t>(scene.path(i).host) != c.host) continue;
    if (scene.word[i] == Word::kBad || scene.path(i).state == PathEvidence::State::kSilent) return true;
  }
  return false;
}

// What died is over, and some of its paths still have to come back.
void Findings::ExplainByThePast(Scene& scene) {
  std::erase_if(dead_lately_,
                [&](const auto& entry) { return absl::Nanoseconds(scene.picture.now_ns - entry.second) > kSettling; });
  for (const auto& [scope, last_ns] : dead_lately_) {
    if (const int32_t c = components_.FindScope(scope); c >= 0) ExplainOver(scene, c);
  }
}

void Findings::NoteDead(const Scene& scene) {
  std::set<std::string> now;
  for (const int32_t c : scene.dead) {
    const std::string& scope = components_.at(c).scope;
    if (!now.insert(scope).second) continue;
    dead_since_.emplace(scope, scene.picture.now_ns);
    dead_lately_[scope] = scene.picture.now_ns;
  }
  std::erase_if(dead_since_, [&](const auto& entry) { return !now.contains(entry.first); });
}

}  // namespace cw::fleet
