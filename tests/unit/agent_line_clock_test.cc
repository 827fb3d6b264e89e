// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/line_clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace cw::agent {
namespace {

class Ahead final : public Clock {
 public:
  int64_t NowNs() const override { return AtNs(MonotonicClock().NowNs()); }
  int64_t AtNs(int64_t monotonic_ns) const override { return monotonic_ns + 1'000'000'000'000; }
};

// On the machine's own clocks, slewed or not: local time runs like CLOCK_MONOTONIC_RAW.
TEST(LineClock, RunsLikeRaw) {
  cw_local_clock record{};
  LineClock clock(std::make_shared<MonotonicClock>(), &record);
  const auto raw_less_local = [&clock] {
    const auto read = sync::ReadPaired(CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, 20);
    EXPECT_TRUE(read);
    return read->b_ns - clock.AtNs(read->a_before_ns + (read->a_after_ns - read->a_before_ns) / 2);
  };
  for (int i = 0; i < 100; ++i) {
    clock.Look();
    absl::SleepFor(absl::Milliseconds(1));
  }
  const int64_t first = raw_less_local();
  int64_t last = clock.NowNs();
  for (int i = 0; i < 300; ++i) {
    clock.Look();
    EXPECT_LE(std::llabs(raw_less_local() - first), clock.bound_ns() + 1000) << i;
    const int64_t now = clock.NowNs();
    EXPECT_GE(now, last);
    last = now;
    absl::SleepFor(absl::Milliseconds(1));
  }
  EXPECT_EQ(clock.given_up(), 0u);
}

TEST(LineClock, TheLineIsAddedToWhatIsUnderIt) {
  cw_local_clock record{};
  record.copy[0].pivot_ns = 5'000'000'000;
  record.copy[0].ahead_ns = 70;
  record.copy[0].rate_q32 = 1 << 22;  // a 1024th
  const LineClock clock(std::make_shared<Ahead>(), &record);
  EXPECT_EQ(clock.AtNs(5'000'000'000), 1'005'000'000'070);
  EXPECT_EQ(clock.AtNs(5'000'001'024), 1'005'000'001'095);
}

TEST(LineClock, ALineTakesHoldWhereTheOneBeforeHasComeTo) {
  cw_local_clock record{};
  cw_local_line held{}, next{};
  next.rate_q32 = 1 << 22;
  PutLine(&record, held, next);
  EXPECT_EQ(record.generation, 1u);
  cw_local_get(&record, &held);
  EXPECT_EQ(held.ahead_ns, 0);
  EXPECT_EQ(held.rate_q32, 1 << 22);
  const uint64_t pivot = held.pivot_ns;
  next.rate_q32 = 0;
  PutLine(&record, held, next);
  cw_local_line newest{};
  cw_local_get(&record, &newest);
  EXPECT_GT(newest.pivot_ns, pivot);
  EXPECT_EQ(cw_local_at(&newest, newest.pivot_ns), cw_local_at(&held, newest.pivot_ns));
}

// Readers of a record that changes all the time never see parts of two lines: each line's numbers belong together.
TEST(LineClock, ReadersNeverSeePartsOfTwoLines) {
  cw_local_clock record{};
  std::atomic<bool> stop{false};
  std::atomic<uint64_t> reads{0}, torn{0};
  std::vector<std::thread> readers;
  for (int r = 0; r < 2; ++r) {
    readers.emplace_back([&] {
      while (!stop.load()) {
        cw_local_line line{};
        const uint64_t before = __atomic_load_n(&record.generation, __ATOMIC_ACQUIRE);
        cw_local_get(&record, &line);
        // A reader that is passed by several lines in each of its three looks may see parts: not ours to forbid.
        if (__atomic_load_n(&record.generation, __ATOMIC_ACQUIRE) - before > 2) continue;
        torn += line.rate_q32 != line.work_q32 || line.rate_q32 != line.work_ns;
        ++reads;
      }
    });
  }
  cw_local_line line{};
  for (int i = 0; i < 200'000 || reads.load() < 1000; ++i) {
    line.rate_q32 = line.work_q32 = line.work_ns = i & 0xff;
    PutLine(&record, {}, line);
  }
  stop = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn.load(), 0u) << "of " << reads.load();
}

}  // namespace
}  // namespace cw::agent
