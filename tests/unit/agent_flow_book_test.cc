// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/agent/flow_book.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {


TEST(FlowBook, DelaysAreOfThePathThatTheFlowTakes) {
  FlowEntry flow;
  for (int s = 0; s < 8; ++s) flow.AddDelay(s * kSecond, 2, 9'000'000);
  EXPECT_EQ(flow.owd.Merged().count(), 8u);
  flow.AddDelay(8 * kSecond, 3, 10'000);
  EXPECT_EQ(flow.owd.Merged().count(), 1u) << "those of slot 2 are no longer its own";
  EXPECT_EQ(flow.owd.Merged().max_ns(), 10'000);
}

TEST(FlowBook, DelaysAreForgottenAfterTenSeconds) {
  FlowEntry flow;
  flow.AddDelay(10 * kSecond, 2, 9'000'000);
  flow.AddDelay(16 * kSecond, 2, 10'000);
  EXPECT_EQ(flow.owd.Merged().count(), 2u);
  flow.AddDelay(22 * kSecond, 2, 10'000);
  EXPECT_EQ(flow.owd.Merged().count(), 2u);
  EXPECT_EQ(flow.owd.Merged().max_ns(), 10'000);
}

}  // namespace
}  // namespace cw::agent
