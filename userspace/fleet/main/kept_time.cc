// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/kept_time.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/fleet/main/drainer.h"
#include "userspace/fleet/main/muter.h"

namespace cw::fleet {
namespace {

constexpr char kTime[] = "time";  // one entry of the store's orders
constexpr uint64_t kOnly = 1;

}  // namespace

absl::Status KeepTime(Store& store, int64_t now_ns) { return store.PutOrder({kTime, kOnly, absl::StrCat(now_ns)}); }

int64_t NewestTime(Store& store) {
  int64_t newest_ns = 0, kept_ns = 0;
  const absl::StatusOr<std::vector<HostSeen>> hosts = store.Hosts();
  for (size_t i = 0; hosts.ok() && i < hosts->size(); ++i) newest_ns = std::max(newest_ns, (*hosts)[i].newest_ns);
  for (const char* kind : {kDrainOrder, kMuteOrder}) {
    const absl::StatusOr<std::vector<StoredOrder>> orders = store.Orders(kind);  // by when they were made
    if (orders.ok() && !orders->empty()) newest_ns = std::max(newest_ns, static_cast<int64_t>(orders->back().id));
  }
  const absl::StatusOr<std::vector<StoredOrder>> time = store.Orders(kTime);
  if (time.ok() && !time->empty() && absl::SimpleAtoi(time->back().body, &kept_ns))
    newest_ns = std::max(newest_ns, kept_ns);
  return newest_ns;
}

}  // namespace cw::fleet
