// SPDX-License-Identifier: Apache-2.0
// Kinds of stamps, before the estimator.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sync/pair_estimator.h"
#include "sync/stamp_kind.h"

namespace cw::sync {
namespace {

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
