// SPDX-License-Identifier: Apache-2.0
// Gates before the estimator: coded pairs, kinds of stamps.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "sync/coded_pairs.h"
#include "sync/pair_estimator.h"
#include "sync/stamp_kind.h"
#include "tests/unit/sync_channel_sim.h"

namespace cw::sync {
namespace {

constexpr double kRate = 40e-6;

// Probes every gap_ns, delayed by another 100 µs or so with probability busy; which of them were.
struct Lane {
  std::mt19937_64 random{1};
  double t_ns = 1e9;

  Point Next(double gap_ns, double busy, bool& delayed) {
    t_ns += gap_ns;
    delayed = std::uniform_real_distribution<double>(0, 1)(random) < busy;
    const double noise = std::exponential_distribution<double>(1.0 / 60)(random);
    const double queue = delayed ? std::exponential_distribution<double>(1e-5)(random) : 0;
    return {std::llround(t_ns), std::llround(t_ns * (1 + kRate) + 5000 + noise + queue)};
  }
};

class CodedPairsOf : public testing::TestWithParam<double> {};

TEST_P(CodedPairsOf, PassWhatWasNotDelayedAndTheShareAskedFor) {
  const double gap_ns = GetParam();
  for (const double busy : {0.5, 0.8}) {
    CodedPairs pairs(1);
    Lane lane;
    bool delayed = false, was = false;
    int passed = 0, wrong = 0, judged = 0;
    for (int i = 0; i < 20'000; ++i) {
      was = delayed;
      // Back to back: the partner follows after gap_ns, the next pair a millisecond later.
      const auto v = pairs.Add(0, lane.Next(i % 2 == 0 && gap_ns < 1e6 ? 1e6 : gap_ns, busy, delayed), kRate);
      if (i < 2000 || !v.paired) continue;
      ++judged;
      passed += v.survived;
      wrong += v.survived && (was || delayed);
    }
    EXPECT_GE(passed, judged / 5) << busy;
    EXPECT_LE(passed, judged * 2 / 5) << busy;
    const double delayed_pairs = 1 - (1 - busy) * (1 - busy);
    EXPECT_LE(wrong, passed * delayed_pairs * 0.92) << busy;  // fewer than chance would let through
  }
}

INSTANTIATE_TEST_SUITE_P(Gaps, CodedPairsOf, testing::Values(10e3, 1e6));

TEST(CodedPairs, MorePassOnAnIdlePath) {
  CodedPairs pairs(1, {.least_ns = 150});
  Lane lane;
  bool delayed;
  for (int i = 0; i < 5000; ++i) pairs.Add(0, lane.Next(1e6, 0.01, delayed), kRate);
  EXPECT_GT(pairs.survived(), pairs.pairs() * 8 / 10);
}

TEST(CodedPairs, LanesHaveTheirOwnPartnersAndPausesHaveNone) {
  CodedPairs pairs(2);
  EXPECT_FALSE(pairs.Add(0, {1'000'000, 1'005'000}, 0).paired);
  EXPECT_FALSE(pairs.Add(1, {1'001'000, 1'009'000}, 0).paired);
  EXPECT_TRUE(pairs.Add(0, {2'000'000, 2'005'010}, 0).survived);
  EXPECT_FALSE(pairs.Add(1, {2'001'000, 2'019'000}, 0).survived);  // 10 µs late
  EXPECT_FALSE(pairs.Add(0, {900'000'000, 900'005'000}, 0).paired);
  EXPECT_TRUE(pairs.Add(1, {3'001'000, 3'019'010}, 0).survived);  // late alike: a pair cannot know
}

// What the gate is worth before this estimator, at the same number of probes per second. Weighing round trips does
// most of its work; it is not in the estimator's way by default.
TEST(CodedPairs, DoNotBeatTheFastestRoundTripsAgainstQueues) {
  Tally without, with;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    ChannelSpec spec;
    spec.theirs = SimClock({{0, 1e9, 50}});
    spec.slots = 4;
    spec.round_ms = 4;
    spec.load = 0.8;
    spec.seed = seed;
    without.Add(RunChannel(spec), 8);
    spec.gate = 1;
    with.Add(RunChannel(spec), 8);
  }
  std::printf("without: %s\nwith:    %s\n", without.Text().c_str(), with.Text().c_str());
  EXPECT_LE(without.Error(0.99), 60);
  EXPECT_LE(with.Error(0.99), 120);
  EXPECT_LE(without.Error(0.99), with.Error(0.99) * 1.5);
}

TEST(StampKind, ZeroAndMissingMeanNone) {
  EXPECT_EQ(ChooseRxStamp(1000, std::nullopt).kind, StampKind::kSoftware);
  EXPECT_EQ(ChooseRxStamp(1000, 0).ns, 1000);
  EXPECT_EQ(ChooseRxStamp(1000, 0).kind, StampKind::kSoftware);
  EXPECT_EQ(ChooseRxStamp(1000, -5).kind, StampKind::kSoftware);
  EXPECT_EQ(ChooseRxStamp(1000, 990).ns, 990);
  EXPECT_EQ(ChooseRxStamp(1000, 990).kind, StampKind::kHardware);
}

TEST(StampKind, ASeriesKeepsItsKindUntilThatIsGone) {
  using A = SeriesKind::Admission;
  SeriesKind series(1'000'000);
  EXPECT_EQ(series.Admit(0, StampKind::kHardware), A::kUse);
  EXPECT_EQ(series.Admit(100, StampKind::kSoftware), A::kLeaveOut);
  EXPECT_EQ(series.Admit(900'000, StampKind::kHardware), A::kUse);
  EXPECT_EQ(series.Admit(1'800'000, StampKind::kSoftware), A::kLeaveOut);
  EXPECT_EQ(series.Admit(1'900'000, StampKind::kSoftware), A::kStartAnew);
  EXPECT_EQ(series.Admit(1'900'001, StampKind::kSoftware), A::kUse);
  EXPECT_EQ(series.Admit(1'900'002, StampKind::kHardware), A::kLeaveOut);
}

// Hardware stamps lie 3 µs before software's, at one end only: mixed, they would shift the offset by 1.5 µs.
TEST(StampKind, MissingHardwareStampsDoNotBendTheLineAndAChangeStartsAnew) {
  PairEstimator e;
  std::mt19937_64 random(1);
  const auto noise = [&] { return std::exponential_distribution<double>(1e-2)(random); };
  const auto probe = [&](int ms, StampKind kind) {
    const double t1 = 1e9 + ms * 1e6, t2 = t1 + 5000 + noise(), t4 = t2 + 5000 + noise();
    const double early = kind == StampKind::kHardware ? 3000 : 0;
    e.AddTrip({std::llround(t1), std::llround(t2 - early), std::llround(t2), std::llround(t4)}, kind);
    return e.At(std::llround(t4));
  };
  for (int ms = 0; ms < 5000; ++ms) {
    const Estimate now = probe(ms, ms % 3 == 0 ? StampKind::kSoftware : StampKind::kHardware);
    // The first stamp was software's: that series goes on as long as such stamps come.
    if (ms > 1000) {
      EXPECT_NEAR(static_cast<double>(now.offset_ns), 0, 200);
    }
  }
  Estimate now;
  for (int ms = 5000; ms < 9000; ++ms) now = probe(ms, StampKind::kHardware);
  EXPECT_NEAR(static_cast<double>(now.offset_ns), -1500, 200);
  EXPECT_EQ(now.epoch, 0u);  // no clock was stepped
  EXPECT_EQ(now.state, SyncState::kSynchronised);
}

}  // namespace
}  // namespace cw::sync
