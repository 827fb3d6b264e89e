// SPDX-License-Identifier: Apache-2.0
// Local time under slews of CLOCK_MONOTONIC: does it run like CLOCK_MONOTONIC_RAW, without a step, within its bound?
#include "sync/line_keeper.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <random>
#include <vector>

namespace cw::sync {
namespace {

constexpr double kLineStartNs = 100e9;

// CLOCK_MONOTONIC as an NTP client slews it, by true time, which CLOCK_MONOTONIC_RAW reads.
class SlewedLine {
 public:
  void Slew(double at_s, double ppm) { Change(at_s, ppm, 0); }
  void Step(double at_s, double ns) { Change(at_s, pieces_.back().ppm, ns); }

  int64_t Mono(double raw_ns) const {
    auto piece = pieces_.rbegin();
    while (piece != pieces_.rend() - 1 && piece->since_ns > raw_ns) ++piece;
    return static_cast<int64_t>(std::floor(raw_ns + piece->ahead_ns + (raw_ns - piece->since_ns) * piece->ppm * 1e-6));
  }
  int64_t Raw(double raw_ns) const { return static_cast<int64_t>(std::floor(raw_ns)); }

 private:
  struct Piece {
    double since_ns, ahead_ns, ppm;
  };
  void Change(double at_s, double ppm, double step_ns) {
    const Piece& last = pieces_.back();
    const double at_ns = kLineStartNs + at_s * 1e9;
    pieces_.push_back({at_ns, last.ahead_ns + (at_ns - last.since_ns) * last.ppm * 1e-6 + step_ns, ppm});
  }
  std::vector<Piece> pieces_ = {{kLineStartNs, 5e9 + 0.4, 0}};
};

// A host: its clock, the line in its map, and the agent that keeps it.
class Host {
 public:
  Host(const SlewedLine& clock, uint64_t seed) : clock_(clock), random_(seed) {}

  // Looks every look_s until that time; calls at_look before and after each.
  void RunTo(double until_s, double look_s, const std::function<void(double now_ns)>& at_look = nullptr) {
    for (; now_ns_ < kLineStartNs + until_s * 1e9; now_ns_ += look_s * 1e9) {
      if (at_look) at_look(now_ns_);
      Look();
      if (at_look) at_look(now_ns_ + 1000);
    }
  }

  // Each reading takes some 20 ns; one in a thousand is interrupted.
  void Look() {
    std::exponential_distribution<double> more(0.1);
    const auto cost = [&] { return 15 + more(random_) + (random_() % 1000 == 0 ? 3e3 * more(random_) : 0); };
    const double before = now_ns_ - cost(), after = now_ns_ + cost();
    const auto next = keeper_.Look({clock_.Mono(before), clock_.Raw(now_ns_), clock_.Mono(after)}, line_);
    if (!next) return;
    ++lines_;
    // As it takes hold, a moment later: where the old line has come to.
    const cw_local_line taken = Continue(line_, *next, clock_.Mono(after + 100));
    EXPECT_EQ(cw_local_at(&line_, taken.pivot_ns), cw_local_at(&taken, taken.pivot_ns));
    line_ = taken;
  }

  // The agent ends, and another one goes on with the map.
  void Restart() { keeper_ = LineKeeper(); }
  void Sleep(double s) { now_ns_ += s * 1e9; }

  int64_t Local(double raw_ns) const {
    return static_cast<int64_t>(cw_local_at(&line_, static_cast<uint64_t>(clock_.Mono(raw_ns))));
  }
  double AwayNs(double raw_ns) const { return static_cast<double>(Local(raw_ns)) - raw_ns - 5e9; }
  double now_ns() const { return now_ns_; }
  const LineKeeper& keeper() const { return keeper_; }
  const cw_local_line& line() const { return line_; }
  int lines() const { return lines_; }

