// SPDX-License-Identifier: Apache-2.0
//
// What one receiver of alerts was told of each finding, and how that went; the newest thousand. Pure; time comes in as
// an argument. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

struct AlertDelivery {
  uint64_t finding = 0;
  Cause cause = Cause::kLinkDead;
  std::string scope;
  bool open = true;  // what is to be told: it goes on, or it is over
  absl::Time since = absl::InfinitePast();
  absl::Time delivered = absl::InfinitePast();  // the last time
  std::string result;  // "delivered", "waiting", "told before a restart", or what failed the last time
};

class DeliveryLog {
 public:
  static constexpr size_t kMost = 1000;

  // There is something to tell. Told before, and the same: nothing changes. Resumed: a service before this one told it.
  void Take(const Finding& finding, bool resumed, absl::Time now);
  // The receiver's answer to a request with these findings (id, goes on). What became due meanwhile stays "waiting".
  void Answered(const std::vector<std::pair<uint64_t, bool>>& findings, const absl::Status& status, absl::Time now);
  std::vector<AlertDelivery> All() const;  // the newest first

 private:
  std::map<uint64_t, AlertDelivery> by_id_;
};

}  // namespace cw::fleet
