// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/spool.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <random>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "userspace/model/crc32c.h"

namespace cw::uplink {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr uint64_t kRun = 77;
const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

std::string ReadFile(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void WriteFile(const fs::path& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

class SpoolTest : public ::testing::Test {
 protected:
  SpoolTest() {
    std::string name = (fs::temp_directory_path() / "cw_spool_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~SpoolTest() override { fs::remove_all(folder_); }

  std::unique_ptr<Spool> Open(const SpoolLimits& limits = {}, absl::Time now = kNow,
                              const FileCalls& calls = FileCalls::Real()) {
    absl::StatusOr<std::unique_ptr<Spool>> spool = Spool::Open(folder_, limits, now, calls);
    EXPECT_TRUE(spool.ok()) << spool.status();
    return spool.ok() ? *std::move(spool) : nullptr;
  }
  static std::vector<std::string> All(Spool& spool) {
    std::vector<std::string> texts;
    const std::vector<SpoolRecord> records = spool.After(0, SIZE_MAX / 2).value();
    for (const SpoolRecord& r : records) texts.push_back(r.bytes);
    return texts;
  }
  std::vector<fs::path> Files(const std::string& ending) {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      if (absl::EndsWith(entry.path().string(), ending)) files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  std::string folder_;
};

TEST(Crc32c, VectorsOfRfc3720) {
  EXPECT_EQ(Crc32c(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(Crc32c(std::string(32, '\xff')), 0x62a8ab43u);
  EXPECT_EQ(Crc32c("123456789"), 0xe3069283u);
}

TEST_F(SpoolTest, GivesBackInOrderAndKeepsOverARestart) {
  {
    auto spool = Open();
    ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 1, "d1", kNow).ok());
    ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, 2, "e2", kNow).ok());
    ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 3, "d3", kNow).ok());
    EXPECT_THAT(All(*spool), ElementsAre("d1", "e2", "d3"));
  }
  auto spool = Open();
  EXPECT_EQ(spool->state().records, 3u);
  ASSERT_TRUE(spool->Append(Kind::kEvent, kRun + 1, 1, "next run", kNow).ok());
  EXPECT_THAT(All(*spool), ElementsAre("d1", "e2", "d3", "next run"));
  const std::vector<SpoolRecord> first = *spool->After(0, 1);
  ASSERT_EQ(first.size(), 1u);  // one, though it is longer than asked for
  EXPECT_EQ(first[0].head.run, kRun);
  EXPECT_EQ(first[0].head.sequence, 1u);
  EXPECT_THAT(spool->After(first[0].head.position, 1 << 20)->size(), 3);
}

TEST_F(SpoolTest, WhatIsAcknowledgedGoesAndNothingElse) {
  auto spool = Open();
  for (uint64_t i = 1; i <= 4; ++i) {
    ASSERT_TRUE(spool->Append(i % 2 == 0 ? Kind::kEvent : Kind::kDetail, kRun, i, absl::StrCat(i), kNow).ok());
  }
  ASSERT_TRUE(spool->Append(Kind::kDetail, kRun + 1, 1, "other run", kNow).ok());
  ASSERT_TRUE(spool->Acknowledge(kRun, 3).ok());
  EXPECT_THAT(All(*spool), ElementsAre("4", "other run"));
  ASSERT_TRUE(spool->Acknowledge(kRun + 1, 1).ok());
  ASSERT_TRUE(spool->Acknowledge(kRun, 4).ok());
  EXPECT_THAT(All(*spool), IsEmpty());
  EXPECT_EQ(spool->state().bytes, 0u);
  EXPECT_THAT(Files(".event"), IsEmpty());
  ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 5, "5", kNow).ok());
  EXPECT_THAT(All(*spool), ElementsAre("5"));
}

