// SPDX-License-Identifier: Apache-2.0
//
// What can break, as numbers, and which of it each path needs. A path needs the links that it crosses, the cables and
// switches that these are of, and both ends' NICs and hosts: a dead NIC is silent in both directions, since answers to
// probes have to leave or enter it, too. Which of its cable's directions is dead cannot be told, so a host's own link
// is never dead by itself, only its NIC is; it can lose packets in one direction, which is a link.
// Pure. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/findings/picture.h"

namespace cw::fleet {

enum class Part : uint8_t { kLink, kCable, kSwitch, kNic, kHost };

struct Component {
  Part part = Part::kLink;
  std::string scope;                    // as Finding.scope
  std::string place;                    // as Finding.place; "": the scope
  std::vector<LinkId> links;            // of kLink and kCable
  bool at_nic = false;                  // kLink: one of its ends is a NIC
  bool gap = false;                     // kLink: all between two ports whose switches answer no trace
  bool unseen = false;                  // kLink: between two switches, and no path over it was ever whole
  std::pair<int, int> between{-1, -1};  // kLink: switches, as Topology numbers them; −1: a NIC, or none
  Addr nic;                             // kNic, and kLink where it ends at one
  int32_t host = -1;                    // kNic, kHost: place in Picture.hosts, −1 = not known
  bool own_port = true;         // kLink, kCable: no other link ends at its port, so that flows can be kept off it alone
  std::vector<int32_t> inside;  // components that are parts of this one, ascending
};

class Components {
 public:
  Components() = default;
  // A link is named by the port where it ends and the one before it, of which there are several that come and go:
  // names keeps the first that was used, by where the link ends.
  using LinkNames = std::map<Addr, std::string>;
  Components(const Topology& topology, const std::vector<HostEvidence>& hosts, LinkNames& names);

  // Those that the path needs, ascending; stays until Trim. Of a path that was never whole: up to where it is cut, and
  // from the switch there to the leaf of its destination, as if that were one link.
  const std::vector<int32_t>& Of(const PathEvidence& path);
  // Those of a path that is cut now that still answer traces.
  const std::vector<int32_t>& Reached(const PathEvidence& path);
  // The link behind them, which no trace passes; empty: it is not known.
  const std::vector<int32_t>& Behind(const PathEvidence& path);
  // Those that a path that was never whole needs, but for what answers its traces. Stays until Trim.
  const std::vector<int32_t>& Unproven(const PathEvidence& path);
  std::vector<int32_t> AtEnd(const Addr& nic);  // the NIC, its host and its leaf, as far as they are known, ascending
  // The switch behind which the trace of a path that was never whole ends; −1: of the others, and where it is not
  // known.
  int32_t EndOf(const PathEvidence& path) const;
  // What Of found is kept within bounds.
  void Trim() {
    if (ways_.size() > kMostWays) ways_.clear();
  }
  const Component& at(int32_t c) const { return all_[static_cast<size_t>(c)]; }
  size_t size() const { return all_.size(); }
  bool Contains(int32_t whole, int32_t part) const;
  int32_t CableOf(int32_t link) const;  // −1: it is not known
  int32_t WholeOf(int32_t c) const;     // of a link its cable, or the NIC where it ends; c itself where there is none
  bool KnowsLeafOf(const Addr& nic) const { return leaf_of_.contains(nic); }
  int LeafOf(const Addr& nic) const {  // −1: not known
    const auto leaf = leaf_of_.find(nic);
    return leaf == leaf_of_.end() ? -1 : leaf->second;
  }
  std::string PlaceOf(const std::string& scope) const;  // the scope where no component has it
  std::string HostAt(int32_t c) const;                  // whose NIC it is, or ends at; "": nobody's
  int32_t FindScope(const std::string& scope) const;    // −1: none
  // The link, both directions of whose cable end at this port (as agents name links); −1: none.
  int32_t LinkToPort(const Addr& port) const;

 private:
  int32_t Add(Component component);
  int32_t NicAt(Addr address);
  void MarkSilentLeaves(const Topology& topology);
  void AddCables(const Topology& topology);
  void AddSwitches(const Topology& topology);
  void NamePlaces(const Topology& topology, const std::vector<HostEvidence>& hosts);
  std::vector<int32_t> Walk(const PathEvidence& path);
  void WalkHops(const PathEvidence& path, std::vector<int32_t>& need);
  std::vector<int32_t> WalkReached(const PathEvidence& path);
  std::vector<int32_t> WalkBehind(const PathEvidence& path);
  void Take(int32_t c, std::vector<int32_t>& need) const;
  bool TakeBeyond(const Addr& last, const Addr& destination, std::vector<int32_t>& need);
  int32_t AddUnseen(int from, int to);
  int32_t Gap(const Addr& from, const Addr& to);

  static constexpr size_t kMostWays = 4'000'000;  // hosts that rename paths for ever fill nothing
  std::vector<Component> all_;
  std::map<LinkId, int32_t> link_of_;
  std::map<Addr, int32_t> to_port_;
  absl::flat_hash_map<Addr, int32_t> nic_of_;
  absl::flat_hash_map<int32_t, std::vector<int32_t>> over_;  // link → its cable and switches; NIC → its host
  absl::flat_hash_map<std::string, int32_t> by_scope_;
  std::map<Addr, int> switch_of_, leaf_of_;  // as Topology has them
  std::vector<std::string> switch_names_, host_names_;
  std::vector<int> tiers_;  // of switches
  std::map<std::pair<Addr, Addr>, int32_t> gap_between_;
  std::map<std::pair<int, int>, int32_t> link_between_;    // two switches; −1: several
  std::map<std::pair<int, int>, int32_t> unseen_between_;  // two switches
  absl::node_hash_map<std::pair<uint64_t, std::pair<Addr, Addr>>, std::vector<int32_t>> ways_;
};

}  // namespace cw::fleet
