// SPDX-License-Identifier: Apache-2.0
//
// The agent's and the kernel's values in the words of the API's schema. Pure.
#pragma once

#include <cstdint>

#include "userspace/api/agent_api.h"
#include "userspace/host/doctor.h"
#include "userspace/model/allowed.h"
#include "userspace/model/names.h"
#include "userspace/probe/self_test.h"
#include "userspace/telemetry/event_log.h"
#include "userspace/telemetry/sketch.h"

namespace cw::agent {

api::v1::PathState StateOf(uint8_t state);  // enum cw_slot_state
api::v1::Mode ToApi(Mode mode);
api::v1::Allow ToApi(Allow allow);
const char* TransportName(uint8_t transport);  // the upper three bits of a BTH's opcode
api::v1::FabricHashing ToApi(probe::Hashing hashing);
host::Hashing HostHashing(api::v1::FabricHashing hashing);
api::v1::Check::Result ToApi(host::Check::Result result);
api::v1::Event ToApi(const telemetry::Event& event);
void FillDelay(const telemetry::Sketch& sketch, api::v1::Delay* out);

}  // namespace cw::agent
