// SPDX-License-Identifier: Apache-2.0
//
// Takes out of the kernel what instances have there: flows go home, programs are detached, pins go last. clsact stays:
// removing it may drop packets. Ours is what works on the instance's pinned maps, and filters by our name on whose maps
// no instance works; nothing else is touched.
// What is in another network namespace is left, with its pins, so that the same call there finds it.
#pragma once

#include <string>
#include <vector>

#include "maps/names.h"
#include "userspace/off/report.h"

namespace cw::off {

struct Options {
  std::string pin_root = CW_PIN_ROOT;
  std::string run_root = "/run/cwfabric";
  std::string state_root = "/var/lib/cwfabric";  // where it is kept who did it
  std::string instance;                          // "": all
  bool dry = false;
  bool force = false;  // an agent that runs is no reason to stop
};

// [A-Za-z0-9_-]{1,32}
bool IsInstanceName(const std::string& name);

Report Detach(const Options& options);

}  // namespace cw::off
