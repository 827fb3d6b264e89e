// SPDX-License-Identifier: Apache-2.0
//
// What was done, and what was left: for people and for programs.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace cw::off {

struct Step {
  std::string instance;
  std::string what;    // "mode", "xdp", "tc egress", "tc ingress", "pins", "agent"
  std::string object;  // an interface's name, a path
  uint32_t ifindex = 0;
  std::string note;  // what became of it; of what was left: why, and what to do
};

struct Report {
  bool dry = false;
  std::vector<Step> done;
  std::vector<Step> left;  // ours, and still there
};

std::string Text(const Report& report);
std::string Json(const Report& report);  // one object, and a newline

}  // namespace cw::off
