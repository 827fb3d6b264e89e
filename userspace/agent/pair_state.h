// SPDX-License-Identifier: Apache-2.0
//
// What the agent knows of one pair of NICs besides what stands in the maps. Thread rule: the agent's loop.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "maps/abi.h"
#include "maps/wire.h"
#include "sync/pair_estimator.h"
#include "sync/path_choice.h"
#include "sync/stamp_kind.h"
#include "userspace/control/backups.h"
#include "userspace/control/damping.h"
#include "userspace/control/data_stall.h"
#include "userspace/control/flow_class.h"
#include "userspace/control/pair_pause.h"
#include "userspace/control/path_loss.h"
#include "userspace/control/path_silence.h"
#include "userspace/control/path_size.h"
#include "userspace/control/pause.h"
#include "userspace/control/probe_fates.h"
#include "userspace/metrics/path_totals.h"
#include "userspace/model/flow.h"
#include "userspace/model/names.h"
#include "userspace/probe/cadence.h"
#include "userspace/probe/end_proof.h"
#include "userspace/probe/messages.h"
#include "userspace/telemetry/path_delay.h"

namespace cw::agent {

// What one slot's probes met within one decision window.
struct WindowDelay {
  std::vector<int64_t> owd_ns;
  int ecn_samples = 0, marked = 0;

  void AddEcn(uint8_t flags) {
    ecn_samples += (flags & CW_PROBE_ECT) != 0;
    marked += (flags & CW_PROBE_ECT) != 0 && (flags & CW_PROBE_CE) != 0;
  }
  void Clear() {
    owd_ns.clear();
    ecn_samples = marked = 0;
  }
};

// A path without a sign of life, by the kernel's verdict.
struct SilentPath {
  control::PauseWatch watch;
  cw_ev_slot verdict = {};
  control::PathDamping damping;  // as it was before
  bool told_dead = false;
  bool own_link = false;    // our NIC had no carrier: no path's fault
  int64_t answered_ns = 0;  // local time: when the first of its probes since that was answered was sent; 0: none yet
};

struct SlotState {
  telemetry::PathDelay forward;  // our probes on this slot
  telemetry::PathDelay reverse;  // replies over the peer's slot of this number, which is a path of its own
  uint32_t counted_round = 0;    // up to which its probes are counted as sent
  WindowDelay window;
  double queue_ns = 0;  // of the last window that had probes
  control::PathDamping damping;
  control::FlapCounter flaps;
  std::vector<Addr> links;  // where those that it takes end, as last known in full; ours first; empty: not known
  int64_t answered_ns = 0;  // local time: when the newest of its probes that were answered was sent; 0: none was
  std::optional<SilentPath> silence;
  probe::EndProof end_proof;  // of its hops
  int64_t paused_ns = 0;      // monotonic: when it was last found paused; 0: never
  control::PathSize size;     // which packets arrive
  uint32_t size_told = 0;     // PathSize::arrives() as it was logged
  bool was_dead = false;      // at the last look at the slot's state
};

struct PairState {
  static constexpr int64_t kBlindHoldsNs = 30'000'000'000;  // many peers hear of it in turn

  uint32_t index = 0;
  PairKey key;
  uint32_t ifindex = 0;
  std::string peer;                            // configured name
  std::string version;                         // of the peer's agent, from its Hello
  std::unique_ptr<sync::PairEstimator> clock;  // tens of KiB, so made when the peer is heard first
  sync::PathChoice clock_paths;                // which of the paths `clock` is measured on
  sync::SeriesKind stamps;                     // of the probes that `clock` holds: it decides alike
  int64_t nic_error_ns = 0, nic_bound_ns = 0;  // of our NIC's stamps in local time …
  int64_t peer_nic_error_ns = 0;               // … and of the peer's NIC's, as it tells
  int64_t peer_nic_bound_ns = probe::kMaxNicErrorNs;
  sync::Estimate estimate;           // at the last update
  int64_t updated_ns = 0;            // monotonic; of the estimate
  double round_slope_ppb = 0;        // of the estimate at the last round of fleet time
  uint16_t damped = 0, drained = 0;  // slots that flapped; that an operator keeps free
  uint16_t blocked = 0;              // or a lossy one: no flow is put there
  uint32_t epoch = 0;                // of the clock, for which the delays hold
  std::array<SlotState, kMaxSlots> slot;
  control::Backups backups;
  control::ProbeFates fates;
  control::PathSilence path_silence;             // of its paths
  control::PairPause pause;                      // all of them are silent: is it their class that stands?
  std::unique_ptr<control::PairLoss> loss;       // made when the pair first carries data …
  std::unique_ptr<control::DataStall> stalls;    // … as is this
  std::vector<probe::SampleHalf> samples_out;    // halves of packets received from the peer
  int64_t gaps_told_ns = 0;                      // when the peer's question was answered last; 0: never
  std::vector<probe::ChunkArrival> chunks_out;   // chunks of collectives received from the peer
  int64_t last_reply_ns = 0;                     // monotonic; 0: never
  uint32_t peer_mtu = 0;                         // of the peer's NIC, as its agent says; 0: not known …
  std::string peer_nic;                          // … and its name there
  int64_t size_heard_ns = 0, size_asked_ns = 0;  // monotonic: of sizes; 0: never
  int64_t size_hurried_ns = 0;                   // when data was not acknowledged last; 0: never
  int64_t peer_blind_ns = 0;                     // when its agent said last that it does not see its NIC; 0: it does
  std::string mtu_trouble;                       // what the MTUs of the two NICs do not let pass, ""
  bool active = false;
  bool measures_clock = false;                            // one of those that fleet time rests on …
  probe::ClockPace clock_pace = probe::ClockPace::kNone;  // … and so probed at this pace while idle
  int64_t last_data_ns = 0;                               // monotonic; a flow of the pair moved
  int64_t clock_sent_ns = 0, hello_ns = 0;                // monotonic
  bool table_seen = false;                                // a table was built since the start
  uint32_t flows = 0;
  control::FlowClass flow_class;
  metrics::NicDelays* delays = nullptr;  // of its NIC and rail, for metrics
  metrics::NicFlows* sums = nullptr;     // of its NIC, for metrics
  bool blind = false;                    // its flows do not take the paths of the probes with their ports
  int64_t died_ns = 0;                   // monotonic; when a path died last while blind; 0: never

