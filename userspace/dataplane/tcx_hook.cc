// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/tcx_hook.h"

#include <bpf/bpf.h>
#include <errno.h>

#include <algorithm>
#include <vector>

#include "absl/strings/str_format.h"
#include "userspace/dataplane/libbpf_log.h"
#include "userspace/dataplane/tcx_query.h"

namespace cw::dataplane {
namespace {

constexpr uint32_t kBefore = 1u << 3;  // BPF_F_BEFORE of Linux 6.6: nothing named means before all

absl::StatusOr<maps::UniqueFd> CreateLink(TcSide side, uint32_t ifindex, int program_fd) {
  LibbpfLog quiet;
  LIBBPF_OPTS(bpf_link_create_opts, options, .flags = kBefore);
  const auto type = static_cast<bpf_attach_type>(side == TcSide::kEgress ? kTcxEgress : kTcxIngress);
  maps::UniqueFd link(bpf_link_create(program_fd, static_cast<int>(ifindex), type, &options));
  if (link.ok()) return link;
  return absl::ErrnoToStatus(errno, absl::StrFormat("attach tc %s to interface %u by tcx", NameOf(side), ifindex));
}

}  // namespace

bool HasTcx(uint32_t ifindex) {
  std::vector<TcxProgram> programs;
  return QueryTcx(ifindex, true, &programs) == 0;
}

absl::StatusOr<maps::UniqueFd> AttachTcx(const PinFolder& pins, TcSide side, uint32_t ifindex, int program_fd,
                                         uint32_t program_id) {
  auto pinned = OpenPinnedLink(pins.TcxLink(side, ifindex));
  // The pin may be of a link that somebody detached, or of an interface of another namespace.
  if (pinned.ok() && pinned->info.ifindex == ifindex && IsOnTcx(side, ifindex, pinned->info.program)) {
    if (pinned->info.program == program_id) return std::move(pinned->fd);
    if (bpf_link_update(pinned->fd.get(), program_fd, nullptr) == 0) return std::move(pinned->fd);
    return absl::ErrnoToStatus(errno,
                               absl::StrFormat("exchange the tc %s program of interface %u", NameOf(side), ifindex));
  }
  if (auto detached = DetachTcx(pins, side, ifindex); !detached.ok()) return detached.status();
  auto link = CreateLink(side, ifindex, program_fd);
  if (!link.ok()) return link;
  if (auto s = pins.Pin(link->get(), PinFolder::TcxLinkName(side, ifindex)); !s.ok()) return s;
  return link;
}

bool IsOnTcx(TcSide side, uint32_t ifindex, uint32_t program_id) {
  std::vector<TcxProgram> programs;
  if (QueryTcx(ifindex, side == TcSide::kEgress, &programs) != 0) return false;
  return std::any_of(programs.begin(), programs.end(), [&](const TcxProgram& p) { return p.program == program_id; });
}

absl::StatusOr<bool> DetachTcx(const PinFolder& pins, TcSide side, uint32_t ifindex) {
  const auto link = OpenPinnedLink(pins.TcxLink(side, ifindex));
  if (absl::IsNotFound(link.status())) return false;
  if (!link.ok()) return link.status();
  if (auto s = DetachLink(link->fd.get()); !s.ok()) return s;
  if (auto s = pins.Unpin(PinFolder::TcxLinkName(side, ifindex)); !s.ok()) return s;
  return true;
}

}  // namespace cw::dataplane
