// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/ring_recorder.h"
#include "userspace/agent/ring_tap.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kUnix = 1'800'000'000 * kSecond;  // of monotonic zero

class RingRecorderTest : public ::testing::Test {
 protected:
  static std::vector<uplink::PathSeen> Paths(uint32_t pairs) {
    std::vector<uplink::PathSeen> paths;
    for (uint32_t pair = 0; pair < pairs; ++pair) {
      for (const bool reverse : {false, true}) {
        uplink::PathSeen& path = paths.emplace_back();
        path.pair = pair;
        path.slot = 3;
        path.reverse = reverse;
      }
    }
    return paths;
  }
  uplink::SecondSeen Take(uint32_t pairs, int second) {
    return recorder_.Take(Paths(pairs), flows_, names_,
                          {.from_ns = kUnix + second * kSecond, .to_ns = kUnix + (second + 1) * kSecond},
                          (second + 1) * kSecond);
  }

  RingRecorder recorder_;
  FlowBook flows_;
  PeerNames names_;
};

TEST_F(RingRecorderTest, DelaysComeOutInUnixTimeOfTheirOwnSecondAlone) {
  recorder_.Delay(0, 3, false, kSecond / 4, 5000);
  recorder_.Delay(0, 3, false, kSecond / 2, 6000);
  recorder_.Delay(0, 3, true, kSecond / 2, 7000);
  recorder_.Fates(0, 3, 3, 0);
  recorder_.Fates(0, 3, 1, 1);
  recorder_.Delay(9, 3, false, kSecond / 2, 8000);  // of no path any more
  const uplink::SecondSeen seen = Take(1, 0);
  ASSERT_THAT(seen.paths, SizeIs(2));
  ASSERT_THAT(seen.paths[0].samples, SizeIs(2));
  EXPECT_EQ(seen.paths[0].samples[0].time_ns, kUnix + kSecond / 4);
  EXPECT_EQ(seen.paths[0].samples[1].delay_ns, 6000);
  EXPECT_EQ(seen.paths[0].path.known, 4u);
  EXPECT_EQ(seen.paths[0].path.lost, 1u);
  EXPECT_EQ(seen.paths[0].delay.max_ns(), 6000);
  EXPECT_THAT(seen.paths[1].samples, SizeIs(1));
  const uplink::SecondSeen next = Take(1, 1);
  EXPECT_THAT(next.paths[0].samples, IsEmpty());
  EXPECT_EQ(next.paths[0].path.known, 0u);
}

TEST_F(RingRecorderTest, RawDelaysStayWithinTheirBudgetAndSpreadOverTheSecond) {
  Take(200, 0);  // 400 directions
  for (int i = 0; i < 10'000; ++i) {
    for (uint32_t pair = 0; pair < 200; ++pair) {
      recorder_.Delay(pair, 3, false, kSecond + i * (kSecond / 10'000), 5000 + i);
      recorder_.Delay(pair, 3, true, kSecond + i * (kSecond / 10'000), 5000 + i);
    }
  }
  const uplink::SecondSeen seen = Take(200, 1);
  size_t samples = 0;
  for (const uplink::PathSecond& path : seen.paths) {
    samples += path.samples.size();
    EXPECT_EQ(path.delay.count(), 10'000u) << "the sketch has all of them";
    EXPECT_GE(path.samples.size(), RingRecorder::kLeastOfPath);
    EXPECT_LT(path.samples.front().time_ns, kUnix + kSecond + kSecond / 4);
    EXPECT_GT(path.samples.back().time_ns, kUnix + kSecond + kSecond / 2);
    EXPECT_GE(path.every * path.samples.size(), 5000u);
  }
  EXPECT_LE(samples, RingRecorder::kSamplesPerSecond);
}

TEST_F(RingRecorderTest, QueuePairsAreCountedFromTheSecondReadingOn) {
  const FlowKey key{*Addr::Parse("10.0.0.1"), *Addr::Parse("10.0.0.2"), 0x11};
  FlowEntry& flow = flows_.sent[key];
  flow.tx.flow.bytes = 1'000'000;
  flow.tx.flow.packets = 1000;
  flow.tx.flow.sport = 50'000;
  EXPECT_THAT(Take(1, 0).flows, IsEmpty()) << "what it sent before is of no second";
  flow.tx.flow.bytes += 5000;
  flow.tx.flow.packets += 5;
  flow.tx.flow.cnp += 7;  // what this host sends slows the other direction
  flow.last_cnps += 2;
  flow.answers.seq_naks += 1;
  const uplink::SecondSeen seen = Take(1, 1);
  ASSERT_THAT(seen.flows, SizeIs(1));
  EXPECT_EQ(seen.flows[0].bytes, 5000u);
  EXPECT_EQ(seen.flows[0].packets, 5u);
  EXPECT_EQ(seen.flows[0].cnps, 2u);
  EXPECT_EQ(seen.flows[0].naks, 1u);
  EXPECT_EQ(seen.flows[0].udp_port, 50'000);
  EXPECT_THAT(Take(1, 2).flows, IsEmpty()) << "it stands still";
  for (int i = 0; i < 1000; ++i)
    flows_.sent[FlowKey{key.src, key.dst, static_cast<uint32_t>(100 + i)}].tx.flow.packets = 1;
  Take(1, 3);
  for (auto& [of, entry] : flows_.sent) {
    entry.tx.flow.packets += 1;
    entry.tx.flow.bytes += of.dqpn;
  }
  const uplink::SecondSeen many = Take(1, 4);
  ASSERT_THAT(many.flows, SizeIs(RingRecorder::kMostFlows));
  EXPECT_EQ(many.flows[0].bytes, 1099u) << "those with the most";
}

TEST(RingTap, ASecondIsTheTimeSinceTheOneBefore) {
  RingTap tap;
  EXPECT_TRUE(absl::IsFailedPrecondition(tap.Take({}, {}, {}, 10, 1).status()));
  EXPECT_EQ(tap.recorder(), nullptr);
  tap.Want(true, 10);
  ASSERT_NE(tap.recorder(), nullptr);
  EXPECT_EQ(tap.Take({}, {}, {}, 25, 2)->interval.from_ns, 10);
  const uplink::SecondSeen second = *tap.Take({}, {}, {}, 40, 3);
  EXPECT_EQ(second.interval.from_ns, 25);
  EXPECT_EQ(second.interval.to_ns, 40);
  tap.Want(false, 50);
  EXPECT_FALSE(tap.Take({}, {}, {}, 60, 4).ok());
}

}  // namespace
}  // namespace cw::agent
