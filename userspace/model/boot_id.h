// SPDX-License-Identifier: Apache-2.0
//
// Which boot of the kernel this is. Any thread.
#pragma once

#include <string>

namespace cw {

// /proc/sys/kernel/random/boot_id, "" where it cannot be read.
std::string BootId();

}  // namespace cw
