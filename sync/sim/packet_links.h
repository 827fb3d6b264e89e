// SPDX-License-Identifier: Apache-2.0
//
// Links made of packets: every probe takes its path, meets its queues and is stamped by clocks; the production
// PathChoice and PairEstimator at each end make the estimate. With NICs in the scenario, NICs stamp, and the production
// NicTie turns their stamps into host time. One thread.
#pragma once

#include <queue>
#include <vector>

#include "sync/nic_clock.h"
#include "sync/path_choice.h"
#include "sync/sim/links.h"

namespace cw::sync::sim {

class PacketLinks : public Links {
 public:
  explicit PacketLinks(Fleet& fleet);
  void AdvanceTo(TrueNs t) override;
  Estimate View(uint32_t link, int end, TrueNs t) override;
  void Send(uint32_t link, int end, TrueNs t) override;
  void Forget(uint32_t host, TrueNs t) override;
  void Changed(TrueNs t) override;
  double NicErrorNs(uint32_t host, int nic, TrueNs t) override;

 private:
  struct End {
    PathChoice paths;
    PairEstimator estimator;
    bool settled = false;
    uint32_t epoch = 0;
    std::vector<Direction> out;  // paths from this end to the other
    uint64_t sent = 0;
  };
  struct PacketLink {
    explicit PacketLink(Random random_in) : random(random_in) {}
    End end[2];
    int nic[2] = {-1, -1};
    Random random;
  };
  struct Tie : NicClock {  // the simulated NIC clock and what the host knows about it
    Tie(Host& host_in, SimClock& clock_in, const NicSpec& spec_in, Random random_in)
        : host(host_in), clock(clock_in), spec(spec_in), random(random_in) {}
    std::optional<CrossStamp> Read() override;
    Host& host;
    SimClock& clock;
    const NicSpec& spec;
    Random random;
    TrueNs now = 0;
    NicTie tie;
    bool ready = false;  // before that its stamps mean nothing
  };
  enum class Kind : uint8_t { kProbe, kReply, kTrips, kCrossRead };
  struct Happens {
    TrueNs at;
    uint64_t order;  // ties in the order in which they were made
    Kind kind;
    uint8_t end;
    uint16_t boots;
    uint32_t index;           // of the link; kCrossRead: of the tie
    Trip trip;                // kReply, …
    uint8_t there, back;      // … and the paths that it took
    std::vector<Trip> trips;  // kTrips
    bool operator<(const Happens& o) const { return at != o.at ? at > o.at : order > o.order; }
  };

  Host& HostAt(uint32_t link, int end) { return fleet_.hosts[fleet_.links[link].host[end]]; }
  void MakeLink(uint32_t id);
  std::vector<std::shared_ptr<Queue>> Hops(uint32_t from, uint32_t to, int path);
  void MakeTies();
  Tie* TieOf(uint32_t link, int end);  // null: the host itself stamps
  bool CanStamp(uint32_t link, int end) { return TieOf(link, end) == nullptr || TieOf(link, end)->ready; }
  int64_t Stamp(uint32_t link, int end, TrueNs t);
  double ExtraNs(uint32_t link, int from_end, TrueNs t) const;
  void Probe(const Happens& now);
  void Deliver(const Happens& now);
  void CrossRead(const Happens& now);
  void Push(Happens h);

  Fleet& fleet_;
  std::vector<PacketLink> links_;
  std::vector<Tie> ties_;  // host × per_host + nic
  std::vector<std::shared_ptr<Queue>> queues_;
  std::vector<std::shared_ptr<Queue>> up_, down_;  // leaf × spines + spine
  std::priority_queue<Happens> events_;
  uint64_t order_ = 0;
};

}  // namespace cw::sync::sim
