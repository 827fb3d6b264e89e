// SPDX-License-Identifier: Apache-2.0
//
// Hosts' hop lists as questions need them: read from the store once, by their names. What the store does not have is
// not asked for again for some seconds. Threads: any; the store is asked without the lock.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

class HopBook {
 public:
  using Lists = std::map<uint64_t, std::vector<Addr>>;  // by name
  static constexpr absl::Duration kMissHolds = absl::Seconds(5);

  explicit HopBook(Store& store) : store_(store) {}

  std::shared_ptr<const Lists> Cached(const std::string& host);  // null: none were read
  // At least those of these names that the store has; 0 is none.
  absl::StatusOr<std::shared_ptr<const Lists>> Of(const std::string& host, const std::set<uint64_t>& names,
                                                  absl::Time now);

 private:
  struct Host {
    std::shared_ptr<const Lists> lists;
    std::map<uint64_t, absl::Time> missed;
  };
  // Names that are neither known nor were missed lately.
  std::vector<uint64_t> Lacking(const std::string& host, const std::set<uint64_t>& names, absl::Time now);

  Store& store_;
  std::mutex mutex_;  // of hosts_
  std::map<std::string, Host> hosts_;
};

}  // namespace cw::fleet
