// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/pinned_link.h"

#include <bpf/bpf.h>
#include <errno.h>

#include "absl/strings/str_cat.h"

namespace cw::dataplane {

absl::StatusOr<LinkInfo> ReadLink(int fd) {
  bpf_link_info info = {};
  uint32_t len = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd, &info, &len) != 0) return absl::ErrnoToStatus(errno, "read a BPF link's info");
  return LinkInfo{info.prog_id, info.xdp.ifindex};  // tcx has its ifindex in the same place
}

absl::StatusOr<PinnedLink> OpenPinnedLink(const std::string& path) {
  PinnedLink link;
  link.fd.reset(bpf_obj_get(path.c_str()));
  if (!link.fd.ok()) return absl::ErrnoToStatus(errno, absl::StrCat("open the pinned link ", path));
  auto info = ReadLink(link.fd.get());
  if (!info.ok()) return info.status();
  link.info = *info;
  return link;
}

absl::Status DetachLink(int fd) {
  if (bpf_link_detach(fd) == 0 || errno == ENOLINK || errno == ENODEV) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, "detach a BPF link");
}

}  // namespace cw::dataplane
