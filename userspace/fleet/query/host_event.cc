// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/host_event.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostEvidence = 32;

}  // namespace

bool ConcernsFindings(const std::string& type) {
  return type == "nic" || type == "cause" || type == "clock" || type == "link";
}

HostEvent HostEventOf(const std::string& host, uint64_t run, const cwfabric::v1::FleetEvent& event) {
  HostEvent out{.host = host, .type = event.event().type(), .run = run};
  out.peer = event.event().peer();
  out.flow = event.event().flow();
  out.alert = event.event().severity() == cwfabric::v1::SEVERITY_ALERT;
  for (const cwfabric::v1::Evidence& evidence : event.event().evidence()) {
    if (out.evidence.size() < kMostEvidence) out.evidence.emplace_back(evidence.name(), evidence.value());
  }
  return out;
}

PathEvidence::State EvidenceOf(PathState state) {
  if (state == PathState::kDead) return PathEvidence::State::kDead;
  return state == PathState::kUp || state == PathState::kSuspect ? PathEvidence::State::kAlive
                                                                 : PathEvidence::State::kNoWord;
}

}  // namespace cw::fleet
