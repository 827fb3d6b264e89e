// SPDX-License-Identifier: Apache-2.0
//
// What to do about a finding, in the imperative, with commands that work as they are printed. Pure; any thread.
#pragma once

#include <string>

#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

// The command that keeps flows off it: of a link, a cable, a switch or a host by its scope; "": none does. `host`:
// whose NIC it is or ends at; "" = nobody's.
std::string DrainCommand(const std::string& scope, const std::string& host);

// by_port: flows can be kept off it alone.
std::string AdviceOf(const Finding& finding, const std::string& host, bool by_port = true);

}  // namespace cw::fleet
