// SPDX-License-Identifier: Apache-2.0
// Pages of random bytes, and good pages with some bits changed: every answer but a crash is right.
#include <sys/stat.h>

#include <cstring>
#include <random>

#include "tests/unit/cwclock_rig.h"

namespace cw::publish {
namespace {

class CwClockFuzz : public testing::Test {
 protected:
  // Opens and asks everything.
  void Ask(const cw_clock_page& page) {
    WriteAll(path_, std::string(reinterpret_cast<const char*>(&page), sizeof(page)));
    chmod(path_.c_str(), 0644);
    const Handle clock(path_);
    if (clock.error() != 0) return;
    ++opened_;
    cw_clock_time t{};
    int error = clock.Read(t);
    Judge(error, t);
    for (const clockid_t id : {CLOCK_MONOTONIC, CLOCK_MONOTONIC_RAW, CLOCK_BOOTTIME, CLOCK_REALTIME, CLOCK_TAI}) {
      for (const int64_t stamp : {INT64_MIN, int64_t{-1}, int64_t{0}, ReadKernelClock(CLOCK_MONOTONIC), INT64_MAX}) {
        error = cw_clock_convert(clock.get(), id, stamp, &t);
        Judge(error, t);
      }
    }
    const int state = cw_clock_get_state(clock.get());
    EXPECT_LE(state, CW_CLOCK_DISRUPTED);
  }
  void Judge(int error, const cw_clock_time& t) {
    EXPECT_LE(error, 0);
    EXPECT_GE(error, CW_CLOCK_ESYSTEM);
    if (error != 0) return;
    ++read_;
    EXPECT_TRUE(t.state == CW_CLOCK_SYNCHRONISED || t.state == CW_CLOCK_FREE_RUNNING);
    EXPECT_GE(t.error_est_ns, 0);
  }
  TempFolder folder_;
  std::string path_ = folder_ / "clock";
  int opened_ = 0, read_ = 0;
};

TEST_F(CwClockFuzz, RandomLinesUnderAGoodHeader) {
  const auto good = MakePage(folder_ / "good", GoodLine());
  cw_clock_page page;
  std::memcpy(&page, ReadAll(folder_ / "good").data(), sizeof(page));
  std::mt19937_64 random(1);
  for (int i = 0; i < 3000; ++i) {
    auto* words = reinterpret_cast<unsigned char*>(&page.copy);
    for (size_t at = 0; at < sizeof(page.copy); ++at) {
      words[at] = static_cast<unsigned char>(random() % 4 == 0 ? random() % 2 * 255 : random());
    }
    page.copy[0].state = page.copy[1].state = static_cast<uint32_t>(random() % 5);
    page.base_clock = random() % 2 ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_RAW;
    page.generation = random();
    if (random() % 2) {  // past the checks of age
      for (cw_clock_line& l : page.copy) {
        l.base_ns = 0;
        l.suspend_ns = 0;
        l.void_after_ns = INT64_MAX;
        if (random() % 2) l.bound_ns %= 1'000'000'000;
      }
    }
    Ask(page);
  }
  EXPECT_EQ(opened_, 3000);
  EXPECT_GT(read_, 100) << "some of them go all the way";
}

TEST_F(CwClockFuzz, ChangedBitsAnywhere) {
  const auto good = MakePage(folder_ / "good", GoodLine());
  cw_clock_page page;
  std::memcpy(&page, ReadAll(folder_ / "good").data(), sizeof(page));
  std::mt19937_64 random(2);
  for (int i = 0; i < 3000; ++i) {
    cw_clock_page changed = page;
    auto* bytes = reinterpret_cast<unsigned char*>(&changed);
    for (uint64_t flips = 1 + random() % 4; flips > 0; --flips) {
      bytes[random() % sizeof(changed)] ^= static_cast<unsigned char>(1u << random() % 8);
    }
    Ask(changed);
  }
  EXPECT_GT(opened_, 1000);
  EXPECT_GT(read_, 1000);
}

TEST_F(CwClockFuzz, FilesOfRandomBytes) {
  std::mt19937_64 random(3);
  for (int i = 0; i < 500; ++i) {
    std::string bytes(random() % 1024, '\0');
    for (char& c : bytes) c = static_cast<char>(random());
    WriteAll(path_, bytes);
    EXPECT_EQ(Handle(path_).error(), CW_CLOCK_EFORMAT);
  }
}

}  // namespace
}  // namespace cw::publish
