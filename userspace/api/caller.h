// SPDX-License-Identifier: Apache-2.0
//
// Who calls, as the kernel or a certificate says it, never as the client does. Plain value.
#pragma once

#include <string>

#include "userspace/api/roles.h"

namespace cw::api {

struct Caller {
  std::string
      name;  // of the user ("uid 1003" where it has none), or the certificate's common name; "": the agent itself
  Role role = Role::kNone;
  std::string via;  // "uid 1003", or the certificate's subject and serial number and the address that it came from
};

}  // namespace cw::api
