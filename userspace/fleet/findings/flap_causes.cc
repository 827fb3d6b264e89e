// SPDX-License-Identifier: Apache-2.0
// What dies again and again. It takes the place of its own deaths, and one cable is one finding.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostReporters = 16;
constexpr size_t kAgain = 2;                             // deaths of a path: it may be one of those that flap
constexpr absl::Duration kAround = absl::Minutes(2);     // a death so soon after is most likely one more of the same
constexpr absl::Duration kTogether = absl::Seconds(60);  // both directions of a cable
constexpr absl::Duration kAgentStarts = absl::Minutes(1);
constexpr double kMostlyOver = 0.8;  // of the dead paths
constexpr double kDeadPart = 0.3;    // of the paths over what flaps

bool Over(const std::vector<int32_t>& needs, int32_t c) { return std::binary_search(needs.begin(), needs.end(), c); }

}  // namespace

// Each time that a path dies counts, however soon it lives again. It lives where it answers: silence that is not its
// own fault is no life between two deaths, nor is the silence that an agent counts anew since its start.
void Findings::CountFlaps(Scene& scene) {
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const bool dead = scene.word[i] == Word::kBad;
    if (scene.word[i] == Word::kNeither || (!dead && flaps_.empty())) continue;
    const PathEvidence& path = scene.path(i);
    if (!dead && path.state != PathEvidence::State::kAlive) continue;
    const bool young = absl::Nanoseconds(scene.picture.now_ns - scene.picture.hosts[path.host].began_ns) < kAgentStarts;
    const int64_t since_ns = path.silent_ns > 0 && !young ? path.time_ns - path.silent_ns : 0;
    flaps_.Take(PathKey(path), dead, since_ns, scene.picture.now_ns);
  }
  flaps_.Age(scene.picture.now_ns);
}

// What paths that died so often or more have in common, and paths that died less than half as often do not cross.
std::vector<Suspect> Findings::FlapsOf(const Scene& scene, size_t least) const {
  std::vector<Observation> seen;
  seen.reserve(scene.paths.size());
  for (size_t i = 0; i < scene.paths.size(); ++i) {
    const size_t deaths = flaps_.CountOf(PathKey(scene.path(i)));
    seen.push_back({scene.needs[i], scene.path(i).host, 2 * deaths < least || deaths >= least ? 1.0 : 0.0,
                    deaths >= least ? 1.0 : 0.0});
  }
  return LocaliseDead(seen, scene.paths.size());
}

// Of each host the path that died most; of two hosts that see most the one that saw less, so that none decides alone.
size_t Findings::TimesOf(const Scene& scene, const Suspect& suspect) const {
  std::map<uint32_t, size_t> by_host;
  for (const uint32_t i : suspect.explains) {
    size_t& most = by_host[scene.path(i).host];
    most = std::max(most, flaps_.CountOf(PathKey(scene.path(i))));
  }
  std::vector<size_t> times;
  for (const auto& [host, most] : by_host) times.push_back(most);
  std::sort(times.rbegin(), times.rend());
  return times.empty() ? 0 : times[std::min<size_t>(1, times.size() - 1)];
}

int64_t Findings::LastFlapNs(const Scene& scene, const Suspect& suspect) const {
  int64_t last_ns = 0;
  for (const uint32_t i : suspect.explains) last_ns = std::max(last_ns, flaps_.LastNs(PathKey(scene.path(i))));
  return last_ns;
}

bool Findings::IsCertain(const Suspect& s) const { return s.alike.empty() && !components_.at(s.component).gap; }

void Findings::FindFlapping(Scene& scene) {
  CountFlaps(scene);
  if (flaps_.empty()) return;
  // Apart: what was dead twice within the hour does not flap because paths over it also cross what does.
  scene.flaps = FlapsOf(scene, rules_.many_flaps + 1);
  for (const Suspect& s : FlapsOf(scene, kAgain)) {
    if (IsCertain(s) && absl::Nanoseconds(scene.picture.now_ns - LastFlapNs(scene, s)) <= kAround)
      scene.flapping.push_back(s.component);
  }
}

// As if it were suspected: all dead paths over it.
Suspect Findings::DeadNow(const Scene& scene, int32_t component) {
  Suspect s{.component = component, .rate = 1};
  std::set<uint32_t> hosts, bad;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    if (scene.word[i] == Word::kNeither || !Over(*scene.needs[i], component)) continue;
    hosts.insert(scene.path(i).host);
    if (scene.word[i] == Word::kGood) {
      ++s.paths_well;
      continue;
    }
    ++s.paths_bad;
    bad.insert(scene.path(i).host);
    s.explains.push_back(i);
  }
  s.hosts = static_cast<uint32_t>(hosts.size());
  s.hosts_bad = static_cast<uint32_t>(bad.size());
  return s;
}

