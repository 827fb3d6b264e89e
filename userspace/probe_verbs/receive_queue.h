// SPDX-License-Identifier: Apache-2.0
//
// The completions of what is received, with the device's stamps where it gives some. A device that tells a clock by
// ibv_query_device_ex(3), lets it be read (ibv_query_rt_values_ex) and makes such a queue (ibv_create_cq_ex) has its
// completions stamped in its own ticks; device_clock.h converts them. Others have a plain queue (soft-RoCE).
// Thread rule: Poll and KeepClock from one thread; stamps from any.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "userspace/probe_verbs/arrival_stamps.h"
#include "userspace/probe_verbs/device_clock.h"
#include "userspace/probe_verbs/verbs_handles.h"

namespace cw::probe_verbs {

struct Completion {
  uint64_t id = 0;  // of the work request
  bool success = false;
  uint32_t bytes = 0;
  uint32_t from_qpn = 0;
  std::optional<int64_t> arrived_ns;  // by the device, CLOCK_MONOTONIC
};

class ReceiveQueue {
 public:
  // Which call failed. A device that refuses stamps is no failure: it is logged.
  static absl::StatusOr<std::unique_ptr<ReceiveQueue>> Make(ibv_context* context, const std::string& device,
                                                            int entries, ibv_comp_channel* channel);
  virtual ~ReceiveQueue() = default;

  virtual ibv_cq* cq() = 0;
  // How many of `done` it filled.
  virtual size_t Poll(absl::Span<Completion> done) = 0;
  // Whether there is a clock, which KeepClock then has to read each DeviceClock::kPeriodNs.
  virtual bool has_clock() const = 0;
  virtual void KeepClock(int64_t now_ns) = 0;  // reads it when it is time to
  virtual ArrivalStamps stamps() const = 0;
};

}  // namespace cw::probe_verbs
