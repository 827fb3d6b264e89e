// SPDX-License-Identifier: Apache-2.0
//
// What a Fabric object holds. Private to userspace/lab/fabric*.cc and faults.cc.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/fabric_route.h"
#include "userspace/lab/fabric_state.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/switch.h"

namespace cw::lab {

struct RunningCapture {
  ProcessId process;
  std::string file;
  std::string log_file;
};

struct Fabric::Impl {
  FabricState state;
  bool owned = false;  // the lab goes down with this object
  std::unique_ptr<SwitchMaps> maps;
  std::vector<std::unique_ptr<RouteQuery>> leaf_routes;  // by leaf
  std::map<int, RunningCapture> captures;
  int next_capture = 1;

  const FabricSpec& spec() const { return state.spec; }
  absl::Status OpenMapsAndRoutes();
  // NotFound when the lab has no such link.
  absl::Status Check(const LinkDirection& link) const;
  absl::StatusOr<int> PortOf(const std::string& address) const;  // the host port of a host's or tap's address
  int LeafOfPort(int port) const;
  SwitchPort Sender(const LinkDirection& link) const;
  SwitchPort Receiver(const LinkDirection& link) const;
  // Shapes the sender's queue anew. Leaf–spine links only.
  absl::Status Reshape(const LinkDirection& link, const std::string& shaper) const;
  void ConfigureLink(const LinkDirection& link, double mbps);  // rate and virtual queue, for the switch programs
};

}  // namespace cw::lab
