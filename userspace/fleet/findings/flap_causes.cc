// SPDX-License-Identifier: Apache-2.0
// What dies again and again. It takes the place of its own deaths, and one cable is one finding.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostReporters = 16;

}  // namespace

// By two agents, or of a host's own link by that host.
Findings::ByScope Findings::FlapsReported() const {
  ByScope reported;
  for (const auto& [host, book] : events_.hosts()) {
    for (const auto& [link, word] : book.flapping) {
      const absl::StatusOr<Addr> port = Addr::Parse(link);
      std::string scope = absl::StrCat("NIC ", link, " of ", host);  // its own link, by its NIC's name
      if (port.ok()) {
        const int32_t c = components_.LinkToPort(*port);
        if (c < 0) continue;
        scope = components_.at(c).scope;
      }
      Flapping& flapping = reported[scope];
      flapping.by.insert(host);
      if (word.time_ns <= flapping.last_ns) continue;
      flapping.last_ns = word.time_ns;
      flapping.evidence = absl::StrFormat("it flapped %s times within an hour", word.flaps);
    }
  }
  std::erase_if(reported,
                [](const auto& entry) { return !entry.first.starts_with("NIC ") && entry.second.by.size() < 2; });
  for (auto& [scope, flapping] : reported)
    absl::StrAppend(&flapping.evidence, ", as ", flapping.by.size(), " agents report");
  return reported;
}

// A link whose cable flaps, or both of whose directions do, is that cable.
void Findings::FoldIntoCables(ByScope& flapping) const {
  std::map<int32_t, std::vector<std::string>> links;  // by cable
  for (const auto& [scope, f] : flapping) {
    const int32_t c = components_.FindScope(scope);
    if (c < 0 || components_.at(c).part != Part::kLink) continue;
    if (const int32_t cable = components_.CableOf(c); cable >= 0) links[cable].push_back(scope);
  }
  for (const auto& [cable, scopes] : links) {
    const std::string& whole = components_.at(cable).scope;
    if (scopes.size() < 2 && !flapping.contains(whole)) continue;
    for (const std::string& scope : scopes) {
      const Flapping link = flapping[scope];
      flapping.erase(scope);
      Flapping& f = flapping[whole];
      f.by.insert(link.by.begin(), link.by.end());
      f.last_ns = std::max(f.last_ns, link.last_ns);
      if (f.evidence.empty()) f.evidence = link.evidence;
    }
  }
}

void Findings::FindFlaps(Scene& scene) {
  ByScope flapping = FlapsReported();
  for (const auto& [scope, times] : flaps_) {
    if (times.size() <= rules_.many_flaps) continue;
    Flapping& f = flapping[scope];
    f.last_ns = std::max(f.last_ns, times.back());
    f.evidence = absl::StrFormat("it died %d times within the past hour", times.size());
  }
  FoldIntoCables(flapping);
  for (const auto& [place, f] : flapping) {
    const std::string& scope = place;
    if (absl::Nanoseconds(scene.picture.now_ns - f.last_ns) > rules_.flaps_rest) continue;
    const int32_t c = components_.FindScope(scope);
    Suspicion s{.what = {.cause = Cause::kFlapping, .scope = scope}, .goes_on = true, .component = c};
    if (c >= 0) s.what.links = components_.at(c).links;
    s.what.evidence = {f.evidence};
    s.what.hosts = {f.by.begin(), f.by.end()};
    if (s.what.hosts.size() > kMostReporters) s.what.hosts.resize(kMostReporters);
    std::erase_if(scene.suspicions, [&](const auto& entry) { return IsDeathOf(entry.first, scope, c); });
    Add(scene, std::move(s));
  }
}

// Of what flaps, or of a part of it.
bool Findings::IsDeathOf(const std::pair<Cause, std::string>& suspicion, const std::string& scope, int32_t c) const {
  const auto& [cause, where] = suspicion;
  if (cause != Cause::kLinkDead && cause != Cause::kLinkGrey && cause != Cause::kNicDown && cause != Cause::kSwitchDead)
    return false;
  if (where == scope) return true;
  const int32_t part = c < 0 ? -1 : components_.FindScope(where);
  return part >= 0 && components_.Contains(c, part);
}

}  // namespace cw::fleet
