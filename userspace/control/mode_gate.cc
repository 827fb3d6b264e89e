// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/mode_gate.h"

namespace cw::control {

Verdict Gate(Mode mode, Action action) {
  if (action == Action::kReturnNative) return Verdict::kAct;  // always possible: it undoes
  switch (mode) {
    case Mode::kOff:
      return Verdict::kNothing;
    case Mode::kObserve:
      return Verdict::kLog;
    case Mode::kProtect:
      return action == Action::kBalance ? Verdict::kLog : Verdict::kAct;
    case Mode::kOptimize:
      return Verdict::kAct;
  }
  return Verdict::kNothing;
}

}  // namespace cw::control
