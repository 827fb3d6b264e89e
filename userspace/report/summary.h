// SPDX-License-Identifier: Apache-2.0
//
// What observing would have avoided, from the lines of the report file.
// Pure but for ReadFiles; any thread.
#pragma once

#include <cstdint>
#include <istream>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/report/item.h"

namespace cw::report {

struct Items {
  std::vector<Item> items;  // oldest first; of lines that follow each other the last
  uint64_t torn = 0;        // lines skipped
};

// Appends what the stream holds.
void Read(std::istream& in, Items& out);
// FILE.1 and FILE. NotFound: there is neither.
absl::StatusOr<Items> ReadFiles(const std::string& file);

enum class By { kKind, kJob, kLink, kPair };

struct Group {
  std::string key;
  uint64_t decisions = 0;  // repeats counted
  uint64_t flows = 0;
  double stall_ms = 0;  // sum
  double stall_longest_ms = 0;
  double goodput_share = 0;    // mean over those items that tell it …
  uint64_t goodput_items = 0;  // … which are so many
  uint64_t unknown = 0;        // items whose harm is not known
  int64_t first_unix_ns = 0, last_unix_ns = 0;
};

// Items not older than since_unix_ns, the most harmful group first. By link an item counts for each link of its path
// but the host's own; links of unknown ends are "*".
std::vector<Group> Summarise(const Items& items, int64_t since_unix_ns, By by);

}  // namespace cw::report
