// SPDX-License-Identifier: Apache-2.0
//
// What the verbs of cwctl fleet share. One thread.
#pragma once

#include <memory>

#include "absl/status/statusor.h"
#include "cli/session.h"
#include "userspace/api/fleet_client.h"

namespace cw::cli {

// InvalidArgument: no fleet service is named.
absl::StatusOr<std::unique_ptr<api::FleetClient>> FleetOf(const Session& session);

// A partial answer is called one.
void ShowCoverage(const cwfabric::v1::Coverage& coverage, bool colour);

// Registered with `fleet` by their files.
void AddFleetAlertVerbs(CLI::App& fleet, Session& session);
void AddFleetDrainVerbs(CLI::App& fleet, Session& session);
void AddFleetHostVerbs(CLI::App& fleet, Session& session);

}  // namespace cw::cli
