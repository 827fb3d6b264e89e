// SPDX-License-Identifier: Apache-2.0
//
// What a decision was based on, for people and for JSON: names with values, in the order in which they should be read.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace cw {

// Names are lower-case words joined by '_' and end in their unit where there is one: {"queue_us", "412"}.
using Evidence = std::vector<std::pair<std::string, std::string>>;

}  // namespace cw
