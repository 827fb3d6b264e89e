// SPDX-License-Identifier: Apache-2.0
//
// What a drain of a link, a switch or a host means: addresses that no path is to cross, by the fabric as it is known.
// Pure; any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/api/fleet.pb.h"

namespace cw::fleet {

enum class DrainScope : uint8_t { kLink, kSwitch, kHost };

struct HostNics {
  std::string host;
  std::vector<std::pair<std::string, std::string>> nics;  // name, address
};

struct DrainTargets {
  DrainScope scope = DrainScope::kLink;
  std::string name;                    // as findings and tables have it
  std::vector<std::string> addresses;  // of ports, of the switch, or of the host's NICs
  std::vector<std::string> nics;       // names; of a host
  std::string note;                    // what is not covered; "" = nothing
};

// kind: "link" (name: the address of the port where it ends, as PORT in cwctl fleet links; the cable's other direction
// comes with it where it can be told), "switch" (name or one of its addresses), "host": its NICs, but for addresses
// that are a switch's or another host's, too, which the note names. NotFound says where to look; InvalidArgument:
// another kind; FailedPrecondition: no address is the host's alone.
// FailedPrecondition, too: a switch of which traces may show one half alone.
// A switch is what the topology has, and what `fabric.switches` joins with it.
struct DrainFabric {
  cwfabric::v1::FleetTopologyReply topology;
  std::vector<std::vector<std::string>> switches;  // addresses of each, where no host's word alone keeps ports apart
  std::vector<HostNics> hosts;
};
absl::StatusOr<DrainTargets> FindTargets(const std::string& kind, const std::string& name, const DrainFabric& fabric);

// What a drain has to cover by now and does not: ports of its switch, NICs and addresses of its host that became known
// later. A link stays as it was: once its cable is out, traces show another one in its place.
DrainTargets MissingTargets(const cwfabric::v1::FleetDrain& drain, const DrainFabric& fabric);

}  // namespace cw::fleet
