// SPDX-License-Identifier: Apache-2.0
//
// Pauses as by priority flow control (IEEE 802.1Qbb) on one direction of a leaf–spine link: the class of RoCE (DSCP 26,
// the lab's queue pairs and the probes that follow them) is held back in the sending port's queue in its order and goes
// on later; other classes pass by. A change takes some tenths of a millisecond. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/tbf_port.h"

namespace cw::lab {

class PauseGate {
 public:
  // Puts queues by class behind the link's shaper; until the gate is gone the link's rate must not be changed. Without
  // `by_class` all classes are held back. The kernel drops what comes to a port while its queues are put in place, and
  // when they are taken away again: for some ten milliseconds, which may end a path's life. FailedPrecondition: the
  // link is not shaped.
  static absl::StatusOr<std::unique_ptr<PauseGate>> Open(Fabric& fabric, const LinkDirection& link,
                                                         bool by_class = true);
  ~PauseGate();  // lets everything pass, and puts the link's own shaper back
  PauseGate(const PauseGate&) = delete;
  PauseGate& operator=(const PauseGate&) = delete;

  // CLOCK_MONOTONIC ns, read after the change took effect: from Pause on one more packet may leave, then none.
  absl::StatusOr<int64_t> Pause();
  absl::StatusOr<int64_t> Resume();

 private:
  PauseGate(Fabric& fabric, const LinkDirection& link) : fabric_(fabric), link_(link) {}
  absl::Status Start(bool by_class, double mbps);

  Fabric& fabric_;
  const LinkDirection link_;
  std::unique_ptr<TbfPort> bucket_;
};

}  // namespace cw::lab
