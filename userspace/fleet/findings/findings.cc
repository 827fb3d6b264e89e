// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/findings.h"

#include <utility>

#include "userspace/fleet/findings/advice.h"
#include "userspace/fleet/findings/scene.h"

namespace cw::fleet {

void Findings::Add(Scene& scene, Suspicion suspicion) {
  const CauseRule& rule = RuleOf(rules_.causes, suspicion.what.cause);
  suspicion.open_after = suspicion.at_once ? absl::ZeroDuration() : rule.open_after;
  suspicion.end_after = rule.end_after;
  const std::string host = suspicion.component < 0 ? "" : components_.HostAt(suspicion.component);
  const bool by_port = suspicion.component < 0 || components_.at(suspicion.component).own_port;
  suspicion.what.advice = AdviceOf(suspicion.what, host, by_port);
  if (suspicion.what.place.empty()) suspicion.what.place = components_.PlaceOf(suspicion.what.scope);
  if (suspicion.what.start_ns == 0) suspicion.what.start_ns = scene.picture.now_ns;
  std::pair<Cause, std::string> key{suspicion.what.cause, suspicion.what.scope};
  scene.suspicions.emplace(std::move(key), std::move(suspicion));
}

std::vector<Finding> Findings::Evaluate(const Picture& picture) {
  if (!fabric_known_ || fabric_ != picture.fabric) {
    components_ = Components(picture.topology == nullptr ? Topology{} : *picture.topology, picture.hosts, link_names_);
    fabric_ = picture.fabric;
    fabric_known_ = true;
  }
  components_.Trim();
  for (const HostEvent& event : picture.events) events_.Take(event);
  Scene scene{.picture = picture};
  Look(scene);
  if (begun_ns_ == 0) begun_ns_ = picture.now_ns;
  // Who is heard first finds nobody who contradicts him.
  if (absl::Nanoseconds(picture.now_ns - begun_ns_) >= rules_.settle) {
    Weigh(scene);
    FindUnreached(scene);
    FindDead(scene);
    FindPaused(scene);
    Remember(scene);
    FindPacketSizes(scene);
    FindGrey(scene);
    FindQueues(scene);
    FindUnexplained(scene);
  }
  FindGone(scene);
  FindNics(scene);
  FindFlaps(scene);
  FindSlow(scene);
  FindClocks(scene);
  FindWiring(scene);
  FindSlas(scene);
  FindStanding(scene);
  FindSettings(scene);
  FindBusy(scene);
  FindRefused(scene);
  FindNotMeasured(scene);  // last: it explains what others found
  JoinOpen(scene);
  std::vector<Suspicion> all;
  all.reserve(scene.suspicions.size());
  for (auto& [key, suspicion] : scene.suspicions) all.push_back(std::move(suspicion));
  std::vector<Finding> changed = ledger_.Update(picture.now_ns, all);
  ForgetLosses(scene, changed);
  return changed;
}

}  // namespace cw::fleet
