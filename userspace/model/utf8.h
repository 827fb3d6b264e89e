// SPDX-License-Identifier: Apache-2.0
//
// Text of people, hosts and receivers, bounded for messages that take well-formed UTF-8 alone: one bad byte in a string
// makes proto3 refuse the whole message. Source: RFC 3629, section 4. Pure; any thread.
#pragma once

#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace cw {

// At most so many bytes of it, ending where a character ends; each byte that belongs to none becomes U+FFFD.
std::string CutUtf8(absl::string_view text, size_t most_bytes);

}  // namespace cw
