// SPDX-License-Identifier: Apache-2.0
//
// What was decided and, by the mode, not done: one line of JSON each, in a file of their own (log.report_file) that
// bounds itself, so that weeks of observing fit. A line may be followed by one of the same time, kind and flow that
// tells what was not known yet: the later one holds.
// Pure; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/model/evidence.h"

namespace cw::report {

struct Item {
  int64_t time_unix_ns = 0;
  std::string kind;                // the capability: failover, loss, tails, balance, place, nic
  std::string flow;                // id, "" = none
  std::string pair;                // "10.0.0.10 > 10.0.1.10"
  std::string peer;                // name
  int slot = -1;                   // path that the flow was on
  int to_slot = -1;                // path that it would have gone to
  std::vector<std::string> links;  // of the path it was on: addresses of the ports where they end; "*" is not known
  std::string job;                 // label or command of the queue pair's owner, "" = not known
  std::string text;                // one sentence
  Evidence evidence;
  // What acting would have avoided, as far as that can be told; nullopt: not, or not yet.
  std::optional<double> stall_ms;
  std::optional<double> goodput_share;  // of the flow's goodput, 0–1
  std::string how;                      // the two were computed
  uint32_t times = 1;                   // alike decisions that this line stands for
  // Where the window of the decision stands in the recording of observations; 0 and -1: it was not recorded.
  int64_t recording_unix_ns = 0;  // when that file was begun, as its head says
  int64_t window = -1;            // for cwctl replay FILE --window
};

// One line, with its line feed.
std::string ToLine(const Item& item);
// nullopt: torn, or no item.
std::optional<Item> FromLine(absl::string_view line);

// Alike decisions are not told again before this long, but counted.
struct Repeats {
  static constexpr int64_t kAgainNs = 600'000'000'000;
  int64_t told_ns = 0;
  uint32_t merged = 0;
  // The number of decisions that a line told now would stand for; 0: none is due.
  uint32_t Tell(int64_t now_ns);
};

}  // namespace cw::report
