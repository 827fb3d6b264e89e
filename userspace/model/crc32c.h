// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli), as iSCSI has it (RFC 3720, 12.1): finds torn and rotten bytes, not forged ones. About 0.5 GB/s.
// Pure; any thread.
#pragma once

#include <cstdint>

#include "absl/strings/string_view.h"

namespace cw {

uint32_t Crc32c(absl::string_view bytes);

}  // namespace cw
