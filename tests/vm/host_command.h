// SPDX-License-Identifier: Apache-2.0
// Programs of the host that the rig calls to the end.
#pragma once

#include <string>
#include <vector>

namespace cw::vm {

// Exit status of argv, looked up in PATH, its output on ours; 128 + signal when killed; -1 when it could not be
// started.
int RunHostCommand(const std::vector<std::string>& argv);

}  // namespace cw::vm
