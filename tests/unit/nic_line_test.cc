// SPDX-License-Identifier: Apache-2.0
// A NIC's stamps in local time: the line, and which stamps are not believed.
#include "maps/nic_line.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>

#include "userspace/agent/nics/nic_nodes.h"

namespace cw::agent {
namespace {

constexpr uint64_t kNow = 5'000'000'000'000;

cw_nic_line Line(double rate_ppm) {
  return {.nic_ns = 77'000'000'000,
          .local_ns = kNow,
          .rate_q32 = std::llround(rate_ppm * 1e-6 * 0x1p32),
          .until_ns = kNow + 2'000'000'000,
          .slack_ns = 500};
}

TEST(NicLine, FollowsTheRateBothWays) {
  for (double ppm : {-900.0, -20.0, 0.0, 20.0, 900.0}) {
    const cw_nic_line line = Line(ppm);
    for (int64_t passed_ns : {-1'000'000'000, -1, 0, 1, 1'000'000'000}) {
      const auto local =
          static_cast<int64_t>(kNow) + passed_ns + std::llround(static_cast<double>(passed_ns) * ppm * 1e-6);
      const uint64_t got = cw_nic_to_local(&line, static_cast<uint64_t>(77'000'000'000 + passed_ns),
                                           static_cast<uint64_t>(local) + 1'000);
      EXPECT_NEAR(static_cast<double>(static_cast<int64_t>(got) - local), 0, 1) << ppm << " ppm, " << passed_ns;
    }
  }
}

TEST(NicLine, WhatCannotBeRightIsNoStamp) {
  const cw_nic_line line = Line(0);
  const uint64_t nic = line.nic_ns;
  EXPECT_EQ(cw_nic_to_local(&line, 0, kNow), 0u) << "0 is none";
  EXPECT_EQ(cw_nic_to_local(&line, nic, kNow), kNow);
  EXPECT_EQ(cw_nic_to_local(&line, nic + 500, kNow), kNow + 500) << "of the future, by what the line may be off";
  EXPECT_EQ(cw_nic_to_local(&line, nic + 501, kNow), 0u);
  EXPECT_EQ(cw_nic_to_local(&line, nic, kNow + CW_NIC_OLDEST_NS), kNow);
  EXPECT_EQ(cw_nic_to_local(&line, nic, kNow + CW_NIC_OLDEST_NS + 1), 0u) << "too old";
  EXPECT_EQ(cw_nic_to_local(&line, nic + 2'000'000'001, kNow + 2'000'000'001), 0u) << "nobody keeps the line";
  EXPECT_EQ(cw_nic_to_local(&line, UINT64_MAX, kNow), 0u);
  EXPECT_EQ(cw_nic_to_local(&line, uint64_t{1} << 63, kNow), 0u);
  EXPECT_EQ(cw_nic_to_local(&line, 1, kNow), 0u) << "a NIC whose clock was set to 1970";
}

// A NIC that runs 30 ppm fast, 1000 s ahead; reads of 1 us with some noise.
class FastNic final : public sync::NicClock {
 public:
  explicit FastNic(int64_t* now_ns) : now_ns_(now_ns) {}
  int64_t At(int64_t local_ns) const { return local_ns + 1'000'000'000'000 + set_ns + local_ns / 100'000 * 3; }
  std::optional<sync::CrossStamp> Read() override {
    if (dead) return std::nullopt;
    const int64_t jitter = static_cast<int64_t>(random_() % 100);
    return sync::CrossStamp{.before_ns = *now_ns_ - 500 - jitter, .nic_ns = At(*now_ns_), .after_ns = *now_ns_ + 500};
  }
  bool dead = false;
  int64_t set_ns = 0;

 private:
  int64_t* now_ns_;
  std::mt19937 random_{1};
};

TEST(NicNode, GivesALineOnceItKnowsTheNicAndNoneWhenItIsGone) {
  int64_t now_ns = 3'000'000'000'000;
  auto owned = std::make_unique<FastNic>(&now_ns);
  FastNic& nic = *owned;
  NicNode node("eth0", "test", std::move(owned));
  EXPECT_FALSE(node.Line(now_ns).has_value());
  node.Look();
  EXPECT_FALSE(node.Line(now_ns).has_value()) << "one read shows no rate";
  for (int i = 0; i < 50; ++i, now_ns += 100'000'000) node.Look();
  const auto check = [&] {
    const std::optional<cw_nic_line> line = node.Line(now_ns);
    ASSERT_TRUE(line.has_value());
    for (int64_t later_ns : {0, 50'000'000, 100'000'000}) {
      const int64_t at_ns = now_ns + later_ns;
      const uint64_t got =
          cw_nic_to_local(&*line, static_cast<uint64_t>(nic.At(at_ns)), static_cast<uint64_t>(at_ns) + 2'000);
      ASSERT_NE(got, 0u);
      EXPECT_LE(std::abs(static_cast<int64_t>(got) - at_ns), 60) << later_ns;
    }
  };
  check();

  nic.set_ns =
      5'000'000'000;  // somebody sets the NIC's clock: another epoch, and stamps of the old one are not believed
  const uint32_t epoch = node.At(now_ns).epoch;
  node.Look();
  EXPECT_NE(node.At(now_ns).epoch, epoch);
  now_ns += 100'000'000;
  for (int i = 0; i < 50; ++i, now_ns += 100'000'000) node.Look();
  check();

  nic.dead = true;
  node.Look();
  EXPECT_EQ(node.failed(), 1u);
  EXPECT_TRUE(node.Line(now_ns).has_value());
  EXPECT_FALSE(node.Line(now_ns + 3'000'000'000).has_value());
}

}  // namespace
}  // namespace cw::agent
