// SPDX-License-Identifier: Apache-2.0
//
// How far our fleet time can be from that of the reference host, whatever the paths' lengths are. The reference is the
// live host of the lowest id; it has no authority over time. Distances spread from neighbour to neighbour
// (Bellman–Ford): each says "I am within D of the reference", and we add what the link to it cannot exclude. A distance
// is true when it is told and grows with its age, so loops only make it larger; a reference that has gone is told by
// its round, which no longer advances, and by a limit of hops.
//
// Liars: a relayed distance must not fall short of the (f+1)-th smallest by more than two links, which distances of
// honest neighbours never do (triangle inequality); what we publish for ourselves is the (f+1)-th smallest itself,
// unless the reference is our neighbour. See docs/clock.md for what this cannot exclude. Pure; one thread per object.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/agreement.h"

namespace cw::sync {

inline constexpr double kNowhereNs = 3.6e12;  // an hour: no distance known

class Reference {
 public:
  // Someone on our timeline whom we believe.
  struct Told {
    const FleetClaim* claim;
    double link_ns;   // |the line that it told − our fleet time| is at most this, at the time of Update
    double bent_ns;   // its fleet time may have left that line by so much since
    double grown_ns;  // what its distance has grown since it was told
    double age_s = 0;
  };

  // ours: fleet time; eligible: we may be a reference ourselves. growth_ppb: of distances with time.
  void Update(uint64_t self, int64_t now_ns, int64_t fleet_ns, bool eligible, const std::vector<Told>& told,
              double growth_ppb);
  void Reset();

  uint64_t id() const { return id_; }  // 0: none
  uint32_t seq() const { return seq_; }
  uint32_t hops() const { return hops_; }
  double relayed_ns() const { return relayed_ns_; }
  double published_ns() const { return published_ns_; }

 private:
  bool Gone(uint64_t id, int64_t now_ns) const;
  bool Silent(const std::vector<Told>& told, int64_t now_ns) const;
  void Lose(uint64_t id, int64_t now_ns);
  void Elect(uint64_t self, bool eligible, const std::vector<Told>& told, int64_t now_ns);
  void Measure(const std::vector<Told>& told, int64_t now_ns);

  uint64_t id_ = 0;
  uint32_t seq_ = 0;
  int64_t advanced_ns_ = 0;  // when seq_ last grew
  int64_t measured_ns_ = 0;  // when the distance was last told anew
  int64_t updated_ns_ = 0;
  uint32_t hops_ = 0;
  double relayed_ns_ = 0, published_ns_ = 0;
  struct Lost {
    uint64_t id;
    int64_t at_ns, for_ns;
  };
  std::vector<Lost> lost_;
  std::vector<double> candidates_, links_;
};

}  // namespace cw::sync
