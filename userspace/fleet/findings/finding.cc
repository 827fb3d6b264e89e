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
  }
  return "unknown";
}

absl::string_view CauseAdvice(Cause cause) {
  switch (cause) {
    case Cause::kLinkDead:
      return "Drain the link, reseat or replace its cable and transceivers, then look at both ports.";
    case Cause::kLinkGrey:
      return "Drain the link, clean or replace its cable and transceivers; see the ports' error counters.";
    case Cause::kSwitchDead:
      return "Look at the switch: power, supervisor, forwarding; traffic has left it where agents protect.";
    case Cause::kHostDown:
      return "Look at the host's console and power.";
    case Cause::kAgentGone:
      return "On the host: systemctl status cwagentd, cwctl events --type fleet; its paths are alive.";
    case Cause::kNicDown:
      return "Look at the NIC, its cable and the leaf's port.";
    case Cause::kFlapping:
      return "Drain the link and replace cable or transceivers: one that flaps dies.";
    case Cause::kSwapped:
      return "Exchange the cables at one end, or correct fleet.toml.";
    case Cause::kCongestion:
      return "See which flows take the link (cwctl fleet links); spread or move them.";
    case Cause::kIncast:
      return "Too many senders for one NIC: see the job's pattern and the receiver's PFC and ECN settings.";
    case Cause::kSlowReceiver:
      return "On the receiver: see its PCIe, memory and receive queues; the fabric delivers in time.";
    case Cause::kSlowSender:
      return "On the sender: it has nothing to send in time; see the application, its CPU and its GPUs.";
    case Cause::kClock:
      return "On the host: cwctl clock; see its NIC's clock and its neighbours.";
    case Cause::kSla:
      return "See the pairs that are named, and findings of the same time: cwctl fleet findings, cwctl paths --host.";
    case Cause::kClassPaused:
      return "Find who sends PFC pauses, or drops this class: the receiver's NIC and host first, then the switch; see "
             "their pause counters.";
    case Cause::kConfiguration:
      return "Set it as its like have it, or give it a rail of its own.";
    case Cause::kNotNetwork:
      return "Look at the process that is named, its GPU and its host; the fabric has nothing of it under way.";
    case Cause::kRailDown:
      return "Look at what all its NICs share: the power and the uplinks of the rail's switches.";
    case Cause::kPathsDead:
      return "See which paths: cwctl fleet findings --json; what they share is named in the evidence.";
    case Cause::kHostBusy:
      return "Give the agent processor time (probe.cpus, or a larger share of its unit); see what else runs there.";
    case Cause::kReportsRefused:
      return "Set the host's clock (chronyc tracking), then see cwctl fleet hosts.";
  }
  return "";
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
