// SPDX-License-Identifier: Apache-2.0
//
// Made-up fleets: hosts that probe each other over a made-up fabric (fleet_fabric.h), report by the production rules
// (fleet_pair.h, fleet_agent.h) to the production service (fleet_service.h), and faults that are known. Some hosts have
// no agent, some a clock that is behind, and one lies. What an agent cannot tell cannot be simulated: of a NIC it tells
// name, address and MTU alone. Pure, and the same for the same seed. Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/sim/fleet_agent.h"
#include "tests/sim/fleet_fabric.h"
#include "tests/sim/fleet_pair.h"
#include "tests/sim/fleet_service.h"

namespace cw::sim {

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
    kPausedNic,
    kSettings,
    kLeafPower,
    kRail,
    kReboot,
    kFrozen,
    kBeforeStart,
    kRestart,
    kHalfRestart,
    kTwo,
    kCableFlaps,
    kNicFlaps,
    kTwoRacks,
    kUplinks
  };
  static constexpr int kKinds = 30;
  Kind kind = Kind::kNone;
  std::set<int> edges;  // directed, that it concerns
  double loss = 1;      // on them
  double queue_ns = 0;
  int host = -1, nic = -1, peer = -1;
  std::set<int> hosts;  // that go with it
  bool told = false;    // NIC: its host has a carrier event
  fleet::Cause cause = fleet::Cause::kLinkDead;
  std::set<std::string> scopes;                            // any of these names it rightly
  std::set<std::pair<fleet::Cause, std::string>> instead;  // is as right
  std::set<std::pair<fleet::Cause, std::string>> also;     // is true, too
};
const char* FaultName(FleetFault::Kind kind);
inline bool Flaps(FleetFault::Kind kind) {
  return kind == FleetFault::Kind::kFlapping || kind == FleetFault::Kind::kCableFlaps ||
         kind == FleetFault::Kind::kNicFlaps;
}
// Whether such a fabric can have, or show, such a fault.
bool Applies(FleetFault::Kind kind, const FleetShape& shape);

class FleetWorld {
 public:
  // edges: dead before the first agent starts.
  FleetWorld(const FleetShape& shape, uint64_t seed, const std::set<int>& dead = {});

  // A fault of this kind at a place that at least three hosts' paths see. After a look.
  FleetFault Choose(FleetFault::Kind kind);
  std::vector<FleetFault> ChooseUplinks();  // each cable from one leaf to other switches
  void Begin(const FleetFault& fault) { Apply(fault, true); }
  void End(const FleetFault& fault) { Apply(fault, false); }
  // An interval of probes passes. Whether the service would look.
  bool Tick();
  std::vector<fleet::Finding> Look() { return service_.Look(now_ns_); }
  const FleetService& service() const { return service_; }
  int64_t now_ns() const { return now_ns_; }
  // Whether this names the host that lies, its NIC, or the way of that into the fabric: what a host says of itself
  // nobody can check.
  bool IsOfLiar(const std::string& scope) const;
  bool IsOfLate(const fleet::Finding& finding) const;  // whose reports do not count is a finding, and right

 private:
  friend class FleetChoice;

  void AddHosts();
  void AddPairs();
  void AddPair(int from, int to);
  void StartAll(const std::set<int>& dead);
  // These edges, or who answers at their ends, change; `apply` does it.
  void Change(const std::set<int>& edges, const std::function<void()>& apply);
  void SetEdges(const FleetFault& fault, bool on);
  void Apply(const FleetFault& fault, bool on);
  void Flap(const FleetFault& fault, int times);
  void ApplyAtHost(const FleetFault& fault, bool on);
  void TellClock(const FleetFault& fault, bool on);
  void TakePower(const FleetFault& fault);
  void Return(int host, bool booted);
  void Restart(int host, int64_t down_ns);
  void Swap(const FleetFault& fault);
  void TickPair(size_t p);
  void MakeLiar(int host);
  void After(int64_t ns, std::function<void()> what) { agenda_.emplace(now_ns_ + ns, std::move(what)); }
  bool Watched(int edge) const { return seen_by_[static_cast<size_t>(edge)].size() >= 3; }
  FleetAgent& Host(int host) { return *host_[static_cast<size_t>(host)]; }
  std::set<int> EdgesOf(int host) const;

  const FleetShape shape_;
  Random random_;
  FleetFabric fabric_;
  FleetService service_;
  std::vector<std::unique_ptr<FleetAgent>> host_;
  std::vector<std::unique_ptr<ProbePair>> pair_;
  std::vector<std::pair<int, int>> ends_;  // of each pair: NICs
  std::map<std::pair<int, int>, size_t> pair_of_;
  std::vector<bool> awake_;
  std::vector<std::set<int>> seen_by_;  // edge → hosts, up to four
  std::multimap<int64_t, std::function<void()>> agenda_;
  std::vector<FleetFault> flapping_;
  bool flaps_ = false;  // of kCableFlaps, kNicFlaps
  int64_t now_ns_ = 0, tick_ = 0, looked_tick_ = 0;
  uint64_t run_ = 0;
  uint32_t session_ = 0;
};

}  // namespace cw::sim