  sync::PairEstimator& HeardClock() {
    if (clock == nullptr) clock = std::make_unique<sync::PairEstimator>();
    return *clock;
  }
  // Unknown while the peer was not heard.
  sync::Estimate EstimateAt(int64_t local_ns) {
    if (clock == nullptr) return {};
    sync::Estimate e = clock->At(local_ns);
    if (!ByNics()) return e;
    // What a NIC's clock is believed to be off by is the same in all of its stamps.
    e.error_est_ns += nic_error_ns + peer_nic_error_ns;
    e.bound_ns += nic_bound_ns + peer_nic_bound_ns;
    e.error_est_ns = std::min(e.error_est_ns, e.bound_ns);
    return e;
  }

  // The agent of the peer says that its programs do not see the packets of its NIC.
  bool PeerIsBlind(int64_t now_ns) const { return peer_blind_ns != 0 && now_ns - peer_blind_ns < kBlindHoldsNs; }
  // All paths are silent in the class of the flows, and another class passes.
  bool ClassStands(int64_t now_ns) const { return pause.Stands(now_ns); }
  bool ByNics() const { return stamps.kind() == sync::StampKind::kHardware; }

  // What the peer tells of its stamps.
  void AddRemote(const probe::ClockBatch& points) {
    for (const probe::ClockPoint& point : points.points) HeardClock().AddRemote({point.t_tx_ns, point.t_rx_ns});
  }
  void AddRemote(const probe::TripBatch& trips) {
    if (trips.by_nics) {
      peer_nic_error_ns = trips.error_ns;
      peer_nic_bound_ns = trips.bound_ns;
    }
    if (trips.by_nics != ByNics()) return;  // one series, one kind of stamps
    for (const sync::Trip& trip : trips.trips) HeardClock().AddRemoteProbe(trip);
  }

  // A probe of ours with its reply; by_nics: the same with the arrivals as the NICs stamped them, if both did. there:
  // the slot it took; back: the peer's that the reply took.
  void AddTrip(const sync::Trip& trip, const std::optional<sync::Trip>& by_nics, uint8_t there, uint8_t back) {
    const sync::StampKind kind = by_nics ? sync::StampKind::kHardware : sync::StampKind::kSoftware;
    const sync::Trip& used = by_nics ? *by_nics : trip;
    if (stamps.Admit(used.t4_ns, kind) == sync::SeriesKind::Admission::kStartAnew) clock_paths.Reset();
    sync::PairEstimator& heard = HeardClock();
    const sync::WayChoice before = clock_paths.choice();
    const bool admitted = clock_paths.Admit(used.t4_ns, there, back, used.OutNs() - heard.OffsetAt(used.t1_ns),
                                            used.BackNs() + heard.OffsetAt(used.t4_ns), estimate.settled);
    if (!clock_paths.choice().SameWays(before)) heard.PathsChanged();
    if (admitted) heard.AddTrip(used, kind);
  }
};

// Slots that lose packets, by their probes or by the flows' acknowledgements.
inline uint16_t LossySlots(const PairState& pair, int64_t now_ns) {
  const uint16_t by_probes = pair.loss == nullptr ? uint16_t{0} : pair.loss->lossy();
  const uint16_t by_data = pair.stalls == nullptr ? uint16_t{0} : pair.stalls->KeptFree(now_ns);
  return by_probes | by_data;
}

using PairTable = std::map<uint32_t, std::unique_ptr<PairState>>;  // by index in the maps

// nullptr: no such pair (any more).
inline PairState* FindIn(const PairTable& pairs, uint32_t index) {
  const auto at = pairs.find(index);
  return at == pairs.end() ? nullptr : at->second.get();
}

}  // namespace cw::agent
