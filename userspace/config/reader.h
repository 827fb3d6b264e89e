// SPDX-License-Identifier: Apache-2.0
//
// The visitor that fills a Config from TOML, and collects every fault with its place.
#pragma once

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "userspace/config/schema.h"

namespace cw::config {

// Reports a fault of the key with this dotted name, for example "keys.secret_file" or "nic[1].name": at its place, or
// at its table's where the key is missing.
using Complain = std::function<void(const std::string& dotted, const std::string& message)>;

// Parses text, lets `walk` visit it, then `check` look for faults between fields.
absl::Status ReadToml(absl::string_view text, absl::string_view file, const std::function<void(Visitor&)>& walk,
                      const std::function<void(const Complain&)>& check);

}  // namespace cw::config
