// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/topology/wiring.h"

#include <map>
#include <set>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

struct Wrong {
  Addr end;
  std::string planned, found;
};

// Pairs that stand in each other's place are swaps; an end is in one fault only.
void Tell(const std::vector<Wrong>& wrong, bool nics, WiringReport& report) {
  std::map<std::pair<std::string, std::string>, std::vector<const Wrong*>> waiting;
  std::vector<std::pair<const Wrong*, const Wrong*>> swaps;
  for (const Wrong& w : wrong) {
    std::vector<const Wrong*>& mates = waiting[{w.found, w.planned}];
    if (mates.empty()) {
      waiting[{w.planned, w.found}].push_back(&w);
    } else {
      swaps.push_back({mates.front(), &w});
      mates.erase(mates.begin());
    }
  }
  const char* thing = nics ? "NIC" : "port";
  for (const auto& [a, b] : swaps) {
    Miswiring m{.kind = nics ? Miswiring::Kind::kSwappedNics : Miswiring::Kind::kSwappedCables};
    m.ends = {a->end, b->end};
    m.planned = {a->planned, b->planned};
    m.found = {a->found, b->found};
    m.text = absl::StrCat("the cables at ", thing, "s ", a->end.ToString(), " (planned: ", a->planned, ") and ",
                          b->end.ToString(), " (planned: ", b->planned, ") are swapped: exchange them at one end");
    report.faults.push_back(m);
  }
  for (const auto& [key, left] : waiting) {
    for (const Wrong* w : left) {
      Miswiring m{.kind = nics ? Miswiring::Kind::kNic : Miswiring::Kind::kCable};
      m.ends = {w->end};
      m.planned = {w->planned};
      m.found = {w->found};
      m.text = absl::StrCat("the cable at ", thing, " ", w->end.ToString(), " goes to ", w->found, ", planned is ",
                            w->planned, ": plug it in there, or correct fleet.toml");
      report.faults.push_back(m);
    }
  }
}

}  // namespace

WiringReport CompareWiring(const Topology& topology, const FleetFile& fleet) {
  WiringReport report;
  std::map<Addr, std::set<int>> from;  // port → switches that it was entered from
  for (const TopologyLink& link : topology.links) {
    if (link.from >= 0 && link.to >= 0) from[link.port].insert(link.from);
  }
  const auto compare = [&](const Addr& end, const std::string& planned, int found, std::vector<Wrong>& wrong) {
    const Switch& s = topology.switches[static_cast<size_t>(found)];
    if (s.name == planned) {
      ++report.right;
    } else {
      wrong.push_back({end, planned, s.name});
    }
  };
  std::vector<Wrong> cables, nics;
  for (const PlannedCable& cable : fleet.cables) {
    const auto it = from.find(cable.to);
    // Entered from several: a switch's own address, which says nothing of cables.
    if (it == from.end() || it->second.size() != 1) {
      ++report.not_seen;
    } else {
      compare(cable.to, cable.from, *it->second.begin(), cables);
    }
  }
  for (const PlannedNic& nic : fleet.nics) {
    const auto it = topology.leaf_of.find(nic.address);
    if (it == topology.leaf_of.end()) {
      ++report.not_seen;
    } else {
      compare(nic.address, nic.leaf, it->second, nics);
    }
  }
  Tell(cables, false, report);
  Tell(nics, true, report);
  return report;
}

}  // namespace cw::fleet
