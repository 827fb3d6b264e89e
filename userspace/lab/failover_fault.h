// SPDX-License-Identifier: Apache-2.0
//
// The faults of a spine that bench-failover knows, made and mended. Host 0 is on leaf 0, the receiver on leaf 1.
// Thread rule: as Fabric's.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

enum class CutKind {
  kForward,   // the data direction drops everything
  kReverse,   // the acknowledgements' direction does
  kBoth,      // both do
  kDataOnly,  // the data direction drops RoCE data, and lets routing protocols and probes pass
  kShare,     // the data direction drops a share of all packets: drop_share
  kCorrupt,   // the data direction flips a bit in a share of the RoCE packets, probes included: drop_share
  kPause,     // the data direction holds back the class of RoCE traffic for `hold`, and loses nothing
  kStorm,     // it does so again and again, for times between pause_min and pause_max, with breaks alike, for `hold`
  kLinkDown,  // the link to the receiver's leaf loses its carrier, at both ends
  kReboot,  // all links of the spine lose their carrier for kRebootDown, then are there again for `hold`, in which the
            // switch takes what comes and forwards nothing (routing protocols with the switch itself work)
};

constexpr absl::Duration kRebootDown = absl::Milliseconds(500);

inline bool IsPause(CutKind kind) { return kind == CutKind::kPause || kind == CutKind::kStorm; }
inline bool IsShare(CutKind kind) { return kind == CutKind::kShare || kind == CutKind::kCorrupt; }

// The directions that lose what they are given.
std::vector<LinkDirection> BrokenLinks(CutKind kind, int spine, int leaves);

// Not for pauses. Returns when the fault holds; the time is that at which it began. kReboot: after kRebootDown, when
// the links are back; `on_links_up` is called then (FRR takes static routes away again).
absl::StatusOr<int64_t> Break(Fabric& fabric, CutKind kind, int spine, double share,
                              const std::function<absl::Status()>& on_links_up);
absl::Status Repair(Fabric& fabric, CutKind kind, int spine);

}  // namespace cw::lab
