// SPDX-License-Identifier: Apache-2.0
//
// The hosts' metrics as targets of Prometheus. Pure; any thread.
//
// Source of the form: Prometheus' HTTP service discovery (http_sd_config).
#pragma once

#include <map>
#include <string>
#include <vector>

#include "userspace/fleet/store/records.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

// host → rack of the leaves that its NICs are plugged into; hosts whose leaves have none, or stand in several, are left
// out.
std::map<std::string, std::string> RacksOf(const std::map<std::string, std::vector<Addr>>& nics_of_host,
                                           const Topology& topology);

// [{"targets": ["10.0.0.5:9477"], "labels": {"host": "node17", "rack": "a3"}}, …], by host; those whose metrics are
// nowhere are left out.
std::string TargetsJson(const std::vector<HostFacts>& hosts, const std::map<std::string, std::string>& rack_of);

}  // namespace cw::fleet
