// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/unix_peer.h"

#include <grp.h>
#include <pwd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::api {
namespace {

constexpr size_t kNameBuffer = 64 << 10;

absl::StatusOr<std::optional<gid_t>> Resolve(const char* key, const std::string& name) {
  if (name.empty()) return std::optional<gid_t>();
  std::vector<char> buffer(kNameBuffer);
  group entry{};
  group* found = nullptr;
  (void)getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (found != nullptr) return std::optional<gid_t>(found->gr_gid);
  return absl::InvalidArgumentError(
      absl::StrFormat("api.%s: this host has no group %s; make it: groupadd --system %s", key, name, name));
}

}  // namespace

absl::StatusOr<UnixPeer> ReadPeer(int fd) {
  ucred who{};
  socklen_t size = sizeof(who);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) return absl::ErrnoToStatus(errno, "SO_PEERCRED");
  UnixPeer peer{.uid = who.uid, .gid = who.gid, .pid = who.pid};
  size = 0;
  (void)getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, nullptr, &size);  // says how much is wanted
  peer.groups.resize(size / sizeof(gid_t));
  if (size > 0 && getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer.groups.data(), &size) != 0)
    return absl::ErrnoToStatus(errno, "SO_PEERGROUPS");
  return peer;
}

absl::StatusOr<UnixRoles> ResolveGroups(const GroupNames& names) {
  UnixRoles roles{.own = geteuid()};
  const bool own_group = names.admin == "auto";
  roles.by_mode = own_group && names.read.empty() && names.steer.empty();
  absl::StatusOr<std::optional<gid_t>> read = Resolve("read_group", names.read);
  if (!read.ok()) return read.status();
  absl::StatusOr<std::optional<gid_t>> steer = Resolve("steer_group", names.steer);
  if (!steer.ok()) return steer.status();
  absl::StatusOr<std::optional<gid_t>> admin = getegid();
  if (!own_group) admin = Resolve("admin_group", names.admin);
  if (!admin.ok()) return admin.status();
  roles.read = *read;
  roles.steer = *steer;
  roles.admin = *admin;
  return roles;
}

Role RoleOfPeer(const UnixRoles& roles, const UnixPeer& peer) {
  if (roles.by_mode || peer.uid == 0 || peer.uid == roles.own) return Role::kAdmin;
  const auto in = [&](const std::optional<gid_t>& group) {
    return group &&
           (peer.gid == *group || std::find(peer.groups.begin(), peer.groups.end(), *group) != peer.groups.end());
  };
  if (in(roles.admin)) return Role::kAdmin;
  if (in(roles.steer)) return Role::kSteer;
  return in(roles.read) ? Role::kRead : Role::kNone;
}

Caller CallerOf(const UnixPeer& peer, Role role) {
  Caller caller{.role = role, .via = absl::StrCat("uid ", peer.uid)};
  std::vector<char> buffer(kNameBuffer);
  passwd entry{};
  passwd* found = nullptr;
  (void)getpwuid_r(peer.uid, &entry, buffer.data(), buffer.size(), &found);
  caller.name = found != nullptr ? std::string(found->pw_name) : caller.via;
  return caller;
}

}  // namespace cw::api
