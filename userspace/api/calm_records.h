// SPDX-License-Identifier: Apache-2.0
//
// What nearly all records of a batch are, in less than half of the bytes (userspace/model/calm_paths.h). Pure; any
// thread.
#pragma once

#include "absl/status/status.h"
#include "userspace/api/fleet.pb.h"

namespace cw::api {

// Moves the records that say no more than number, queue and base into calm_paths. Changes nothing where that would not
// make it smaller.
void PackCalmRecords(cwfabric::v1::Batch& batch);

// Puts what calm_paths holds behind the records. InvalidArgument, and an unchanged batch: it is damaged, or there would
// be more than `most_records`.
absl::Status UnpackCalmRecords(size_t most_records, cwfabric::v1::Batch& batch);

}  // namespace cw::api
