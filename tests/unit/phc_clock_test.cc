// SPDX-License-Identifier: Apache-2.0
// A NIC's clock through the kernel's interface, with a driver that the test plays: its clock is CLOCK_MONOTONIC_RAW
// and 1000 s more.
#include "userspace/phc/phc_clock.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <time.h>

#include <cerrno>

#include "userspace/phc/phc_clock.h"

namespace cw::phc {
namespace {

constexpr int64_t kAheadNs = 1'000'000'000'000;

int64_t ReadNs(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

ptp_clock_time Ptp(int64_t ns) {
  ptp_clock_time t{};
  t.sec = ns / 1'000'000'000;
  t.nsec = static_cast<__u32>(ns % 1'000'000'000);
  return t;
}

ptp_clock_time NicNow() { return Ptp(ReadNs(CLOCK_MONOTONIC_RAW) + kAheadNs); }

int NoIoctl(int, unsigned long, void*) {
  errno = EOPNOTSUPP;
  return -1;
}

int OnlyExtended(int, unsigned long request, void* argument) {
  if (request != PTP_SYS_OFFSET_EXTENDED) return NoIoctl(0, 0, nullptr);
  auto* offset = static_cast<ptp_sys_offset_extended*>(argument);
  for (unsigned i = 0; i < offset->n_samples; ++i) {
    offset->ts[i][0] = Ptp(ReadNs(CLOCK_REALTIME));
    if (i != 2) {  // all but one are held up before the NIC looks
      const int64_t until_ns = ReadNs(CLOCK_MONOTONIC) + 50'000;
      while (ReadNs(CLOCK_MONOTONIC) < until_ns) {
      }
    }
    offset->ts[i][1] = NicNow();
    offset->ts[i][2] = Ptp(ReadNs(CLOCK_REALTIME));
  }
  return 0;
}

int Precise(int, unsigned long request, void* argument) {
  if (request != PTP_SYS_OFFSET_PRECISE) return NoIoctl(0, 0, nullptr);
  auto* offset = static_cast<ptp_sys_offset_precise*>(argument);
  offset->sys_realtime = Ptp(ReadNs(CLOCK_REALTIME));
  offset->device = NicNow();
  return 0;
}

class LaterClock final : public Clock {
 public:
  int64_t NowNs() const override { return AtNs(MonotonicClock().NowNs()); }
  int64_t AtNs(int64_t monotonic_ns) const override { return monotonic_ns + 7'000'000'000; }
};

maps::UniqueFd AnyFd() { return maps::UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

// The truth: what the NIC is ahead of local time, by reads of our own around the one in question.
void ExpectRight(PhcClock& clock, int64_t widest_ns) {
  bool right = false;
  for (int tries = 0; tries < 20 && !right; ++tries) {  // a busy machine may take us away in the middle of any read
    const int64_t raw_before = ReadNs(CLOCK_MONOTONIC_RAW) - ReadNs(CLOCK_MONOTONIC);
    const std::optional<sync::CrossStamp> read = clock.Read();
    if (!read) continue;
    const int64_t truth = raw_before + kAheadNs - 7'000'000'000;
    ASSERT_GE(read->after_ns, read->before_ns);
    const int64_t low = read->nic_ns - read->after_ns, high = read->nic_ns - read->before_ns;
    right = high - low <= widest_ns && low <= truth + 1'000 && high >= truth - 1'000;
  }
  EXPECT_TRUE(right);
}

TEST(PhcClock, TheTightestOfADriversReadsInLocalTime) {
  PhcClock clock(AnyFd(), std::make_shared<LaterClock>(), &OnlyExtended);
  ExpectRight(clock, 20'000);
  EXPECT_EQ(clock.method(), PhcClock::Method::kExtended);
}

TEST(PhcClock, BothAtOneInstantWhereTheHardwareCan) {
  PhcClock clock(AnyFd(), std::make_shared<LaterClock>(), &Precise);
  ExpectRight(clock, 100);
  EXPECT_EQ(clock.method(), PhcClock::Method::kPrecise);
}

TEST(PhcClock, WhatIsNoClockGivesNothing) {
  PhcClock clock(AnyFd(), std::make_shared<LaterClock>(), &NoIoctl);
  EXPECT_FALSE(clock.Read().has_value());
  EXPECT_FALSE(clock.Read().has_value());
  EXPECT_EQ(clock.method(), PhcClock::Method::kPlain);
  EXPECT_FALSE(PhcClock::Open("/dev/ptp-none", std::make_shared<LaterClock>()).ok());
}

TEST(PhcIndex, ADeviceWithoutAClock) {
  EXPECT_FALSE(PhcIndexOf("lo").ok());
  EXPECT_FALSE(PhcIndexOf("no-such-device-at-all").ok());
}

}  // namespace
}  // namespace cw::phc
