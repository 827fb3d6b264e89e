// SPDX-License-Identifier: Apache-2.0
//
// Fleet time as reference clock of a real chronyd, which has no network (a namespace of its own) and no shared memory
// with the rest of the machine (another one).
#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include <memory>
#include <string>

#include "absl/strings/str_format.h"
#include "tests/lab/chronyd_rig.h"
#include "userspace/publish/publisher.h"

namespace cw::publish {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
constexpr int kLeap = 37;

class ChronyRefclock : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(geteuid(), 0u) << "the lab's tests run as root";
    // No network and no shared memory of the rest of the machine.
    ASSERT_EQ(unshare(CLONE_NEWNET | CLONE_NEWIPC), 0);
    auto rig = lab::ChronydRig::Create();
    ASSERT_TRUE(rig.ok()) << rig.status();
    chronyd_ = *std::move(rig);
  }

  void StartPublisher(PublisherOptions options) {
    options.page.path = chronyd_->folder() + "/clock";
    options.chrony_interval = absl::Milliseconds(100);
    options.tai_minus_utc_s = kLeap;
    auto publisher = Publisher::Create(std::move(options));
    ASSERT_TRUE(publisher.ok()) << publisher.status();
    publisher_ = *std::move(publisher);
  }

  // Fleet time is CLOCK_MONOTONIC; TAI is such that CLOCK_REALTIME stands `offset_ns` behind UTC.
  Publication What(int64_t offset_ns) const {
    Publication what;
    what.time.state = sync::SyncState::kSynchronised;
    what.time.anchor_ns = ReadKernelClock(CLOCK_MONOTONIC);
    what.time.error_est_ns = 50;
    what.time.bound_ns = 1000;
    what.tai_offset_ns = realtime_less_monotonic_ns_ + kLeap * kSecond + offset_ns;
    what.tai_bound_ns = 500;
    return what;
  }

  // Publishes ten times per second until chronyd has selected us and says that its clock is off by what was fed.
  // What went wrong otherwise.
  std::string FeedUntilFollowed(int64_t offset_ns, double tolerance_s) {
    std::string said;
    for (int i = 0; i < 600; ++i) {
      const absl::Status published = publisher_->Publish(What(offset_ns));
      if (!published.ok()) return published.ToString();
      usleep(100'000);
      if (i % 10 == 9 && chronyd_->Follows(static_cast<double>(offset_ns) * 1e-9, tolerance_s, &said)) return "";
    }
    return absl::StrFormat("not followed within a minute\n%s\n%s\nlast sample: %s", said, chronyd_->Log(),
                           publisher_->chrony_status().ToString());
  }

  const int64_t realtime_less_monotonic_ns_ = ReadKernelClock(CLOCK_REALTIME) - ReadKernelClock(CLOCK_MONOTONIC);
  std::unique_ptr<lab::ChronydRig> chronyd_;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(ChronyRefclock, SockIsSelectedWithTheOffsetThatWasFed) {
  const std::string sock = chronyd_->SockPath();
  PublisherOptions options;
  options.chrony_sock = sock;
  StartPublisher(options);
  // Before chronyd is there, samples go nowhere and nothing else suffers.
  ASSERT_TRUE(publisher_->Publish(What(0)).ok());
  EXPECT_EQ(publisher_->chrony_status().code(), absl::StatusCode::kUnavailable) << publisher_->chrony_status();
  ASSERT_TRUE(chronyd_->Start("SOCK " + sock).ok());
  // A tenth of a millisecond is a hundred times what is expected.
  EXPECT_EQ(FeedUntilFollowed(123'456'789, 1e-4), "");
  EXPECT_GT(publisher_->chrony_samples(), 3u);
}

TEST_F(ChronyRefclock, SharedMemoryIsSelectedWithTheOffsetThatWasFed) {
  PublisherOptions options;
  options.chrony_shm = 2;
  StartPublisher(options);
  ASSERT_TRUE(chronyd_->Start("SHM 2").ok());
  EXPECT_EQ(FeedUntilFollowed(-87'654'321, 1e-4), "");
}

TEST_F(ChronyRefclock, NothingIsToldThatIsNotKnown) {
  const std::string sock = chronyd_->SockPath();
  PublisherOptions options;
  options.chrony_sock = sock;
  StartPublisher(options);
  ASSERT_TRUE(chronyd_->Start("SOCK " + sock).ok());
  const auto refused = [&](Publication what) {
    what.time.anchor_ns = ReadKernelClock(CLOCK_MONOTONIC);
    EXPECT_TRUE(publisher_->Publish(what).ok());
    EXPECT_EQ(publisher_->chrony_status().code(), absl::StatusCode::kFailedPrecondition) << publisher_->chrony_status();
    usleep(150'000);
  };
  Publication what = What(0);
  what.tai_bound_ns = -1;
  refused(what);
  what = What(0);
  what.anchor = true;  // it would follow itself
  refused(what);
  what = What(0);
  what.time.state = sync::SyncState::kFreeRunning;
  refused(what);
  EXPECT_EQ(publisher_->chrony_samples(), 0u);
}

}  // namespace
}  // namespace cw::publish
