// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/roles.h"

#include <algorithm>

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

// steer: what places flows by hand and what ends such placements, off included, as whoever may move flows has to be
// able to stop. admin: what the agent may do by itself from then on.
const std::vector<MethodRole>& MethodRoles() {
  static const auto& table =
      *new std::vector<MethodRole>{{"Status", Role::kRead},       {"Doctor", Role::kRead},
                                   {"Paths", Role::kRead},        {"Qps", Role::kRead},
                                   {"Owd", Role::kRead},          {"Links", Role::kRead},
                                   {"Events", Role::kRead},       {"Counters", Role::kRead},
                                   {"Clock", Role::kRead},        {"SteerShow", Role::kRead},
                                   {"Why", Role::kRead},          {"Drains", Role::kRead},
                                   {"ListJobs", Role::kRead},     {"ListCollectives", Role::kRead},
                                   {"Nics", Role::kRead},         {"Labels", Role::kRead},
                                   {"Label", Role::kSteer},       {"SteerSet", Role::kSteer},
                                   {"SteerClear", Role::kSteer},  {"SteerLock", Role::kSteer},
                                   {"Drain", Role::kSteer},       {"Undrain", Role::kSteer},
                                   {"Off", Role::kSteer},         {"SetMode", Role::kAdmin},
                                   {"BreakerReset", Role::kAdmin}};
  return table;
}

const MethodRole* FindMethod(absl::string_view method) {
  const std::vector<MethodRole>& table = MethodRoles();
  const auto found =
      std::find_if(table.begin(), table.end(), [&](const MethodRole& each) { return each.method == method; });
  return found == table.end() ? nullptr : &*found;
}

}  // namespace cw::api
