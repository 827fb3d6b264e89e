// SPDX-License-Identifier: Apache-2.0
// From sync's fleet time to what readers of the page and of the BPF record get.
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cmath>

#include "tests/unit/cwclock_rig.h"
#include "userspace/publish/publisher.h"

namespace cw::publish {
namespace {

// The kernel's clocks as this test wants them. Each read takes 20 ns.
struct FakeClocks {
  int64_t true_ns = 1000 * kSecond;
  int64_t slept_ns = 0;
  int64_t realtime_set_ns = 1'700'000'000 * kSecond;
  double raw_slope = 30e-6;

  ReadClock Reader() {
    return [this](clockid_t id) -> int64_t {
      true_ns += 20;
      switch (id) {
        case CLOCK_BOOTTIME:
          return true_ns + slept_ns;
        case CLOCK_REALTIME:
          return true_ns + realtime_set_ns;
        case CLOCK_MONOTONIC_RAW:
          return true_ns + std::llround(raw_slope * static_cast<double>(true_ns));
        default:
          return true_ns;
      }
    };
  }
};

class CwClockPublish : public testing::Test {
 protected:
  std::unique_ptr<Publisher> Start(PublisherOptions options = {}) {
    options.page.path = path_;
    if (options.disruption.vmclock == DisruptionSources{}.vmclock) options.disruption.vmclock = folder_ / "none";
    if (options.disruption.suspend_count == DisruptionSources{}.suspend_count) {
      options.disruption.suspend_count = folder_ / "none";
    }
    auto p = Publisher::Create(std::move(options));
    EXPECT_TRUE(p.ok()) << p.status();
    return p.ok() ? *std::move(p) : nullptr;
  }
  std::unique_ptr<Publisher> StartWith(FakeClocks& clocks, PublisherOptions options = {}) {
    options.read_clock = clocks.Reader();
    return Start(std::move(options));
  }
  static Publication Synchronised(int64_t local_ns, uint32_t epoch = 1) {
    Publication what;
    what.time.state = sync::SyncState::kSynchronised;
    what.time.anchor_ns = local_ns;
    what.time.offset_ns = 3 * kSecond;
    what.time.slope_ppb = 40'000;
    what.time.error_est_ns = 60;
    what.time.bound_ns = 5000;
    what.time.epoch = epoch;
    return what;
  }
  TempFolder folder_;
  std::string path_ = folder_ / "clock";
};

TEST_F(CwClockPublish, ReadersGetSyncsLine) {
  const auto publisher = Start();
  const Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC) - kSecond / 10);
  ASSERT_TRUE(publisher->Publish(what).ok());
  const Handle clock(path_);
  cw_clock_time t;
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_LE(std::abs(t.fleet_ns - what.time.ToFleetNs(t.base_ns)), 2) << "rounding";
  EXPECT_GE(t.latest_ns - t.fleet_ns, 5000 + 20'000) << "0.1 s at 200 ppm since the anchor";
  EXPECT_LE(t.latest_ns - t.fleet_ns, 5000 + 20'000 + 10'000);
  EXPECT_GE(t.error_est_ns, 60 + 100) << "0.1 s at 1 ppm";
  EXPECT_EQ(t.state, static_cast<uint32_t>(CW_CLOCK_SYNCHRONISED));
}

TEST_F(CwClockPublish, NoMoreIsLikelyThanIsPossible) {
  const auto publisher = Start();
  Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC) - kSecond);
  what.time.error_est_ns = what.time.bound_ns;
  what.time.error_drift_ppb = 1e6;  // faster than the bound
  ASSERT_TRUE(publisher->Publish(what).ok());
  const Handle clock(path_);
  cw_clock_time t;
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_LE(t.error_est_ns, t.latest_ns - t.fleet_ns);
}

