// SPDX-License-Identifier: Apache-2.0
//
// When something that is counted stood still: a link that carried nothing, a prober that sent nothing. Looked at again
// and again; only what two looks prove is told, so a witness that is late itself accuses nobody.
// Standstills is pure: time is an argument, one thread. LinkStills is thread-safe after Start; its thread looks at each
// leaf–spine link's count of carried packets every millisecond (no system call).
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/stall_witness.h"

namespace cw::lab {

class Standstills {
 public:
  // The count was `value` at now_ns, which grows.
  void Look(int64_t now_ns, uint64_t value);
  // The longest that overlaps [from_ns, to_ns), the one that goes on included, in ms; 0: none of at least kLeastNs.
  // Those that ended more than kMemoryNs before the newest look are forgotten.
  double LongestMs(int64_t from_ns, int64_t to_ns) const;

  static constexpr int64_t kLeastNs = 1'500'000;
  static constexpr int64_t kMemoryNs = 60'000'000'000;

 private:
  void Close();

  bool looked_ = false;
  uint64_t value_ = 0;
  MachineStall present_;  // from the first to the last look at value_
  std::deque<MachineStall> past_;
};

class LinkStills {
 public:
  static std::unique_ptr<LinkStills> Start(const Fabric& fabric, absl::Duration period = absl::Milliseconds(1));
  ~LinkStills();

  // 0: the link is no leaf–spine link, too.
  double LongestMs(const LinkDirection& link, int64_t from_ns, int64_t to_ns) const;

 private:
  explicit LinkStills(const Fabric& fabric) : fabric_(fabric) {}
  void Look();

  const Fabric& fabric_;
  std::vector<LinkDirection> links_;
  mutable std::mutex mutex_;
  std::vector<Standstills> stills_;  // by link
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace cw::lab
