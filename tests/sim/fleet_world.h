// SPDX-License-Identifier: Apache-2.0
//
// Made-up fleets: fabrics of two and three tiers with rails and planes, hosts that probe each other over them, and
// faults that are known. A host tells what it sees as agents do: every ten seconds, and at once when a path of its own
// dies or lives again, but no sooner than a second after it told last. Some hosts are missing, some late, and some lie.
// Pure, and the same for the same seed. One thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "userspace/fleet/findings/components.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/findings/picture.h"

namespace cw::sim {

struct FleetShape {
  int pods = 1;         // with more than one there are cores above
  int groups = 4;       // of hosts, in a pod; each has a leaf per rail
  int rails = 1;        // = NICs of a host
  int hosts = 4;        // of a group
  int spines = 4;       // of a pod, each leaf to each; with planes of a pod and rail
  bool planes = false;  // a network of its own for each rail
  int cores = 2;        // above each spine
  int peers = 6;        // that a NIC probes, on its own rail
  int ways = 4;         // to each of them at most
  int probes_per_s = 20;
  double missing = 0.02, late = 0.02;  // shares of hosts
  bool liar = true;                    // one host
};

// What happens in the world.
struct FleetFault {
  enum class Kind {
    kNone,
    kOneDirection,
    kCable,
    kGrey,
    kSwitch,
    kNic,
    kHost,
    kAgent,
    kFlapping,
    kSwapped,
    kCongestion,
    kIncast,
    kSlowReceiver,
    kSlowSender,
    kClock,
    kPaused,
    kSettings
  };
  static constexpr int kKinds = 17;
  Kind kind = Kind::kNone;
  std::set<int> edges;  // directed, that it concerns
  double loss = 1;      // on them
  double queue_ns = 0;
  int host = -1, nic = -1, peer = -1;
  bool told = false;  // NIC: its host has a carrier event
  fleet::Cause cause = fleet::Cause::kLinkDead;
  std::set<std::string> scopes;  // any of these names it rightly
};
const char* FaultName(FleetFault::Kind kind);

class FleetWorld {
 public:
  FleetWorld(const FleetShape& shape, uint64_t seed);

  // A fault of this kind at a place that at least three hosts' paths see.
  FleetFault Choose(FleetFault::Kind kind);
  void Begin(const FleetFault& fault);
  void End();
  // 200 ms pass. Whether the service would look: a second is over, or hosts told that paths died or live again.
  bool Tick();
  const fleet::Picture& picture() const { return picture_; }
  int64_t now_ns() const { return picture_.now_ns; }
  const FleetFault& fault() const { return fault_; }
  // Whether this names the host that lies, its NIC, or the way of that into the fabric: what a host says of itself
  // nobody can check.
  bool IsOfLiar(const std::string& scope) const;
  bool IsOfLate(const fleet::Finding& finding) const;  // whose reports do not count is a finding, and right
  size_t hosts() const { return host_.size(); }
  size_t paths() const { return path_.size(); }

 private:
  struct Edge {
    int from = -1, to = -1;  // nodes: switches, then NICs
    Addr port;               // where it ends
    double loss = 0, queue_ns = 0;
    bool paused = false;    // for the class of the probes
    std::set<int> seen_by;  // hosts, up to four
  };
  struct Nic {
    int host = 0, rail = 0, leaf = 0, up = 0, down = 0;  // edges
    Addr address;
  };
  struct Host {
    std::string name;
    std::vector<int> nics;
    bool missing = false, late = false, liar = false, silent = false;
    int64_t told_s = 0, drop_s = 0;  // when it told last; when its silence is noticed
    int64_t hurry_tick = -1;         // tells then that paths died or live again; −1: none did
    int place = -1;                  // in the picture
    size_t first = 0, last = 0;      // of its paths
  };
  struct Path {
    int from = 0, to = 0;  // NICs
    std::vector<int> edges;
    std::vector<Addr> hops;
    uint32_t sent = 0, lost = 0;
    bool dead = false, paused = false;
    size_t evidence = 0;  // in the picture
  };

  int Node(const std::string& name);
  int AddEdge(int from, int to, Addr port);
  void BothWays(int a, int b);
  void Build();
  void AddPaths();
  std::vector<std::vector<int>> Ways(int from_leaf, int to_leaf);
  void MakePicture();
  void LookAtFabric();
  void Hear(Host& host);
  void LookAtPaths(Host& host, bool whole);
  void Lie(const Host& host);
  void Tell(const std::string& host, const std::string& type, const std::string& peer, bool alert,
            std::vector<std::pair<std::string, std::string>> evidence);
  bool Watched(int edge) const { return edge_[static_cast<size_t>(edge)].seen_by.size() >= 3; }
  int Random(int n) { return static_cast<int>(random_() % static_cast<uint64_t>(n)); }
  double Chance() { return std::uniform_real_distribution<double>(0, 1)(random_); }
  bool ChooseSwapped(FleetFault& fault);  // false: there is no such pair of cables; choose again
  void ChooseCable(FleetFault& fault);
  void ChooseSwitch(FleetFault& fault);
  void ChooseLink(FleetFault& fault);
  void ChooseAtHost(FleetFault& fault);
  int PickEdge(bool nic_too);
  int PickHost();
  std::string LinkScope(int edge) const;
  void Apply(bool on);

  const FleetShape shape_;
  std::mt19937_64 random_;
  std::vector<std::string> node_;
  std::map<std::pair<int, int>, int> edge_between_;
  std::vector<Edge> edge_;
  std::vector<Nic> nic_;
  std::vector<Host> host_;
  std::vector<Path> path_;
  std::vector<std::vector<int>> up_;  // node → nodes above
  int switches_ = 0;
  uint32_t next_address_ = 0x0b000001;
  int64_t second_ = 0, tick_ = 0;
  bool changed_ = false;  // the fault, since paths were looked at
  FleetFault fault_;
  bool active_ = false;
  fleet::FleetFile plan_;
  fleet::Topology topology_;
  fleet::WiringReport wiring_;
  fleet::Components components_;
  fleet::Picture picture_;
};

}  // namespace cw::sim
