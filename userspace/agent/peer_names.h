// SPDX-License-Identifier: Apache-2.0
//
// Who the configuration's addresses are. Thread rule: the agent's loop.
#pragma once

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/addr.h"

namespace cw::agent {

struct PeerNames {
  absl::flat_hash_map<Addr, std::string> names;
  absl::flat_hash_map<Addr, size_t> rails;  // an address's place among its peer's

  // As people call it; an address that is no peer's is its own name.
  std::string Of(const Addr& address) const {
    const auto name = names.find(address);
    return name == names.end() ? address.ToString() : name->second;
  }
};

}  // namespace cw::agent
