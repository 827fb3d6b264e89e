// SPDX-License-Identifier: Apache-2.0
//
// The group's secrets: read at the start, changed while the agent runs. No secret gets into a message. Thread rule: the
// agent's loop.
#pragma once

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/agent/event_sink.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/config/config.h"
#include "userspace/model/clock.h"
#include "userspace/probe/keys.h"

namespace cw::agent {

class GroupKeys {
 public:
  // Both outlive it.
  GroupKeys(const Clock& monotonic, EventSink& events) : monotonic_(monotonic), events_(events) {}

  absl::Status Open(const config::KeysConfig& keys);  // from its files, at the start
  // As the files are now. An error: they cannot be read, or peers would not follow from the ring in force to this one.
  absl::StatusOr<probe::KeyRing> Check(const config::KeysConfig& keys) const;
  // One that Check gave. `changed` is told where it is another one.
  absl::Status Take(probe::KeyRing ring, absl::FunctionRef<absl::Status()> changed);

  const probe::KeyRing& ring() const { return ring_; }  // the same object for as long as this one lives
  void AddTo(cwfabric::v1::StatusReply& reply) const;

 private:
  const Clock& monotonic_;
  EventSink& events_;
  probe::KeyRing ring_;
  int64_t changed_ns_ = 0;  // monotonic; 0: not since the start
  bool in_use_ = true;      // whoever signs and checks took the ring
};

}  // namespace cw::agent
