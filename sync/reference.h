// SPDX-License-Identifier: Apache-2.0
//
// By whose name people call the fleet's time: the live host of the lowest id. It has no authority over time and no
// bound rests on it, so that who claims to know a lower one wins nothing but a name. A reference that has gone is told
// by its round, which no longer advances, and by a limit of hops; a round that is yet to come is not believed, so that
// nobody can make honest ones old. Pure; one thread per object.
#pragma once

#include <cstdint>
#include <vector>

#include "sync/agreement.h"

namespace cw::sync {

class Reference {
 public:
  // Someone on our timeline whom we believe.
  struct Told {
    const FleetClaim* claim;
    double age_s = 0;
  };

  // eligible: we may be the reference ourselves. fleet_ns: now,
  // by our fleet time.
  void Update(uint64_t self, int64_t now_ns, int64_t fleet_ns, bool eligible, const std::vector<Told>& told);
  void Reset();

  uint64_t id() const { return id_; }  // 0: none
  uint32_t seq() const { return seq_; }
  uint32_t hops() const { return hops_; }

 private:
  bool Gone(uint64_t id, int64_t now_ns) const;
  bool Silent(int64_t now_ns) const;
  void Lose(uint64_t id, int64_t now_ns);
  void Elect(uint64_t self, bool eligible, int64_t now_ns);
  void Follow(int64_t now_ns);

  uint64_t id_ = 0;
  uint32_t seq_ = 0;
  int64_t advanced_ns_ = 0;  // when seq_ last grew
  uint32_t hops_ = 0;
  struct Lost {
    uint64_t id;
    int64_t at_ns, for_ns;
  };
  std::vector<Lost> lost_;
  std::vector<Told> told_;  // in this round, and plausible
};

}  // namespace cw::sync
