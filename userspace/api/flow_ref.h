// SPDX-License-Identifier: Apache-2.0
//
// FLOW as people type it: the short id, NIC/qp0x1a2b (local QPN; either the RDMA or the network device), qp0x1a2b,
// 0x1a2b or 6699 (a local QPN; a remote one when no local one fits). Pure.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::api {

// "mlx5_0/qp0x1a2b", "" when the local QPN is not known.
std::string QpName(const cwfabric::v1::Flow& flow);

// The id of the one flow that is meant. Transmitted flows go first: received ones are considered when none fits.
// NotFound; InvalidArgument with the candidates when several fit.
absl::StatusOr<std::string> ResolveFlow(const cwfabric::v1::QpsReply& flows, absl::string_view text);

}  // namespace cw::api
