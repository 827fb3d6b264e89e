// SPDX-License-Identifier: Apache-2.0
//
// Queue pairs as tables: what each does (qps), and how each is steered (steer show).
#pragma once

#include <vector>

#include "cli/columns.h"
#include "cli/table.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

using Flows = google::protobuf::RepeatedPtrField<cwfabric::v1::Flow>;

// As FlowTable has them.
const std::vector<ColumnChoice>& FlowColumns();
Table FlowTable(const Flows& flows);
Table SteeringTable(const Flows& flows);

}  // namespace cw::cli
