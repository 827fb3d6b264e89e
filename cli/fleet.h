// SPDX-License-Identifier: Apache-2.0
//
// What the verbs of cwctl fleet share. One thread.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "cli/session.h"
#include "userspace/api/fleet_client.h"

namespace cw::cli {

// InvalidArgument: no fleet service is named.
absl::StatusOr<std::unique_ptr<api::FleetClient>> FleetOf(const Session& session);

// "-10m", "-7d" or a time with its zone (RFC 3339), ns since 1970; "" is now, which is 0. option: as people typed it.
// Of a service that is too old to be asked for the past.
absl::Status CheckHostsAreOf(int64_t at_ns, const ::cwfabric::v1::FleetHostsReply& reply);
absl::StatusOr<int64_t> ParseAt(const std::string& text, const std::string& option = "--at");

// A partial answer is called one.
void ShowCoverage(const cwfabric::v1::Coverage& coverage, bool colour);

void ShowFleetLinkTable(const cwfabric::v1::FleetTopologyReply& reply, bool colour);
void ShowFleetEventTable(const cwfabric::v1::FleetEventsReply& reply, bool colour);
// In the form of fabric_file. dns: switches that nobody named are asked for in DNS.
void ShowFleetPlan(const cwfabric::v1::FleetTopologyReply& reply, bool dns);

// Registered with `fleet` by their files.
void AddFleetAlertVerbs(CLI::App& fleet, Session& session);
void AddFleetDrainVerbs(CLI::App& fleet, Session& session);
void AddFleetCostVerbs(CLI::App& fleet, Session& session);
void AddFleetFitVerbs(CLI::App& fleet, Session& session);
void AddFleetHostVerbs(CLI::App& fleet, Session& session);
void AddFleetJobVerbs(CLI::App& fleet, Session& session);

// Where flows of the session's host are, and what is wrong on their way. what: a flow's id, a QPN, a peer.
absl::StatusOr<int> WhyOfHost(Session& session, const std::string& what);

// What "qps", "jobs" or "collectives" show of the session's host, as the fleet service knows it. job: "" = all.
absl::StatusOr<int> ShowWorkOfHost(Session& session, const std::string& verb, const std::string& job);

// With --host: what the verb that was typed does instead of asking an agent; else null. InvalidArgument: options that
// the fleet service has no answer to.
absl::StatusOr<std::function<absl::StatusOr<int>()>> FleetReadingOf(const CLI::App& app, Session& session);

}  // namespace cw::cli
