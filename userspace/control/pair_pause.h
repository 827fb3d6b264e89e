// SPDX-License-Identifier: Apache-2.0
//
// A pair of NICs all of whose paths are silent (path_silence.h): is it their class of traffic that stands? No path has
// a verdict then, so the question is asked once for the pair, over one path after the other; the rest is as for one
// path (pause.h). Pure: time comes in (monotonic ns). One thread per object.
#pragma once

#include <cstdint>
#include <optional>

#include "userspace/control/path_silence.h"
#include "userspace/control/pause.h"

namespace cw::control {

class PairPause {
 public:
  // progress: newest round known to have arrived, on any path; round: newest that was sent. True: Stands() changed.
  bool Step(int64_t now_ns, bool all_silent, uint32_t progress, uint32_t round) {
    const bool stood = Stands(now_ns);
    if (!all_silent) {
      watch_.reset();
      return stood;
    }
    if (!watch_)
      watch_.emplace(now_ns, SilenceFound{.progress = progress,
                                          .round = round,
                                          .limit = PathSilence::kIntervals,
                                          .silence_ns = PathSilence::kLeastNs});
    watch_->Step(now_ns, progress, round);
    return Stands(now_ns) != stood;
  }
  // True: ask in the other class now. token: what the answer echoes.
  bool Ask(int64_t now_ns, uint32_t round, uint32_t token) { return watch_ && watch_->Ask(now_ns, round, token); }
  void Answered(int64_t now_ns, uint32_t token) {
    if (watch_) watch_->Answered(now_ns, token);
  }
  // Nothing arrives in the class of the flows, and another class passes.
  bool Stands(int64_t now_ns) const {
    return watch_ && (watch_->verdict() == Silence::kPaused || watch_->ClassStands(now_ns));
  }

 private:
  std::optional<PauseWatch> watch_;
};

}  // namespace cw::control
