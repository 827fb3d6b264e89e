// SPDX-License-Identifier: Apache-2.0
//
// Runs one scenario under one seed: every host's production Agreement, in rounds that are not in step, fed by its links
// and by what its neighbours last said. The same scenario and seed give the same result. One thread per object.
#pragma once

#include <memory>
#include <queue>
#include <unordered_map>
#include <vector>

#include "sync/agreement.h"
#include "sync/sim/links.h"
#include "sync/sim/measure.h"

namespace cw::sync::sim {

// A claim as it travels (userspace/probe/messages.h, without the envelope that authenticates it); what a round costs on
// the wire is this times the neighbours.
inline constexpr int kClaimBytes = 149;

struct Cost {  // of the production code alone; not part of the result, since it varies
  uint64_t rounds = 0;
  double update_us = 0;  // per host and round
};

class World {
 public:
  World(const Scenario& scenario, uint64_t seed);
  Metrics Run();
  const Cost& cost() const { return cost_; }
  const std::vector<Moment>& moments() const { return measure_.moments(); }

 private:
  enum class Kind : uint8_t { kHappening, kResume, kMeasure, kRound, kGlance };
  struct Next {
    TrueNs at;
    Kind kind;
    uint32_t index;
    bool operator<(const Next& o) const {
      if (at != o.at) return at > o.at;
      return kind != o.kind ? kind > o.kind : index > o.index;
    }
  };
  struct Heard {
    TrueNs at = -1;  // when it arrived
    TrueNs said = -1;
    FleetClaim claim;
  };
  struct Node {
    std::unique_ptr<Agreement> agreement;
    std::array<TrueNs, 4> said_at;  // the last claims, newest replacing oldest; −1: none
    std::array<FleetClaim, 4> said;
    uint32_t next_said = 0;
    TrueNs updated = 0;
    std::vector<Heard> heard;  // as Host::peers
  };

  void Start(uint32_t host, TrueNs t);
  void Round(uint32_t host, TrueNs t);
  void Glance(uint32_t host, TrueNs t);
  void Look(uint32_t host, TrueNs t);
  void Hear(uint32_t host, size_t peer, TrueNs t);
  int64_t MirrorNs(uint32_t host, uint32_t liar, TrueNs t) const;
  int64_t OldBoundNs(uint32_t host) const;
  AnchorReading ReadAnchor(uint32_t host, TrueNs t);
  void Happen(const Happening& h, uint32_t index);
  void Notice(uint32_t host, TrueNs t);
  void Resume(const Happening& h);
  void MeasureAll(TrueNs t);
  HostSample Sample(uint32_t host, TrueNs t);
  void AuditMesh(Metrics& m);
  void CountVerdicts();
  void CountAnchorVerdicts(const Agreement& agreement);

  Fleet fleet_;
  std::unique_ptr<Links> links_;
  std::vector<Node> nodes_;
  std::unordered_map<std::string, uint32_t> by_name_;
  std::priority_queue<Next> events_;
  std::vector<NeighbourView> views_;
  Random random_;
  Measure measure_;
  Cost cost_;
  uint64_t measured_ = 0;
};

}  // namespace cw::sync::sim
