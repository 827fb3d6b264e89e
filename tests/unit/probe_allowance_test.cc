// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/allowance.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/time_units.h"

namespace cw::probe {
namespace {

// A host on which each of `wanted` probes per second costs the thread cost_ns, for so many periods.
struct Host {
  double wanted, cost_ns;
  double budget = 10'000;
  int64_t now_ns = 1, cpu_ns = 0;
  double sent = 0;

  void Run(CpuAllowance& allowance, int periods) {
    for (int i = 0; i < periods; ++i) {
      allowance.Look(now_ns, cpu_ns);
      sent = std::min(wanted, budget * allowance.factor());
      now_ns += CpuAllowance::kPeriodNs;
      cpu_ns += static_cast<int64_t>(sent * cost_ns * CpuAllowance::kPeriodNs / 1e9);
    }
  }
};

TEST(CpuAllowance, AFastHostKeepsItsWholeBudget) {
  CpuAllowance allowance(0.1);
  Host host{.wanted = 9'000, .cost_ns = 10'000};
  host.Run(allowance, 100);
  EXPECT_EQ(allowance.factor(), 1);
}

TEST(CpuAllowance, ASlowOneKeepsToItsShareAndComesBack) {
  CpuAllowance allowance(0.1);
  Host host{.wanted = 2'000, .cost_ns = 300'000};
  host.Run(allowance, 10);
  for (int i = 0; i < 50; ++i) {
    host.Run(allowance, 1);
    EXPECT_GT(host.sent * host.cost_ns / 1e9, 0.07) << i;
    EXPECT_LT(host.sent * host.cost_ns / 1e9, 0.12) << i;
  }
  host.cost_ns = 10'000;
  host.Run(allowance, 60);
  EXPECT_EQ(host.sent, host.wanted);
  EXPECT_EQ(allowance.factor(), 1);
}

TEST(CpuAllowance, IsNeverNothing) {
  CpuAllowance allowance(0.1);
  Host host{.wanted = 10'000, .cost_ns = 1e9};
  host.Run(allowance, 100);
  EXPECT_EQ(allowance.factor(), CpuAllowance::kLeast);
}

TEST(CpuAllowance, JudgesWholePeriodsAndNothingWithoutALimit) {
  CpuAllowance allowance(0.1), none(0);
  EXPECT_FALSE(allowance.Look(1, 0)) << "a first look";
  EXPECT_FALSE(allowance.Look(1 + 100 * kMs, 100 * kMs)) << "a busy moment is no period";
  EXPECT_TRUE(allowance.Look(1 + 500 * kMs, 100 * kMs));
  EXPECT_DOUBLE_EQ(allowance.factor(), 0.5);
  EXPECT_FALSE(none.Look(1, 0));
  EXPECT_FALSE(none.Look(1 + 500 * kMs, 500 * kMs));
  EXPECT_EQ(none.factor(), 1);
}

}  // namespace
}  // namespace cw::probe
