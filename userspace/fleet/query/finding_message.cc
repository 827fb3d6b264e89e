// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/finding_message.h"

#include "absl/strings/str_cat.h"

namespace cw::fleet {

namespace pb = cwfabric::v1;

pb::FleetFinding MessageOf(const Finding& finding) {
  pb::FleetFinding out;
  out.set_id(IdText(finding.id));
  out.set_cause(std::string(CauseName(finding.cause)));
  out.set_scope(finding.scope);
  out.set_start_ns(finding.start_ns);
  out.set_end_ns(finding.end_ns);
  for (const std::string& sentence : finding.evidence) out.add_evidence(sentence);
  for (const std::string& host : finding.hosts) out.add_hosts(host);
  for (const std::string& job : finding.jobs) out.add_jobs(job);
  for (const std::string& sentence : finding.did) out.add_did(sentence);
  out.set_place(finding.place);
  for (const std::string& scope : finding.one_of) out.add_one_of(scope);
  out.set_advice(finding.advice);
  for (const LinkId& id : finding.links) {
    pb::FleetLinkId& link = *out.add_links();
    link.set_from(id.first.ToString());
    link.set_to(id.second.ToString());
  }
  return out;
}

absl::StatusOr<Finding> FindingOf(const pb::FleetFinding& message) {
  const std::optional<uint64_t> id = ParseId(message.id());
  Finding out{.scope = message.scope(), .start_ns = message.start_ns(), .end_ns = message.end_ns()};
  bool known = false;
  for (int c = 1; c <= kFleetCauses; ++c) {
    if (CauseName(static_cast<Cause>(c)) != message.cause()) continue;
    out.cause = static_cast<Cause>(c);
    known = true;
  }
  if (!id || !known)
    return absl::InvalidArgumentError(
        absl::StrCat("finding ", message.id(), " of cause ", message.cause(), ": a newer release wrote it; use that"));
  out.id = *id;
  out.evidence = {message.evidence().begin(), message.evidence().end()};
  out.hosts = {message.hosts().begin(), message.hosts().end()};
  out.jobs = {message.jobs().begin(), message.jobs().end()};
  out.did = {message.did().begin(), message.did().end()};
  out.place = message.place();
  out.one_of = {message.one_of().begin(), message.one_of().end()};
  out.advice = message.advice();
  for (const pb::FleetLinkId& link : message.links()) {
    const absl::StatusOr<Addr> from = Addr::Parse(link.from()), to = Addr::Parse(link.to());
    if (from.ok() && to.ok()) out.links.push_back({*from, *to});
  }
  return out;
}

}  // namespace cw::fleet
