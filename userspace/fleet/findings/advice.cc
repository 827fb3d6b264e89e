// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/advice.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"

namespace cw::fleet {
namespace {

// {drain}: the command, or commands, that keep flows off it.
const char* Template(Cause cause) {
  switch (cause) {
    case Cause::kLinkDead:
      return "Keep flows off it: {drain}. Reseat or replace its cable and transceivers, then look at both ports.";
    case Cause::kLinkGrey:
      return "Keep flows off it: {drain}. Clean or replace its cable and transceivers; see the ports' error counters.";
    case Cause::kSwitchDead:
      return "Keep flows off it: {drain}. Look at the switch: power, supervisor, forwarding.";
    case Cause::kHostDown:
      return "Look at the host's console and power.";
    case Cause::kAgentGone:
      return "On the host: systemctl status cwfabric-agent, then journalctl -u cwfabric-agent.";
    case Cause::kNicDown:
      return "Look at the NIC, its cable and the leaf's port. On the host: cwctl nics.";
    case Cause::kFlapping:
      return "Keep flows off it: {drain}. Replace its cable or transceivers.";
    case Cause::kSwapped:
      return "Exchange the cables at one end, or correct the file that fabric_file in cwfleetd.toml names.";
    case Cause::kCongestion:
      return "See how full the links are: cwctl fleet links. See whose flows cross it: cwctl fleet jobs.";
    case Cause::kIncast:
      return "Too many senders for one NIC. See the job: cwctl fleet jobs; and the receiver's PFC and ECN settings.";
    case Cause::kSlowReceiver:
      return "On the receiver: see its PCIe, memory and receive queues; the fabric delivers in time.";
    case Cause::kSlowSender:
      return "On the sender: see the application, its CPU and its GPUs.";
    case Cause::kClock:
      return "On the host: cwctl clock tracking.";
    case Cause::kSla:
      return "See findings of the same time: cwctl fleet findings --all.";
    case Cause::kClassPaused:
      return "Find who sends PFC pauses, or drops this class: first the receiver's NIC and host, then the switch.";
    case Cause::kConfiguration:
      return "Set it as its peers are set, or give it a rail of its own.";
    case Cause::kNotNetwork:
      return "Look at the process that is named, its GPU and its host.";
    case Cause::kRailDown:
      return "Look at what all its NICs share: the power and the uplinks of the rail's switches.";
    case Cause::kPathsDead:
      return "Look at what these paths share, as the evidence names it; see cwctl fleet topology.";
    case Cause::kHostBusy:
      return "Give the agent processor time: see probe.cpus in its configuration, and what else runs on the host.";
    case Cause::kReportsRefused:
      return "Set the host's clock. See why its reports do not count: cwctl fleet hosts.";
    case Cause::kNicNotMeasured:
      return "See on the host what is in the way: cwctl doctor.";
    case Cause::kPacketSize:
      return "Keep flows off it: {drain}. Compare the MTU of its ports with the NICs', on a host: cwctl nics.";
  }
  return "";
}

}  // namespace

std::string DrainCommand(const std::string& scope, const std::string& host) {
  if (!host.empty()) return absl::StrCat("cwctl fleet drain host ", host);
  const size_t space = scope.find(' ');
  if (space == std::string::npos) return "";
  const std::string kind = scope.substr(0, space), name = scope.substr(space + 1);
  if (kind == "cable") return absl::StrCat("cwctl fleet drain link \"", scope, "\"");
  if (kind == "link") return absl::StrCat("cwctl fleet drain link \"", name, "\"");
  if (kind == "switch" || kind == "host") return absl::StrCat("cwctl fleet drain ", kind, " ", name);
  return "";
}

std::string AdviceOf(const Finding& finding, const std::string& host, bool by_port) {
  std::vector<std::string> commands;
  for (const std::string& scope : finding.one_of.empty() ? std::vector{finding.scope} : finding.one_of) {
    if (const std::string command = DrainCommand(scope, host);
        !command.empty() && (commands.empty() || commands.back() != command))
      commands.push_back(command);
  }
  if (!by_port) commands.clear();
  std::string text = Template(finding.cause);
  if (commands.empty()) absl::StrReplaceAll({{"Keep flows off it: {drain}. ", ""}}, &text);
  return absl::StrReplaceAll(text, {{"{drain}", absl::StrJoin(commands, ", or ")}});
}

}  // namespace cw::fleet
