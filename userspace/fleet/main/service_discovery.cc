// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/service_discovery.h"

#include <nlohmann/json.hpp>

namespace cw::fleet {

std::map<std::string, std::string> RacksOf(const std::map<std::string, std::vector<Addr>>& nics_of_host,
                                           const Topology& topology) {
  std::map<std::string, std::string> racks;
  for (const auto& [host, nics] : nics_of_host) {
    std::string rack;
    bool several = false;
    for (const Addr& nic : nics) {
      const auto leaf = topology.leaf_of.find(nic);
      if (leaf == topology.leaf_of.end()) continue;
      const std::string& here = topology.switches[static_cast<size_t>(leaf->second)].rack;
      several = several || (!rack.empty() && !here.empty() && here != rack);
      if (!here.empty()) rack = here;
    }
    if (!rack.empty() && !several) racks[host] = rack;
  }
  return racks;
}

std::string TargetsJson(const std::vector<HostFacts>& hosts, const std::map<std::string, std::string>& rack_of) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const HostFacts& host : hosts) {
    if (host.metrics.empty()) continue;
    nlohmann::ordered_json labels = {{"host", host.host}};
    if (const auto rack = rack_of.find(host.host); rack != rack_of.end()) labels["rack"] = rack->second;
    list.push_back({{"targets", nlohmann::ordered_json::array({host.metrics})}, {"labels", labels}});
  }
  return list.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace cw::fleet