 private:
  const SlewedLine& clock_;
  std::mt19937_64 random_;
  LineKeeper keeper_;
  cw_local_line line_{};
  double now_ns_ = kLineStartNs;
  int lines_ = 0;
};

TEST(LineKeeper, AClockThatNobodySlewsKeepsTheLineThatIsNothing) {
  const SlewedLine clock;
  for (const double look_s : {1e-3, 0.1}) {
    Host host(clock, 1);
    host.RunTo(130, look_s);  // longer than any segment
    EXPECT_EQ(host.lines(), 0);
    EXPECT_EQ(host.Local(host.now_ns()), clock.Mono(host.now_ns()));
    EXPECT_EQ(host.keeper().missing_ns(), 0);
    // What nobody can have missed is not bounded by the widest read of all, but by the widest one used.
    EXPECT_LE(host.keeper().BoundNs(clock.Mono(host.now_ns())), 20'100 + static_cast<int64_t>(look_s * 500'000 * 1.1));
  }
}

TEST(LineKeeper, ASteadySlewIsTakenOffWithinATenthOfASecond) {
  for (const double ppm : {-20.0, 0.05, 480.0, -90'000.0}) {
    SlewedLine clock;
    clock.Slew(0, ppm);
    Host host(clock, 2);
    host.RunTo(std::abs(ppm) < 1000 ? 0.1 : 1.5, 1e-3);  // 90 us are made good at 100 ppm
    const double from_ns = host.now_ns(), away = host.AwayNs(from_ns);
    double worst = 0;
    host.RunTo(30, 1e-3, [&](double now_ns) { worst = std::max(worst, std::abs(host.AwayNs(now_ns) - away)); });
    EXPECT_LE(worst, 60) << ppm << " ppm";
    EXPECT_LE(host.lines(), 200) << ppm << " ppm";  // it settles
    EXPECT_EQ(host.keeper().given_up(), 0u);
  }
}

// What is missed before a change is noticed: the change times the time between two looks, and what a read cannot tell.
TEST(LineKeeper, AChangeOfSlewIsMissedForOneLookAndMadeGood) {
  for (const double look_s : {1e-3, 10e-3}) {
    SlewedLine clock;
    clock.Slew(1.0004, 500);
    clock.Slew(3.0001, -500);
    clock.Slew(5.0002, -499);
    clock.Slew(7.0009, 0);
    Host host(clock, 3);
    host.RunTo(0.9, look_s);
    double worst = 0, settled = 0;
    int64_t last = host.Local(host.now_ns());
    host.RunTo(9, look_s, [&](double now_ns) {
      const double away = std::abs(host.AwayNs(now_ns)), s = (now_ns - kLineStartNs) * 1e-9;
      worst = std::max(worst, away);
      if (std::fmod(s, 2) < 0.9) settled = std::max(settled, away);  // a second after each change
      EXPECT_GE(host.Local(now_ns), last);
      last = host.Local(now_ns);
    });
    EXPECT_LE(worst, 1000e-6 * look_s * 1e9 * 1.2 + 100) << look_s;
    EXPECT_LE(settled, 60) << look_s;
    EXPECT_GT(worst, 60) << "the scenario slews nothing";
    EXPECT_EQ(host.keeper().given_up(), 0u);
    EXPECT_NEAR(host.keeper().slew_ppb(), 0, 10);
  }
}

// The kernel's own loop (ntp_adjtime) changes the slew by a little, each second.
TEST(LineKeeper, SmallChangesEachSecondAreFollowed) {
  SlewedLine clock;
  for (int s = 0; s < 60; ++s) clock.Slew(s + 0.5, 12 + 30 * std::exp(-s / 10.0));
  Host host(clock, 4);
  host.RunTo(1, 2e-3);
  double worst = 0;
  const double away = host.AwayNs(host.now_ns());
  host.RunTo(60, 2e-3, [&](double now_ns) { worst = std::max(worst, std::abs(host.AwayNs(now_ns) - away)); });
  EXPECT_LE(worst, 150);
}

// Changes of up to 500 ppm at any time, looks at any distance up to 20 ms, for many seeds.
TEST(LineKeeper, TheBoundHoldsAtEveryMoment) {
  int64_t checks = 0, outside = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    std::mt19937_64 random(seed);
    const auto draw = [&](double low, double high) {
      return low + (high - low) * static_cast<double>(random() >> 11) * 0x1p-53;
    };
    SlewedLine clock;
    for (double s = 0.5; s < 20; s += draw(0.001, 1.5)) clock.Slew(s, draw(-250, 250));
    Host host(clock, seed);
    host.RunTo(0.4, 5e-3);
    const double away = host.AwayNs(host.now_ns());
    const double widest_s = draw(1e-3, 20e-3);
    host.Sleep(widest_s);
    while (host.now_ns() < kLineStartNs + 20e9) {
      const double before = host.now_ns();
      host.RunTo((before - kLineStartNs) * 1e-9 + 1e-9, draw(0.2e-3, widest_s));
      for (int i = 0; i < 4; ++i) {
        const double at = draw(before, host.now_ns());
        const auto bound = static_cast<double>(host.keeper().BoundNs(clock.Mono(at)));
        outside += std::abs(host.AwayNs(at) - away) > bound;
        ++checks;
      }
    }
    EXPECT_EQ(host.keeper().given_up(), 0u);
  }
  EXPECT_EQ(outside, 0) << "of " << checks;
  EXPECT_GT(checks, 100'000);
}

// While it is made good, local time runs at most 100 ppm off, but for what a young line does not know yet.
TEST(LineKeeper, MakesGoodGently) {
  SlewedLine clock;
  clock.Slew(1.0001, 500);
  Host host(clock, 5);
  host.RunTo(1.02, 10e-3);
  double worst = 0;
  double last_ns = 0, last_away = 0;
  host.RunTo(2, 1e-3, [&](double now_ns) {
    if (now_ns < last_ns + 1e5) return;  // just after the look: nanoseconds' rounding
    if (last_ns != 0) worst = std::max(worst, std::abs(host.AwayNs(now_ns) - last_away) / (now_ns - last_ns));
    last_ns = now_ns;
    last_away = host.AwayNs(now_ns);
  });
  EXPECT_GT(worst, 50e-6);
  EXPECT_LE(worst, 120e-6);
}

TEST(LineKeeper, WhatIsTooMuchIsGivenUp) {
  SlewedLine clock;
  clock.Slew(1, 80'000);  // chronyd can
  clock.Slew(3, 0);
  clock.Step(5, 1e6);  // no kernel does
  Host host(clock, 6);
  host.RunTo(2, 20e-3);
  EXPECT_EQ(host.keeper().given_up(), 1u);
  EXPECT_GE(std::llabs(host.keeper().last_given_up_ns()), 100'000);
  const double away = host.AwayNs(host.now_ns());
  host.RunTo(2.9, 20e-3);
  EXPECT_NEAR(host.AwayNs(host.now_ns()), away, 60);
  host.RunTo(4, 20e-3);
  EXPECT_EQ(host.keeper().given_up(), 2u);
  host.RunTo(6, 20e-3);
  EXPECT_GE(host.keeper().given_up(), 3u);
  EXPECT_EQ(host.line().work_q32, 0);
}

TEST(LineKeeper, ANewAgentGoesOnWithTheLineItFinds) {
  SlewedLine clock;
  clock.Slew(0, 100);
  clock.Slew(10, -100);  // while nobody looks
  Host host(clock, 7);
  host.RunTo(5, 1e-3);
  const cw_local_line found = host.line();
  EXPECT_NE(found.rate_q32, 0);
  host.Restart();
  host.Sleep(10);
  const int64_t before = host.Local(host.now_ns());
  host.Look();
  EXPECT_EQ(host.Local(host.now_ns()), before);  // no step, though local time has run wrongly meanwhile
  const double then = host.now_ns();
  host.RunTo((then - kLineStartNs) * 1e-9 + 0.1, 1e-3);
  const double away = host.AwayNs(host.now_ns());
  host.RunTo(30, 1e-3);
  EXPECT_NEAR(host.AwayNs(host.now_ns()), away, 60);
  EXPECT_EQ(host.keeper().given_up(), 0u);
}

TEST(LocalLine, IsExact) {
  std::mt19937_64 random(8);
  for (int i = 0; i < 100'000; ++i) {
    cw_local_line l{};
    l.pivot_ns = random() >> 10;
    l.ahead_ns = static_cast<int64_t>(random()) >> 20;
    l.rate_q32 = static_cast<int64_t>(random()) >> 36;  // up to 3 %
    l.work_q32 = static_cast<int64_t>(random()) >> 44;
    l.work_ns = static_cast<int64_t>(random() >> 34);
    const int64_t passed = static_cast<int64_t>(random()) >> (14 + random() % 40);  // up to six days, either way
    const int64_t worked = std::clamp<int64_t>(passed, 0, l.work_ns);
    const auto floor_q32 = [](__int128 product) { return static_cast<int64_t>(product >> 32); };
    const uint64_t t = l.pivot_ns + static_cast<uint64_t>(passed);
    const uint64_t expected =
        t + static_cast<uint64_t>(l.ahead_ns + floor_q32(static_cast<__int128>(passed) * l.rate_q32) +
                                  floor_q32(static_cast<__int128>(worked) * l.work_q32));
    ASSERT_EQ(cw_local_at(&l, t), expected) << passed << " ns at " << l.rate_q32;
  }
  const cw_local_line nothing{};
  for (const uint64_t t : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 62}) EXPECT_EQ(cw_local_at(&nothing, t), t);
}

}  // namespace
}  // namespace cw::sync
