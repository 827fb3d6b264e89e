// SPDX-License-Identifier: Apache-2.0
//
// The table by which the egress program patches an ICRC in constant time (bpf/icrc.h): filled once when its map is
// made.
#pragma once

#include "absl/status/status.h"
#include "maps/bpf_map.h"

namespace cw::dataplane {

inline constexpr char kIcrcTableMap[] = "cw_icrc_pow";

absl::Status FillIcrcTable(const maps::BpfMap& map);

}  // namespace cw::dataplane
