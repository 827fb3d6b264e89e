// SPDX-License-Identifier: Apache-2.0
//
// Peers that stopped answering on every path of every NIC: no path is to blame then, and none is called dead. Told once
// when it begins and once when it ends. Pure: time comes in (monotonic ns). One thread per object.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace cw::agent {

class SilentPeers {
 public:
  static constexpr int64_t kLeastNs = 3'000'000'000;  // of silence …
  static constexpr int kIntervals = 5;                // … and so many rounds of probes without an answer

  // One pair of NICs. A peer's newest reply over all of them counts.
  struct Seen {
    std::string peer;
    int64_t last_reply_ns = 0;  // 0: it never answered, and is waited for
    int64_t interval_ns = 0;    // between rounds of probes
  };
  struct Change {
    std::string peer;
    bool silent = false;    // false: it answers again
    int64_t silent_ns = 0;  // so long, or had been
  };
  // Every pair that is probed. What changed since the call before, by name.
  std::vector<Change> Step(int64_t now_ns, const std::vector<Seen>& pairs);

 private:
  std::map<std::string, int64_t> silent_since_ns_;
};

}  // namespace cw::agent
