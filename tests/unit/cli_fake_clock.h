// SPDX-License-Identifier: Apache-2.0
//
// What the fake agent says of its clock.
#pragma once

#include "userspace/api/agent_api.h"

namespace cw::api {

v1::ClockReply KnownClock();    // synchronised, with every kind of source
v1::ClockReply RefusedClock();  // fleet time cannot be told

}  // namespace cw::api
