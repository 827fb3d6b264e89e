// SPDX-License-Identifier: Apache-2.0
// What is suspected at a place of which a finding is open is that finding, though evidence that comes or goes path by
// path names a part of it, more than it, or several places that it may be.
#include <algorithm>

#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

std::vector<std::string> PlacesOfFinding(const Finding& f) {
  return f.one_of.empty() ? std::vector{f.scope} : f.one_of;
}

}  // namespace

bool Findings::Contains(const std::string& whole, const std::string& part) const {
  if (whole == part) return true;
  const int32_t w = components_.FindScope(whole), p = components_.FindScope(part);
  return w >= 0 && p >= 0 && components_.Contains(w, p);
}

// Any place of the one is a place of the other, or a part of it.
bool Findings::Touch(const Finding& one, const Finding& other) const {
  const std::vector<std::string> others = PlacesOfFinding(other);
  for (const std::string& a : PlacesOfFinding(one)) {
    for (const std::string& b : others) {
      if (Contains(a, b) || Contains(b, a)) return true;
    }
  }
  return false;
}

void Findings::JoinOpen(Scene& scene) const {
  constexpr Cause kCauses[] = {Cause::kLinkDead, Cause::kSwitchDead, Cause::kLinkGrey, Cause::kPacketSize};
  std::vector<Finding> open = ledger_.Open();
  std::erase_if(open, [&](const Finding& f) {
    return std::find(std::begin(kCauses), std::end(kCauses), f.cause) == std::end(kCauses);
  });
  if (open.empty()) return;
  std::map<std::pair<Cause, std::string>, Suspicion> joined;
  for (auto& [key, s] : scene.suspicions) {
    for (const Finding& f : open) {
      if (scene.suspicions.contains({f.cause, f.scope}) || (f.cause == s.what.cause && f.scope == s.what.scope))
        continue;
      const bool narrows = Narrows(s.what, f);
      if (narrows) s.goes_on = true;
      if (narrows || f.cause != s.what.cause || !Touch(f, s.what)) continue;
      const int32_t c = components_.FindScope(f.scope);
      const bool is_part = c >= 0 && components_.at(c).part == Part::kCable && Contains(f.scope, s.what.scope);
      // Less clear than what is open, or a part of it; deaths of parts have rules of their own.
      if (!s.what.one_of.empty() || (is_part && f.cause != Cause::kLinkDead)) {
        s.what.scope = f.scope;
        s.what.place = f.place;
        s.what.one_of = f.one_of;
        s.what.links = f.links;
        s.what.advice = f.advice;
        s.component = c;
        break;
      }
      // Clearer, or more than that.
      if (f.one_of.empty() && !Contains(s.what.scope, f.scope)) continue;
      s.goes_on = true;
      const std::vector<std::string> places = PlacesOfFinding(f);
      s.parts.insert(s.parts.end(), places.begin(), places.end());
    }
    std::pair<Cause, std::string> name{s.what.cause, s.what.scope};
    joined.emplace(std::move(name), std::move(s));
  }
  scene.suspicions = std::move(joined);
}

}  // namespace cw::fleet
