// SPDX-License-Identifier: Apache-2.0
//
// The time of orders (fleet/drains/order_clock.h), kept so that a service that is ended again and again goes on where
// it was. Threads: as the store's.
#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

// The store's errors.
absl::Status KeepTime(Store& store, int64_t now_ns);
// The newest that the store knows: what was kept, what hosts reported, when orders were made. 0: none.
int64_t NewestTime(Store& store);

}  // namespace cw::fleet
