// SPDX-License-Identifier: Apache-2.0
//
// Who stands at the other end of a unix socket, by the kernel's word (SO_PEERCRED, SO_PEERGROUPS: as it was when the
// peer connected), and which role the configured groups give it. RoleOfPeer is pure.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/caller.h"

namespace cw::api {

struct UnixPeer {
  uid_t uid = 0;
  gid_t gid = 0;
  pid_t pid = 0;
  std::vector<gid_t> groups;
};

absl::StatusOr<UnixPeer> ReadPeer(int fd);

// Names of unix groups, as in the configuration; "" is none, admin "auto" the group of this process.
struct GroupNames {
  std::string read, steer, admin = "auto";
};

struct UnixRoles {
  uid_t own = 0;  // this process's user: it can do anything to the agent anyhow, as root can
  std::optional<gid_t> read, steer, admin;
  // No group was named: whom the socket's mode (0660) lets in is admin, as it was before there were roles. Otherwise
  // the socket is open to all, and those without a role are sent away before a byte of theirs is read.
  bool by_mode = false;
};

// InvalidArgument: no such group on this host.
absl::StatusOr<UnixRoles> ResolveGroups(const GroupNames& names);

Role RoleOfPeer(const UnixRoles& roles, const UnixPeer& peer);

// With the user's name, where this host has one for the number.
Caller CallerOf(const UnixPeer& peer, Role role);

}  // namespace cw::api
