// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/roles.h"

#include <algorithm>

#include "userspace/api/verbs.h"

namespace cw::api {

absl::string_view RoleName(Role role) {
  switch (role) {
    case Role::kRead:
      return "read";
    case Role::kSteer:
      return "steer";
    case Role::kAdmin:
      return "admin";
    case Role::kNone:
      break;
  }
  return "none";
}

std::optional<Role> ParseRole(absl::string_view text) {
  for (const Role role : {Role::kRead, Role::kSteer, Role::kAdmin}) {
    if (text == RoleName(role)) return role;
  }
  return std::nullopt;
}

const std::vector<MethodRole>& MethodRoles() {
#define CW_ROLE_OF_VERB(name, Request, Reply, role) {#name, Role::role},
  static const auto& table = *new std::vector<MethodRole>{CW_VERBS(CW_ROLE_OF_VERB) CW_STREAMED_VERBS(CW_ROLE_OF_VERB)};
#undef CW_ROLE_OF_VERB
  return table;
}

const MethodRole* FindMethod(absl::string_view method) {
  const std::vector<MethodRole>& table = MethodRoles();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const MethodRole& each) { return each.method == method; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace cw::api
