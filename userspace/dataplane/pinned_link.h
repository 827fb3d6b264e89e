// SPDX-License-Identifier: Apache-2.0
//
// A BPF link that attaches a program to an interface (XDP, tcx). Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {

struct LinkInfo {
  uint32_t program = 0;  // id
  uint32_t ifindex = 0;  // 0: it is detached, or the interface is gone
};

struct PinnedLink {
  maps::UniqueFd fd;
  LinkInfo info;
};

absl::StatusOr<LinkInfo> ReadLink(int fd);
// NotFound: there is no such pin.
absl::StatusOr<PinnedLink> OpenPinnedLink(const std::string& path);
// Detaches, whoever else holds a descriptor of it (bpftool, a second pin). Ok where it is detached already.
absl::Status DetachLink(int fd);

}  // namespace cw::dataplane
