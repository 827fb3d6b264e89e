// SPDX-License-Identifier: Apache-2.0
//
// How rare something is of which few or none were seen. Pure; any thread.
#pragma once

#include <cstdint>

namespace cw::bench {

// The largest mean of a Poisson process for which seeing `events` or fewer still has a probability of 1 − confidence:
// the exact one-sided upper bound (half of chi-square's quantile at `confidence` with 2 · events + 2 degrees of
// freedom; F. Garwood, Biometrika 28, 1936). confidence: above 0, below 1.
double PoissonUpperBound(uint64_t events, double confidence);

}  // namespace cw::bench
