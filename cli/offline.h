// SPDX-License-Identifier: Apache-2.0
//
// The one thing that cwctl does without an agent: the kernel programs obey the pinned map cw_ctl.
#pragma once

#include <string>

#include "absl/status/status.h"

namespace cw::cli {

std::string CtlPinPath(const std::string& instance);

// Stores mode = off, and nothing else. NotFound: no such pin. PermissionDenied: not root. FailedPrecondition: the map
// is not the one that this build knows.
absl::Status SwitchOffWithoutAgent(const std::string& instance);

// Into the file of acts, as no agent does it. What keeps it from that is told on the standard error.
void KeepAct(const std::string& instance, const std::string& what);

}  // namespace cw::cli
