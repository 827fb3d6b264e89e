// SPDX-License-Identifier: Apache-2.0
//
// An address as it travels to the fleet service: 4 or 16 bytes in network order, none for the zero address (a hop that
// did not answer). Pure; any thread.
#pragma once

#include <string>

#include "absl/strings/string_view.h"
#include "userspace/model/addr.h"

namespace cw {

inline std::string AddressBytes(const Addr& addr) {
  if (addr.is_zero()) return "";
  const absl::string_view all(reinterpret_cast<const char*>(addr.bytes.data()), addr.bytes.size());
  return std::string(addr.is_v4() ? all.substr(12) : all);
}

}  // namespace cw