// TAI is told for the round, and fleet time's rate is not TAI's: at 33 ppm it leaves its offset by 3.3 us in 0.1 s.
TEST_F(CwClockPublish, ReadersGetTaiWithItsSlope) {
  const auto publisher = Start();
  Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC) - kSecond / 10);
  what.tai_offset_ns = 1'700'000'000 * kSecond;
  what.tai_slope_ppb = -33'000;
  what.tai_bound_ns = 400;
  ASSERT_TRUE(publisher->Publish(what).ok());
  const Handle clock(path_);
  for (int i = 0; i < 4; ++i, usleep(40'000)) {
    cw_clock_time t;
    ASSERT_EQ(clock.Read(t), 0);
    const double since_ns = static_cast<double>(t.fleet_ns - what.time.ToFleetNs(what.time.anchor_ns));
    EXPECT_NEAR(static_cast<double>(t.tai_offset_ns - what.tai_offset_ns), -33e-6 * since_ns, 2) << since_ns;
    EXPECT_GE(t.tai_bound_ns, 400 + 500) << "5 ppm of what has passed since the round";
  }
  EXPECT_EQ(publisher->line().tai_slope_q42, std::llround(-33e-6 * (1 + 40e-6) * 0x1p42));
  what.tai_slope_ppb = 1e6;
  ASSERT_TRUE(publisher->Publish(what).ok());
  EXPECT_GT(publisher->line().tai_slope_q42, 0) << "more than the field holds is not wrapped around";
}

// In the lab local time is not what the kernel shows; readers only have the kernel's clocks.
TEST_F(CwClockPublish, AHiddenClockIsConverted) {
  PublisherOptions options;
  const auto local = [](int64_t mono_ns) { return mono_ns - 700'000'000 + mono_ns / 10'000; };  // + 100 ppm
  options.local.at = local;
  const auto publisher = Start(options);
  const Publication what = Synchronised(local(ReadKernelClock(CLOCK_MONOTONIC)));
  ASSERT_TRUE(publisher->Publish(what).ok());
  const Handle clock(path_);
  for (int i = 0; i < 5; ++i, usleep(10'000)) {
    cw_clock_time t;
    ASSERT_EQ(clock.Read(t), 0);
    EXPECT_NEAR(static_cast<double>(what.time.ToFleetNs(local(t.base_ns)) - t.fleet_ns), 0, 4);
  }
}

TEST_F(CwClockPublish, ALocalClockOverRawIsReadWithRaw) {
  PublisherOptions options;
  options.local.base = CLOCK_MONOTONIC_RAW;
  const auto publisher = Start(options);
  const Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC_RAW));
  ASSERT_TRUE(publisher->Publish(what).ok());
  const Handle clock(path_);
  cw_clock_time t, converted;
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_EQ(t.base_clock, static_cast<uint32_t>(CLOCK_MONOTONIC_RAW));
  EXPECT_NEAR(static_cast<double>(what.time.ToFleetNs(t.base_ns) - t.fleet_ns), 0, 3);
  // Within one instant, MONOTONIC leads to the same fleet time.
  const int64_t mono_ns = ReadKernelClock(CLOCK_MONOTONIC);
  ASSERT_EQ(cw_clock_convert(clock.get(), CLOCK_MONOTONIC, mono_ns, &converted), 0);
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_GE(t.latest_ns, converted.earliest_ns);
  EXPECT_LT(t.fleet_ns - converted.fleet_ns, kSecond);
}

TEST_F(CwClockPublish, StatesOfSyncAreStatesOfThePage) {
  const auto publisher = Start();
  Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC));
  what.time.state = sync::SyncState::kUnknown;
  ASSERT_TRUE(publisher->Publish(what).ok());
  const Handle clock(path_);
  ASSERT_EQ(clock.error(), 0);
  EXPECT_EQ(clock.Error(), CW_CLOCK_EUNKNOWN);
  what.time.state = sync::SyncState::kFreeRunning;
  ASSERT_TRUE(publisher->Publish(what).ok());
  cw_clock_time t;
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_EQ(t.state, static_cast<uint32_t>(CW_CLOCK_FREE_RUNNING));
  ASSERT_TRUE(publisher->Withdraw().ok());
  EXPECT_EQ(clock.Error(), CW_CLOCK_EUNKNOWN);
  EXPECT_EQ(Handle(path_).error(), CW_CLOCK_ENOPAGE);
}

