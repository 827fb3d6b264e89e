// SPDX-License-Identifier: Apache-2.0
//
// Findings over time. What is suspected becomes a finding when it holds for as long as its cause asks, and ends when it
// was gone for as long; one that comes back soon after is the same finding. Pure. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

// One cause at one place, as of one evaluation.
struct Suspicion {
  Finding what;  // without id and end; start: since when it can be seen
  absl::Duration open_after = absl::Seconds(2), end_after = absl::Seconds(10);
  bool at_once = false;  // sure enough to open without delay
  bool goes_on = false;  // a finding of a lesser cause at the same place, or at one of `parts`, becomes this one
  std::vector<std::string> parts;  // scopes
  int32_t component = -1;
};

// A death at one of several places, links or switches, is now known to be at this one.
bool Narrows(const Finding& what, const Finding& open);

class Ledger {
 public:
  static constexpr size_t kMost = 20'000;
  static constexpr absl::Duration kComesBack = absl::Minutes(2);
  static constexpr absl::Duration kTellAgain = absl::Minutes(1);

  // Findings that opened, ended, came back, or have news that was not told for a minute. Suspicions of one cause and
  // scope come once.
  std::vector<Finding> Update(int64_t now_ns, const std::vector<Suspicion>& suspicions);
  // From the store, after a restart: goes on if it still holds.
  void Resume(const Finding& finding, int64_t now_ns);

  std::vector<Finding> Open() const;  // by start
  int64_t NextNs() const;             // when the next suspicion may become a finding; INT64_MAX: there is none
  bool IsOpen(Cause cause, const std::string& scope) const;
  // Open, or ended within this time.
  bool Lately(Cause cause, const std::string& scope, int64_t now_ns, absl::Duration within) const;

 private:
  struct Entry {
    Finding finding;  // id 0: only suspected
    int64_t since_ns = 0, last_ns = 0, told_ns = 0;
    absl::Duration open_after, end_after;
  };
  using Entries = std::map<std::pair<Cause, std::string>, Entry>;
  Entries::iterator FindLesser(const Suspicion& suspicion);
  bool Replace(const Suspicion& suspicion, int64_t now_ns, std::vector<Finding>& changed);
  void Age(int64_t now_ns, std::vector<Finding>& changed);

  Entries entries_;
};

}  // namespace cw::fleet
