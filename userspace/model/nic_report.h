// SPDX-License-Identifier: Apache-2.0
//
// What one host says to another of one pair of their NICs, in its own view (control/nic_failover.h). A value type.
#pragma once

#include <cstdint>

#include "userspace/model/flow.h"

namespace cw {

inline constexpr int kNicTags = 3;  // CW_CARRY_TAGS of maps/abi.h

struct NicReport {
  PairKey pair;
  PairKey carrier;        // meaningful with a tag
  uint8_t tag = 0;        // 0: the pair's packets go by the pair itself; else by the carrier, with this tag
  bool silent = false;    // the host cannot reach the other one by this pair, or wants its NIC free
  bool restores = false;  // packets carried by that rule are put back at this host
  bool operator==(const NicReport&) const = default;
};

}  // namespace cw
