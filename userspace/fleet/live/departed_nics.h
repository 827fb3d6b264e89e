// SPDX-License-Identifier: Apache-2.0
//
// NICs of hosts that were removed from the fleet, by what the store has. Others go on probing them, until their peers'
// file lacks them.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>

#include "absl/status/status.h"
#include "userspace/fleet/store/store.h"
#include "userspace/model/addr.h"

namespace cw::fleet {

class DepartedNics {
 public:
  explicit DepartedNics(Store& store) : store_(store) {}
  // removals: how many hosts were removed so far; the store is asked when that changes. Errors: the store's.
  absl::Status Look(uint64_t removals);
  const std::set<Addr>& nics() const { return nics_; }
  const std::set<Addr>& kept() const { return kept_; }  // of all hosts that the store knew then

 private:
  Store& store_;
  std::set<Addr> nics_, kept_;
  std::optional<uint64_t> removals_;
};

}  // namespace cw::fleet
