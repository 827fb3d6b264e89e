// SPDX-License-Identifier: Apache-2.0
//
// Flows that left a path because it died or lost packets go back when it has recovered: one after return_step, then
// 2, 4, 8 … more per step, so that a path that recovered only in part harms few. Each goes at a moment that keeps order
// (the kernel's pending moves). When the path fails again, what is still pending is taken back and the count begins
// anew; damping (control/damping.h) keeps a path that flaps out for longer.
// Pure: time comes in (any monotonic clock). One thread per object.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/flow.h"
#include "userspace/model/names.h"

namespace cw::control {

// A path of a pair of NICs as flows take it. native: the flow's own port, whose slot it is.
struct ReturnPlace {
  uint8_t slot = kSlotNone;
  uint16_t port = 0;  // UDP source port written, 0 = native
  bool operator==(const ReturnPlace&) const = default;
};

struct ReturnFlow {
  FlowKey key;
  uint32_t pair = 0;
  ReturnPlace at;
  bool free = true;          // no operator placed or locked it
  uint8_t wish = kSlotNone;  // a pending move's slot
};

struct ReturnAction {
  FlowKey flow;
  uint32_t pair = 0;
  ReturnPlace to;
  bool take_back = false;  // the wish of before
};

class Returns {
 public:
  explicit Returns(int64_t step_ns) : step_ns_(step_ns) {}

  void SetStep(int64_t step_ns) { step_ns_ = step_ns; }

  // The flow left a bad path. A second failure before its return keeps the first place as its home.
  void Left(const FlowKey& flow, uint32_t pair, ReturnPlace from, ReturnPlace to);

  // May flows be put there: live, not damped, drained or lossy, and the port is still that of the slot.
  using Usable = std::function<bool(uint32_t pair, ReturnPlace place)>;
  // `flows`: all that are sent. What was not asked for again need not be looked for: Step forgets flows that are gone,
  // back, or that somebody else moved.
  std::vector<ReturnAction> Step(int64_t now_ns, const std::vector<ReturnFlow>& flows, const Usable& usable);

  size_t away() const { return away_.size(); }

 private:
  struct Away {
    uint32_t pair = 0;
    ReturnPlace home, at;
    bool asked = false;
  };
  struct Path {
    int64_t since_ns = 0;  // usable
    int64_t asked = 0;     // flows sent back since
  };
  using PathKey = std::pair<uint32_t, uint8_t>;

  bool Follow(Away& away, const ReturnFlow* flow) const;
  // How many may have been sent back by now: 1, 3, 7, 15 … after 1, 2, 3, 4 … steps.
  int64_t Budget(const Path& path, int64_t now_ns) const;

  int64_t step_ns_;
  absl::flat_hash_map<FlowKey, Away> away_;
  std::map<PathKey, Path> paths_;  // usable ones that flows are away from
};

}  // namespace cw::control