TEST_F(SpoolTest, KilledAtAnyByteLosesOnlyWhatWasNotWhole) {
  std::vector<uint64_t> ends;
  {
    auto spool = Open();
    for (uint64_t i = 1; i <= 4; ++i) {
      ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, i, std::string(20 * i, 'x'), kNow).ok());
      ends.push_back(spool->state().bytes);
    }
  }
  const fs::path file = Files(".event").at(0);
  const std::string whole = ReadFile(file);
  for (size_t cut = 0; cut <= whole.size(); ++cut) {
    WriteFile(file, whole.substr(0, cut));
    auto spool = Open();
    const auto want =
        static_cast<size_t>(std::count_if(ends.begin(), ends.end(), [&](uint64_t e) { return e <= cut; }));
    ASSERT_EQ(All(*spool).size(), want) << cut;
    // And the next one is readable, now and after another restart.
    ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, 9, "after", kNow).ok());
    ASSERT_EQ(All(*spool).back(), "after") << cut;
    spool.reset();
    ASSERT_EQ(All(*Open()).size(), want + 1) << cut;
    for (const fs::path& f : Files(".event")) fs::remove(f);
  }
}

TEST_F(SpoolTest, AWrongByteCostsItsOwnRecord) {
  {
    auto spool = Open();
    for (uint64_t i = 1; i <= 5; ++i)
      ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, i, absl::StrCat("r", i), kNow).ok());
  }
  const fs::path file = Files(".detail").at(0);
  const std::string whole = ReadFile(file);
  for (size_t at = kSegmentHead.size(); at < whole.size(); ++at) {
    std::string wrong = whole;
    wrong[at] = static_cast<char>(wrong[at] ^ 0x41);
    WriteFile(file, wrong);
    auto spool = Open();
    ASSERT_EQ(All(*spool).size(), 4u) << at;
    ASSERT_GT(spool->state().damaged_bytes, 0u);
  }
}

TEST_F(SpoolTest, FilesThatAreNotItsOwnAreNoMatter) {
  {
    auto spool = Open();
    ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 1, "good", kNow).ok());
  }
  const std::string good = ReadFile(Files(".detail").at(0));
  WriteFile(folder_ + "/fffffffffffffff0.detail", good);                 // a copy: the same positions again
  WriteFile(folder_ + "/0000000000000009.event", good);                  // detail as events
  WriteFile(folder_ + "/0000000000000010.detail", std::string(100, 0));  // zeros
  WriteFile(folder_ + "/0000000000000011.detail", "");
  std::string far;  // a position that would end all counting
  far = std::string(kSegmentHead) + EncodeFrame({Kind::kDetail, UINT64_MAX, kRun, 2, 0}, "far");
  WriteFile(folder_ + "/0000000000000012.detail", far);
  fs::create_symlink("/etc/passwd", folder_ + "/notes.txt");
  auto spool = Open();
  EXPECT_THAT(All(*spool), ElementsAre("good"));
  ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 2, "more", kNow).ok());
  EXPECT_THAT(All(*spool), ElementsAre("good", "more"));
}

TEST_F(SpoolTest, AnHugeFileIsNotRead) {
  const std::string huge = folder_ + "/0000000000000001.event";
  WriteFile(huge, std::string(kSegmentHead));
  ASSERT_EQ(truncate(huge.c_str(), off_t{1} << 40), 0);  // sparse
  auto spool = Open();
  EXPECT_THAT(All(*spool), IsEmpty());
  EXPECT_FALSE(fs::exists(huge));
}

TEST_F(SpoolTest, OfAnotherReleaseOrAgentIsRefused) {
  auto spool = Open();
  const auto second = Spool::Open(folder_, {}, kNow);
  EXPECT_TRUE(absl::IsFailedPrecondition(second.status()));
  EXPECT_TRUE(absl::StrContains(second.status().message(), "another agent"));
  spool.reset();
  WriteFile(folder_ + "/0000000000000001.event", "CWSPOOL2whatever");
  EXPECT_TRUE(absl::IsFailedPrecondition(Spool::Open(folder_, {}, kNow).status()));
}

