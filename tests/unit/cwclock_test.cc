// SPDX-License-Identifier: Apache-2.0
// What libcwclock's functions say of pages in every state, and of pages that are none.
#include <fcntl.h>
#include <sys/stat.h>

#include <cstring>
#include <set>

#include "tests/unit/cwclock_rig.h"

namespace cw::publish {
namespace {

class CwClock : public testing::Test {
 protected:
  TempFolder folder_;
  std::string path_ = folder_ / "clock";
};

TEST_F(CwClock, NowLiesBetweenTheReadingsAroundTheCall) {
  const auto page = MakePage(path_, GoodLine(5 * kSecond));
  const Handle clock(path_);
  ASSERT_EQ(clock.error(), 0);
  for (int i = 0; i < 1000; ++i) {
    cw_clock_time t;
    const int64_t before = ReadKernelClock(CLOCK_MONOTONIC);
    ASSERT_EQ(clock.Read(t), 0);
    const int64_t after = ReadKernelClock(CLOCK_MONOTONIC);
    EXPECT_GE(t.fleet_ns, before + 5 * kSecond - 2);
    EXPECT_LE(t.fleet_ns, after + 5 * kSecond + 2);
    EXPECT_EQ(t.latest_ns - t.fleet_ns, t.fleet_ns - t.earliest_ns);
    EXPECT_GE(t.latest_ns - t.fleet_ns, 1000);
    EXPECT_EQ(t.error_est_ns, 50);
    EXPECT_EQ(t.state, static_cast<uint32_t>(CW_CLOCK_SYNCHRONISED));
    EXPECT_EQ(t.base_clock, static_cast<uint32_t>(CLOCK_MONOTONIC));
    EXPECT_EQ(t.tai_bound_ns, -1);
  }
}

TEST_F(CwClock, SlopeAndGrowthFollowThePage) {
  cw_clock_line l = GoodLine(0);
  l.base_ns -= 10 * kSecond;
  l.fleet_ns -= 10 * kSecond;
  l.slope_q44 = (int64_t{1} << 44) / 10'000;  // 100 ppm
  l.drift_q32 = 858'994;                      // 200 ppm
  l.error_drift_q32 = 4'295;                  // 1 ppm
  const auto page = MakePage(path_, l);
  cw_clock_time t;
  ASSERT_EQ(Handle(path_).Read(t), 0);
  const double elapsed = static_cast<double>(t.base_ns - l.base_ns);
  EXPECT_NEAR(static_cast<double>(t.fleet_ns - t.base_ns), elapsed * 1e-4, 2);
  EXPECT_NEAR(static_cast<double>(t.latest_ns - t.fleet_ns), 1000 + elapsed * 200e-6, 5);
  EXPECT_NEAR(static_cast<double>(t.error_est_ns), 50 + elapsed * 1e-6, 5);
}

TEST_F(CwClock, NoMoreIsLikelyThanIsPossible) {
  cw_clock_line l = GoodLine(0);
  l.error_est_ns = 2 * l.bound_ns;  // of an older writer
  const auto page = MakePage(path_, l);
  cw_clock_time t;
  ASSERT_EQ(Handle(path_).Read(t), 0);
  EXPECT_LE(t.error_est_ns, t.latest_ns - t.fleet_ns);
}

TEST_F(CwClock, TimesOfOneTimelineAreComparedAndOthersRefused) {
  cw_clock_line l = GoodLine();
  l.timeline = 42;
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  cw_clock_time here;
  ASSERT_EQ(clock.Read(here), 0);
  EXPECT_EQ(here.timeline, 42u);
  cw_clock_time there = here;
  there.earliest_ns = here.latest_ns + 100;
  there.latest_ns = there.earliest_ns + 50;
  const int64_t width_ns = here.latest_ns - here.earliest_ns;
  int64_t least = 0, most = 0;
  ASSERT_EQ(cw_clock_difference(&here, &there, &least, &most), 0);
  EXPECT_EQ(least, 100);
  EXPECT_EQ(most, 150 + width_ns);
  ASSERT_EQ(cw_clock_difference(&there, &here, &least, &most), 0);
  EXPECT_EQ(least, -150 - width_ns);
  EXPECT_EQ(most, -100);
  there.timeline = 43;
  EXPECT_EQ(cw_clock_difference(&here, &there, &least, &most), CW_CLOCK_ETIMELINE);
  here.timeline = there.timeline = 0;
  EXPECT_EQ(cw_clock_difference(&here, &there, &least, &most), CW_CLOCK_ETIMELINE);
  EXPECT_EQ(cw_clock_difference(&here, nullptr, &least, &most), CW_CLOCK_EINVALID);
  EXPECT_EQ(most, -100) << "written only with 0";
}

TEST_F(CwClock, ADifferenceEndsWhereTheNumbersDo) {
  cw_clock_time from{}, to{};
  from.timeline = to.timeline = 1;
  from.earliest_ns = from.latest_ns = INT64_MIN;
  to.earliest_ns = to.latest_ns = INT64_MAX;
  int64_t least = 0, most = 0;
  ASSERT_EQ(cw_clock_difference(&from, &to, &least, &most), 0);
  EXPECT_EQ(least, INT64_MAX);
  ASSERT_EQ(cw_clock_difference(&to, &from, &least, &most), 0);
  EXPECT_EQ(most, INT64_MIN);
}

TEST_F(CwClock, TheDefaultPageIsTheEnvironments) {
  const auto page = MakePage(path_, GoodLine(7 * kSecond));
  ASSERT_EQ(setenv(CW_CLOCK_ENVIRONMENT, path_.c_str(), 1), 0);
  int64_t earliest = 0, latest = 0;
  ASSERT_EQ(cw_clock_now(&earliest, &latest), 0);
  const int64_t now = ReadKernelClock(CLOCK_MONOTONIC) + 7 * kSecond;
  EXPECT_LT(earliest, now);
  EXPECT_GT(latest, now - kSecond);
  EXPECT_EQ(cw_clock_now_tai(&earliest, &latest), CW_CLOCK_ENOTAI);
  EXPECT_EQ(cw_clock_get_state(nullptr), CW_CLOCK_SYNCHRONISED);
  unsetenv(CW_CLOCK_ENVIRONMENT);
}

TEST_F(CwClock, TaiIsFleetTimePlusItsOffsetWithBothBounds) {
  cw_clock_line l = GoodLine();
  l.tai_offset_ns = 1'800'000'000 * kSecond;
  l.tai_bound_ns = 300;
  l.tai_minus_utc_s = 37;
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  cw_clock_time t;
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_EQ(t.tai_offset_ns, l.tai_offset_ns);
  EXPECT_GE(t.tai_bound_ns, 300);
  EXPECT_EQ(t.tai_minus_utc_s, 37);
}

TEST_F(CwClock, TaiMovesAlongItsSlopeAndAnOlderWriterHasNone) {
  cw_clock_line l = GoodLine();
  l.tai_offset_ns = 37 * kSecond;
  l.tai_bound_ns = 300;
  l.tai_slope_q42 = -(1 << 28);  // 61 ppm
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  cw_clock_time t;
  for (int i = 0; i < 2; ++i, usleep(20'000)) {
    ASSERT_EQ(clock.Read(t), 0);
    const double expected = -0x1p-14 * static_cast<double>(t.base_ns - l.base_ns);
    EXPECT_NEAR(static_cast<double>(t.tai_offset_ns - l.tai_offset_ns), expected, 1);
  }
  l.tai_slope_q42 = 0;  // as minor 0 wrote it
  ASSERT_TRUE(page->Write(l).ok());
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_EQ(t.tai_offset_ns, l.tai_offset_ns);
}

TEST_F(CwClock, StatesAreRefusedOrTold) {
  const auto page = MakePage(path_, GoodLine());
  const Handle clock(path_);
  const auto expect = [&](uint32_t state, int error, int told) {
    cw_clock_line l = GoodLine();
    l.state = state;
    ASSERT_TRUE(page->Write(l).ok());
    EXPECT_EQ(clock.Error(), error);
    EXPECT_EQ(cw_clock_get_state(clock.get()), told);
  };
  expect(CW_CLOCK_SYNCHRONISED, 0, CW_CLOCK_SYNCHRONISED);
  expect(CW_CLOCK_FREE_RUNNING, 0, CW_CLOCK_FREE_RUNNING);
  expect(CW_CLOCK_UNKNOWN, CW_CLOCK_EUNKNOWN, CW_CLOCK_UNKNOWN);
  expect(CW_CLOCK_DISRUPTED, CW_CLOCK_EDISRUPTED, CW_CLOCK_DISRUPTED);
  expect(77, CW_CLOCK_EFORMAT, CW_CLOCK_EFORMAT);
}

TEST_F(CwClock, AnAgentThatIsSilentMakesItFreeRunningThenStale) {
  cw_clock_line l = GoodLine();
  l.fresh_until_ns = l.base_ns;  // just over
  l.drift_q32 = 858'994;
  const auto page = MakePage(path_, l);
  const Handle clock(path_);
  cw_clock_time first, second;
  ASSERT_EQ(clock.Read(first), 0);
  EXPECT_EQ(first.state, static_cast<uint32_t>(CW_CLOCK_FREE_RUNNING));
  usleep(20'000);
  ASSERT_EQ(clock.Read(second), 0);
  EXPECT_GE(second.latest_ns - second.fleet_ns, first.latest_ns - first.fleet_ns + 4'000) << "20 ms at 200 ppm";
  l.void_after_ns = l.base_ns;
  ASSERT_TRUE(page->Write(l).ok());
  EXPECT_EQ(clock.Error(), CW_CLOCK_ESTALE);
  EXPECT_EQ(cw_clock_get_state(clock.get()), CW_CLOCK_ESTALE);
}

// As after a sleep: CLOCK_BOOTTIME has run ahead of what the page knows.
TEST_F(CwClock, APageFromBeforeASleepIsRefused) {
  const auto page = MakePage(path_, GoodLine());
  const Handle clock(path_);
  EXPECT_EQ(clock.Error(), 0);
  for (const int64_t slept : {int64_t{200'000}, kMs, kSecond, 30 * kSecond}) {
    usleep(200);  // sleeps take their time: the check of the last call is over
    cw_clock_line l = GoodLine();
    l.suspend_ns -= slept;
    ASSERT_TRUE(page->Write(l).ok());
    EXPECT_EQ(clock.Error(), CW_CLOCK_EDISRUPTED) << slept;
    EXPECT_EQ(clock.Error(), CW_CLOCK_EDISRUPTED) << "and again";
  }
  cw_clock_line l = GoodLine();
  l.suspend_ns -= 300 * kSecond;  // beyond what the line is good for
  ASSERT_TRUE(page->Write(l).ok());
  EXPECT_EQ(clock.Error(), CW_CLOCK_ESTALE);
}

TEST_F(CwClock, APageFromTheFutureIsOfAnotherBoot) {
  cw_clock_line l = GoodLine();
  l.base_ns += 3600 * kSecond;
  l.void_after_ns += 3600 * kSecond;
  l.fresh_until_ns += 3600 * kSecond;
  const auto page = MakePage(path_, l);
  EXPECT_EQ(Handle(path_).Error(), CW_CLOCK_EBOOT);
}

TEST_F(CwClock, PagesOverRawAreReadWithRaw) {
  cw_clock_line l = GoodLine();
  l.base_ns = l.raw_ns;
  l.fleet_ns = l.raw_ns + kSecond;
  const auto page = MakePage(path_, l, CLOCK_MONOTONIC_RAW);
  const Handle clock(path_);
  cw_clock_time t;
  const int64_t before = ReadKernelClock(CLOCK_MONOTONIC_RAW);
  ASSERT_EQ(clock.Read(t), 0);
  const int64_t after = ReadKernelClock(CLOCK_MONOTONIC_RAW);
  EXPECT_GE(t.fleet_ns, before + kSecond);
  EXPECT_LE(t.fleet_ns, after + kSecond);
  EXPECT_EQ(t.base_clock, static_cast<uint32_t>(CLOCK_MONOTONIC_RAW));
}

class CwClockFiles : public CwClock {
 protected:
  void SetUp() override {
    page_ = MakePage(path_, GoodLine());
    bytes_ = ReadAll(path_);
    ASSERT_EQ(bytes_.size(), static_cast<size_t>(CW_CLOCK_PAGE_BYTES));
  }
  int ErrorOf(const std::string& bytes, mode_t mode = 0644) {
    const std::string other = folder_ / "other";
    unlink(other.c_str());
    WriteAll(other, bytes);
    chmod(other.c_str(), mode);
    return Handle(other).error();
  }
  template <typename T>
  std::string With(size_t offset, T value) const {
    std::string changed = bytes_;
    std::memcpy(changed.data() + offset, &value, sizeof(value));
    return changed;
  }
  std::unique_ptr<PageWriter> page_;
  std::string bytes_;
};

TEST_F(CwClockFiles, WhatIsNoPageHasAnErrorOfItsOwn) {
  EXPECT_EQ(ErrorOf(bytes_), 0);
  EXPECT_EQ(ErrorOf(bytes_.substr(0, sizeof(cw_clock_page))), 0) << "the page as such is enough";
  for (size_t size : {size_t{0}, size_t{1}, size_t{64}, sizeof(cw_clock_page) - 1}) {
    EXPECT_EQ(ErrorOf(bytes_.substr(0, size)), CW_CLOCK_EFORMAT) << size;
  }
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, magic), uint32_t{0x4b435743})), CW_CLOCK_EFORMAT);
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, version), uint16_t{2})), CW_CLOCK_EVERSION);
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, minor), uint16_t{9})), 0) << "newer, with fields appended";
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, size), uint32_t{511})), CW_CLOCK_EFORMAT);
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, size), uint32_t{1024})), 0);
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, base_clock), uint32_t{CLOCK_TAI})), CW_CLOCK_EVERSION);
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, boot_id), 'x')), CW_CLOCK_EBOOT);
  EXPECT_EQ(ErrorOf(With(offsetof(cw_clock_page, time_namespace), uint64_t{1})), CW_CLOCK_ETIMENS);
  EXPECT_EQ(ErrorOf(bytes_, 0664), CW_CLOCK_EUNSAFE);
  EXPECT_EQ(ErrorOf(bytes_, 0646), CW_CLOCK_EUNSAFE);
}

