// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/cadence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <utility>

#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "tests/unit/time_units.h"
#include "userspace/model/cpu_list.h"
#include "userspace/probe/lateness.h"
#include "userspace/probe/prober.h"

namespace cw::probe {
namespace {

struct Outcome {
  std::map<uint32_t, int> rounds;
  std::map<uint32_t, int64_t> longest_gap, shortest_gap;
  int wakes = 0;
  int largest_tick = 0;
};

// Sleeps until each wake and is `late` after it.
Outcome Simulate(Cadence& c, int64_t from, int64_t to, int64_t late = 20'000) {
  Outcome r;
  std::map<uint32_t, int64_t> last;
  std::vector<uint32_t> due;
  for (int64_t now = from;;) {
    now = std::max(now, c.NextWakeNs()) + late;
    if (now >= to) return r;
    ++r.wakes;
    c.TakeDue(now, &due);
    r.largest_tick = std::max(r.largest_tick, static_cast<int>(due.size()));
    for (uint32_t p : due) {
      ++r.rounds[p];
      if (last.contains(p)) {
        r.longest_gap[p] = std::max(r.longest_gap[p], now - last[p]);
        r.shortest_gap[p] = r.shortest_gap[p] == 0 ? now - last[p] : std::min(r.shortest_gap[p], now - last[p]);
      }
      last[p] = now;
    }
  }
}

TEST(Cadence, OtherOptionsStretchAndShrinkWhatIsDue) {
  Cadence c({.active_interval_ns = kMs, .idle_interval_ns = 60 * kSecond, .budget_pps = 1e6});
  c.SetPair(0, 8, 0);
  EXPECT_GT(c.NextWakeNs(), kSecond);
  c.SetOptions({.active_interval_ns = kMs, .idle_interval_ns = 10 * kMs, .budget_pps = 1e6}, kSecond);
  const Outcome often = Simulate(c, kSecond, 2 * kSecond);
  EXPECT_NEAR(often.rounds.at(0), 100, 2);
  // 8 probes at 80 a second: ten rounds.
  c.SetOptions({.active_interval_ns = kMs, .idle_interval_ns = 10 * kMs, .budget_pps = 80}, 2 * kSecond);
  EXPECT_NEAR(Simulate(c, 2 * kSecond, 3 * kSecond).rounds.at(0), 10, 1);
}

// A host whose share of the processors comes and goes has another budget twice a second.
TEST(Cadence, ABudgetThatKeepsChangingPutsNoRoundOff) {
  Cadence c({.active_interval_ns = kMs, .idle_interval_ns = kSecond, .budget_pps = 10});
  c.SetPair(0, 8, 0);
  c.SetActive(0, true, 0);
  int rounds = 0;
  for (int half = 0; half < 40; ++half) {
    const int64_t now = half * kSecond / 2;
    const auto r = Simulate(c, now, now + kSecond / 2).rounds;
    rounds += r.contains(0) ? r.at(0) : 0;
    c.SetOptions({.active_interval_ns = kMs, .idle_interval_ns = kSecond, .budget_pps = half % 2 == 0 ? 9.0 : 10.0},
                 now + kSecond / 2);
  }
  EXPECT_NEAR(rounds, 23, 4);  // in 20 s, at 9 or 10 probes a second
}

TEST(Cadence, ActiveAtOneIntervalIdleAtAnother) {
  Cadence c({.budget_pps = 1e6});
  c.SetPair(0, 8, 0);
  c.SetPair(1, 8, 0);
  c.SetActive(1, true, 0);
  const Outcome r = Simulate(c, 0, 10 * kSecond);
  EXPECT_NEAR(100, r.rounds.at(0), 1);
  EXPECT_NEAR(10'000, r.rounds.at(1), 2);
  EXPECT_LE(r.longest_gap.at(1), kMs + 1000);
  EXPECT_EQ(0u, c.skipped_rounds());
}

TEST(Cadence, SleepsUntilSomethingIsDue) {
  Cadence c({.budget_pps = 1e6});
  EXPECT_EQ(INT64_MAX, c.NextWakeNs());
  c.SetPair(7, 4, 0);
  const Outcome r = Simulate(c, 0, 10 * kSecond);
  EXPECT_NEAR(100, r.wakes, 1);
}

TEST(Cadence, ManyIdlePairsShareFewWakes) {
  Cadence c({.budget_pps = 1e6});
  for (uint32_t i = 0; i < 400; ++i) c.SetPair(i, 1, i * 137'000);
  EXPECT_LE(Simulate(c, kSecond, 2 * kSecond).wakes, 180);
}

TEST(Cadence, IdlePairsAreSpreadOverTheirInterval) {
  Cadence c({.budget_pps = 1e6});
  for (uint32_t i = 0; i < 400; ++i) c.SetPair(i, 4, 0);
  const Outcome r = Simulate(c, 0, 3 * kSecond);
  EXPECT_LE(r.largest_tick, 50) << "400 pairs in 16 groups are 25 each";
  EXPECT_EQ(0u, c.skipped_rounds());
  // Stopped for 2 s: what is long overdue waits for its own tick again instead of forming one burst.
  const Outcome after = Simulate(c, 5 * kSecond, 6 * kSecond);
  EXPECT_LE(after.largest_tick, 80);
  EXPECT_EQ(400u, after.rounds.size());
  EXPECT_NEAR(400 * 20, static_cast<double>(c.skipped_rounds()), 400);
}

TEST(Cadence, BecomingActiveTakesEffectAtTheNextTick) {
  Cadence c({.budget_pps = 1e6});
  c.SetPair(0, 8, 0);
  std::vector<uint32_t> due;
  c.TakeDue(100 * kMs, &due);
  ASSERT_EQ(1u, due.size());
  c.SetActive(0, true, 150 * kMs + 1);
  EXPECT_EQ(151 * kMs, c.NextWakeNs());
}

TEST(Cadence, MissedRoundsAreSkippedNotCaughtUp) {
  Cadence c({.budget_pps = 1e6});
  c.SetPair(0, 8, 0);
  c.SetActive(0, true, 0);
  Simulate(c, 0, 100 * kMs);
  std::vector<uint32_t> due;
  const int64_t back = 2100 * kMs + 300'000;  // stopped for two seconds
  c.TakeDue(back, &due);
  EXPECT_EQ(1u, due.size());
  EXPECT_NEAR(2000, static_cast<double>(c.skipped_rounds()), 2);
  c.TakeDue(back, &due);
  EXPECT_TRUE(due.empty());
  EXPECT_EQ(2101 * kMs, c.NextWakeNs());
}

// Where that is no burst: a pair whose interval the budget stretches would be silent for twice as long each time.
TEST(Cadence, FewLateRoundsAreSentAllTheSameAndTheNextNotRightBehind) {
  CadenceOptions options;
  options.active_interval_ns = 10 * kMs;
  options.budget_pps = 100;
  Cadence c(options);
  c.SetPair(1, 16, 0);
  c.SetActive(1, true, 0);
  ASSERT_EQ(160 * kMs, c.IntervalNs(1));
  std::vector<uint32_t> due;
  const int64_t first = c.NextWakeNs();
  c.TakeDue(first, &due);
  ASSERT_EQ(due.size(), 1u);
  const int64_t late = first + 160 * kMs + 150 * kMs;
  c.TakeDue(late, &due);
  EXPECT_EQ(due.size(), 1u);
  EXPECT_EQ(1u, c.skipped_rounds()) << "the one that would have come right behind it";
  EXPECT_GE(c.NextWakeNs(), late + 80 * kMs);
  EXPECT_LE(c.NextWakeNs(), late + 240 * kMs);

  for (uint32_t pair = 2; pair < 12; ++pair) {
    c.SetPair(pair, 16, late);
    c.SetActive(pair, true, late);
  }
  c.TakeDue(late + 60'000 * kMs, &due);
  EXPECT_LE(due.size(), 2u) << "all would be a burst";
}

TEST(Cadence, BudgetIsKeptAndSharedFairly) {
  constexpr double kBudget = 10'000;
  Cadence c({.budget_pps = kBudget});
  int probes_per_round[24];
  for (uint32_t i = 0; i < 24; ++i) {
    probes_per_round[i] = i % 2 == 0 ? 4 : 12;
    c.SetPair(i, probes_per_round[i], 0);
    if (i < 12) c.SetActive(i, true, 0);
  }
  const Outcome r = Simulate(c, 0, 20 * kSecond);
  double pps = 0;
  for (const auto& [pair, rounds] : r.rounds) pps += rounds * probes_per_round[pair] / 20.0;
  EXPECT_LE(pps, kBudget * 1.02);
  EXPECT_GE(pps, kBudget * 0.95);
  const auto active = std::minmax_element(r.rounds.begin(), std::next(r.rounds.begin(), 12),
                                          [](auto& a, auto& b) { return a.second < b.second; });
  EXPECT_LE(active.second->second, active.first->second * 1.02) << "every active pair has the same interval";
  for (uint32_t i = 12; i < 24; ++i) EXPECT_GE(r.rounds.at(i), 100) << "idle pairs are not starved";
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_LE(r.longest_gap.at(i), 2.5 * c.IntervalNs(i)) << "the kernel would take it for a pause";
  }
}

TEST(Cadence, PairsInDoubtComeFirstUpToTheirShareOfTheBudget) {
  Cadence c({.budget_pps = 10'000});
  for (uint32_t i = 0; i < 64; ++i) {
    c.SetPair(i, 16, 0);
    c.SetActive(i, true, 0);
  }
  const int64_t before = c.IntervalNs(7);
  EXPECT_NEAR(102.4 * kMs, before, kMs);
  c.SetDoubt(7, true, 0);
  EXPECT_NEAR(3.2 * kMs, c.IntervalNs(7), 0.01 * kMs) << "16 probes from half of the budget";
  EXPECT_LE(c.NextWakeNs(), 4 * kMs);
  EXPECT_NEAR(2.0 * 63 / 64 * before, c.IntervalNs(8), kMs);
  const Outcome r = Simulate(c, 0, 4 * kSecond);
  int rounds = 0;
  for (const auto& [pair, n] : r.rounds) rounds += n;
  EXPECT_LE(rounds * 16 / 4.0, 10'000 * 1.02);
  for (uint32_t i = 0; i < 64; ++i) c.SetDoubt(i, true, 0);  // a spine has died
  EXPECT_NEAR(before, c.IntervalNs(7), kMs) << "with none left that is not in doubt, they have all of it";
  for (uint32_t i = 0; i < 64; ++i) c.SetDoubt(i, false, 0);
  EXPECT_EQ(before, c.IntervalNs(7));
}

// Whatever else is probed: more pairs in doubt shall not mean later rounds for all of them than without any doubt.
TEST(Cadence, PairsInDoubtNeverGetLessThanActiveOnes) {
  Cadence c({.active_interval_ns = 400'000, .budget_pps = 10'000});
  for (uint32_t i = 0; i < 128; ++i) {
    c.SetPair(i, 12, 0);
    if (i < 64) c.SetActive(i, true, 0);
    if (i >= 64 && i < 68) c.SetClock(i, ClockPace::kSteady, 0);
  }
  const int64_t before = c.IntervalNs(0);
  EXPECT_NEAR(120 * kMs, before, kMs) << "6400 probes a second for 64 pairs";
  for (uint32_t i = 0; i < 64; ++i) {
    c.SetDoubt(i, true, 0);
    ASSERT_LE(c.IntervalNs(0), before + kMs) << i + 1 << " pairs in doubt";
  }
  const Outcome r = Simulate(c, 0, 4 * kSecond);
  double probes = 0;
  for (const auto& [pair, n] : r.rounds) probes += 12.0 * n;
  EXPECT_LE(probes / 4, 10'000 * 1.02);
  EXPECT_TRUE(r.rounds.contains(64) && r.rounds.contains(100)) << "clock and idle pairs go on";
}

TEST(Cadence, ManyIdlePairsStretchTooAndRecoverWhenPairsGo) {
  Cadence c({.budget_pps = 1000});
  for (uint32_t i = 0; i < 100; ++i) c.SetPair(i, 8, 0);
  EXPECT_NEAR(800 * kMs, c.IntervalNs(5), kMs);
  for (uint32_t i = 1; i < 100; ++i) c.SetPair(i, 0, 0);
  EXPECT_EQ(100 * kMs, c.IntervalNs(0));
  c.SetActive(0, true, 0);
  EXPECT_EQ(8 * kMs, c.IntervalNs(0));
  c.SetPair(0, 0, 0);
  EXPECT_EQ(INT64_MAX, c.NextWakeNs());
}

TEST(Cadence, ClockPairsHaveAnIntervalOfTheirOwnWhileIdle) {
  Cadence c({.budget_pps = 10'000});
  for (uint32_t i = 0; i < 3; ++i) c.SetPair(i, 4, 0);
  c.SetClock(1, ClockPace::kSteady, 0);
  EXPECT_EQ(100 * kMs, c.IntervalNs(0));
  EXPECT_EQ(20 * kMs, c.IntervalNs(1));
  Outcome r = Simulate(c, 0, 10 * kSecond);
  EXPECT_NEAR(500, r.rounds.at(1), 5);
  EXPECT_NEAR(100, r.rounds.at(2), 2);
  c.SetClock(1, ClockPace::kYoung, 10 * kSecond);
  EXPECT_EQ(5 * kMs, c.IntervalNs(1));
  r = Simulate(c, 10 * kSecond, 20 * kSecond);
  EXPECT_NEAR(2000, r.rounds.at(1), 20);
  c.SetClock(1, ClockPace::kSteady, 20 * kSecond);
  c.SetActive(1, true, 20 * kSecond);
  EXPECT_EQ(1 * kMs, c.IntervalNs(1)) << "data counts for more";
  c.SetActive(1, false, 20 * kSecond);
  EXPECT_EQ(20 * kMs, c.IntervalNs(1));
  c.SetClock(1, ClockPace::kNone, 20 * kSecond);
  EXPECT_EQ(100 * kMs, c.IntervalNs(1));
  EXPECT_EQ(20 * kMs, Cadence({.idle_interval_ns = 20 * kMs, .clock_interval_ns = kSecond}).IntervalNs(7));
}

TEST(Cadence, ClockPairsAreTheFirstToSlowDown) {
  Cadence c({.budget_pps = 6000, .clock_share = 0.1});
  for (uint32_t i = 0; i < 10; ++i) c.SetPair(i, 4, 0);
  for (uint32_t i = 1; i < 5; ++i) c.SetClock(i, ClockPace::kSteady, 0);
  c.SetActive(0, true, 0);  // 4000 and 5 x 40: what is left for 16 probes is 1800
  EXPECT_EQ(1 * kMs, c.IntervalNs(0));
  EXPECT_EQ(20 * kMs, c.IntervalNs(1));
  EXPECT_EQ(100 * kMs, c.IntervalNs(9));
  c.SetPair(0, 5, 0);  // 5000 and 200: 800 are left, what they want
  EXPECT_EQ(20 * kMs, c.IntervalNs(1));
  c.SetPair(9, 20, 0);  // 5000 and 360
  EXPECT_EQ(1 * kMs, c.IntervalNs(0));
  EXPECT_NEAR(16e9 / 640, static_cast<double>(c.IntervalNs(1)), 1e3);
  EXPECT_EQ(100 * kMs, c.IntervalNs(9));
  c.SetPair(0, 8, 0);  // active pairs alone want more than there is
  EXPECT_NEAR(16e9 / 600, static_cast<double>(c.IntervalNs(1)), 1e3) << "but clock pairs keep their share";
  EXPECT_NEAR(8e9 / (5400 - 360), static_cast<double>(c.IntervalNs(0)), 1e3);
  EXPECT_EQ(100 * kMs, c.IntervalNs(9));
}

TEST(Lateness, QuantilesWithinAQuarterOctave) {
  Lateness l;
  EXPECT_EQ(0, l.Quantile(0.99));
  for (int i = 1; i <= 1000; ++i) l.Add(i * 1000);
  EXPECT_NEAR(std::log2(500e3), std::log2(static_cast<double>(l.Quantile(0.5))), 0.26);
  EXPECT_NEAR(std::log2(990e3), std::log2(static_cast<double>(l.Quantile(0.99))), 0.26);
  EXPECT_EQ(1'000'000, l.max_ns());
}

// Counts what goes out.
class CountingTransport final : public Transport {
 public:
  absl::Status Send(absl::Span<const uint8_t>) override { return absl::OkStatus(); }
  int SendBatch(bool, mmsghdr*, unsigned count) override {
    sent += count;
    return static_cast<int>(count);
  }
  std::atomic<uint64_t> sent{0};
};

// A prober with two pairs of one slot each, that are probed every hour.
struct SlowProber {
  SlowProber() {
    ProberOptions options;
    options.fifo_priority = 0;
    options.cadence = {.active_interval_ns = kMs, .idle_interval_ns = 3600 * kSecond, .budget_pps = 1e6};
    prober = *Prober::Start(options);
    for (uint32_t pair = 0; pair < 2; ++pair) {
      const PacketSpec spec{.local = Addr::FromV4(1), .remote = Addr::FromV4(2 + pair), .port = 50'000};
      ProbePlan plan{.pair = pair, .shared = &shared[pair], .socket = sent[pair], .slots = {}};
      plan.slots.push_back({.slot = 0, .probe = *ProbeTemplate::Make(CW_PROBE_REQUEST, spec)});
      prober->SetPlan(std::move(plan));
    }
  }
  static bool Eventually(const std::function<bool()>& done) {
    const absl::Time deadline = absl::Now() + absl::Seconds(20);
    while (!done()) {
      if (absl::Now() > deadline) return false;
      absl::SleepFor(absl::Milliseconds(1));
    }
    return true;
  }

  cw_pair shared[2] = {};
  std::shared_ptr<CountingTransport> sent[2] = {std::make_shared<CountingTransport>(),
                                                std::make_shared<CountingTransport>()};
  std::unique_ptr<Prober> prober;
};

TEST(Prober, AHurriedPairsRoundsComeAtOnceAndForAWhileOnly) {
  SlowProber slow;
  EXPECT_EQ(slow.prober->IntervalNs(0), 3600 * kSecond);
  slow.prober->Hurry(0, 30 * kMs);
  EXPECT_TRUE(SlowProber::Eventually([&] { return slow.sent[0]->sent >= 1; }));
  EXPECT_TRUE(SlowProber::Eventually([&] { return slow.prober->IntervalNs(0) == 3600 * kSecond; }));
  EXPECT_EQ(slow.sent[1]->sent, 0u);
  slow.prober->Hurry(7, 30 * kMs);  // there is no such pair
}

TEST(Prober, AnotherPaceHoldsAtOnceNotAfterTheRestOfALongInterval) {
  SlowProber slow;
  EXPECT_EQ(slow.prober->IntervalNs(0), 3600 * kSecond);
  slow.prober->SetCadence({.active_interval_ns = kMs, .idle_interval_ns = 5 * kMs, .budget_pps = 1e6});
  EXPECT_EQ(slow.prober->IntervalNs(0), 5 * kMs);
  EXPECT_TRUE(SlowProber::Eventually([&] { return slow.sent[0]->sent >= 3 && slow.sent[1]->sent >= 3; }));
  EXPECT_TRUE(SlowProber::Eventually([&] { return slow.shared[0].interval_ns == 5 * kMs; })) << "the kernel knows";
}

TEST(Prober, NobodyIsHurriedWhileASlotIsInDoubt) {
  SlowProber slow;
  slow.shared[1].slot[0].state = CW_SLOT_SUSPECT;
  slow.prober->SetActive(1, true);
  slow.prober->Hurry(0, 3600 * kSecond);
  EXPECT_EQ(slow.prober->IntervalNs(0), 3600 * kSecond);
  EXPECT_TRUE(SlowProber::Eventually([&] { return slow.sent[1]->sent >= 3; }));
  EXPECT_EQ(slow.sent[0]->sent, 0u);
}

TEST(Prober, RunsOnItsCpusOrSaysWhy) {
  ProberOptions options;
  options.fifo_priority = 0;
  options.cpus = {kMaxCpus - 1};
  const absl::Status refused = Prober::Start(options).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("probe.cpus is \"8191\""));
  EXPECT_THAT(std::string(refused.message()), ::testing::HasSubstr("cpuset.cpus.effective"));
  cpu_set_t mine;
  ASSERT_EQ(sched_getaffinity(0, sizeof(mine), &mine), 0);
  int first = 0;
  while (!CPU_ISSET(first, &mine)) ++first;
  options.cpus = {first, kMaxCpus - 1};
  const auto prober = Prober::Start(options);
  ASSERT_TRUE(prober.ok()) << prober.status();
  EXPECT_EQ((*prober)->stats().cpus, CpuListText({first})) << "what the machine has of them";
}

}  // namespace
}  // namespace cw::probe
