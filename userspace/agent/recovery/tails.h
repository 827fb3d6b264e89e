// SPDX-License-Identifier: Apache-2.0
//
// Sent flows whose last packets, or the acknowledgements for them, may have died with a path: they are asked for at
// once (control/tail_repair.h says when, docs/tail-repair.md why that is safe), and peers are told, for theirs.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/counter_sink.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/may.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/path_lost.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/peer_names.h"
#include "userspace/agent/timers.h"
#include "userspace/control/tail_repair.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

// Of a sent flow of the pair.
control::TailView TailViewOf(const cw_tx_flow& flow, const cw_pair& pair, Allowed allowed);

class Tails {
 public:
  struct Asks {
    May allowed;
    // Gives a packet to the RDMA stack as if it had arrived; empty: not wanted, or the kernel cannot.
    std::function<absl::Status(uint32_t ifindex, absl::Span<const uint8_t> packet)> deliver;
  };

  // All of them outlive it.
  Tails(const PairTable& pairs, FlowRecords& flows, const rdma::QpRegistry& qps, const probe::Mesh& mesh,
        const PeerNames& names, const Clock& monotonic, Timers& timers, PeerMail& mail, DryRun& dry_run,
        EventSink& events, Asks asks)
      : pairs_(pairs),
        flows_(flows),
        qps_(qps),
        mesh_(mesh),
        names_(names),
        monotonic_(monotonic),
        timers_(timers),
        mail_(mail),
        dry_run_(dry_run),
        events_(events),
        asks_(std::move(asks)) {}

  // Our own data on it, and what we answered the peer's queue pairs over it.
  void OnPathLost(const PathLost& lost);
  // The kernel took a flow off a dead path, which may have been before the verdict was heard of here.
  void OnMovedOffDead(const cw_ev_move& move);
  // The peer's path to us is dead: our own data may have arrived, and its acknowledgements not.
  void OnPeersPathDied(const PairState& pair, const probe::PathDeath& death);
  // Another NIC carries the pair's packets from now on: what was under way went with the old one.
  void OnCarried(uint32_t pair);
  void OnRerolled(const FlowKey& flow);  // it has another port, by chance
  void Forget(uint32_t pair);

  void TellCounts(const CounterSink& add) const;

 private:
  // Why what is under way may be lost.
  enum class Cause : uint8_t {
    kDead,     // our path `slot` died
    kLossy,    // our path `slot` is left because it loses packets
    kNoData,   // our path `slot` is left because it delivers probes alone
    kWayBack,  // the peer left its own path `slot`, with acknowledgements
    kChance,   // a flow that no path is known of was given another port
    kNic,      // another NIC carries the packets
  };
  struct Watched {
    control::TailWatch watch;
    Cause cause;
    uint8_t slot;  // CW_SLOT_NONE: no path is known
    // Ours, or -1.
    int OwnPath() const { return cause <= Cause::kNoData && slot != CW_SLOT_NONE ? slot : -1; }
  };
  // Our flows to a peer that were on a path when it died: told twice, because the first may take the next dying path.
  struct Notice {
    uint32_t pair = 0;
    uint8_t slot = 0;
    std::vector<uint32_t> qpns;
    int64_t due_ns = 0;  // monotonic
    int left = 2;
  };
  struct Counts {
    uint64_t watched = 0, naks = 0, repaired = 0, given_up = 0, qp_unknown = 0, reads_left = 0, told = 0, heard = 0;
  };

  static Cause CauseOf(LossCause cause);
  static std::string CauseText(const Watched& tail, const std::string& peer);
  bool Repairs() const { return asks_.deliver && asks_.allowed().Decides(Capability::kTails); }
  control::TailView ViewOf(const FlowKey& key, const cw_tx_flow& flow) const;
  void Watch(const FlowKey& key, const cw_tx_flow& flow, Cause cause, uint8_t slot = CW_SLOT_NONE);
  void TellPeer(uint32_t pair, uint8_t slot, std::vector<uint32_t> qpns);
  void SendNotices(int64_t now_ns);
  void StartTicks();
  void Tick();
  bool LookAfter(const FlowKey& key, Watched& tail, int64_t now_ns);
  bool Reads(const FlowKey& sent, uint32_t lqpn) const;
  bool AskForResend(const FlowKey& key, const Watched& tail, const cw_tx_flow& flow, const control::TailView& view);
  void TellGivenUp(const FlowKey& key, int naks);
  void TellDry(const FlowKey& key, const Watched& tail, const control::TailView& view);
  void TellAsked(const FlowKey& key, const Watched& tail, const control::TailView& view, uint32_t lqpn);

  const PairTable& pairs_;
  FlowRecords& flows_;
  const rdma::QpRegistry& qps_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  const Clock& monotonic_;
  Timers& timers_;
  PeerMail& mail_;
  DryRun& dry_run_;
  EventSink& events_;
  const Asks asks_;

  absl::flat_hash_map<FlowKey, Watched> watched_;
  std::vector<Notice> notices_;
  bool ticking_ = false;
  Counts counts_;
};

}  // namespace cw::agent
