// SPDX-License-Identifier: Apache-2.0
//
// Pauses as by priority flow control (IEEE 802.1Qbb) on one direction of a leaf–spine link: what has DSCP 0, as the
// lab's RoCE traffic has, is held back in the sending port's queue in its order and goes on later; other classes pass
// by. A change takes some tenths of a millisecond. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

class PauseGate {
 public:
  // Puts queues by class behind the link's shaper; until the gate is gone the link's rate must not be changed. Without
  // `by_class` all classes are held back. FailedPrecondition: the link is not shaped.
  static absl::StatusOr<std::unique_ptr<PauseGate>> Open(Fabric& fabric, const LinkDirection& link,
                                                         bool by_class = true);
  ~PauseGate();  // lets everything pass, and puts the link's own shaper back
  PauseGate(const PauseGate&) = delete;
  PauseGate& operator=(const PauseGate&) = delete;

  // CLOCK_MONOTONIC ns, read after the change was asked for.
  absl::StatusOr<int64_t> Pause() { return Set(true); }
  absl::StatusOr<int64_t> Resume() { return Set(false); }

 private:
  PauseGate(Fabric& fabric, const LinkDirection& link) : fabric_(fabric), link_(link) {}
  absl::Status Start(bool by_class);
  absl::StatusOr<int64_t> Set(bool paused);
  absl::Status Line(const std::string& line);

  Fabric& fabric_;
  const LinkDirection link_;
  std::string device_;
  int to_tc_ = -1;  // a tc that reads commands; one process per command would take milliseconds
  int pid_ = -1;
};

}  // namespace cw::lab
