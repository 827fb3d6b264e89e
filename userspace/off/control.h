// SPDX-License-Identifier: Apache-2.0
//
// The pinned map that the kernel programs obey: mode off, and every flow is on its native port. What cwctl does, and
// the first thing that cwfabric-off does.
#pragma once

#include <string>

namespace cw::off {

struct Switched {
  enum class Outcome {
    kDone,
    kNoPin,
    kNotPermitted,
    kUnknownMap,  // no control map at all: left alone
    kFailed,
  };
  Outcome outcome = Outcome::kFailed;
  std::string message;  // why not, with what to do
};

std::string ControlPin(const std::string& instance_folder);

// Stores mode = off in the control map at `pin`, and in those that an upgrade replaced and that programs may still
// read; nothing else. dry: says what it would do.
Switched SwitchOff(const std::string& pin, bool dry);

}  // namespace cw::off
