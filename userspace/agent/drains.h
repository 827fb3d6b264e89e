// SPDX-License-Identifier: Apache-2.0
//
// What operators want free of this host's flows (cwctl drain), in a file of the agent's run folder, because a restart
// of the agent must not send flows back to what is about to be pulled. Times are CLOCK_MONOTONIC ns; the file names the
// boot that they count from, and one of another boot is not read: nothing of what it speaks of is left.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "userspace/control/drain.h"
#include "userspace/model/boot_file.h"
#include "userspace/model/flow.h"

namespace cw::agent {

struct DrainEntry {
  struct Moved {
    uint16_t from = 0, to = 0;  // UDP source ports; from 0: the flow's native one
    bool operator==(const Moved&) const = default;
  };

  control::DrainKind kind = control::DrainKind::kPath;
  std::string what;  // as typed
  int64_t since_ns = 0;
  int64_t until_ns = 0;  // 0: it stays
  bool now = false;      // moves are forced
  // Ports that cross it, by pair: what was known when the pair's table was valid last.
  std::map<PairKey, std::set<uint16_t>> ports;
  std::map<FlowKey, Moved> moved;  // flows that it sent elsewhere

  // What is seen; not kept.
  std::map<uint32_t, uint16_t> crossing, unknown;  // by pair's index: slots that cross it, that may
  std::set<FlowKey> on_it;                         // at the last look
  std::deque<std::pair<int64_t, uint64_t>> sent;   // bytes by time, of the last second
  int64_t last_sent_ns = 0;                        // 0: never since the start
  std::map<FlowKey, int64_t> sent_ns;              // by flow, of the last minute
  uint32_t flows_unknown = 0;
  std::vector<FlowKey> held;
  std::set<FlowKey> carried;  // of a NIC: those whose packets go by another one
  bool told_safe = false;
  uint64_t overflows_before = 0;  // flows that the table had no room for before this drain
  struct Unseen {                 // queue pairs whose packets nobody here sees, at the last look of theirs
    std::set<FlowKey> on_it;
    std::map<FlowKey, int> unknown;  // of those: whose path is not known, and for how many looks
    std::vector<FlowKey> held;
    size_t leaving = 0;
  } unseen;
  std::set<FlowKey> told;  // queue pairs that would be moved, where nothing moves

  uint16_t CrossingOf(uint32_t pair) const;
  uint16_t UnknownOf(uint32_t pair) const;
  uint64_t BytesLastSecond(int64_t now_ns) const;
  void Sent(int64_t now_ns, uint64_t bytes);
  // What queue pairs sent whose packets are not seen cannot be told: acknowledgements and answers to READs are posted
  // by nobody. While one is there, nothing is silent.
  void SentUnseen(int64_t now_ns);
  double QuietS(int64_t now_ns) const;
};

class Drains {
 public:
  static constexpr char kFile[] = "drains.json";  // in the run folder

  Drains(std::string file, std::string boot) : file_(std::move(file), std::move(boot), /*version=*/1) {}

  // As for Deadlines: NotFound: nothing, or of an earlier boot. InvalidArgument: unreadable.
  absl::Status Load();
  // Writes the file anew; removes it when nothing is left. Does nothing while nothing changed.
  absl::Status Save();
  void Changed() { changed_ = true; }

  std::map<std::string, DrainEntry>& entries() { return entries_; }
  const std::map<std::string, DrainEntry>& entries() const { return entries_; }

 private:
  const BootFile file_;
  std::map<std::string, DrainEntry> entries_;  // by `what`
  bool changed_ = false;
};

}  // namespace cw::agent
