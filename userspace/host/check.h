// SPDX-License-Identifier: Apache-2.0
//
// One finding of the doctor.
#pragma once

#include <string>

namespace cw::host {

struct Check {
  enum class Result { kUnknown, kOk, kWarn, kFail };

  std::string name;  // "bpffs", "mtu eth0"
  Result result = Result::kUnknown;
  std::string seen;  // what was found
  std::string todo;  // what to do; "" when ok
};

}  // namespace cw::host
