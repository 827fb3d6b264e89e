// SPDX-License-Identifier: Apache-2.0
//
// What is answered while the store works at something long: up to where the runs of late are there, and what was lost.
// It is written behind a commit, so it never tells what is not on the disk; where SQLite does not know how a commit
// ended it may tell too little, and what then comes again is kept once. Threads: any. Its lock is held for a moment and
// nothing is called under it. Who writes holds the store's lock, too, so that an older value never follows a newer one.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

// Of one transaction.
struct Committed {
  std::map<std::pair<std::string, uint64_t>, uint64_t> through;  // by host and run
  std::map<std::string, HostLosses> losses;                      // more of them than before, by host
};

class Ready {
 public:
  // Runs that were used last, of this many at least, and of twice as many at most: some 100 bytes each.
  static constexpr size_t kRuns = 1 << 16;  // two of each host of an instance, and more

  explicit Ready(size_t runs = kRuns) : runs_(runs) {}

  std::optional<uint64_t> Through(const std::string& host, uint64_t run);
  void PutThrough(const std::string& host, uint64_t run, uint64_t through);
  void Put(const Committed& committed, const WorkLosses& work);
  std::map<std::string, HostLosses> host_losses() const;
  WorkLosses work_losses() const;

 private:
  using Runs = absl::flat_hash_map<std::pair<std::string, uint64_t>, uint64_t>;
  void Keep(const std::pair<std::string, uint64_t>& run, uint64_t through);  // under the lock

  const size_t runs_;
  mutable std::mutex mutex_;
  Runs recent_, older_;  // a run that is in both is as in recent_
  std::map<std::string, HostLosses> losses_;
  WorkLosses work_;
};

}  // namespace cw::fleet
