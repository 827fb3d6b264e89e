// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace cw::dataplane {

// What is on one NIC's hooks now.
struct HookLook {
  bool xdp = false, tc_egress = false, tc_ingress = false;  // our program is there, or is not wanted
  uint32_t other_xdp = 0;                                   // id of another program in the place of ours; 0: none

  bool all() const { return xdp && tc_egress && tc_ingress; }
};

}  // namespace cw::dataplane
