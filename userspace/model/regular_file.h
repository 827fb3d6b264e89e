// SPDX-License-Identifier: Apache-2.0
//
// What a configuration names is a file: a FIFO would hang who reads it, a device has no end. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace cw {

// InvalidArgument: a folder, FIFO or socket is where a file is to be written. Nothing may be there, and /dev/null.
absl::Status CheckPlaceOfFile(const std::string& path);
// The same errors, without a look at what is in it.
absl::Status CheckRegularFile(const std::string& path);
// NotFound, PermissionDenied: with errno's text. InvalidArgument: no regular file, or of more than `most_bytes`.
absl::StatusOr<std::string> ReadRegularFile(const std::string& path, uint64_t most_bytes = 64 << 20);

}  // namespace cw
