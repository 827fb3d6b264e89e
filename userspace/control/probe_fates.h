// SPDX-License-Identifier: Apache-2.0
//
// What became of each probe on its path there, and nothing else: a reply says which probes of the last eight rounds had
// arrived, whatever path the reply itself took. So what replies suffer on their way back, and what the reader of them
// loses, counts for nothing: a probe that no reply tells of is not known, and no loss.
//
// A probe is lost if the same path delivered one of two or more rounds later, for a path keeps order, and none of those
// replies had it. A round is settled when the fate of all its probes is known, or 32 rounds later.
//
// Pure: rounds come in, no clock. Rounds are serial numbers (RFC 1982). One thread per object; 0.8 KiB for a pair.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"

namespace cw::control {

class ProbeFates {
 public:
  static constexpr uint32_t kReplyRounds = 8;    // that a reply tells of
  static constexpr uint32_t kSettleRounds = 32;  // then nothing more is expected to become known
  using Arrived = std::array<uint16_t, kReplyRounds>;

  // Masks of slots. Of `judged`, what is neither in `arrived` nor in `lost` is not known.
  struct Round {
    uint32_t number = 0;
    uint16_t arrived = 0, lost = 0, judged = 0;
  };
  using Settled = absl::FunctionRef<void(const Round& round)>;

  // The reply to the probe of `slot` in `round` came; a jump of rounds begins anew.
  // arrived: the slots whose probes the peer had by then, of this round and the seven before.
  // judged: the slots that were probed and are not dead.
  void Answered(uint32_t round, uint8_t slot, const Arrived& arrived, uint16_t judged, Settled settled);

 private:
  static constexpr size_t kRing = 64;

  void Restart(uint32_t round);
  void Learn(uint32_t round, const Arrived& arrived);
  void SettleKnown(Settled settled);

  bool began_ = false;
  uint32_t newest_ = 0, unsettled_ = 0;  // rounds; all before `unsettled_` are done with
  std::array<Round, kRing> ring_{};
};

}  // namespace cw::control