TEST_F(CwClockPublish, AfterASleepNothingIsPublishedUntilFleetTimeIsFoundAgain) {
  FakeClocks clocks;
  const auto publisher = StartWith(clocks);
  ASSERT_TRUE(publisher->Publish(Synchronised(clocks.true_ns, 1)).ok());
  EXPECT_EQ(publisher->line().state, static_cast<uint32_t>(CW_CLOCK_SYNCHRONISED));
  EXPECT_EQ(publisher->line().since_ns, INT64_MIN);
  EXPECT_EQ(publisher->Poll(), Disruption::kNone);
  clocks.slept_ns += 5 * kMs;
  EXPECT_EQ(publisher->Poll(), Disruption::kSlept);
  EXPECT_EQ(publisher->line().state, static_cast<uint32_t>(CW_CLOCK_DISRUPTED)) << "at once";
  EXPECT_EQ(publisher->Poll(), Disruption::kNone) << "told once";
  ASSERT_TRUE(publisher->Publish(Synchronised(clocks.true_ns, 1)).ok());
  EXPECT_EQ(publisher->line().state, static_cast<uint32_t>(CW_CLOCK_DISRUPTED)) << "the same epoch: not measured yet";
  ASSERT_TRUE(publisher->Publish(Synchronised(clocks.true_ns, 2)).ok());
  EXPECT_EQ(publisher->line().state, static_cast<uint32_t>(CW_CLOCK_SYNCHRONISED));
  EXPECT_GT(publisher->line().since_ns, 0) << "stamps from before the sleep are refused";
  EXPECT_NEAR(static_cast<double>(publisher->line().suspend_ns), 5e6, 30);
}

TEST_F(CwClockPublish, ASleepBetweenPollAndPublishIsNotMissed) {
  FakeClocks clocks;
  const auto publisher = StartWith(clocks);
  ASSERT_TRUE(publisher->Publish(Synchronised(clocks.true_ns, 1)).ok());
  EXPECT_EQ(publisher->Poll(), Disruption::kNone);
  clocks.slept_ns += kSecond;
  ASSERT_TRUE(publisher->Publish(Synchronised(clocks.true_ns, 2)).ok());
  EXPECT_EQ(publisher->line().state, static_cast<uint32_t>(CW_CLOCK_DISRUPTED)) << "epoch 2 came about before it";
  EXPECT_EQ(publisher->Poll(), Disruption::kSlept);
  ASSERT_TRUE(publisher->Publish(Synchronised(clocks.true_ns, 3)).ok());
  EXPECT_EQ(publisher->line().state, static_cast<uint32_t>(CW_CLOCK_SYNCHRONISED));
}

TEST_F(CwClockPublish, MigrationsAndCountedSuspendsAreFound) {
  PublisherOptions options;
  options.disruption.vmclock = folder_ / "vmclock";
  options.disruption.suspend_count = folder_ / "success";
  std::string vmclock(4096, '\0');
  const auto put = [&](size_t at, auto value) { std::memcpy(vmclock.data() + at, &value, sizeof(value)); };
  put(0, uint32_t{0x4b4c4356});
  put(16, uint64_t{1});
  WriteAll(options.disruption.vmclock, vmclock);
  WriteAll(options.disruption.suspend_count, "0\n");
  FakeClocks clocks;
  const auto publisher = StartWith(clocks, options);
  EXPECT_EQ(publisher->Poll(), Disruption::kNone);
  std::fstream device(options.disruption.vmclock, std::ios::in | std::ios::out | std::ios::binary);
  const auto poke = [&](size_t at, auto value) {
    device.seekp(static_cast<std::streamoff>(at)).write(reinterpret_cast<const char*>(&value), sizeof(value));
    device.flush();
  };
  poke(12, uint32_t{1});  // the hypervisor writes
  poke(16, uint64_t{2});
  EXPECT_EQ(publisher->Poll(), Disruption::kNone);
  poke(12, uint32_t{2});
  EXPECT_EQ(publisher->Poll(), Disruption::kMigrated);
  EXPECT_EQ(publisher->Poll(), Disruption::kNone);
  WriteAll(options.disruption.suspend_count, "1\n");
  EXPECT_EQ(publisher->Poll(), Disruption::kSlept);
  EXPECT_EQ(publisher->Poll(), Disruption::kNone);
}

