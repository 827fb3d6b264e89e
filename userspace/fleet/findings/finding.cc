// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/finding.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace cw::fleet {

absl::string_view CauseName(Cause cause) {
  switch (cause) {
    case Cause::kLinkDead:
      return "link dead";
    case Cause::kLinkGrey:
      return "link grey";
    case Cause::kSwitchDead:
      return "switch dead";
    case Cause::kHostDown:
      return "host down";
    case Cause::kAgentGone:
      return "agent gone";
    case Cause::kNicDown:
      return "NIC down";
    case Cause::kFlapping:
      return "link flapping";
    case Cause::kSwapped:
      return "cables swapped";
    case Cause::kCongestion:
      return "congestion";
    case Cause::kIncast:
      return "incast";
    case Cause::kSlowReceiver:
      return "slow receiver";
    case Cause::kSlowSender:
      return "slow sender";
    case Cause::kClock:
      return "clock";
    case Cause::kSla:
      return "SLA missed";
    case Cause::kClassPaused:
      return "class paused";
    case Cause::kConfiguration:
      return "configuration";
    case Cause::kNotNetwork:
      return "not the network";
    case Cause::kRailDown:
      return "rail down";
    case Cause::kPathsDead:
      return "paths dead";
    case Cause::kHostBusy:
      return "host too busy";
    case Cause::kReportsRefused:
      return "reports refused";
    case Cause::kNicNotMeasured:
      return "NIC not measured";
    case Cause::kPacketSize:
      return "packet size";
  }
  return "unknown";
}

uint64_t FindingId(Cause cause, absl::string_view scope, int64_t start_ns) {
  uint64_t hash = 0xcbf29ce484222325;
  const auto eat = [&](const std::string& bytes) {
    for (const char c : bytes) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001b3;
  };
  eat(absl::StrFormat("%s|%s|%d", CauseName(cause), scope, start_ns));
  return hash == 0 ? 1 : hash;
}

std::string IdText(uint64_t id) { return absl::StrFormat("%016x", id); }

std::optional<uint64_t> ParseId(absl::string_view text) {
  uint64_t id = 0;
  if (text.empty() || text.size() > 16 || !absl::SimpleHexAtoi(text, &id)) return std::nullopt;
  return id;
}

}  // namespace cw::fleet