TEST_F(SpoolTest, WrittenIntoWhileOpenIsCountedNotGiven) {
  auto spool = Open();
  ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 1, "aaaa", kNow).ok());
  ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, 2, "bbbb", kNow).ok());
  std::string bytes = ReadFile(Files(".detail").at(0));
  bytes[bytes.find("aaaa")] = 'x';
  const int fd = open(Files(".detail").at(0).c_str(), O_WRONLY);
  ASSERT_EQ(pwrite(fd, bytes.data(), bytes.size(), 0), static_cast<ssize_t>(bytes.size()));
  close(fd);
  EXPECT_THAT(All(*spool), ElementsAre("bbbb"));
  EXPECT_GT(spool->state().damaged_bytes, 0u);
  EXPECT_EQ(spool->state().records, 1u);
}

TEST_F(SpoolTest, DetailGoesFirstTheOldestAndEventsOnlyForEvents) {
  SpoolLimits limits;
  limits.bytes = 64 << 10;
  limits.sync_events = false;
  auto spool = Open(limits);
  const std::string record(1000, 'r');
  for (uint64_t i = 1; i <= 100; ++i) {
    ASSERT_TRUE(spool->Append(i % 5 == 0 ? Kind::kEvent : Kind::kDetail, kRun, i, record, kNow).ok());
    ASSERT_LE(spool->state().bytes, limits.bytes);
  }
  EXPECT_EQ(spool->state().dropped_events, 0u);
  EXPECT_GT(spool->state().dropped_detail, 0u);
  EXPECT_EQ(spool->state().dropped_detail + spool->state().records, 100u);
  const std::vector<SpoolRecord> left = *spool->After(0, 1 << 20);
  EXPECT_EQ(left.front().head.kind, Kind::kEvent);  // all of them are there
  EXPECT_EQ(left.back().head.sequence, 100u);
  // Nothing but events: detail is turned away, an event takes the oldest ones' place.
  uint64_t sequence = 100;
  while (spool->state().dropped_events == 0) {
    ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, ++sequence, record, kNow).ok());
    if (spool->state().dropped_events > 0) break;
    ASSERT_LT(sequence, 300u);
  }
  const std::vector<SpoolRecord> kept = spool->After(0, 1 << 20).value();
  for (const SpoolRecord& r : kept) EXPECT_EQ(r.head.kind, Kind::kEvent);
  while (spool->state().bytes + 1100 < limits.bytes) {
    ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, ++sequence, record, kNow).ok());
  }
  const SpoolState before = spool->state();
  EXPECT_TRUE(absl::IsResourceExhausted(spool->Append(Kind::kDetail, kRun, ++sequence, record, kNow)));
  EXPECT_EQ(spool->state().dropped_events, before.dropped_events);
  EXPECT_EQ(spool->state().dropped_detail, before.dropped_detail + 1);
}

TEST_F(SpoolTest, BoundedByNumberAndByAge) {
  SpoolLimits limits;
  limits.records = 50;
  limits.bytes = 64 << 10;
  limits.age = absl::Hours(1);
  auto spool = Open(limits);
  for (uint64_t i = 1; i <= 200; ++i)
    ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, i, std::string(200, 'x'), kNow).ok());
  EXPECT_LE(spool->state().records, 50u);
  ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, 201, "new", kNow + absl::Minutes(61)).ok());
  EXPECT_THAT(All(*spool), ElementsAre("new"));
  spool.reset();
  spool = Open(limits, kNow + absl::Hours(3));
  EXPECT_THAT(All(*spool), IsEmpty());
  EXPECT_EQ(spool->state().dropped_events, 1u);
}

