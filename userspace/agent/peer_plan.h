// SPDX-License-Identifier: Apache-2.0
//
// Whom a host probes, of what its configuration and the peers' files say. Reads files; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "userspace/config/config.h"
#include "userspace/model/flow.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

// A NIC of this host.
struct ProbedNic {
  Addr address;
  int ifindex = 0;
  bool probes = true;  // false: it is this host's, and has no probes
};

struct PeerPlan {
  std::vector<std::string> peers;  // their names, without this host's
  std::string own_name;            // of this host, as the tables have it; "": they don't
  absl::flat_hash_map<Addr, std::string> names;
  absl::flat_hash_map<Addr, size_t> rails;  // an address's place among its peer's
  std::vector<probe::PairSpec> specs;
};

// InvalidArgument, NotFound: LoadPeers'.
absl::StatusOr<PeerPlan> PlanPeers(const config::Config& config, const std::vector<ProbedNic>& nics);

// What this host goes by. Who chooses a carrier and who is whose neighbour both ends compute from names, so it is the
// one that others have: of the tables, else as configured, else the kernel's. Warns where they do not agree.
std::string HostNameOf(const config::Config& config, const std::string& in_tables, const std::string& of_kernel);

}  // namespace cw::agent
