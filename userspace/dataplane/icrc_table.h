// SPDX-License-Identifier: Apache-2.0
//
// The table by which the egress program patches an ICRC in constant time (bpf/icrc.h), a constant of the BPF object.
#pragma once

#include <string>

namespace cw::dataplane {

inline constexpr char kIcrcTable[] = "cw_icrc_pow";  // the variable's name

std::string IcrcTableBytes();

}  // namespace cw::dataplane
