// SPDX-License-Identifier: Apache-2.0
//
// Findings of the doctor as API messages: the agent and cwctl's local checks give the same shape.
#pragma once

#include <vector>

#include "userspace/api/cwfabric.pb.h"
#include "userspace/host/check.h"

namespace cw::api {

cwfabric::v1::DoctorReply ToProto(const std::vector<host::Check>& checks);

}  // namespace cw::api
