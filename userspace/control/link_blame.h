// SPDX-License-Identifier: Apache-2.0
//
// Which link each dead path died of. Of the links that a path takes, those are out of the question that another path
// showed to be alive while this one was dead: a probe that was sent after the verdict and before the path was back
// itself, and the path whose answer proved the death. What remains, over all paths that died together, is explained by
// the fewest links (control/link_faults.h). A path whose probes are rare speaks late, so a death is kept open until
// every path that shares a link with it has answered or died, or the path itself is back; at most for `longest_ns`.
// An outage too short for any other path to speak in leaves several links: that is told, never guessed.
// Pure: time comes in (any clock, the same for all). One thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "absl/types/span.h"
#include "userspace/model/addr.h"

namespace cw::control {

struct PathDeath {
  uint64_t path = 0;         // any number that tells paths apart
  std::vector<Addr> links;   // where the links that it takes end, each once; empty: not known
  int64_t died_ns = 0;       // the verdict …
  int64_t alive_ns = 0;      // … and its last sign of life before
  int64_t interval_ns = 0;   // between its probes
  std::vector<Addr> proven;  // links of the path whose answers proved it dead
};

// What another path shows.
struct PathSign {
  uint64_t path = 0;
  absl::Span<const Addr> links;
  int64_t sent_ns = 0;  // when the newest of its probes that were answered was sent
  bool dead = false;
};

// Deaths of one cause.
struct Blame {
  std::vector<Addr> links;  // one of them; empty: each link was shown to be alive, or none is known
  std::vector<PathDeath> deaths;
};

class LinkBlame {
 public:
  explicit LinkBlame(int64_t longest_ns = 5'000'000'000) : longest_ns_(longest_ns) {}

  void Died(PathDeath death);
  // A probe that was sent after the verdict was answered; the first one counts.
  void Back(uint64_t path, int64_t sent_ns);
  void Forget(uint64_t path);  // it was no death
  bool Waits() const { return !open_.empty(); }
  // Those whose cause is as clear as it will become; deaths of one cause by time.
  std::vector<Blame> Step(absl::Span<const PathSign> signs, int64_t now_ns);

 private:
  struct Open {
    PathDeath death;
    int64_t back_ns = 0;            // 0: not yet
    std::map<Addr, int64_t> alive;  // links, by when they were shown to be
  };
  static bool Hear(Open& open, absl::Span<const PathSign> signs);
  static std::vector<Addr> Candidates(const Open& open);
  static std::vector<Blame> Explain(const std::vector<Open>& ready);

  int64_t longest_ns_;
  std::map<uint64_t, Open> open_;  // by path
};

}  // namespace cw::control
