// SPDX-License-Identifier: Apache-2.0
//
// Which link queues, and how much: from the queueing delays of many paths and the links that each of them takes. A
// path's delay is the sum of its links' queues, few links queue at a time, and no queue is negative, so a sparse
// non-negative fit finds them (L1-regularised least squares, each path weighted by its error, robust against paths that
// fit nothing; then once more without the penalty, over the links that were found).
//
// Links that are taken by exactly the same paths cannot be told apart: they are one answer.
// Pure; any thread. Sources: N. Duffield, "Network tomography of binary network performance characteristics", IEEE
// Trans. Inf. Theory 52(12), 2006 (the smallest set that explains); R. Tibshirani, "Regression shrinkage and selection
// via the lasso", JRSS B 58, 1996; the threshold: D. Donoho, I. Johnstone, Biometrika 81(3), 1994; P. Huber, "Robust
// statistics", 1981.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace cw::control {

struct PathQueue {
  double queue_ns = 0;          // queueing delay of the path in a window
  double error_ns = 0;          // its standard error, > 0; paths without it are left out
  std::vector<uint64_t> links;  // names of the directed links it takes, each once; in any order
};

struct LinkQueue {
  std::vector<uint64_t> links;  // one, or several that no path tells apart; sorted
  double queue_ns = 0;          // of all of them together; 0: none that stands out of the noise
  double error_ns = 0;          // standard error of queue_ns; 0 where that is 0
  int paths = 0;                // that take it
};

struct LinkQueueRules {
  double threshold = 1.5;  // × √(2 ln links) deviations: what a queue needs to be believed
  double huber = 2;        // paths that are off by more deviations count for less
  int reweightings = 4;    // of those
  int most_sweeps = 200;   // of coordinate descent
};

// One entry per link, or group of links, that some path takes, the longest queue first. Cost: paths × links per path ×
// sweeps, mostly below 20.
std::vector<LinkQueue> FitLinkQueues(absl::Span<const PathQueue> paths, const LinkQueueRules& rules = {});

}  // namespace cw::control
