// SPDX-License-Identifier: Apache-2.0
//
// TAI from anchors: it spreads, and who is wrong, smears a leap second or steps is named.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <string>

#include "sync/agreement.h"
#include "tests/unit/sync_swarm.h"

namespace cw::sync {
namespace {

AnchorReading Good(double true_s, int64_t local_ns) {
  const int64_t noise_ns = static_cast<int64_t>(HostId(std::to_string(local_ns)) % 81) - 40;
  return {true, local_ns, static_cast<int64_t>(std::llround(true_s * 1e9)) + 1'700'000'000'000'000'000 + noise_ns,
          1000};
}
AnchorReading Bad(double true_s, int64_t local_ns) {
  AnchorReading r = Good(true_s, local_ns);
  r.tai_ns += 5'000'000 + static_cast<int64_t>(true_s * 1e5);  // 5 ms off, 100 ppm fast
  return r;
}

double TaiError(const Swarm& s, size_t i) {
  const int64_t tai_ns = s.hosts[i].agreement->tai().ToTaiNs(s.Time(i).ToFleetNs(s.Local(i)));
  return static_cast<double>(tai_ns - 1'700'000'000'000'000'000 - std::llround(s.now_s() * 1e9));
}

TEST(Agreement, TaiSpreadsFromGoodAnchorsAndABadOneIsNamed) {
  Swarm s({.hosts = 24}), without({.hosts = 24});
  for (const size_t i : {1, 2, 3}) s.hosts[i].anchor = Good;
  s.hosts[4].anchor = Bad;
  const auto told = [&](size_t i) {
    const FleetClaim c = s.hosts[i].agreement->Claim();
    if (s.now_s() < 112 || c.tai_bound_ns < 0) return;
    EXPECT_LE(std::abs(TaiError(s, i)), static_cast<double>(c.tai_bound_ns)) << i;
  };
  s.Run(30, told);
  without.Run(30);
  double worst = 0;
  for (size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(s.Time(i).offset_ns, without.Time(i).offset_ns) << "anchors never move fleet time";
    ASSERT_GE(s.hosts[i].agreement->Claim().tai_bound_ns, 0) << i;
    worst = std::max(worst, std::abs(TaiError(s, i)));
    bool named = false;
    for (const AnchorVerdict& v : s.hosts[i].agreement->anchors()) {
      if (v.anchor_id == HostId("h4")) named = v.reason == Reason::kFalseTicker;
      EXPECT_TRUE(v.anchor_id != HostId("h1") || v.reason == Reason::kUsed);
    }
    EXPECT_TRUE(named) << i;
  }
  std::printf("worst TAI error %.0f ns\n", worst);
  EXPECT_LT(worst, 300);
  for (const size_t i : {1, 2, 3, 4}) s.hosts[i].anchor = nullptr;
  s.Run(60);
  for (size_t i = 0; i < 24; ++i) EXPECT_LT(s.hosts[i].agreement->Claim().tai_bound_ns, 0) << "anchors age out";
}

TEST(Agreement, OfTwoAnchorsThatContradictEachOtherNoneIsBelieved) {
  Swarm s({.hosts = 6});
  s.hosts[1].anchor = Good;
  s.Run(8);
  EXPECT_TRUE(s.hosts[5].agreement->tai().known);
  s.hosts[2].anchor = Bad;
  s.Run(8);
  EXPECT_FALSE(s.hosts[5].agreement->tai().known) << "one against one";
  EXPECT_LT(s.hosts[5].agreement->Claim().tai_bound_ns, 0);
  ASSERT_EQ(s.hosts[5].agreement->anchors().size(), 2u);
  for (const AnchorVerdict& v : s.hosts[5].agreement->anchors()) {
    EXPECT_EQ(v.reason, Reason::kWaiting);
    EXPECT_TRUE(v.contradicts) << "both are told";
  }
  s.hosts[3].anchor = Good;
  s.Run(8);
  EXPECT_TRUE(s.hosts[5].agreement->tai().known) << "two against one";
  EXPECT_LE(std::abs(TaiError(s, 5)), static_cast<double>(s.hosts[5].agreement->tai().bound_ns));
}

// A leap second spread over a day; and a clock that is merely wrong by another rate.
AnchorReading Smears(double true_s, int64_t local_ns) {
  AnchorReading r = Good(true_s, local_ns);
  r.tai_ns -= std::llround(1e9 / 86'400 * true_s);
  return r;
}
AnchorReading RunsOff(double true_s, int64_t local_ns) {
  AnchorReading r = Good(true_s, local_ns);
  r.tai_ns += std::llround(40e3 * true_s);
  return r;
}

TEST(Agreement, AnAnchorThatSmearsALeapSecondIsToldFromOneThatIsJustWrong) {
  for (const bool smears : {true, false}) {
    Swarm s({.hosts = 6});
    s.hosts[0].anchor = s.hosts[1].anchor = Good;
    s.hosts[2].anchor = smears ? Smears : RunsOff;
    s.Run(40);
    ASSERT_EQ(s.hosts[5].agreement->anchors().size(), 3u);
    for (const AnchorVerdict& v : s.hosts[5].agreement->anchors()) {
      const bool bad = v.anchor_id == HostId(s.hosts[2].name);
      EXPECT_EQ(v.reason, bad ? Reason::kFalseTicker : Reason::kUsed);
      EXPECT_EQ(v.smears, bad && smears);
    }
  }
}

TEST(Agreement, OfTwoAnchorsOneOfWhichSmearsBothAreTold) {
  Swarm s({.hosts = 6});
  s.hosts[0].anchor = Good;
  s.hosts[2].anchor = Smears;
  s.Run(40);
  EXPECT_FALSE(s.hosts[5].agreement->tai().known);
  ASSERT_EQ(s.hosts[5].agreement->anchors().size(), 2u);
  for (const AnchorVerdict& v : s.hosts[5].agreement->anchors()) EXPECT_TRUE(v.smears);
}

AnchorReading StepsFor6s(double true_s, int64_t local_ns) {
  AnchorReading r = Good(true_s, local_ns);
  if (true_s >= 110 && true_s < 116) r.tai_ns += 1'000'000;
  return r;
}
AnchorReading Steps(double true_s, int64_t local_ns) {
  AnchorReading r = Good(true_s, local_ns);
  if (true_s >= 110) r.tai_ns += 1'000'000;
  return r;
}

bool HasStepped(const Swarm& s, size_t i, const std::string& anchor) {
  for (const AnchorVerdict& v : s.hosts[i].agreement->anchors()) {
    if (v.anchor_id == HostId(anchor) && v.stepped) return true;
  }
  return false;
}

void ExpectTaiWithinItsBound(const Swarm& s, size_t i) {
  const TaiTime tai = s.hosts[i].agreement->tai();
  if (!tai.known) return;
  EXPECT_LE(std::abs(TaiError(s, i)), static_cast<double>(tai.bound_ns)) << i << " at " << s.now_s();
}

TEST(Agreement, AnAnchorThatStepsHasNoVoteUntilItAgreesAgain) {
  Swarm s({.hosts = 12});
  for (const size_t i : {1, 2}) s.hosts[i].anchor = Good;
  s.hosts[3].anchor = StepsFor6s;
  const auto within = [&](size_t i) { ExpectTaiWithinItsBound(s, i); };
  s.Run(9.5, within);
  for (size_t i = 0; i < 12; ++i) EXPECT_FALSE(HasStepped(s, i, "h3")) << i;
  s.Run(3.5, within);
  EXPECT_TRUE(HasStepped(s, 3, "h3"));
  s.Run(30, within);
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(s.hosts[i].agreement->tai().known) << i;
    EXPECT_FALSE(HasStepped(s, i, "h3")) << i << ": it has been back for long";
    EXPECT_FALSE(HasStepped(s, i, "h1")) << i;
  }
}

TEST(Agreement, WhenTheOnlyAnchorStepsTheBoundHoldsWhatItSaidBefore) {
  Swarm s({.hosts = 6});
  s.hosts[1].anchor = Steps;
  const auto within = [&](size_t i) { ExpectTaiWithinItsBound(s, i); };
  s.Run(45, within);
  for (size_t i = 0; i < 6; ++i) {
    EXPECT_TRUE(HasStepped(s, i, "h1") || i != 1) << i;
    ASSERT_TRUE(s.hosts[i].agreement->tai().known) << i;
    EXPECT_GE(s.hosts[i].agreement->tai().bound_ns, 1'000'000) << i;
  }
}

}  // namespace
}  // namespace cw::sync
