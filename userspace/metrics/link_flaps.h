// SPDX-License-Identifier: Apache-2.0
//
// How often the NICs' links flapped within the past hour. The kernel counts every loss of a carrier, so nothing between
// two looks is missed; when they fell is known to the time between looks, and what fell while no agent ran counts as of
// the next look. A flap is a loss that was followed by a return, whatever the reason: a link set down by hand counts,
// too. A link that is still down is no flap yet.
// Kept in a file, so that a restart of the agent forgets nothing. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::metrics {

struct LinkReading {
  bool up = false;
  uint64_t downs = 0;  // since the device exists
  std::string name;    // of the device, now
};

// By rtnetlink, which answers for this network namespace whatever is mounted at /sys. NotFound: no such device.
// Unimplemented: a kernel that does not tell (before 4.16).
absl::StatusOr<LinkReading> ReadLink(const std::string& nic);
absl::StatusOr<LinkReading> ReadLink(uint32_t ifindex);  // whatever the device is called

struct LinkState {
  std::string nic;
  bool up = false;
  uint64_t downs = 0;
  uint64_t flaps_1h = 0;
};

class LinkFlaps {
 public:
  static constexpr absl::Duration kWindow = absl::Hours(1);
  static constexpr char kFile[] = "link_flaps.json";  // in the run folder

  // now_ns: CLOCK_MONOTONIC.
  void Observe(int64_t now_ns, const std::string& nic, const LinkReading& reading);
  std::vector<LinkState> States(int64_t now_ns) const;

  // The file names the boot that its times count from; one of another boot is not read.
  absl::Status Save(const std::string& file, const std::string& boot);  // writes only what changed
  absl::Status Load(const std::string& file, const std::string& boot);  // NotFound, InvalidArgument

 private:
  struct Link {
    bool seen = false;
    LinkReading last;
    uint64_t flaps = 0;  // since the device exists; never falls
    std::deque<int64_t> flaps_ns;
  };
  // Losses that were followed by a return.
  static uint64_t Completed(const LinkReading& reading) {
    return reading.up || reading.downs == 0 ? reading.downs : reading.downs - 1;
  }
  std::map<std::string, Link> links_;
  bool changed_ = false;
};

}  // namespace cw::metrics
