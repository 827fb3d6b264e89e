// SPDX-License-Identifier: Apache-2.0
//
// Who may call what: three roles, each of which may do all that the one before it may, and the least role of every
// call. Pure; any thread.
#pragma once

#include <optional>
#include <vector>

#include "absl/strings/string_view.h"

namespace cw::api {

enum class Role { kNone, kRead, kSteer, kAdmin };

absl::string_view RoleName(Role role);                  // "none", "read", "steer", "admin"
std::optional<Role> ParseRole(absl::string_view text);  // of the last three

struct MethodRole {
  absl::string_view method;  // as in the proto's service
  Role least;
  // Told as an event whoever calls; reading is not.
  bool changes() const { return least > Role::kRead; }
};

// Every method of the service, once.
const std::vector<MethodRole>& MethodRoles();
// Null: the table does not have it, and nobody may call it.
const MethodRole* FindMethod(absl::string_view method);

}  // namespace cw::api
