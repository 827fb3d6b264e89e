// SPDX-License-Identifier: Apache-2.0
//
// Pairs of NICs no path of which answers: no path is to blame then, and none is called dead. Reported once when it
// begins and once when it ends, as the peer where all NICs of it are silent, otherwise by the two NICs. Pure: time
// comes in (monotonic ns). One thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cw::agent {

class SilentPeers {
 public:
  static constexpr int64_t kLeastNs = 3'000'000'000;  // of silence

  struct Seen {
    std::string peer;
    std::string nics;       // of this pair, such as "eth1 to 10.0.1.1"
    int64_t silent_ns = 0;  // probed for so long without a sign of it (control/path_silence.h); 0: it answers
    bool answered = false;  // ever; a peer that never did is waited for
  };
  struct Change {
    std::string peer;
    std::string nics;       // "": all of the peer's
    bool silent = false;    // false: it answers again
    int64_t silent_ns = 0;  // so long, or had been
  };
  // Every pair that is probed. What changed since the call before, by name.
  std::vector<Change> Step(int64_t now_ns, const std::vector<Seen>& pairs);

 private:
  using Name = std::pair<std::string, std::string>;  // peer, NICs
  std::map<Name, int64_t> silent_since_ns_;
};

}  // namespace cw::agent
