// SPDX-License-Identifier: Apache-2.0
//
// What agents' events say that still holds: NICs that are down, flows that are slow and why, clocks that are called
// false, links that flap. Of each host so much is kept and no more. Pure; time comes in with the events. Threads: one
// at a time.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>

#include "userspace/fleet/findings/picture.h"

namespace cw::fleet {

class EventBook {
 public:
  static constexpr size_t kMostOfHost = 512;  // of each kind; what is more is left out
  static constexpr size_t kMostHosts = 20'000;

  struct NicWord {
    int64_t since_ns = 0;
    bool carrier = false;  // it has one, though its RDMA port is down
  };
  struct SlowWord {
    std::string cause, peer;
    std::string job;  // label, or process; "" = not known
    int64_t since_ns = 0;
  };
  struct FlapWord {
    std::string flaps;
    int64_t time_ns = 0;
  };
  struct Host {
    uint64_t run = 0;
    std::map<std::string, NicWord> nics_down;      // by name
    std::map<std::string, SlowWord> slow;          // by flow
    std::map<std::string, int64_t> false_tickers;  // by name: since
    std::map<std::string, FlapWord> flapping;      // by where the link ends, or the NIC's name

    // What an agent said before it ended its successor says anew, if it still holds.
    bool IsOf(uint64_t present) const { return present == 0 || run == present; }
  };

  void Take(const HostEvent& event);
  void Forget(const std::string& host) { hosts_.erase(host); }
  const std::map<std::string, Host>& hosts() const { return hosts_; }

 private:
  std::map<std::string, Host> hosts_;
};

}  // namespace cw::fleet