// 400 days ahead, at the start and while it runs.
TEST_F(SpoolTest, NothingGoesByAClockThatNobodyKeepsRight) {
  bool right = false;
  SpoolLimits limits{.clock_is_right = [&right] { return right; }};
  auto spool = Open(limits);
  ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, 1, "old", kNow).ok());
  ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, 2, "new", kNow + absl::Hours(24 * 400)).ok());
  ASSERT_TRUE(spool->Expire(kNow + absl::Hours(24 * 400)).ok());
  spool.reset();
  spool = Open(limits, kNow + absl::Hours(24 * 400));
  EXPECT_THAT(All(*spool), ElementsAre("old", "new"));
  right = true;
  ASSERT_TRUE(spool->Expire(kNow + absl::Hours(24 * 800)).ok());
  EXPECT_THAT(All(*spool), IsEmpty());
}

// A disk that takes so many bytes in all, and half of what is too much.
struct FullDisk {
  int64_t room = 0;
  FileCalls Calls() {
    return {.write = [this](int fd, const void* bytes, size_t size, off_t at) -> ssize_t {
              if (room <= 0) {
                errno = ENOSPC;
                return -1;
              }
              const size_t takes = std::min<size_t>(size, static_cast<size_t>(room));
              room -= static_cast<int64_t>(takes);
              return pwrite(fd, bytes, takes, at);
            },
            .sync = [](int) { return 0; }};
  }
};

TEST_F(SpoolTest, AFullDiskIsSaidAndLosesNothingThatWasTaken) {
  FullDisk disk{.room = 1000};
  auto spool = Open({}, kNow, disk.Calls());
  std::vector<std::string> taken;
  absl::Status status;
  for (uint64_t i = 1; status.ok() && i < 100; ++i) {
    const std::string record = absl::StrCat("event ", i);
    status = spool->Append(Kind::kEvent, kRun, i, record, kNow);
    if (status.ok()) taken.push_back(record);
  }
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "free some")) << status;
  EXPECT_EQ(All(*spool), taken);
  disk.room = 1000;
  ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, 100, "room again", kNow).ok());
  taken.push_back("room again");
  spool.reset();
  EXPECT_EQ(All(*Open()), taken);
}

TEST_F(SpoolTest, OnAFullTmpfsDetailMakesRoomForEvents) {
  if (mount("none", folder_.c_str(), "tmpfs", 0, "size=128k") != 0) GTEST_SKIP() << "needs the right to mount";
  const absl::Cleanup unmount = [this] { umount2(folder_.c_str(), MNT_DETACH); };
  SpoolLimits limits;
  limits.bytes = 1 << 20;  // more than the disk has
  auto spool = Open(limits);
  uint64_t sequence = 0;
  for (; sequence < 200; ++sequence) {
    ASSERT_TRUE(spool->Append(Kind::kDetail, kRun, sequence, std::string(1500, 'd'), kNow).ok());
  }
  EXPECT_GT(spool->state().dropped_detail, 0u);
  const uint64_t dropped = spool->state().dropped_detail;
  std::vector<std::string> events;
  for (int i = 0; i < 40; ++i) {
    events.push_back(std::string(1500, static_cast<char>('A' + i)));
    ASSERT_TRUE(spool->Append(Kind::kEvent, kRun, ++sequence, events.back(), kNow).ok());
  }
  EXPECT_GT(spool->state().dropped_detail, dropped);
  EXPECT_EQ(spool->state().dropped_events, 0u);
  absl::Status status;
  while (status.ok()) {
    events.push_back(std::string(1500, 'z'));
    status = spool->Append(Kind::kEvent, kRun, ++sequence, events.back(), kNow);
  }
  events.pop_back();
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  spool.reset();
  EXPECT_EQ(All(*Open(limits)), events);
}

TEST_F(SpoolTest, ARecordThatIsTooLargeIsRefused) {
  EXPECT_TRUE(
      absl::IsInvalidArgument(Open()->Append(Kind::kEvent, kRun, 1, std::string(kMaxRecordBytes + 1, 'x'), kNow)));
}

}  // namespace
}  // namespace cw::uplink