TEST_F(CwClockPublish, WhatIsNoVmclockIsNotUsed) {
  WriteAll(folder_ / "zero", std::string(4096, '\0'));
  EXPECT_FALSE(DisruptionWatch({.vmclock = folder_ / "zero"}).has_vmclock());
  WriteAll(folder_ / "short", "VCLK");
  EXPECT_FALSE(DisruptionWatch({.vmclock = folder_ / "short"}).has_vmclock());
  EXPECT_FALSE(DisruptionWatch({.vmclock = folder_ / "none"}).has_vmclock());
}

TEST_F(CwClockPublish, RelationsOfTheKernelsClocks) {
  FakeClocks clocks;
  clocks.slept_ns = 77 * kSecond;
  RelationTracker tracker(clocks.Reader());
  for (int i = 0; i < 50; ++i, clocks.true_ns += 100 * kMs + i) tracker.Update();
  const ClockRelations r = tracker.now();
  EXPECT_NEAR(static_cast<double>(r.suspend_ns), 77e9, static_cast<double>(r.suspend_error_ns));
  EXPECT_LE(r.suspend_error_ns, 25u);
  EXPECT_LE(r.realtime_low_ns, clocks.realtime_set_ns);
  EXPECT_GE(r.realtime_high_ns, clocks.realtime_set_ns);
  EXPECT_EQ(r.realtime_since_ns, INT64_MIN);
  EXPECT_NEAR(r.raw_slope, 30e-6, 1e-7);
  clocks.realtime_set_ns += 1000;  // set by a microsecond
  EXPECT_GT(tracker.Update().realtime_since_ns, 0);
  clocks.raw_slope = 10e-6;
  clocks.slept_ns = 0;
}

TEST_F(CwClockPublish, ARestartedAgentTakesOverWhenItKnowsTheTime) {
  auto old_agent = Start();
  ASSERT_TRUE(old_agent->Publish(Synchronised(ReadKernelClock(CLOCK_MONOTONIC), 4)).ok());
  const Handle clock(path_);
  cw_clock_time t;
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_EQ(t.epoch, 4u);
  old_agent.reset();  // ends, however it does
  ASSERT_EQ(clock.Read(t), 0) << "the line goes on";

  const auto new_agent = Start();
  Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC), 1);
  what.time.state = sync::SyncState::kUnknown;
  ASSERT_TRUE(new_agent->Publish(what).ok());
  ASSERT_EQ(clock.Read(t), 0) << "still the old one's";
  EXPECT_EQ(t.epoch, 4u);
  what.time.state = sync::SyncState::kSynchronised;
  ASSERT_TRUE(new_agent->Publish(what).ok());
  ASSERT_EQ(clock.Read(t), 0);
  EXPECT_EQ(t.epoch, 4 + 1 + 1u) << "the old page is retired, and epochs are counted on";
  EXPECT_EQ(Handle(path_).error(), 0);
}

TEST_F(CwClockPublish, AStaleOrForeignPageIsReplacedAtOnce) {
  cw_clock_line l = GoodLine();
  l.void_after_ns = l.base_ns - 1;
  MakePage(path_, l);
  Publication what = Synchronised(ReadKernelClock(CLOCK_MONOTONIC));
  what.time.state = sync::SyncState::kUnknown;
  ASSERT_TRUE(Start()->Publish(what).ok());
  EXPECT_EQ(Handle(path_).Error(), CW_CLOCK_EUNKNOWN);
  WriteAll(path_, "something else");
  ASSERT_TRUE(Start()->Publish(what).ok());
  EXPECT_EQ(Handle(path_).Error(), CW_CLOCK_EUNKNOWN);
}

