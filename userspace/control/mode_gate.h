// SPDX-License-Identifier: Apache-2.0
//
// What each mode allows. The one place that says so.
#pragma once

#include "userspace/model/names.h"

namespace cw::control {

enum class Action {
  kFailover,      // a flow leaves a dead path
  kAssign,        // a new flow is put on a slot
  kBalance,       // a flow moves because links are shared unevenly
  kOperator,      // an operator placed, locked or freed a flow
  kReturnNative,  // a flow goes back to its own port
};

enum class Verdict {
  kAct,
  kLog,      // decide, log as "would have", do not act
  kNothing,  // do not even decide
};

Verdict Gate(Mode mode, Action action);

}  // namespace cw::control
