// SPDX-License-Identifier: Apache-2.0
//
// What the store's blobs have in common: zlib around, numbers as differences within. Pure; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/model/varint.h"

namespace cw::fleet {

// Unsigned, so that whatever a host tells wraps and comes back.
inline uint64_t Change(uint64_t now, uint64_t before) { return ZigZag(static_cast<int64_t>(now - before)); }
inline uint64_t Apply(uint64_t change, uint64_t before) { return before + static_cast<uint64_t>(UnZigZag(change)); }

// A varint of more than 32 bits is none.
bool TakeNumber32(absl::string_view* bytes, uint32_t* value);

// The size, then what zlib makes of it at level 1.
std::string Deflated(const std::string& plain);
// False: not what Deflated made, or larger than a blob may be.
bool Inflate(absl::string_view blob, std::string* plain);

}  // namespace cw::fleet