TEST_F(CwClockFiles, WhatIsNoFileHasAnErrorOfItsOwn) {
  EXPECT_EQ(Handle(folder_ / "nothing").error(), CW_CLOCK_ENOPAGE);
  EXPECT_EQ(Handle(path_ + "/below").error(), CW_CLOCK_ENOPAGE);
  EXPECT_EQ(Handle(folder_ / "").error(), CW_CLOCK_EFORMAT) << "a folder";
  const std::string fifo = folder_ / "fifo";
  ASSERT_EQ(mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(Handle(fifo).error(), CW_CLOCK_EFORMAT) << "and does not wait for a writer";
  EXPECT_EQ(Handle(std::string(5000, 'x')).error(), CW_CLOCK_ESYSTEM);
  EXPECT_EQ(cw_clock_open(path_.c_str(), nullptr), CW_CLOCK_EINVALID);
  EXPECT_EQ(cw_clock_read(nullptr, nullptr), CW_CLOCK_EINVALID);
  cw_clock_close(nullptr);
}

TEST_F(CwClockFiles, NeitherDescriptorNorErrnoIsLeftBehind) {
  const int before = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(before);
  errno = 4242;
  {
    const Handle clock(path_);
    const Handle none(folder_ / "nothing");
    EXPECT_EQ(clock.Error(), 0);
  }
  const int saved = errno;
  const int after = open("/dev/null", O_RDONLY | O_CLOEXEC);
  close(after);
  EXPECT_EQ(before, after);
  EXPECT_TRUE(saved == 4242 || saved == ENOENT) << saved;
}

TEST(CwClockText, EveryErrorHasASentenceOfItsOwn) {
  std::set<std::string> seen;
  for (int e = CW_CLOCK_ETIMELINE; e <= 0; ++e) {
    const std::string text = cw_clock_strerror(e);
    EXPECT_TRUE(seen.insert(text).second) << text;
    EXPECT_EQ(text.find("unknown error"), std::string::npos) << e;
  }
  EXPECT_STREQ(cw_clock_strerror(CW_CLOCK_ETIMELINE - 1), "unknown error of libcwclock");
  EXPECT_STREQ(cw_clock_state_name(CW_CLOCK_FREE_RUNNING), "free-running");
  EXPECT_STREQ(cw_clock_state_name(99), "invalid");
}

}  // namespace
}  // namespace cw::publish
