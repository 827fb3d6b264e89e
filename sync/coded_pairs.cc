// SPDX-License-Identifier: Apache-2.0
#include "sync/coded_pairs.h"

#include <algorithm>
#include <cmath>

namespace cw::sync {
namespace {

constexpr double kStep = 0.02;  // of the threshold, per pair: a few hundred pairs settle it
constexpr double kFirstNs = 300;
constexpr double kMostNs = 1e6;

}  // namespace

CodedPairs::Verdict CodedPairs::Add(int lane, const Point& probe, double rate) {
  Verdict verdict;
  Lane& last = last_[static_cast<size_t>(lane)];
  const int64_t gap = probe.tx_ns - last.point.tx_ns;
  const bool partners = last.any && gap > 0 && gap <= options_.widest_gap_ns;
  if (partners) {
    const double stretched = static_cast<double>(gap) * (1 + rate);
    const double error = std::abs(static_cast<double>(probe.rx_ns - last.point.rx_ns) - stretched);
    if (pairs_ == 0) threshold_ns_ = kFirstNs;
    verdict.paired = true;
    verdict.survived = error <= std::max(threshold_ns_, static_cast<double>(options_.least_ns));
    verdict.partner_known = last.passed;
    // Stochastic approximation of a quantile (Robbins and Monro), in steps that scale with the threshold.
    threshold_ns_ *= error > threshold_ns_ ? 1 + kStep * options_.share : 1 - kStep * (1 - options_.share);
    threshold_ns_ = std::clamp(threshold_ns_, static_cast<double>(options_.least_ns) / 4, kMostNs);
    ++pairs_;
    survived_ += verdict.survived;
  }
  last = {probe, true, verdict.survived};
  return verdict;
}

}  // namespace cw::sync
