// SPDX-License-Identifier: Apache-2.0
//
// The session of this agent: a number that its probes and messages carry, and of which peers accept the newest they
// have seen only (serial numbers, RFC 1982). It is the wall clock's second of the start where that will do. A host may
// boot with a clock that is behind, so the last session is kept in a file that outlives reboots, and the next one is
// larger. Where the file was lost, too, peers refuse the host until its clock is set: then a new session is due.
// Time comes in. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace cw::agent {

class SessionKeeper {
 public:
  static constexpr char kFile[] = "session";  // in the state folder

  explicit SessionKeeper(std::string file) : file_(std::move(file)) {}

  // A session later than `pinned` (the one before in the maps, 0: none) and than the kept one; it is kept at once.
  // An error means that the next one may not know of it; it is good all the same.
  absl::Status Begin(uint32_t pinned, int64_t wall_ns, int64_t monotonic_ns);
  // The wall clock was set forward since the session began, by more than a leap second.
  bool Due(int64_t wall_ns, int64_t monotonic_ns) const;
  uint32_t session() const { return session_; }  // not 0 once it has begun

 private:
  absl::Status Keep() const;

  std::string file_;
  uint32_t session_ = 0;
  int64_t wall_less_monotonic_ns_ = 0;  // when it began
};

}  // namespace cw::agent