// Not all hosts have reported yet what flaps: what nearly all of the dead paths cross that flapped a moment ago is
// dead, and nothing else.
void Findings::DeathAround(Scene& scene, std::vector<Suspect>& suspects) const {
  for (const int32_t c : scene.flapping) {
    const auto is_of_it = [&](const Suspect& s) {
      if (s.component == c) return false;
      const bool inside = components_.Contains(c, s.component);
      if (inside) return components_.at(c).part == Part::kCable;
      const auto over =
          std::count_if(s.explains.begin(), s.explains.end(), [&](uint32_t i) { return Over(*scene.needs[i], c); });
      return static_cast<double>(over) >= kMostlyOver * static_cast<double>(s.explains.size());
    };
    if (std::none_of(suspects.begin(), suspects.end(), is_of_it)) continue;
    Suspect now = DeadNow(scene, c);
    // A switch that was dead twice is not what died because most of what is dead now crosses it.
    const double part = components_.at(c).part == Part::kSwitch ? kMostlyOver : kDeadPart;
    if (now.paths_bad < part * (now.paths_bad + now.paths_well)) continue;
    std::erase_if(suspects, [&](const Suspect& s) {
      if (!is_of_it(s)) return s.component == c;
      for (const uint32_t i : s.explains) scene.explained[i] = true;
      return true;
    });
    suspects.push_back(std::move(now));
  }
}

// Both directions of a cable that die within a minute are the cable, though not at the same moment.
int32_t Findings::WholeLately(int32_t component, int64_t now_ns) const {
  if (components_.at(component).part != Part::kLink) return component;
  const int32_t cable = components_.CableOf(component);
  if (cable < 0) return component;
  const auto lately = [&](Cause cause, int32_t c) {
    return ledger_.Lately(cause, components_.at(c).scope, now_ns, kTogether);
  };
  if (lately(Cause::kLinkDead, cable) || lately(Cause::kFlapping, cable)) return cable;
  const std::vector<int32_t>& links = components_.at(cable).inside;
  const bool other = std::any_of(links.begin(), links.end(),
                                 [&](int32_t link) { return link != component && lately(Cause::kLinkDead, link); });
  return other ? cable : component;
}

// As findings name it; "": it is not known.
std::string Findings::ScopeOfWord(const Picture& picture, const std::string& host, const std::string& link) const {
  if (const absl::StatusOr<Addr> port = Addr::Parse(link); port.ok()) {
    const int32_t c = components_.LinkToPort(*port);
    return c < 0 ? "" : components_.at(c).scope;
  }
  for (const HostEvidence& evidence : picture.hosts) {  // its own link, by its NIC's name
    if (evidence.name != host) continue;
    for (const NicFact& nic : evidence.nics) {
      if (nic.name == link && !nic.address.is_zero()) return absl::StrCat("NIC ", nic.address.ToString());
    }
  }
  return absl::StrCat("NIC ", link, " of ", host);
}

Findings::ByScope Findings::FlapsReported(const Picture& picture) const {
  ByScope reported;
  for (const auto& [host, book] : events_.hosts()) {
    for (const auto& [link, word] : book.flapping) {
      const std::string scope = ScopeOfWord(picture, host, link);
      if (scope.empty()) continue;
      Flapping& flapping = reported[scope];
      flapping.by.insert(host);
      if (word.time_ns <= flapping.last_ns) continue;
      flapping.last_ns = word.time_ns;
      flapping.evidence = absl::StrFormat("it flapped %s times within an hour", word.flaps);
    }
  }
  return reported;
}

void Findings::AddCounted(const Scene& scene, ByScope& flapping) const {
  for (const Suspect& s : scene.flaps) {
    const size_t times = TimesOf(scene, s);
    if (!IsCertain(s) || times <= rules_.many_flaps) continue;
    Flapping& f = flapping[components_.at(s.component).scope];
    f.times = std::max(f.times, times);
    f.last_ns = std::max(f.last_ns, LastFlapNs(scene, s));
  }
}

// A link whose cable flaps, or both of whose directions do, is that cable.
void Findings::FoldIntoCables(ByScope& flapping, int64_t now_ns) const {
  std::map<int32_t, std::vector<std::string>> links;  // by cable
  for (const auto& [scope, f] : flapping) {
    const int32_t c = components_.FindScope(scope);
    if (c < 0 || components_.at(c).part != Part::kLink) continue;
    if (const int32_t cable = components_.CableOf(c); cable >= 0) links[cable].push_back(scope);
  }
  for (const auto& [cable, scopes] : links) {
    const std::string& whole = components_.at(cable).scope;
    const bool known = flapping.contains(whole) || ledger_.Lately(Cause::kFlapping, whole, now_ns, rules_.flaps_rest) ||
                       ledger_.Lately(Cause::kLinkDead, whole, now_ns, kAround);
    if (scopes.size() < 2 && !known) continue;
    for (const std::string& scope : scopes) {
      const Flapping link = flapping[scope];
      flapping.erase(scope);
      Flapping& f = flapping[whole];
      f.by.insert(link.by.begin(), link.by.end());
      f.last_ns = std::max(f.last_ns, link.last_ns);
      f.times = std::max(f.times, link.times);
      if (f.evidence.empty()) f.evidence = link.evidence;
    }
  }
}

