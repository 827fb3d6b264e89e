// SPDX-License-Identifier: Apache-2.0
//
// One thing that is wrong in the fabric or with a host, with what speaks for it and what to do. Value types; any
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "userspace/model/link_id.h"

namespace cw::fleet {

enum class Cause : uint8_t {
  kLinkDead = 1,
  kLinkGrey,
  kSwitchDead,
  kHostDown,
  kAgentGone,
  kNicDown,
  kFlapping,
  kSwapped,
  kCongestion,
  kIncast,
  kSlowReceiver,
  kSlowSender,
  kClock,
  kSla,
  kClassPaused,
  kConfiguration,
  kNotNetwork,
  kRailDown,
  kPathsDead,
  kHostBusy,
  kReportsRefused,
  kNicNotMeasured,
  kPacketSize,
};
inline constexpr int kFleetCauses = 23;
absl::string_view CauseName(Cause cause);  // "link dead", "link grey", …

struct Finding {
  uint64_t id = 0;  // FindingId(cause, scope, start)
  Cause cause = Cause::kLinkDead;
  std::string
      scope;  // "link 10.0.0.1>10.1.0.2", "switch leaf1", "NIC 10.0.0.1", "host h1", "SLA rack A", "job train", …
  std::string place;                  // the same by the names of switches, hosts and NICs, addresses in brackets
  std::vector<std::string> one_of;    // scopes that cannot be told apart; scope names them then; empty: it is certain
  std::vector<LinkId> links;          // of a link (one direction) or a cable (both), ascending
  int64_t start_ns = 0;               // fleet time
  int64_t end_ns = 0;                 // 0: it goes on
  std::vector<std::string> evidence;  // short sentences, figures for and against
  std::vector<std::string> hosts;     // affected, ascending
  std::vector<std::string> jobs;      // affected, by label or process, as far as agents tell of flows
  std::vector<std::string> did;       // what agents did about it, short sentences
  std::string advice;
  bool operator==(const Finding&) const = default;
};

// Never 0. FNV-1a, so that it is the same on every machine and release.
uint64_t FindingId(Cause cause, absl::string_view scope, int64_t start_ns);
std::string IdText(uint64_t id);  // 16 hexadecimal digits
std::optional<uint64_t> ParseId(absl::string_view text);

}  // namespace cw::fleet
