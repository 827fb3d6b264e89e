// SPDX-License-Identifier: Apache-2.0
//
// Which fault it is to be, and by which names of the service's own map of the fabric it is named rightly. Threads: one.
#pragma once

#include <set>
#include <string>

#include "tests/sim/fleet_world.h"
#include "userspace/fleet/findings/components.h"

namespace cw::sim {

class FleetChoice {
 public:
  explicit FleetChoice(FleetWorld& world);
  FleetFault Choose(FleetFault::Kind kind);
  std::vector<FleetFault> ChooseUplinks();

 private:
  using Edge = FleetFabric::Edge;
  const Edge& EdgeAt(int e) const { return world_.fabric_.edges[static_cast<size_t>(e)]; }
  int Random(int n) { return Draw(world_.random_, n); }
  int PickEdge(bool nic_too);
  int PickHost();
  bool BetweenSwitches(int e) const;
  std::string SwitchName(int node) const;
  std::string SwitchName(int node, int unseen) const;  // as the service calls it; "": it does not know it
  std::set<std::string> LinkScopes(int edge) const;    // likewise
  std::set<std::string> CableScopes(int edge) const;
  void ChooseLink(FleetFault& fault);
  void AddEnds(FleetFault& fault) const;
  void ChooseCable(FleetFault& fault);
  void ChooseSwitch(FleetFault& fault);
  bool ChooseSwapped(FleetFault& fault);
  void ChooseAtHost(FleetFault& fault);
  void ChoosePower(FleetFault& fault);
  void ChooseRail(FleetFault& fault);
  void AddSwitch(int node, FleetFault& fault) const;

  FleetWorld& world_;
  const fleet::Topology& topology_;
};

}  // namespace cw::sim
