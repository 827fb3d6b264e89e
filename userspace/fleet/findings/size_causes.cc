// SPDX-License-Identifier: Apache-2.0
// Parts that carry small packets and not those of full size: an MTU that is set too small.
#include <algorithm>

#include "absl/strings/str_format.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {
namespace {

// Agents ask each path every two seconds, an idle one every ten: by then all that cross it know.
constexpr absl::Duration kAllAsked = absl::Seconds(10);

// Whole paths are bad or well, as of dead ones. What a NIC itself can take is no matter of the fabric.
LocaliseRules SizeRules() {
  LocaliseRules rules;
  for (const Part part : {Part::kNic, Part::kHost}) rules.prior[static_cast<size_t>(part)] = -1;
  return rules;
}

}  // namespace

void Findings::FindPacketSizes(Scene& scene) {
  std::vector<Observation> seen;
  std::vector<uint32_t> place;
  for (uint32_t i = 0; i < scene.paths.size(); ++i) {
    const PathEvidence& path = scene.path(i);
    if (path.state != PathEvidence::State::kAlive || (path.largest_bytes == 0 && !path.full_size)) continue;
    const int64_t small_ns = MemoryOf(path).small_ns;
    const bool young = small_ns == 0 || absl::Nanoseconds(path.time_ns - small_ns) < kAllAsked;
    if (path.largest_bytes > 0 && young) continue;
    seen.push_back({scene.needs[i], path.host, 1, path.largest_bytes > 0 ? 1.0 : 0.0});
    place.push_back(i);
  }
  std::vector<Suspect> suspects = Localise(seen, components_, SizeRules());
  for (Suspect& s : suspects) {
    for (uint32_t& i : s.explains) i = place[i];
  }
  FindInGaps(scene, Cause::kPacketSize, suspects);
  for (const Suspect& s : suspects) {
    uint32_t least = UINT32_MAX;
    for (const uint32_t i : s.explains) least = std::min(least, scene.path(i).largest_bytes);
    Suspicion suspicion = Of(scene, Cause::kPacketSize, s);
    suspicion.what.evidence.insert(
        suspicion.what.evidence.begin(),
        {absl::StrFormat("packets above %d bytes do not arrive on %d of %d paths over it, reported by %d hosts", least,
                         s.paths_bad, s.paths_bad + s.paths_well, s.hosts_bad),
         "smaller ones do"});
    Add(scene, std::move(suspicion));
  }
}

}  // namespace cw::fleet
