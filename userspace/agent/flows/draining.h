// SPDX-License-Identifier: Apache-2.0
//
// What operators want free of this host's flows (cwctl drain): found, kept free, watched, given back. Flows leave and
// come back by their movers. Queue pairs whose packets are not seen keep it from being called safe while they are
// there. Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/agent/drains.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/mover.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/journal.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"

namespace cw::agent {

class Draining {
 public:
  struct Asks {
    std::function<const probe::Discovery*(uint32_t pair)> discovery;
    std::function<v1::PathsReply()> paths;             // by which people name one
    std::function<void(PairState& pair)> publish;      // its slots to be kept free have changed
    std::function<bool()> nic_failover;                // it is on
    std::function<bool()> holds_a_job;                 // a scope lets nothing act for some job
    std::function<bool(const PairKey& pair)> carried;  // its packets leave by another NIC
    std::function<uint64_t()> overflows;               // flows so far that the table had no room for
    std::function<uint64_t()> unplaced;                // RoCE packets so far that belong to no flow
    std::function<double(uint32_t pair)> untraced_s;   // the oldest of its paths' hops were seen so long ago
    std::function<void(uint32_t pair)> trace_soon;     // its paths
    std::function<bool(const FlowKey& flow)> has_qp;   // the kernel, or a process, lists its queue pair
  };

  // seen: who moves the flows whose packets are seen; unseen: those of `others`. All of them outlive it.
  Draining(Drains& drains, Mover& seen, Mover& unseen, const UnseenFlows& others, const FlowBook& flows,
           const PairTable& pairs, const NicTable& nics, const probe::Mesh& mesh, const Modes& modes,
           const Clock& monotonic, Journal& journal, Asks asks)
      : drains_(drains),
        seen_(seen),
        unseen_(unseen),
        others_(others),
        flows_(flows),
        pairs_(pairs),
        nics_(nics),
        mesh_(mesh),
        modes_(modes),
        monotonic_(monotonic),
        journal_(journal),
        asks_(std::move(asks)) {}

  absl::StatusOr<v1::ActionReply> Begin(const api::Caller& caller, const v1::DrainRequest& request);
  absl::StatusOr<v1::ActionReply> End(const api::Caller& caller, const v1::UndrainRequest& request);
  v1::DrainsReply All();

  void Adopt();         // what an earlier agent kept free
  void Look();          // once per window, when the flows were read
  void LookAtUnseen();  // once a second, as owners tell
  // Once a second: RoCE with addresses that are no peers, where something is drained or somebody asked of late.
  void LookAtOthers();
  void EndDue();  // once a second
  bool IsDrained(const NicState& nic) const;

 private:
  static constexpr double kSafeAfterS = 10;  // without a byte
  // A flow whose queue pair nobody lists may be that of another namespace, which sends a message now and then.
  static constexpr int64_t kUnlistedQuietNs = 60'000'000'000;

  uint16_t CrossingPorts(const PairState& pair, DrainEntry& drain, uint16_t& unknown);
  void FindCrossing(DrainEntry& drain);
  uint16_t UnknownOf(uint32_t pair) const;
  bool LeavesByAnotherNic(const DrainEntry& drain, uint32_t pair) const;
  void Leave(Mover& mover, DrainEntry& drain, const FlowKey& flow, uint32_t pair, bool certainly);
  // drain_obstacles.cc
  bool KeepsFree(const DrainEntry& drain) const;
  bool IsSafe(const DrainEntry& drain, int64_t now_ns) const;
  std::vector<std::string> ObstaclesOf(const DrainEntry& drain, int64_t now_ns) const;
  std::string OtherTraffic(int64_t now_ns, const NicState* nic) const;  // of one NIC, or of all with nullptr
  std::string Unplaced(int64_t now_ns) const;
  bool IsOurs(const Addr& address) const;
  std::set<uint32_t> PairsWithFlows() const;
  void TraceSoon();
  std::string Untraced() const;
  // draining.cc
  absl::StatusOr<std::string> NicCalled(const std::string& name) const;
  bool Acts(const FlowKey& flow) const;
  void Watch(DrainEntry& drain, int64_t now_ns);
  void WatchUnseen(DrainEntry& drain, const std::vector<UnseenFlows::OnPath>& unseen);
  absl::StatusOr<DrainEntry> Make(const v1::DrainRequest& request);
  absl::Status CheckSomethingRemains(const DrainEntry& drain) const;
  std::string EffectOf(const DrainEntry& drain) const;
  size_t GiveBack(const std::string& what);  // flows that go back
  void Show(const DrainEntry& drain, int64_t now_ns, v1::Drain& out) const;
  void Keep();

  Drains& drains_;
  Mover& seen_;
  Mover& unseen_;
  const UnseenFlows& others_;
  const FlowBook& flows_;
  const PairTable& pairs_;
  const NicTable& nics_;
  const probe::Mesh& mesh_;
  const Modes& modes_;
  const Clock& monotonic_;
  Journal& journal_;
  const Asks asks_;

  uint32_t traced_last_ = 0;  // pair
  int64_t looked_ns_ = 0;     // 0: nothing was drained then
  struct Other {
    uint64_t bytes = 0;
    int64_t seen_ns = 0;  // when it grew
  };
  uint64_t unplaced_ = UINT64_MAX;        // at the last look; the first one learns it
  int64_t unplaced_ns_ = 0;               // when it grew last; 0: never
  int64_t asked_ns_ = 0;                  // when All was called last; 0: never
  std::map<FlowKey, Other> others_with_;  // RoCE flows whose two addresses are no pair of NICs that is probed
  bool kept_ = true;                      // in their file
};

}  // namespace cw::agent
