// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/allowance.h"

#include <algorithm>

namespace cw::probe {
namespace {

constexpr double kWellBelow = 0.8;
constexpr double kGrowth = 1.1;

}  // namespace

bool CpuAllowance::Look(int64_t now_ns, int64_t cpu_ns) {
  if (!Due(now_ns)) return false;
  const int64_t passed_ns = now_ns - since_ns_;
  const bool began = since_ns_ != 0;
  const double used = static_cast<double>(cpu_ns - cpu_before_ns_) / static_cast<double>(passed_ns);
  since_ns_ = now_ns;
  cpu_before_ns_ = cpu_ns;
  if (!began) return false;
  const double before = factor_;
  if (used > most_) {
    factor_ = std::max(least_, factor_ * most_ / used);
  } else if (used < kWellBelow * most_) {
    factor_ = std::min(1.0, factor_ * kGrowth);
  }
  return factor_ != before;
}

}  // namespace cw::probe
