// SPDX-License-Identifier: Apache-2.0
//
// cwctl nics: RDMA devices as the agent sees them, or as this host's files do where no agent answers.
#include <CLI/CLI.hpp>
#include <iostream>
#include <string>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "cli/format.h"
#include "cli/session.h"
#include "cli/table.h"
#include "userspace/api/nics.h"
#include "userspace/host/live.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

std::string OrNone(const std::string& text) { return text.empty() ? kNoValue : text; }
std::string OrNone(uint32_t number) { return number == 0 ? kNoValue : std::to_string(number); }

std::string KindText(const v1::RdmaNic& nic) {
  if (nic.iwarp()) return "iWARP";
  if (nic.kind() == "virtual") return "VF of " + nic.physical_function();
  if (nic.kind() == "software") return "soft-RoCE";
  return nic.virtual_functions() == 0 ? "physical" : absl::StrFormat("physical, %d VFs", nic.virtual_functions());
}

std::string NetdevText(const v1::RdmaNicPort& port) {
  if (port.bond().empty()) return OrNone(port.netdev());
  return absl::StrFormat("%s (%s: %s)", port.netdev(), port.bond(), absl::StrJoin(port.bond_members(), ","));
}

// The index that jobs have to name, where they name one.
std::string V2Text(const v1::RdmaNicPort& port) {
  for (const v1::RdmaGid& gid : port.gids()) {
    if (gid.type() == "RoCE v2" && gid.address().find(':') == std::string::npos)
      return absl::StrFormat("%d %s", gid.index(), gid.address());
  }
  return kNoValue;
}

Cell StateOf(const v1::RdmaNicPort& port) {
  return {port.state(), port.state() == "active" ? Tone::kGood : Tone::kBad};
}

void ShowDevices(const v1::NicsReply& reply, bool colour) {
  Table devices({"DEVICE", "KIND", "DRIVER", "BUS", "FIRMWARE", "NODE GUID", ">NUMA", "EVENTS", "AGENT"});
  Table ports({"DEVICE", ">PORT", "STATE", "PHYSICAL", "LINK LAYER", ">RATE", "NETDEV", ">MTU B", ">ROCE MTU",
               "V2 GID OF IPV4"});
  for (const v1::RdmaNic& nic : reply.nics()) {
    devices.Add({nic.name(), KindText(nic), OrNone(nic.driver()), OrNone(nic.bus()), OrNone(nic.firmware()),
                 OrNone(nic.node_guid()), nic.numa_node() < 0 ? kNoValue : std::to_string(nic.numa_node()),
                 OrNone(nic.events()), OrNone(absl::StrJoin(nic.agent_nics(), ","))});
    for (const v1::RdmaNicPort& port : nic.ports()) {
      ports.Add({nic.name(), std::to_string(port.number()), StateOf(port), OrNone(port.physical_state()),
                 OrNone(port.link_layer()), port.rate_bps() > 0 ? RateText(port.rate_bps()) : kNoValue,
                 NetdevText(port), OrNone(port.netdev_mtu()), OrNone(port.active_mtu()), V2Text(port)});
    }
  }
  devices.Print(std::cout, colour);
  std::cout << '\n';
  ports.Print(std::cout, colour);
}

void ShowGids(const v1::NicsReply& reply, bool colour) {
  Table table({"DEVICE", ">PORT", ">INDEX", "TYPE", "NETDEV", "GID", "ADDRESS"});
  for (const v1::RdmaNic& nic : reply.nics()) {
    for (const v1::RdmaNicPort& port : nic.ports()) {
      for (const v1::RdmaGid& gid : port.gids()) {
        table.Add({nic.name(), std::to_string(port.number()), std::to_string(gid.index()), gid.type(),
                   OrNone(gid.netdev()), gid.gid(), OrNone(gid.address())});
      }
    }
  }
  if (table.empty()) return;
  std::cout << '\n';
  table.Print(std::cout, colour);
}

// With an agent, what moved since it began to look; without one, what is not zero.
void ShowCounters(const v1::NicsReply& reply, bool colour) {
  Table table({"DEVICE", ">PORT", ">MOVED", ">COUNT", "COUNTER", "WHAT"});
  double over_s = 0;
  for (const v1::RdmaNic& nic : reply.nics()) {
    for (const v1::RdmaNicPort& port : nic.ports()) {
      over_s = std::max(over_s, port.counters_over_s());
      for (const v1::NicCounter& counter : port.counters()) {
        if (port.counters_over_s() > 0 && counter.moved() == 0) continue;
        table.Add({nic.name(), std::to_string(port.number()),
                   port.counters_over_s() > 0 ? CountText(counter.moved()) : kNoValue, CountText(counter.value()),
                   counter.name(), counter.text()});
      }
    }
  }
  if (table.empty()) return;
  std::cout << '\n';
  table.Print(std::cout, colour);
  if (over_s > 0) std::cout << "\nMOVED: in the last " << DurationText(over_s) << '\n';
}

void ShowFindings(const v1::NicsReply& reply, bool colour) {
  if (reply.findings_size() > 0) std::cout << '\n';
  for (const v1::NicFinding& finding : reply.findings()) {
    const bool fail = finding.level() == v1::NicFinding::LEVEL_FAIL,
               warn = finding.level() == v1::NicFinding::LEVEL_WARN;
    std::cout << Paint(absl::StrFormat("%-4s", fail   ? "fail"
                                               : warn ? "warn"
                                                      : "note"),
                       fail   ? Tone::kBad
                       : warn ? Tone::kWarn
                              : Tone::kFaint,
                       colour)
              << "  " << Printable(finding.text()) << '\n';
    if (!finding.todo().empty()) std::cout << "      → " << Printable(finding.todo()) << '\n';
  }
  if (!reply.note().empty()) std::cout << '\n' << Printable(reply.note()) << '\n';
}

v1::NicsReply LocalNics() {
  host::RdmaTree tree = host::ReadRdmaTree(host::Roots());
  host::KernelProbe live;
  const auto interfaces = live.Interfaces();
  const auto ports = live.RdmaPorts();
  if (interfaces.ok()) host::AddInterfaces(*interfaces, ports.ok() ? *ports : std::vector<host::RdmaPort>(), tree);
  v1::NicsReply reply = api::ToProto(tree, host::JudgeRdma(tree));
  if (!tree.nics.empty())
    reply.set_note("no agent answers: RoCE MTUs, which the devices tell, and what moved are missing");
  return reply;
}

absl::StatusOr<int> Nics(Session& session) {
  absl::StatusOr<v1::NicsReply> reply = session.Agent().Nics();
  if (!session.IsRemote() && (absl::IsUnavailable(reply.status()) || absl::IsPermissionDenied(reply.status()))) {
    reply = LocalNics();
  }
  if (!reply.ok()) return reply.status();
  session.Show(*reply, [&] {
    if (reply->nics().empty()) {
      std::cout << "this host has no RDMA device (nothing in /sys/class/infiniband)\n";
      return;
    }
    ShowDevices(*reply, session.Colour());
    ShowGids(*reply, session.Colour());
    ShowCounters(*reply, session.Colour());
    ShowFindings(*reply, session.Colour());
  });
  return kOk;
}

}  // namespace

void AddNicsVerb(CLI::App& app, Session& session) {
  CLI::App* verb = app.add_subcommand(
      "nics", "RDMA devices: ports, GIDs, MTUs, counters, what is wrong with them. Works without an agent too");
  verb->callback([&session] { session.action = [&session] { return Nics(session); }; });
}

}  // namespace cw::cli
