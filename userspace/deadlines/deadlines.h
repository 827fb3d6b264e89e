// SPDX-License-Identifier: Apache-2.0
//
// What operators set for a while (--for), and when it ends: placements, locks, the mode. Kept in a file of the agent's
// run folder, because what they set stays in the kernel when the agent ends, and the next agent has to end it in time.
// Times are CLOCK_MONOTONIC ns; the file names the boot that they count from, and one of another boot is not read.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "userspace/model/allowed.h"
#include "userspace/model/boot_file.h"
#include "userspace/model/flow.h"

namespace cw::deadlines {

class Deadlines {
 public:
  struct ModeEnd {
    Allowed set;    // what the operator set; what is another by then was set by somebody else
    Allowed after;  // what it goes back to
    int64_t at_ns = 0;
    bool operator==(const ModeEnd&) const = default;
  };
  // Where a flow was; slot as in the kernel's record, port 0: its native one.
  struct Place {
    uint8_t slot = 0;
    uint16_t port = 0;
    bool operator==(const Place&) const = default;
  };
  struct Due {
    std::vector<FlowKey> placements, locks;
    std::optional<ModeEnd> mode;
  };

  static constexpr char kFile[] = "deadlines.json";  // in the run folder

  // boot: names this boot of the kernel (BootId). Reads nothing yet.
  Deadlines(std::string file, std::string boot);

  // Takes over what an earlier agent left. NotFound: nothing, or of an earlier boot. InvalidArgument: unreadable.
  absl::Status Load();
  // Writes the file anew if anything changed since the last time; removes it when nothing is left.
  absl::Status Save();
  void Forget();  // everything

  // at_ns 0: it stays.
  void SetPlacement(const FlowKey& flow, int64_t at_ns) { Set(placements_, flow, at_ns); }
  void SetLock(const FlowKey& flow, int64_t at_ns) { Set(locks_, flow, at_ns); }
  // Where a flow was before an operator placed it, for when that ends; the first one counts, until it is taken.
  void RememberPlace(const FlowKey& flow, const Place& before);
  std::optional<Place> TakePlace(const FlowKey& flow);
  // Of flows that are gone there is nothing to give back.
  void ForgetPlacesUnless(const std::function<bool(const FlowKey&)>& wanted);
  void SetMode(const std::optional<ModeEnd>& end);

  const std::optional<ModeEnd>& mode() const { return mode_; }
  size_t size() const { return placements_.size() + locks_.size() + (mode_ ? 1 : 0); }
  // Seconds until a flow's placement or lock ends, the later of the two; 0: never.
  double FlowSecondsLeft(const FlowKey& flow, int64_t now_ns) const;
  // Those whose time has come, and forgets them.
  Due TakeDue(int64_t now_ns);

 private:
  using Flows = absl::flat_hash_map<FlowKey, int64_t>;
  void Set(Flows& flows, const FlowKey& flow, int64_t at_ns);
  std::vector<FlowKey> Take(Flows& flows, int64_t now_ns);

  const BootFile file_;
  Flows placements_, locks_;
  absl::flat_hash_map<FlowKey, Place> before_;
  std::optional<ModeEnd> mode_;
  bool changed_ = false;  // since the last Save
};

// When what is to last for_s ends, CLOCK_MONOTONIC; 0: never.
inline int64_t EndNs(double for_s, int64_t now_ns) {
  return for_s > 0 ? now_ns + static_cast<int64_t>(for_s * 1e9) : 0;
}

}  // namespace cw::deadlines
