// SPDX-License-Identifier: Apache-2.0
//
// What probes see of a link that n flows want: its queue and its CE marks over time, from a packet-level simulation of
// n senders after DCQCN (tests/unit/control_dcqcn.h) and one queue that marks after RED. One such run per n, made once;
// every link with n flows replays it from a place of its own, so that all probes that cross a link at one time see the
// same queue. One thread per call; At() may be called from any.
#pragma once

#include <cstdint>
#include <vector>

namespace cw::sim {

struct LinkSpec {
  double bps = 400e9;
  double packet_bits = 4228 * 8;
  double sender_bps = 400e9;      // the most that one flow sends
  double cnp_interval_s = 50e-6;  // of a receiver, per flow
  double round_trip_s = 10e-6;
  double mark_from_s = 4e-6;  // of queue, where marks begin; at four times as much one in five is marked, above all
  double drain = 1;           // of the queue that marks go by: 1: the real one; 0.97: a virtual one that is never idle
};

class LinkModel {
 public:
  struct Sample {
    float wait_ns = 0;
    float mark_chance = 0;
  };
  struct Summary {
    double wait_ns = 0;      // mean
    double swing_ns = 0;     // standard deviation of means over 10 ms
    double mark_share = 0;   // of the packets
    double utilization = 0;  // of the link
  };
  static constexpr int kMostFlows = 16;  // more are as these

  explicit LinkModel(const LinkSpec& spec, uint64_t seed = 1);

  // At t_ns, on the link so numbered.
  Sample At(int flows, uint32_t link, int64_t t_ns) const;
  const Summary& Of(int flows) const;

 private:
  void Run(int flows, uint64_t seed);

  LinkSpec spec_;
  std::vector<std::vector<Sample>> samples_;  // by number of flows
  std::vector<Summary> summaries_;
};

}  // namespace cw::sim
