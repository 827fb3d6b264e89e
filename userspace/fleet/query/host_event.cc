// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/host_event.h"

namespace cw::fleet {
namespace {

constexpr size_t kMostEvidence = 32;

}  // namespace

bool ConcernsFindings(const std::string& type) {
  return type == "nic" || type == "cause" || type == "clock" || type == "link" || type == "move" || type == "return";
}

HostEvent HostEventOf(const std::string& host, uint64_t run, const cwfabric::v1::FleetEvent& event) {
  HostEvent out{.host = host, .type = event.event().type(), .run = run};
  out.peer = event.event().peer();
  out.flow = event.event().flow();
  out.alert = event.event().severity() == cwfabric::v1::SEVERITY_ALERT;
  out.dry = event.event().dry();
  for (const cwfabric::v1::Evidence& evidence : event.event().evidence()) {
    if (out.evidence.size() < kMostEvidence) out.evidence.emplace_back(evidence.name(), evidence.value());
  }
  return out;
}

cwfabric::v1::FleetEventOf MessageOf(const StoredEvent& stored) {
  cwfabric::v1::FleetEventOf out;
  out.set_host(stored.host);
  out.set_run(stored.run);
  if (!out.mutable_event()->ParseFromString(stored.payload))
    out.mutable_event()->mutable_event()->set_type(stored.type);
  out.mutable_event()->set_time_ns(stored.time_ns);
  out.mutable_event()->set_bound_ns(stored.bound_ns);
  return out;
}

}  // namespace cw::fleet
