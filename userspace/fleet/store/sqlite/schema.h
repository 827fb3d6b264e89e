// SPDX-License-Identifier: Apache-2.0
//
// The tables, as a list of steps from nothing to today's: step n makes version n. A step never changes once it is
// released; what is new is a new step. Threads: one at a time.
#pragma once

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/fleet/store/sqlite/database.h"

namespace cw::fleet {

absl::Span<const char* const> SchemaSteps();

// Takes all steps that the file lacks, each with its version in one transaction. FailedPrecondition: it is of a newer
// release.
absl::Status Migrate(Database& db, absl::Span<const char* const> steps);

}  // namespace cw::fleet
