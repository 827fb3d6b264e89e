// SPDX-License-Identifier: Apache-2.0
//
// The picture that findings are made from, out of what hosts say now. It copies of the live state only from hosts that
// told something new; hop lists are read from the store once. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/container/node_hash_map.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/picture.h"
#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/live/whole_hops.h"
#include "userspace/fleet/store/store.h"
#include "userspace/fleet/topology/fleet_file.h"
#include "userspace/fleet/topology/nic_places.h"

namespace cw::fleet {

class LivePicture {
 public:
  struct Host {
    HostEvidence told;
    std::vector<PathEvidence> paths;
    std::vector<Arrival> arrivals;
    uint64_t run = 0, batches = 0;
    int64_t asked_ns = 0;  // for its hop lists
    bool lacks_hops = false;
    std::shared_ptr<const LiveWork> work;  // null: it told of none
    // What it told then, it would have told again by now.
    bool Holds(int64_t told_ns, absl::Duration how_long) const {
      return told_ns >= told.newest_ns - absl::ToInt64Nanoseconds(how_long);
    }
  };

  // The store outlives it.
  LivePicture(Store& store, FleetFile file) : store_(store), file_(std::move(file)) {}

  void Copy(const LiveHost& live, absl::Time now);
  void Forget(const std::string& host) { hosts_.erase(host); }
  // Hosts and paths as of picture.now_ns, but those to NICs that left. Not OK: some hop lists could not be read.
  absl::Status AddPaths(Picture& picture, std::set<Addr> departed);
  // True: the fabric is another one now.
  bool LookAtFabric(Picture& picture);
  void SetRacks(std::map<std::string, std::string> racks) { racks_ = std::move(racks); }  // of hosts

  const std::map<std::string, Host>& hosts() const { return hosts_; }
  const Topology& topology() const { return topology_; }
  const std::vector<Addr>* HopsOf(uint64_t id) const;  // null: not known

 private:
  absl::Status FillHops(const std::string& name, Host& host, int64_t now_ns);
  void FillKnown(Host& host, int64_t now_ns);

  Store& store_;
  const FleetFile file_;
  std::map<std::string, Host> hosts_;
  std::map<std::string, std::string> racks_;
  absl::node_hash_map<uint64_t, std::vector<Addr>> hops_;  // by their name, which is of their content
  WholeHops whole_hops_;
  int64_t aged_ns_ = 0;
  NicPlaces nic_places_;
  Topology topology_;
  WiringReport wiring_;
  uint64_t fabric_ = 0, seen_fabric_ = 0;
  int64_t fabric_ns_ = 0;
};

}  // namespace cw::fleet