// What flaps and cannot be told apart from others, where none of these flaps for certain.
void Findings::TellUnclearFlaps(Scene& scene, const ByScope& certain) {
  const auto known = [&](int32_t c) {
    return certain.contains(components_.at(c).scope) || certain.contains(components_.at(components_.WholeOf(c)).scope);
  };
  std::vector<Suspect> unclear = scene.flaps;
  std::erase_if(unclear, [&](const Suspect& s) {
    return IsCertain(s) || TimesOf(scene, s) <= rules_.many_flaps || known(s.component) ||
           std::any_of(s.alike.begin(), s.alike.end(), known) ||
           absl::Nanoseconds(scene.picture.now_ns - LastFlapNs(scene, s)) > rules_.flaps_rest;
  });
  // A path that was traced while what flaps was dead is cut there.
  std::vector<int32_t> of_it = scene.flapping;
  for (const auto& [scope, f] : certain) {
    if (const int32_t c = components_.FindScope(scope); c >= 0) of_it.push_back(c);
  }
  std::erase_if(unclear, [&](const Suspect& s) {
    return components_.at(s.component).gap &&
           std::all_of(s.explains.begin(), s.explains.end(), [&](uint32_t i) { return IsCutAt(scene, i, of_it); });
  });
  FindInGaps(scene, Cause::kFlapping, unclear);
  for (const Suspect& s : unclear) {
    const size_t times = TimesOf(scene, s);
    Suspicion suspicion = Of(scene, Cause::kFlapping, s);
    suspicion.component = s.component;
    suspicion.parts = suspicion.what.one_of;
    suspicion.what.evidence.insert(suspicion.what.evidence.begin(),
                                   absl::StrFormat("it died %d times within the past hour", times));
    TellFlapping(scene, std::move(suspicion));
  }
}

// By two agents, or of a host's own link by that host, or as often as the service has seen it die.
void Findings::FindFlaps(Scene& scene) {
  ByScope flapping = FlapsReported(scene.picture);
  AddCounted(scene, flapping);
  FoldIntoCables(flapping, scene.picture.now_ns);
  std::erase_if(flapping, [&](const auto& entry) {
    const auto& [scope, f] = entry;
    return (f.times == 0 && f.by.size() < 2 && !scope.starts_with("NIC ")) ||
           absl::Nanoseconds(scene.picture.now_ns - f.last_ns) > rules_.flaps_rest;
  });
  for (const auto& [scope, f] : flapping) {
    const int32_t c = components_.FindScope(scope);
    Suspicion s{.what = {.cause = Cause::kFlapping, .scope = scope}, .component = c};
    if (c >= 0) {
      s.what.links = components_.at(c).links;
      if (components_.at(c).part == Part::kCable) {
        for (const int32_t part : components_.at(c).inside) s.parts.push_back(components_.at(part).scope);
      }
      if (const std::string host = components_.HostAt(c); !host.empty()) s.parts.push_back("host " + host);
    }
    s.what.evidence = {f.times > 0 ? absl::StrFormat("it died %d times within the past hour", f.times)
                                   : absl::StrCat(f.evidence, ", as ", f.by.size(), " agents report")};
    s.what.hosts = {f.by.begin(), f.by.end()};
    if (s.what.hosts.size() > kMostReporters) s.what.hosts.resize(kMostReporters);
    TellFlapping(scene, std::move(s));
  }
  TellUnclearFlaps(scene, flapping);
}

void Findings::TellFlapping(Scene& scene, Suspicion suspicion) {
  suspicion.goes_on = true;
  std::erase_if(scene.suspicions, [&](const auto& entry) { return IsDeathOf(entry.second, suspicion); });
  Add(scene, std::move(suspicion));
}

// Of what flaps, or of a part of it.
bool Findings::IsDeathOf(const Suspicion& death, const Suspicion& flapping) const {
  const Cause cause = death.what.cause;
  if (cause != Cause::kLinkDead && cause != Cause::kLinkGrey && cause != Cause::kNicDown && cause != Cause::kSwitchDead)
    return false;
  const auto is_of = [&](const std::string& whole, const std::string& where) {
    if (whole == where) return true;
    const int32_t c = components_.FindScope(whole), part = components_.FindScope(where);
    return c >= 0 && part >= 0 && components_.Contains(c, part);
  };
  const auto touches = [&](const std::string& where) {
    const std::vector<std::string>& one_of = flapping.what.one_of;
    return is_of(flapping.what.scope, where) ||
           std::any_of(one_of.begin(), one_of.end(), [&](const std::string& whole) { return is_of(whole, where); });
  };
  const std::vector<std::string>& one_of = death.what.one_of;
  return touches(death.what.scope) || std::any_of(one_of.begin(), one_of.end(), touches);
}

}  // namespace cw::fleet
