// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/topology/fleet_file.h"

#include <functional>
#include <map>
#include <set>

#include "absl/strings/str_cat.h"
#include "userspace/config/reader.h"
#include "userspace/config/schema.h"

namespace cw::fleet {
namespace {

using config::TextRule;
using config::Visitor;

// Addresses as they stand in the file; the reader has checked them by TextRule::kAddress.
Addr Parsed(const std::string& text) { return Addr::Parse(text).value_or(Addr{}); }

template <typename Element>
void WalkAll(Visitor& v, absl::string_view key, std::vector<Element>& elements, absl::string_view doc,
             const std::function<void(Element&)>& walk) {
  elements.resize(v.BeginArray(key, elements.size(), doc));
  for (size_t i = 0; i < elements.size(); ++i) {
    v.BeginElement(i);
    walk(elements[i]);
    v.EndElement();
  }
  v.EndArray();
}

Addr Address(Visitor& v, absl::string_view key, absl::string_view doc) {
  return Parsed(v.Text(key, "", TextRule::kAddress, doc));
}

void WalkFleet(Visitor& v, FleetFile& fleet) {
  WalkAll<PlannedSwitch>(v, "switch", fleet.switches, "A switch; one table each.", [&](PlannedSwitch& s) {
    s.name = v.Text("name", "", TextRule::kName, "What people call it.");
    s.rack = v.Text("rack", "", TextRule::kFree, "Where it stands.");
    s.rail = v.Text("rail", "", TextRule::kFree, "The rail that it serves.");
    for (const std::string& a : v.Texts("addresses", {}, TextRule::kAddress, "Of its ports, and its own.")) {
      s.addresses.push_back(Parsed(a));
    }
  });
  WalkAll<PlannedCable>(v, "cable", fleet.cables, "A cable between switches, one direction each.",
                        [&](PlannedCable& c) {
                          c.from = v.Text("from", "", TextRule::kName, "The switch where it begins.");
                          c.to = Address(v, "to", "The address of the port where it ends.");
                        });
  WalkAll<PlannedNic>(v, "nic", fleet.nics, "A NIC of a host.", [&](PlannedNic& n) {
    n.address = Address(v, "address", "Its address.");
    n.leaf = v.Text("leaf", "", TextRule::kName, "The switch that it ought to be plugged into.");
  });
}

void Check(const FleetFile& fleet, const config::Complain& complain) {
  std::set<std::string> names;
  std::map<Addr, std::string> owners;
  for (size_t i = 0; i < fleet.switches.size(); ++i) {
    const PlannedSwitch& s = fleet.switches[i];
    const std::string at = absl::StrCat("switch[", i, "].");
    if (s.name.empty()) complain(at + "name", "a switch needs a name");
    if (!names.insert(s.name).second) complain(at + "name", absl::StrCat("there are two switches named ", s.name));
    for (const Addr& a : s.addresses) {
      const auto [owner, fresh] = owners.emplace(a, s.name);
      if (!fresh) complain(at + "addresses", absl::StrCat(a.ToString(), " is ", owner->second, "'s already"));
    }
  }
  const auto known = [&](const std::string& name, const std::string& where) {
    if (!names.contains(name)) complain(where, absl::StrCat("there is no [[switch]] named \"", name, "\""));
  };
  std::set<Addr> ends, nics;
  for (size_t i = 0; i < fleet.cables.size(); ++i) {
    const PlannedCable& c = fleet.cables[i];
    const std::string at = absl::StrCat("cable[", i, "].");
    known(c.from, at + "from");
    if (c.to.is_zero()) complain(at + "to", "a cable ends at a port's address");
    if (!ends.insert(c.to).second) complain(at + "to", absl::StrCat("two cables end at ", c.to.ToString()));
  }
  for (size_t i = 0; i < fleet.nics.size(); ++i) {
    const PlannedNic& n = fleet.nics[i];
    const std::string at = absl::StrCat("nic[", i, "].");
    known(n.leaf, at + "leaf");
    if (n.address.is_zero()) complain(at + "address", "a NIC needs an address");
    if (!nics.insert(n.address).second) complain(at + "address", absl::StrCat(n.address.ToString(), " is there twice"));
  }
}

}  // namespace

absl::StatusOr<FleetFile> ReadFleetFile(absl::string_view text, absl::string_view file) {
  FleetFile fleet;
  const absl::Status status = config::ReadToml(
      text, file, [&](Visitor& v) { WalkFleet(v, fleet); }, [&](const config::Complain& c) { Check(fleet, c); });
  if (!status.ok()) return status;
  return fleet;
}

}  // namespace cw::fleet
