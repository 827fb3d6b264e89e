// SPDX-License-Identifier: Apache-2.0
// The device's stamps of what arrives by verbs: its clock in terms of ours, against a known truth, and the queue that
// brings them, on a device that is made here.
#include <gtest/gtest.h>
#include <infiniband/verbs.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/unit/time_units.h"
#include "userspace/model/clock.h"
#include "userspace/probe_verbs/device_clock.h"
#include "userspace/probe_verbs/receive_queue.h"

namespace cw::probe_verbs {
namespace {

using Verdict = DeviceClock::Stamp::Verdict;

constexpr uint64_t kKhz = 156'250;

// A counter whose truth is known, read every 100 ms.
class Counter {
 public:
  explicit Counter(uint64_t mask, uint64_t khz = kKhz, double drift_ppm = 20)
      : clock_({.mask = mask, .khz = khz}),
        mask_(mask),
        ticks_per_ns_(static_cast<double>(khz) * 1e-6 * (1 + drift_ppm * 1e-6)) {}

  uint64_t TicksAt(int64_t ns) const {
    return (first_ticks_ + static_cast<uint64_t>(std::llround(ticks_per_ns_ * static_cast<double>(ns)))) & mask_;
  }
  // A reading takes 0.8 to 1 µs, and longer by held_ns, the counter being read before.
  void Read(int64_t held_ns = 0) {
    const int64_t width = 800 + static_cast<int64_t>(random_() % 200);
    clock_.Add({.before_ns = now_ns_, .ticks = TicksAt(now_ns_ + width / 2), .after_ns = now_ns_ + width + held_ns});
  }
  void Run(int64_t ns) {
    for (const int64_t until = now_ns_ + ns; now_ns_ < until; now_ns_ += DeviceClock::kPeriodNs) Read();
  }
  void Pass(int64_t ns) { now_ns_ += ns; }
  void Jump(uint64_t ticks) { first_ticks_ += ticks; }
  void SetRate(double ppm) {  // from now on
    const uint64_t here = TicksAt(now_ns_);
    ticks_per_ns_ = static_cast<double>(kKhz) * 1e-6 * (1 + ppm * 1e-6);
    first_ticks_ += here - TicksAt(now_ns_);
  }

  // What a packet of age_ns is stamped with, minus the truth.
  int64_t ErrorAt(int64_t age_ns) const {
    const DeviceClock::Stamp stamp = clock_.Convert(TicksAt(now_ns_ - age_ns), now_ns_);
    EXPECT_EQ(stamp.verdict, Verdict::kTaken) << "age " << age_ns;
    return stamp.ns - (now_ns_ - age_ns);
  }
  Verdict VerdictAt(int64_t age_ns) const { return clock_.Convert(TicksAt(now_ns_ - age_ns), now_ns_).verdict; }

  DeviceClock& clock() { return clock_; }
  int64_t now_ns() const { return now_ns_; }

