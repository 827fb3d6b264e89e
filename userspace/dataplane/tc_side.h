// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "userspace/dataplane/program_info.h"

namespace cw::dataplane {

enum class TcSide { kEgress, kIngress };

inline const char* NameOf(TcSide side) { return side == TcSide::kEgress ? "egress" : "ingress"; }

// Is this program one of ours? Where it may not be read, which takes CAP_SYS_ADMIN, it has its id and name alone.
using OwnedBy = absl::FunctionRef<bool(const ProgramInfo& program)>;

}  // namespace cw::dataplane
