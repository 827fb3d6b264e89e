// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/boot_id.h"

#include <fstream>

namespace cw {

std::string BootId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  std::getline(file, id);
  return id;
}

}  // namespace cw