 private:
  DeviceClock clock_;
  uint64_t mask_;
  double ticks_per_ns_;
  uint64_t first_ticks_ = 0x1234567;
  int64_t now_ns_ = 1000 * kSecond;
  std::mt19937 random_{7};
};

constexpr uint64_t kWide = 0x7fffffffffffffff;

TEST(DeviceClock, FollowsACounterThatDrifts) {
  Counter counter(kWide);
  EXPECT_EQ(counter.VerdictAt(10'000), Verdict::kNotReady);
  counter.Run(5 * kSecond);
  counter.Pass(-50 * kMs);  // between two readings
  for (const int64_t age : {1'000, 10'000, 1'000'000, 90'000'000}) {
    EXPECT_LE(std::abs(counter.ErrorAt(age)), 100) << age;
    EXPECT_LE(std::abs(counter.ErrorAt(age)), counter.clock().bound_ns()) << age;
  }
  EXPECT_GT(counter.clock().bound_ns(), 400);  // half a reading at the least
  EXPECT_LT(counter.clock().bound_ns(), 30'000);
  EXPECT_LT(counter.clock().error_ns(), 1'000);
}

TEST(DeviceClock, FollowsAChangeOfRate) {
  Counter counter(kWide);
  counter.Run(10 * kSecond);
  counter.SetRate(-30);
  counter.Run(5 * kSecond);
  EXPECT_LE(std::abs(counter.ErrorAt(50'000)), 200);
}

// 32 bits at 156.25 MHz wrap every 27 s; 28 at 200 MHz every 1.3 s.
TEST(DeviceClock, FollowsACounterThatWraps) {
  for (const auto& [mask, khz] : {std::pair{0xffffffffull, kKhz}, {0xfffffffull, uint64_t{200'000}}}) {
    Counter counter(mask, khz);
    counter.Run(5 * kSecond);
    for (int i = 0; i < 300; ++i) {
      counter.Run(100 * kMs);
      ASSERT_LE(std::abs(counter.ErrorAt(40 * kMs)), 100) << khz << " kHz, reading " << i;
    }
  }
}

TEST(DeviceClock, AReadingThatWasInterruptedMovesItLittle) {
  Counter counter(kWide);
  counter.Run(10 * kSecond);
  counter.Read(3 * kMs);  // its middle lies 1.5 ms after the truth
  counter.Pass(DeviceClock::kPeriodNs);
  EXPECT_LE(std::abs(counter.ErrorAt(20'000)), 300);
  counter.Run(2 * kSecond);
  EXPECT_LE(std::abs(counter.ErrorAt(20'000)), 100);
}

TEST(DeviceClock, NothingIsConvertedAfterAStepUntilItIsLearnedAgain) {
  for (const uint64_t ticks : {uint64_t{1} << 50, kKhz * 50}) {  // for good, and by 50 ms
    Counter counter(kWide);
    counter.Run(5 * kSecond);
    counter.Jump(ticks);
    // Before it is read, the stamps are of times that cannot be.
    EXPECT_EQ(counter.VerdictAt(10'000), Verdict::kDoubted);
    counter.Run(300 * kMs);
    EXPECT_EQ(counter.VerdictAt(10'000), Verdict::kNotReady);
    counter.Run(5 * kSecond);
    EXPECT_LE(std::abs(counter.ErrorAt(10'000)), 100);
  }
}

TEST(DeviceClock, DoubtsStampsOfTheFutureOrTooOld) {
  Counter counter(kWide);
  counter.Run(5 * kSecond);
  counter.Pass(-50 * kMs);
  EXPECT_EQ(counter.VerdictAt(99 * kMs), Verdict::kTaken);
  EXPECT_EQ(counter.VerdictAt(101 * kMs), Verdict::kDoubted);
  EXPECT_EQ(counter.VerdictAt(-1 * kMs), Verdict::kDoubted);
  EXPECT_EQ(counter.VerdictAt(-kSecond), Verdict::kDoubted);
  const DeviceClock::Stamp soon = counter.clock().Convert(counter.TicksAt(counter.now_ns() + 50), counter.now_ns());
  EXPECT_EQ(soon.verdict, Verdict::kTaken);
  EXPECT_LE(soon.ns, counter.now_ns());
  // Seconds and nanoseconds in one word, which some devices can be told to give.
  EXPECT_EQ(counter.clock().Convert(0x65a0000000000000, counter.now_ns()).verdict, Verdict::kDoubted);
}

TEST(DeviceClock, WithoutReadingsItStops) {
  Counter counter(kWide);
  counter.Run(5 * kSecond);
  counter.Pass(200 * kMs);
  EXPECT_EQ(counter.VerdictAt(10'000), Verdict::kTaken);
  counter.Pass(300 * kMs);
  EXPECT_EQ(counter.VerdictAt(10'000), Verdict::kNotReady);
}

TEST(DeviceClock, AFrequencyThatIsNotTheCountersConvertsNothing) {
  DeviceClock clock({.mask = kWide, .khz = 2 * kKhz});
  Counter truth(kWide);
  for (int64_t at = 0; at < 10 * kSecond; at += DeviceClock::kPeriodNs) {
    clock.Add({.before_ns = at, .ticks = truth.TicksAt(at + 400), .after_ns = at + 800});
    ASSERT_EQ(clock.Convert(truth.TicksAt(at), at + 1000).verdict, Verdict::kNotReady) << at;
  }
}

TEST(DeviceClock, CountersThatCannotBeFollowed) {
  EXPECT_TRUE((TickCounter{.mask = ~0ull, .khz = 1'000'000}.Usable()));
  EXPECT_TRUE((TickCounter{.mask = 0xffffffffffff, .khz = kKhz}.Usable()));
  EXPECT_FALSE((TickCounter{.mask = 0xffffff, .khz = kKhz}.Usable()));  // wraps each 107 ms
  EXPECT_FALSE((TickCounter{.mask = 0xfffffffffffff0, .khz = kKhz}.Usable()));
  EXPECT_FALSE((TickCounter{.mask = kWide, .khz = 0}.Usable()));
  EXPECT_FALSE((TickCounter{.mask = 0, .khz = kKhz}.Usable()));
}

// ---- A device that is made here. Its clock counts CLOCK_MONOTONIC's nanoseconds, 32 of them a tick. ----

constexpr int kTickNs = 32;

struct Arrived {
  uint64_t id;
  ibv_wc_status status;
  int64_t ago_ns;
};

struct FakeDevice {
  verbs_context verbs = {};  // first: the calls find it by its context
  ibv_cq_ex cq = {};
  ibv_cq plain = {};
  std::deque<std::pair<Arrived, uint64_t>> waiting;
  uint64_t mask = 0xffffffffffff, khz = 1'000'000 / kTickNs;
  int refuses_cq = 0, refuses_clock = 0, seconds = 0;
  bool polling = false;
  int plain_queues = 0, destroyed = 0;

  FakeDevice();
  uint64_t Ticks(int64_t ns) const { return static_cast<uint64_t>(ns / kTickNs) & mask; }
  void Arrive(const Arrived& arrived) {
    waiting.emplace_back(arrived, Ticks(MonotonicClock().NowNs() - arrived.ago_ns));
  }
  ibv_context* context() { return &verbs.context; }
};

FakeDevice* device = nullptr;  // of the test at hand

bool Front() {
  if (device->waiting.empty()) return false;
  device->cq.wr_id = device->waiting.front().first.id;
  device->cq.status = device->waiting.front().first.status;
  return true;
}

FakeDevice::FakeDevice() {
  verbs.sz = sizeof(verbs);
  verbs.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
  verbs.query_device_ex = [](ibv_context*, const ibv_query_device_ex_input*, ibv_device_attr_ex* attr, size_t) {
    attr->completion_timestamp_mask = device->mask;
    attr->hca_core_clock = device->khz;
    return 0;
  };
  verbs.query_rt_values = [](ibv_context*, ibv_values_ex* values) {
    if (device->refuses_clock != 0) return device->refuses_clock;
    values->raw_clock = {.tv_sec = device->seconds,
                         .tv_nsec = static_cast<long>(device->Ticks(MonotonicClock().NowNs()))};
    return 0;
  };
  verbs.create_cq_ex = [](ibv_context* context, ibv_cq_init_attr_ex* init) -> ibv_cq_ex* {
    EXPECT_NE(init->wc_flags & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP, 0u);
    errno = device->refuses_cq;
    if (device->refuses_cq != 0) return nullptr;
    device->cq.context = context;
    return &device->cq;
  };
  cq.start_poll = [](ibv_cq_ex*, ibv_poll_cq_attr*) {
    EXPECT_FALSE(device->polling);
    device->polling = Front();
    return device->polling ? 0 : ENOENT;
  };
  cq.next_poll = [](ibv_cq_ex*) {
    device->waiting.pop_front();
    return Front() ? 0 : ENOENT;
  };
  cq.end_poll = [](ibv_cq_ex*) {
    EXPECT_TRUE(device->polling);
    if (!device->waiting.empty()) device->waiting.pop_front();
    device->polling = false;
  };
  cq.read_byte_len = [](ibv_cq_ex*) { return 120u; };
  cq.read_src_qp = [](ibv_cq_ex*) { return 17u; };
  cq.read_completion_ts = [](ibv_cq_ex*) { return device->waiting.front().second; };
}

class StampedReceives : public testing::Test {
 protected:
  StampedReceives() { device = &device_; }
  ~StampedReceives() override { device = nullptr; }

  std::unique_ptr<ReceiveQueue> Make() {
    auto queue = ReceiveQueue::Make(device_.context(), "fake0", 16, nullptr);
    EXPECT_TRUE(queue.ok()) << queue.status();
    return queue.ok() ? *std::move(queue) : nullptr;
  }
  static void KeepClockUntil(ReceiveQueue& queue, bool by_device) {
    for (int i = 0; queue.stamps().by_device != by_device && i < 1000; ++i) {
      queue.KeepClock(MonotonicClock().NowNs());
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
  }

  FakeDevice device_;
};

TEST_F(StampedReceives, ArrivalsHaveTheDevicesTimeInOurs) {
  const auto queue = Make();
  ASSERT_TRUE(queue);
  EXPECT_EQ(queue->cq(), ibv_cq_ex_to_cq(&device_.cq));
  ASSERT_TRUE(queue->has_clock());
  std::array<Completion, 4> done;

  // Nothing is known of its clock yet.
  device_.Arrive({.id = 1, .status = IBV_WC_SUCCESS, .ago_ns = 1000});
  ASSERT_EQ(queue->Poll(absl::MakeSpan(done)), 1u);
  EXPECT_FALSE(done[0].arrived_ns);
  EXPECT_FALSE(queue->stamps().by_device);
  EXPECT_NE(queue->stamps().note, "");

  KeepClockUntil(*queue, true);
  ASSERT_TRUE(queue->stamps().by_device) << queue->stamps().note;
  EXPECT_EQ(queue->stamps().note, "");
  device_.Arrive({.id = 5, .status = IBV_WC_SUCCESS, .ago_ns = 2 * kMs});
  device_.Arrive({.id = 6, .status = IBV_WC_WR_FLUSH_ERR, .ago_ns = 0});
  device_.Arrive({.id = 7, .status = IBV_WC_SUCCESS, .ago_ns = kSecond / 4});
  const int64_t now_ns = MonotonicClock().NowNs();
  ASSERT_EQ(queue->Poll(absl::MakeSpan(done)), 3u);
  EXPECT_FALSE(device_.polling);
  EXPECT_EQ(done[0].id, 5u);
  EXPECT_TRUE(done[0].success);
  EXPECT_EQ(done[0].bytes, 120u);
  EXPECT_EQ(done[0].from_qpn, 17u);
  ASSERT_TRUE(done[0].arrived_ns);
  EXPECT_NEAR(static_cast<double>(*done[0].arrived_ns), static_cast<double>(now_ns - 2 * kMs), 0.5e6);
  EXPECT_EQ(done[1].id, 6u);
  EXPECT_FALSE(done[1].success);
  EXPECT_FALSE(done[1].arrived_ns);
  EXPECT_TRUE(done[2].success);
  EXPECT_FALSE(done[2].arrived_ns);  // too old to be believed
  EXPECT_EQ(queue->stamps().stamped, 1u);
  EXPECT_EQ(queue->stamps().doubted, 1u);
  EXPECT_EQ(queue->Poll(absl::MakeSpan(done)), 0u);
}

TEST_F(StampedReceives, APollTakesNoMoreThanThereIsRoomFor) {
  const auto queue = Make();
  ASSERT_TRUE(queue);
  for (uint64_t id = 1; id <= 5; ++id) device_.Arrive({.id = id, .status = IBV_WC_SUCCESS, .ago_ns = 0});
  std::array<Completion, 3> done;
  ASSERT_EQ(queue->Poll(absl::MakeSpan(done)), 3u);
  EXPECT_EQ(done[2].id, 3u);
  ASSERT_EQ(queue->Poll(absl::MakeSpan(done)), 2u);
  EXPECT_EQ(done[0].id, 4u);
}

TEST_F(StampedReceives, WhereTheDeviceRefusesAPlainQueueIsTaken) {
  const std::vector<std::pair<std::string, std::function<void(FakeDevice&)>>> refusals = {
      {"no stamps", [](FakeDevice& d) { d.mask = 0; }},
      {"kHz", [](FakeDevice& d) { d.khz = 0; }},
      {"cannot be read", [](FakeDevice& d) { d.refuses_clock = EOPNOTSUPP; }},
      {"in ticks", [](FakeDevice& d) { d.seconds = 1; }},
      {"ibv_create_cq_ex", [](FakeDevice& d) { d.refuses_cq = EINVAL; }},
  };
  for (const auto& [why, refuse] : refusals) {
    FakeDevice fake;
    device = &fake;
    refuse(fake);
    {
      const auto queue = Make();
      ASSERT_TRUE(queue);
      EXPECT_EQ(queue->cq(), &fake.plain) << why;
      EXPECT_FALSE(queue->has_clock());
      EXPECT_FALSE(queue->stamps().by_device);
      EXPECT_NE(queue->stamps().note.find(why), std::string::npos) << queue->stamps().note;
    }
    EXPECT_EQ(fake.plain_queues, 1) << why;
    EXPECT_EQ(fake.destroyed, 1) << why;
    device = &device_;
  }
}

TEST_F(StampedReceives, AClockThatCannotBeReadAnyMoreStopsTheStamps) {
  const auto queue = Make();
  ASSERT_TRUE(queue);
  KeepClockUntil(*queue, true);
  ASSERT_TRUE(queue->stamps().by_device);
  device_.refuses_clock = EIO;
  KeepClockUntil(*queue, false);
  EXPECT_FALSE(queue->stamps().by_device);
  EXPECT_NE(queue->stamps().note.find("cannot be read"), std::string::npos) << queue->stamps().note;
}

}  // namespace
}  // namespace cw::probe_verbs

// In place of libibverbs' own, which want a driver.
extern "C" {
#undef ibv_create_cq
struct ibv_cq* ibv_create_cq(struct ibv_context*, int, void*, struct ibv_comp_channel*, int) {
  ++cw::probe_verbs::device->plain_queues;
  return &cw::probe_verbs::device->plain;
}
int ibv_destroy_cq(struct ibv_cq*) {
  ++cw::probe_verbs::device->destroyed;
  return 0;
}
}
