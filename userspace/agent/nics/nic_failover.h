// SPDX-License-Identifier: Apache-2.0
//
// NIC failover: what its rule (control/nic_failover.h) sees, and what it decides, put into maps, messages and events.
// Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/may.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/nics/carry_kernel.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/peer_names.h"
#include "userspace/control/nic_failover.h"
#include "userspace/model/allowed.h"
#include "userspace/model/clock.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

class NicFailover {
 public:
  static constexpr absl::Duration kPeriod = absl::Milliseconds(20);

  struct Asks {
    May allowed;
    std::function<bool(const NicState& nic)> drained;    // an operator wants it free
    std::function<int64_t(uint32_t pair)> interval_ns;   // of its probes now
    std::function<void()> read_probes;                   // the newest replies
    std::function<void(NicState& nic)> look_at_carrier;  // it may be another than was told
    std::function<void(uint32_t pair)> carried;          // what was under way went with its NIC
  };

  // host: see the rule. All of them outlive it.
  NicFailover(std::string host, PairTable& pairs, NicTable& nics, const rdma::QpRegistry& qps, const probe::Mesh& mesh,
              CarryKernel& kernel, const PeerNames& names, const Clock& monotonic, PeerMail& mail, DryRun& dry_run,
              EventSink& events, Asks asks)
      : rule_(std::move(host)),
        pairs_(pairs),
        nics_(nics),
        qps_(qps),
        mesh_(mesh),
        kernel_(kernel),
        names_(names),
        monotonic_(monotonic),
        mail_(mail),
        dry_run_(dry_run),
        events_(events),
        asks_(std::move(asks)) {}

  // What an earlier agent left goes on, or ends where NIC failover is off now.
  absl::Status Open(bool on);
  bool on() const { return on_; }

  void Watch();  // once per period, and when a link changed
  void OnReports(const PairState& pair, const probe::NicReports& reports);
  void Forget(uint32_t pair) { next_hops_.erase(pair); }

  bool Silent(const PairKey& pair) const { return rule_.Silent(pair); }
  bool Carried(const PairKey& pair) const { return rule_.Carried(pair); }  // its packets leave by another NIC

 private:
  using Carries = std::map<control::NicCarry, PairKey>;

  void TellOfSmallMtus() const;
  std::vector<control::NicPair> LookAtPairs();
  void Apply(const Carries& wanted);
  void End(const Carries& wanted);
  void Begin(const control::NicCarry& carry, const PairKey& key);
  void TellOfCarry(const PairKey& key, const control::NicCarry* carry);
  void TellOf(const control::NicStep& step);
  void LearnNextHops();
  void KeepNextHops();
  bool IsLost(const NicState& nic) const;
  const NicState* NicAt(const Addr& address) const;

  control::NicFailover rule_;
  PairTable& pairs_;
  NicTable& nics_;
  const rdma::QpRegistry& qps_;
  const probe::Mesh& mesh_;
  CarryKernel& kernel_;
  const PeerNames& names_;
  const Clock& monotonic_;
  PeerMail& mail_;
  DryRun& dry_run_;
  EventSink& events_;
  const Asks asks_;

  bool on_ = false;
  Carries carries_;                                                 // as the maps have them
  std::map<uint32_t, dataplane::Neighbour> next_hops_;              // by pair, as last known
  std::map<std::pair<uint32_t, Addr>, dataplane::Neighbour> pins_;  // by interface and address
  int64_t learned_ns_ = 0;
};

}  // namespace cw::agent
