// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/failover_fault.h"

#include "absl/time/clock.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

absl::Status SetForwarding(const Fabric& fabric, int spine, bool on) {
  return RunInNetns(fabric.SpineNetns(spine), [&] { return WriteSysctl("net/ipv4/ip_forward", on ? "1" : "0"); });
}

absl::Status SetAllLinks(Fabric& fabric, int spine, bool up) {
  absl::Status status;
  for (int leaf = 0; leaf < fabric.spec().leaves; ++leaf) status.Update(fabric.SetLinkUp(leaf, spine, up).status());
  return status;
}

// A switch that starts again: its ports come up before its tables are filled.
absl::StatusOr<int64_t> Reboot(Fabric& fabric, int spine, const std::function<absl::Status()>& on_links_up) {
  const int64_t began_ns = MonotonicNs();
  if (absl::Status status = SetAllLinks(fabric, spine, false); !status.ok()) return status;
  if (absl::Status status = SetForwarding(fabric, spine, false); !status.ok()) return status;
  absl::SleepFor(kRebootDown - absl::Nanoseconds(MonotonicNs() - began_ns));
  if (absl::Status status = SetAllLinks(fabric, spine, true); !status.ok()) return status;
  if (absl::Status status = on_links_up(); !status.ok()) return status;
  return began_ns;
}

Fault FaultOf(CutKind kind, double share) {
  if (kind == CutKind::kShare) return Fault::Share(share);
  if (kind == CutKind::kCorrupt) return Fault::Corrupt(share);
  return Fault::Drop(kind == CutKind::kDataOnly ? Fault::Match::kRoceData : Fault::Match::kAll);
}

}  // namespace

std::vector<LinkDirection> BrokenLinks(CutKind kind, int spine, int leaves) {
  // Data that leaf 0 sent to the spine dies on its way down to leaf 1.
  const LinkDirection data = LinkDirection::SpineToLeaf(spine, 1);
  const LinkDirection acknowledgements = LinkDirection::SpineToLeaf(spine, 0);
  if (kind == CutKind::kReverse) return {acknowledgements};
  if (kind == CutKind::kBoth) return {data, acknowledgements};
  if (kind == CutKind::kLinkDown) return {data, LinkDirection::LeafToSpine(1, spine)};
  if (kind != CutKind::kReboot) return {data};
  std::vector<LinkDirection> all = {data};
  for (int leaf = 0; leaf < leaves; ++leaf) {
    if (leaf != 1) all.push_back(LinkDirection::SpineToLeaf(spine, leaf));
  }
  return all;
}

absl::StatusOr<int64_t> Break(Fabric& fabric, CutKind kind, int spine, double share,
                              const std::function<absl::Status()>& on_links_up) {
  if (kind == CutKind::kReboot) return Reboot(fabric, spine, on_links_up);
  const int64_t before_ns = MonotonicNs();
  if (kind == CutKind::kLinkDown) {
    // Packets are lost some milliseconds before the change is told as done, where the machine is busy.
    if (absl::Status status = fabric.SetLinkUp(1, spine, false).status(); !status.ok()) return status;
    return before_ns;
  }
  if (kind == CutKind::kSlow)
    return fabric.SetLinkRate(LinkDirection::SpineToLeaf(spine, 1), kSlowShare * fabric.spec().link_mbps);
  int64_t began_ns = 0;
  for (const LinkDirection& link : BrokenLinks(kind, spine, fabric.spec().leaves)) {
    const absl::StatusOr<int64_t> at_ns = fabric.SetFault(link, FaultOf(kind, share));
    if (!at_ns.ok()) return at_ns.status();
    if (began_ns == 0) began_ns = *at_ns;
  }
  return began_ns;
}

absl::Status Repair(Fabric& fabric, CutKind kind, int spine) {
  if (kind == CutKind::kReboot) return SetForwarding(fabric, spine, true);
  if (kind == CutKind::kLinkDown) return fabric.SetLinkUp(1, spine, true).status();
  if (kind == CutKind::kSlow)
    return fabric.SetLinkRate(LinkDirection::SpineToLeaf(spine, 1), fabric.spec().link_mbps).status();
  absl::Status status;
  for (const LinkDirection& link : BrokenLinks(kind, spine, fabric.spec().leaves)) {
    status.Update(fabric.ClearFault(link).status());
  }
  return status;
}

}  // namespace cw::lab
