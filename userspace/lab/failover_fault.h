// SPDX-License-Identifier: Apache-2.0
//
// The faults that bench-failover knows, made and mended: of a spine, or of a host. Host 0 is on leaf 0, the receiver on
// leaf 1.
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
  kSlow,    // the data direction has kSlowShare of its rate, and its queue
  kPeerDown,     // nothing comes from the receiving host or reaches it
  kPeerRestart,  // and its agent is killed, and starts anew when the host is there again
  kNicDown,      // nothing passes the sending host's first NIC, silently; hosts have a second one
};

constexpr absl::Duration kRebootDown = absl::Milliseconds(500);
constexpr double kSlowShare = 0.1;

inline bool IsPause(CutKind kind) { return kind == CutKind::kPause || kind == CutKind::kStorm; }
// Some packets pass: a flow has recovered when it is gone from there.
inline bool IsShare(CutKind kind) {
  return kind == CutKind::kShare || kind == CutKind::kCorrupt || kind == CutKind::kSlow;
}
inline bool IsPeer(CutKind kind) { return kind == CutKind::kPeerDown || kind == CutKind::kPeerRestart; }
// No path is at fault.
inline bool IsHost(CutKind kind) { return IsPeer(kind) || kind == CutKind::kNicDown; }

// The directions that lose what they are given; that which measured data takes comes first. Not for faults of hosts.
std::vector<LinkDirection> BrokenLinks(CutKind kind, int spine, int leaves);

// Not for pauses and faults of hosts. Returns when the fault holds; the time is that at which it began. kReboot: after
// kRebootDown, when the links are back; `on_links_up` is called then (FRR takes static routes away again).
absl::StatusOr<int64_t> Break(Fabric& fabric, CutKind kind, int spine, double share,
                              const std::function<absl::Status()>& on_links_up);
absl::Status Repair(Fabric& fabric, CutKind kind, int spine);

}  // namespace cw::lab
