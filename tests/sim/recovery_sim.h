// SPDX-License-Identifier: Apache-2.0
//
// How soon a host knows that a switch has died silently, by the number of its peers: the rounds of all its pairs as the
// production cadence and doubts time them (probe::Cadence, probe::JudgeDoubt), and each reply judged as the kernel does
// (bpf/liveness.h). The switch is on one path of every pair, so all pairs doubt at once, and answers that would come
// back through it are lost too. One thread; the same seed gives the same result.
//
// Left out: what the prober's thread is late by; acknowledgements of data, but for those of what came through before
// the cut; flows that leave a path by themselves for want of answers (bpf/blind.h).
#pragma once

#include <cstdint>

#include "userspace/config/config.h"

namespace cw::sim {

struct RecoverySpec {
  int active_peers = 8;
  int idle_peers = 64;
  int slots = 12;           // paths of a pair, one of which dies
  bool lone = false;        // it dies for one pair that carries data alone: a link near the peer
  int cuts = 20;            // each of hosts that began anew, at a random time
  double queue_ns = 20e3;   // pairs that carry data: the most that a probe waits, each way
  double deadline_s = 120;  // after a cut
  config::ProbeConfig probe{};
  config::LivenessConfig liveness{};
  uint64_t seed = 1;
};

struct Times {
  int n = 0;
  double p50_s = 0, p99_s = 0, most_s = 0;
};

struct RecoveryResult {
  double active_interval_s = 0, idle_interval_s = 0;  // of a pair's rounds, before a cut
  double probes_per_s = 0;                            // requests, before a cut …
  double most_probes_per_s = 0;                       // … and in the busiest 100 ms after one
  Times active{}, idle{};                             // from the cut to the verdict, over all pairs and cuts
  int wrong = 0;                                      // verdicts on paths that lived
  int missed = 0;                                     // pairs without a verdict at the deadline
};

// Bits of a probe on the wire, with preamble and gap.
double ProbeBits();

RecoveryResult SimulateRecovery(const RecoverySpec& spec);

}  // namespace cw::sim