TEST_F(CwClockPublish, FilesHaveTheModeAskedForAndNoneIsLeftOver) {
  struct stat status {};
  {
    const auto publisher = Start();
    ASSERT_TRUE(publisher->Publish(Synchronised(ReadKernelClock(CLOCK_MONOTONIC))).ok());
    ASSERT_EQ(stat(path_.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0644u);
  }
  PublisherOptions options;
  options.page.group = getgid();
  const auto publisher = Start(options);
  ASSERT_TRUE(publisher->Publish(Synchronised(ReadKernelClock(CLOCK_MONOTONIC))).ok());
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0640u);
  EXPECT_EQ(status.st_gid, getgid());
  { const auto unused = Start(); }
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "")) files += entry.is_regular_file();
  EXPECT_EQ(files, 1);

  const auto nowhere = PageWriter::Create({.path = folder_ / "no/such/clock"});
  EXPECT_EQ(nowhere.status().code(), absl::StatusCode::kNotFound);
  EXPECT_NE(nowhere.status().message().find("folder"), std::string::npos) << nowhere.status();
}

TEST_F(CwClockPublish, TheRecordForBpfSaysTheSame) {
  FakeClocks clocks;
  const auto publisher = StartWith(clocks);
  const Publication what = Synchronised(clocks.true_ns);
  cw_fleet_clock record{};
  int64_t fleet_ns = 0;
  __s64 got_ns = 0;
  __u64 bound_ns = 0;
  publisher->FillBpf(&record);
  EXPECT_EQ(cw_fleet_at(&record, static_cast<uint64_t>(clocks.true_ns), &got_ns, &bound_ns), -1) << "nothing known yet";
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(publisher->Publish(what).ok());
    publisher->FillBpf(&record);
    for (const int64_t later_ns : {int64_t{0}, 50 * kMs, kSecond, 9 * kSecond}) {
      const int64_t local_ns = clocks.true_ns + later_ns;
      fleet_ns = what.time.ToFleetNs(local_ns);
      ASSERT_EQ(cw_fleet_at(&record, static_cast<uint64_t>(local_ns), &got_ns, &bound_ns), 0);
      EXPECT_NEAR(static_cast<double>(got_ns - fleet_ns), 0, 4);
      EXPECT_NEAR(static_cast<double>(bound_ns), 5000 + static_cast<double>(later_ns) * 200e-6, 50);
    }
  }
  EXPECT_EQ(cw_fleet_at(&record, static_cast<uint64_t>(clocks.true_ns + 11 * kSecond), &got_ns, &bound_ns), -1)
      << "void";
  clocks.slept_ns += kSecond;
  publisher->Poll();
  publisher->FillBpf(&record);
  EXPECT_EQ(cw_fleet_at(&record, static_cast<uint64_t>(clocks.true_ns), &got_ns, &bound_ns), -1) << "disrupted";
}

// Without the slope a program would be off by 1.8 us a round later, and by 324 us when it must not use the line any
// more.
TEST_F(CwClockPublish, TheRecordForBpfTellsTaiWithItsSlope) {
  FakeClocks clocks;
  const auto publisher = StartWith(clocks);
  Publication what = Synchronised(clocks.true_ns);
  what.tai_offset_ns = 1'700'000'000 * kSecond;
  what.tai_slope_ppb = -36'000;
  what.tai_bound_ns = 700;
  cw_fleet_clock record{};
  ASSERT_TRUE(publisher->Publish(what).ok());
  publisher->FillBpf(&record);
  __s64 tai_ns = 0;
  __u64 bound_ns = 0;
  for (const int64_t later_ns : {-50 * kMs, int64_t{0}, 50 * kMs, kSecond, 9 * kSecond}) {
    const int64_t local_ns = clocks.true_ns + later_ns;
    const int64_t fleet_ns = what.time.ToFleetNs(local_ns);
    const double grown =
        what.tai_slope_ppb * 1e-9 * static_cast<double>(fleet_ns - what.time.ToFleetNs(clocks.true_ns));
    ASSERT_EQ(cw_fleet_tai_at(&record, static_cast<uint64_t>(local_ns), &tai_ns, &bound_ns), 0);
    EXPECT_NEAR(static_cast<double>(tai_ns - fleet_ns - what.tai_offset_ns), grown, 5) << later_ns;
    EXPECT_NEAR(static_cast<double>(bound_ns), 5700 + 2 * std::abs(static_cast<double>(later_ns)) * 200e-6, 50);
  }
  what.tai_bound_ns = -1;
  ASSERT_TRUE(publisher->Publish(what).ok());
  publisher->FillBpf(&record);
  const auto now = static_cast<uint64_t>(clocks.true_ns);
  EXPECT_EQ(cw_fleet_tai_at(&record, now, &tai_ns, &bound_ns), -1) << "no anchor";
  EXPECT_EQ(cw_fleet_at(&record, now, &tai_ns, &bound_ns), 0);
}

