// SPDX-License-Identifier: Apache-2.0
//
// RDMA devices as API messages: the agent and cwctl's look without an agent give the same shape.
#pragma once

#include <vector>

#include "userspace/api/cwfabric.pb.h"
#include "userspace/host/rdma_findings.h"
#include "userspace/host/rdma_tree.h"

namespace cw::api {

// Counters that are not zero are in it, without what an agent knows: what moved, who listens.
cwfabric::v1::NicsReply ToProto(const host::RdmaTree& tree, const std::vector<host::RdmaFinding>& findings);

}  // namespace cw::api
