// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/tc_hook.h"

#include "userspace/dataplane/tc_filters.h"
#include "userspace/dataplane/tcx_hook.h"

namespace cw::dataplane {
namespace {

uint32_t IdOf(const ProgramSet& programs, TcSide side) {
  return side == TcSide::kEgress ? programs.tc_info().id : programs.tc_in_info().id;
}

bool HasFilterOf(OwnedBy ours, TcSide side, uint32_t ifindex) {
  const auto filter = FilterInPlace(side, ifindex);
  return filter.ok() && *filter != 0 && IsFilterOf(ours, side, ifindex, *filter);
}

}  // namespace

absl::StatusOr<maps::UniqueFd> AttachTc(const ProgramSet& programs, const PinFolder& pins, TcSide side,
                                        uint32_t ifindex) {
  const int fd = side == TcSide::kEgress ? programs.tc_fd() : programs.tc_in_fd();
  const auto ours = [&](const ProgramInfo& p) {
    return programs.Knows(p.id) || programs.UsesOurMaps(p) || pins.IsOrphan(p);
  };
  if (!HasFilterOf(ours, side, ifindex) && HasTcx(ifindex))
    return AttachTcx(pins, side, ifindex, fd, IdOf(programs, side));
  if (auto s = AttachFilter(side, ifindex, fd, IdOf(programs, side), ours); !s.ok()) return s;
  return maps::UniqueFd();
}

absl::Status DetachTc(const PinFolder& pins, TcSide side, uint32_t ifindex, OwnedBy owned_by) {
  absl::Status first = DetachTcx(pins, side, ifindex).status();
  first.Update(DetachFilter(side, ifindex, owned_by).status());
  return first;
}

absl::StatusOr<bool> IsTcAttached(const ProgramSet& programs, TcSide side, uint32_t ifindex) {
  if (IsOnTcx(side, ifindex, IdOf(programs, side))) return true;
  const auto filter = FilterInPlace(side, ifindex);
  if (absl::IsAlreadyExists(filter.status())) return false;
  if (!filter.ok()) return filter.status();
  return *filter == IdOf(programs, side);
}

}  // namespace cw::dataplane