TEST_F(CwClockPublish, ChronysSocketGetsTheDocumentedMessage) {
  const std::string path = folder_ / "sock";
  const int fd = socket(AF_UNIX, SOCK_DGRAM, 0);
  sockaddr_un at{};
  at.sun_family = AF_UNIX;
  std::snprintf(at.sun_path, sizeof(at.sun_path), "%s", path.c_str());
  ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  FakeClocks clocks;
  PublisherOptions options;
  options.chrony_sock = path;
  options.tai_minus_utc_s = 37;
  const auto publisher = StartWith(clocks, options);
  Publication what = Synchronised(clocks.true_ns);
  what.tai_bound_ns = 100;
  // Such that UTC is 250 us after CLOCK_REALTIME at this instant.
  what.tai_offset_ns = clocks.realtime_set_ns - what.time.offset_ns + 37 * kSecond + 250'000;
  ASSERT_TRUE(publisher->Publish(what).ok());
  EXPECT_TRUE(publisher->chrony_status().ok()) << publisher->chrony_status();
  struct Message {
    int64_t s, us;
    double offset;
    int pulse, leap, pad, magic;
  } message{};
  ASSERT_EQ(recv(fd, &message, sizeof(message), MSG_DONTWAIT | MSG_TRUNC), 40);
  EXPECT_EQ(message.s, (clocks.true_ns + clocks.realtime_set_ns) / kSecond);
  EXPECT_NEAR(message.offset, 250e-6, 2e-9 + 40e-6 * 1e-4) << "some microseconds since the anchor, at 40 ppm";
  EXPECT_EQ(message.pulse, 0);
  EXPECT_EQ(message.leap, 0);
  EXPECT_EQ(message.magic, 0x534f434b);
  ASSERT_TRUE(publisher->Publish(what).ok());
  EXPECT_LT(recv(fd, &message, sizeof(message), MSG_DONTWAIT), 0) << "not more often than asked for";
  close(fd);
}

TEST(CwClockLeap, ListsHoldUntilTheyExpire) {
  const TempFolder folder;
  const std::string path = folder / "leap";
  constexpr int64_t k1900 = 2'208'988'800;
  const auto list = [&](const std::string& more) {
    WriteAll(path, "# comment\n#$ 3900000000\n#@ " + std::to_string(2'000'000'000 + k1900) + "\n" +
                       std::to_string(1'000'000'000 + k1900) + " 36 # a day\n" + std::to_string(1'500'000'000 + k1900) +
                       "\t37\n" + more);
  };
  list("");
  auto leaps = LeapSeconds::Load(path);
  ASSERT_TRUE(leaps.ok()) << leaps.status();
  EXPECT_EQ(leaps->At(1'400'000'000)->tai_minus_utc_s, 36);
  EXPECT_EQ(leaps->At(1'400'000'000)->announced, 0);
  EXPECT_EQ(leaps->At(1'499'999'000)->announced, 1) << "today";
  EXPECT_EQ(leaps->At(1'500'000'000)->tai_minus_utc_s, 37);
  EXPECT_EQ(leaps->At(2'000'000'000).status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(leaps->At(5).status().code(), absl::StatusCode::kFailedPrecondition);
  list("rubbish\n");
  EXPECT_EQ(LeapSeconds::Load(path).status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(LeapSeconds::Load(folder / "none").status().code(), absl::StatusCode::kNotFound);
  if (std::filesystem::exists(LeapSeconds::kPath)) {
    ASSERT_TRUE(LeapSeconds::Load().ok()) << LeapSeconds::Load().status();
    EXPECT_EQ(LeapSeconds::Load()->At(1'700'000'000)->tai_minus_utc_s, 37);
  }
}

}  // namespace
}  // namespace cw::publish
