// SPDX-License-Identifier: Apache-2.0
#include "userspace/api/nics.h"

#include "absl/strings/ascii.h"
#include "userspace/host/hw_counter_names.h"

namespace cw::api {
namespace {

namespace v1 = ::cwfabric::v1;

void FillNetdev(const host::RdmaTree& tree, v1::RdmaNicPort& out) {
  const auto netdev = tree.netdevs.find(out.netdev());
  if (netdev == tree.netdevs.end()) return;
  out.set_netdev_state(netdev->second.state);
  out.set_netdev_mtu(static_cast<uint32_t>(netdev->second.mtu));
  out.set_bond(netdev->second.bond_mode);
  for (const std::string& member : netdev->second.bond_members) out.add_bond_members(member);
}

void FillPort(const host::RdmaTree& tree, const host::RdmaTreePort& port, v1::RdmaNicPort& out) {
  out.set_number(port.number);
  out.set_state(absl::AsciiStrToLower(port.state));
  out.set_physical_state(absl::AsciiStrToLower(port.physical_state));
  out.set_link_layer(port.link_layer);
  out.set_rate_bps(port.rate_bps);
  out.set_rate(port.rate);
  out.set_netdev(port.netdev);
  out.set_active_mtu(port.active_mtu);
  FillNetdev(tree, out);
  for (const host::Gid& gid : port.gids) {
    v1::RdmaGid& to = *out.add_gids();
    to.set_index(gid.index);
    to.set_gid(host::GidText(gid.address));
    to.set_type(host::GidTypeName(gid.type));
    to.set_netdev(gid.netdev);
    if (gid.type != host::GidType::kIb) to.set_address(gid.address.ToString());
  }
  for (const auto& [name, value] : port.counters) {
    if (value == 0) continue;
    v1::NicCounter& to = *out.add_counters();
    to.set_name(name);
    to.set_value(value);
    to.set_text(host::HwCounterMeaning(name));
  }
}

void FillNic(const host::RdmaTree& tree, const host::RdmaTreeNic& nic, v1::RdmaNic& out) {
  out.set_name(nic.name);
  out.set_driver(nic.driver);
  out.set_bus(nic.bus);
  out.set_node_guid(nic.node_guid);
  out.set_sys_image_guid(nic.sys_image_guid);
  out.set_firmware(nic.firmware);
  out.set_hca_type(nic.hca_type);
  out.set_board_id(nic.board_id);
  out.set_kind(nic.software ? "software" : nic.physical_function.empty() ? "physical" : "virtual");
  out.set_physical_function(nic.physical_function);
  out.set_virtual_functions(nic.virtual_functions);
  out.set_numa_node(nic.numa_node);
  out.set_iwarp(nic.iwarp);
  for (const host::RdmaTreePort& port : nic.ports) FillPort(tree, port, *out.add_ports());
}

v1::NicFinding::Level ToApi(host::RdmaFinding::Level level) {
  switch (level) {
    case host::RdmaFinding::Level::kFail:
      return v1::NicFinding::LEVEL_FAIL;
    case host::RdmaFinding::Level::kWarn:
      return v1::NicFinding::LEVEL_WARN;
    case host::RdmaFinding::Level::kNote:
      break;
  }
  return v1::NicFinding::LEVEL_NOTE;
}

}  // namespace

v1::NicsReply ToProto(const host::RdmaTree& tree, const std::vector<host::RdmaFinding>& findings) {
  v1::NicsReply reply;
  for (const host::RdmaTreeNic& nic : tree.nics) FillNic(tree, nic, *reply.add_nics());
  for (const host::RdmaFinding& finding : findings) {
    v1::NicFinding& out = *reply.add_findings();
    out.set_device(finding.device);
    out.set_port(finding.port);
    out.set_kind(finding.kind);
    out.set_level(ToApi(finding.level));
    out.set_text(finding.text);
    out.set_todo(finding.todo);
  }
  return reply;
}

}  // namespace cw::api
