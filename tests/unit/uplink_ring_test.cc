// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "userspace/uplink/ring_answers.h"
#include "userspace/uplink/ring_copy.h"
#include "userspace/uplink/ring_second.h"
#include "userspace/uplink/spool_format.h"

namespace cw::uplink {
namespace {

namespace fs = std::filesystem;
namespace pb = cwfabric::v1;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint64_t kRun = 9;
constexpr int64_t kSecond = 1'000'000'000;
constexpr int64_t kBegin = 1'800'000'000 * kSecond;
constexpr uint64_t kBlock = 256 << 10;  // of the smallest ring, which has 16 of them

class RingTest : public ::testing::Test {
 protected:
  RingTest() {
    std::string name = (fs::temp_directory_path() / "cw_ring_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~RingTest() override { fs::remove_all(folder_); }

  std::string path() const { return folder_ + "/ring"; }
  std::unique_ptr<Ring> Open(uint64_t bytes = Ring::kLeastBytes) {
    absl::StatusOr<std::unique_ptr<Ring>> ring = Ring::Open(path(), bytes);
    EXPECT_TRUE(ring.ok()) << ring.status();
    return ring.ok() ? *std::move(ring) : nullptr;
  }
  // Records "N" and padding, one a second.
  static void Fill(Ring& ring, int first, int last, size_t bytes) {
    for (int i = first; i <= last; ++i) {
      std::string record = absl::StrCat(i, " ");
      record.resize(std::max(record.size(), bytes), 'x');
      ASSERT_TRUE(ring.Append(kRun, kBegin + i * kSecond, record).ok());
    }
  }
  static std::vector<int> Numbers(Ring& ring, int64_t from_ns, bool* lost) {
    std::vector<int> numbers;
    RingSpot spot = ring.Find(from_ns);
    for (;;) {
      const absl::StatusOr<std::vector<RingRecord>> records = ring.Read(spot, lost);
      EXPECT_TRUE(records.ok()) << records.status();
      if (!records.ok() || (records->empty() && spot.offset != 0)) return numbers;
      if (records->empty() && numbers.empty()) return numbers;
      for (const RingRecord& record : *records) numbers.push_back(std::atoi(record.bytes.c_str()));
    }
  }
  static std::vector<int> All(Ring& ring) {
    bool lost = false;
    return Numbers(ring, 0, &lost);
  }
  void Damage(uint64_t at, char with) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(at));
    file.put(with);
  }

  std::string folder_;
};

TEST_F(RingTest, IsOfOneSizeAndKeepsTheNewest) {
  auto ring = Open();
  struct stat info {};
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(Ring::kLeastBytes));
  EXPECT_GE(static_cast<uint64_t>(info.st_blocks) * 512, Ring::kLeastBytes) << "its room is its own from the start";
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_THAT(All(*ring), IsEmpty());
  Fill(*ring, 1, 300, 50'000);  // five a block, three laps
  const std::vector<int> kept = All(*ring);
  ASSERT_GE(kept.size(), 75u) << "all blocks but the oldest";
  EXPECT_EQ(kept.back(), 300);
  for (size_t i = 1; i < kept.size(); ++i) EXPECT_EQ(kept[i], kept[i - 1] + 1);
  ASSERT_EQ(stat(path().c_str(), &info), 0);
  EXPECT_EQ(info.st_size, static_cast<off_t>(Ring::kLeastBytes));
  EXPECT_EQ(ring->damaged_bytes(), 0u) << "what is left of a lap before is no damage";
  EXPECT_FALSE(Ring::Open(path(), Ring::kLeastBytes).ok()) << "another agent has it";
}

TEST_F(RingTest, GoesOnAfterARestart) {
  {
    auto ring = Open();
    Fill(*ring, 1, 7, 50'000);
  }
  {
    auto ring = Open();
    EXPECT_EQ(All(*ring).size(), 7u);
    Fill(*ring, 8, 9, 50'000);
    EXPECT_EQ(All(*ring), (std::vector<int>{1, 2, 3, 4, 5, 6, 7, 8, 9}));
  }
  {
    auto ring = Open();
    Fill(*ring, 10, 200, 50'000);
  }
  auto ring = Open();
  EXPECT_EQ(All(*ring).back(), 200);
  ring.reset();
  EXPECT_THAT(All(*Open(2 * Ring::kLeastBytes)), IsEmpty()) << "another size is begun anew";
}

TEST_F(RingTest, FindsASpan) {
  auto ring = Open();
  Fill(*ring, 1, 60, 50'000);
  bool lost = false;
  const std::vector<int> late = Numbers(*ring, kBegin + 32 * kSecond, &lost);
  EXPECT_FALSE(lost);
  EXPECT_LE(late.front(), 33);
  EXPECT_GT(late.front(), 27) << "whole blocks before it are not read";
  EXPECT_EQ(late.back(), 60);
}

TEST_F(RingTest, SaysWhenItWasOvertaken) {
  auto ring = Open();
  Fill(*ring, 1, 10, 50'000);
  RingSpot spot = ring->Find(0);
  Fill(*ring, 11, 200, 50'000);
  bool lost = false;
  const absl::StatusOr<std::vector<RingRecord>> records = ring->Read(spot, &lost);
  ASSERT_TRUE(records.ok());
  EXPECT_TRUE(lost);
  EXPECT_GT(std::atoi(records->front().bytes.c_str()), 100);
}

// Each cut is a kill while it was written.
TEST_F(RingTest, KilledAtAnyByteLosesTheRecordUnderWayAlone) {
  {
    auto ring = Open();
    Fill(*ring, 1, 3, 40);
  }
  const uint64_t frame = kFrameOverhead + 40, last = kSegmentHead.size() + 2 * frame;
  std::string whole(frame, 0);
  std::ifstream(path(), std::ios::binary).seekg(static_cast<std::streamoff>(last)).read(whole.data(), whole.size());
  for (size_t written = 0; written < frame; ++written) {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(static_cast<std::streamoff>(last));
    std::string torn = whole.substr(0, written);
    torn.resize(frame, '\0');
    file.write(torn.data(), static_cast<std::streamsize>(torn.size()));
    file.close();
    auto ring = Open();
    ASSERT_NE(torn, whole);
    EXPECT_EQ(All(*ring).size(), 2u) << written;
    Fill(*ring, 3, 3, 40);
    EXPECT_EQ(All(*ring), (std::vector<int>{1, 2, 3})) << written;
  }
}

TEST_F(RingTest, WrongBytesCostTheirRecordsAndAreCounted) {
  {
    auto ring = Open();
    Fill(*ring, 1, 12, 50'000);
  }
  Damage(60'000, '?');      // of the second record
  Damage(kBlock + 2, '?');  // the head of a block
  auto ring = Open();
  EXPECT_EQ(All(*ring), (std::vector<int>{1, 3, 4, 5, 11, 12}));
  EXPECT_GE(ring->damaged_bytes(), 50'000 + kBlock);
  Fill(*ring, 13, 14, 50'000);
  EXPECT_EQ(All(*ring).back(), 14);
}

TEST_F(RingTest, RandomBytesAreNoRing) {
  std::mt19937 random(7);
  std::string bytes(Ring::kLeastBytes, 0);
  for (char& c : bytes) c = static_cast<char>(random());
  std::ofstream(path(), std::ios::binary) << bytes;
  auto ring = Open();
  EXPECT_THAT(All(*ring), IsEmpty());
  Fill(*ring, 1, 2, 100);
  EXPECT_EQ(All(*ring).size(), 2u);
}

TEST_F(RingTest, ALinkInItsPlaceIsRefused) {
  ASSERT_EQ(symlink("/etc/hostname", path().c_str()), 0);
  EXPECT_FALSE(Ring::Open(path(), Ring::kLeastBytes).ok());
}

// Seconds of a host with paths, as the agent writes them.
class RingOfSeconds : public RingTest {
 protected:
  static SecondSeen Second(int i, int paths, int samples) {
    SecondSeen seen{.interval = {kBegin + i * kSecond, kBegin + (i + 1) * kSecond, 500}};
    for (int p = 0; p < paths; ++p) {
      PathSecond& path = seen.paths.emplace_back();
      path.path = {
          .local = *Addr::Parse("10.0.0.1"),
          .remote = *Addr::Parse(absl::StrCat("10.0.", 1 + p / 200, ".", 1 + p % 200)),
          .peer = absl::StrCat("h", p),
          .udp_port = static_cast<uint16_t>(50'000 + p),
          .state = pb::PATH_STATE_UP,
          .hops = std::vector<Addr>{*Addr::Parse("10.1.0.1"), *Addr::Parse("10.2.0.1"), *Addr::Parse("10.1.0.2")},
          .base_ns = 4'000,
          .known = static_cast<uint64_t>(samples)};
      for (int s = 0; s < samples; ++s) {
        const int64_t delay = 4'000 + (p * 37 + s * 911 + i * 13) % 2'000;
        path.delay.Add(delay);
        path.samples.push_back({seen.interval.from_ns + s * (kSecond / samples), delay});
      }
    }
    return seen;
  }
  absl::Status Put(Ring& ring, const SecondSeen& seen) {
    bool turned = false;
    return seconds_.Write(seen, {}, [&](const std::string& record) {
      const bool begins = !ring.Fits(record.size()) && !turned;
      if (begins) turned = true;
      if (begins) return absl::OutOfRangeError("");
      turned = false;
      return ring.Append(kRun, seen.interval.to_ns, record);
    });
  }
  // All that a request is answered.
  struct Got {
    std::vector<pb::RingSecond> seconds;
    std::string reason;
    uint64_t damaged = 0, bytes = 0;
  };
  static pb::RingAsk Request(int from, int to, uint64_t most = 32 << 20, uint64_t id = 5) {
    pb::RingAsk ask;
    ask.mutable_request()->set_id(id);
    ask.mutable_request()->set_from_ns(kBegin + from * kSecond);
    ask.mutable_request()->set_to_ns(kBegin + to * kSecond);
    ask.mutable_request()->set_most_bytes(most);
    return ask;
  }
  static bool Fetch(RingAnswers& answers, Got& got) {
    for (;;) {
      std::optional<pb::RingAnswer> answer = answers.Next();
      if (!answer) return false;
      if (answer->has_end()) {
        got.reason = answer->end().reason();
        got.damaged = answer->end().damaged_bytes();
        return true;
      }
      EXPECT_LT(answer->ByteSizeLong(), 1u << 19);
      for (const std::string& bytes : answer->chunk().seconds()) {
        pb::RingSecond& second = got.seconds.emplace_back();
        EXPECT_TRUE(second.ParseFromString(bytes));
        got.bytes += bytes.size();
      }
      pb::RingAsk credit;
      credit.mutable_credit()->set_id(answer->id());
      credit.mutable_credit()->set_chunks(answer->chunk().number());
      answers.Take(credit);
    }
  }
  // Every path is named before it is used, whatever was overwritten before.
  static void ExpectNamed(const Got& got) {
    std::set<uint32_t> named;
    for (const pb::RingSecond& second : got.seconds) {
      for (const pb::RingName& name : second.names()) named.insert(name.path());
      for (const pb::RingPath& path : second.paths()) EXPECT_TRUE(named.contains(path.path()));
    }
  }
  std::string copies() const { return folder_ + "/copies"; }
  RingSeconds seconds_{kRun};
};

TEST_F(RingOfSeconds, ASpanComesWithItsNamesAndSamples) {
  auto ring = Open();
  for (int i = 0; i < 600; ++i) ASSERT_TRUE(Put(*ring, Second(i, 160, 4)).ok());
  RingAnswers answers(copies());
  answers.Take(Request(400, 420));
  while (answers.Step(*ring, absl::FromUnixNanos(kBegin + 601 * kSecond))) {
  }
  Got got;
  ASSERT_TRUE(Fetch(answers, got));
  EXPECT_EQ(got.reason, "");
  ExpectNamed(got);
  ASSERT_EQ(got.seconds.back().from_ns(), kBegin + 419 * kSecond);
  const SecondSeen want = Second(419, 160, 4);
  const pb::RingPath& path = got.seconds.back().paths(7);
  int64_t at_us = 0, delay = 0;
  for (int s = 0; s < 4; ++s) {
    at_us += path.after_us(s);
    delay += path.delay_ns(s);
    EXPECT_EQ(got.seconds.back().from_ns() + at_us * 1000, want.paths[7].samples[static_cast<size_t>(s)].time_ns);
    EXPECT_EQ(delay, want.paths[7].samples[static_cast<size_t>(s)].delay_ns);
  }
  EXPECT_EQ(PackedSketch::Unpack(path.queue())->Count(), 4u);
}

TEST_F(RingOfSeconds, WhatIsToComeIsTakenAsideBeforeItIsOverwritten) {
  auto ring = Open();
  RingAnswers answers(copies());
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(*ring, Second(i, 160, 4)).ok());
  answers.Take(Request(50, 150));
  Got got;
  for (int i = 100; i < 2000; ++i) {
    ASSERT_TRUE(Put(*ring, Second(i, 160, 4)).ok());
    while (answers.Step(*ring, absl::FromUnixNanos(kBegin + (i + 1) * kSecond))) {
    }
  }
  EXPECT_GT(ring->oldest_ns(), kBegin + 150 * kSecond) << "the ring has gone over it";
  ASSERT_TRUE(Fetch(answers, got));
  EXPECT_EQ(got.reason, "");
  size_t seconds = 0;
  for (const pb::RingSecond& second : got.seconds) seconds += second.paths_size() > 0;
  EXPECT_EQ(seconds, 100u);
  ExpectNamed(got);
}

TEST_F(RingOfSeconds, TheBoundOnBytesIsHardAndSketchesOutliveSamples) {
  auto ring = Open();
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(Put(*ring, Second(i, 100, 20)).ok());
  for (const auto& [most, thin] : std::map<uint64_t, bool>{{8 << 20, false}, {600 << 10, true}, {100 << 10, true}}) {
    RingAnswers answers(copies());
    answers.Take(Request(150, 200, most));
    while (answers.Step(*ring, absl::FromUnixNanos(kBegin + 210 * kSecond))) {
    }
    Got got;
    ASSERT_TRUE(Fetch(answers, got));
    EXPECT_LE(got.bytes, most);
    EXPECT_EQ(got.reason != "", thin) << got.reason;
    ExpectNamed(got);
    if (most == 600 << 10) {
      EXPECT_EQ(got.seconds.back().from_ns(), kBegin + 199 * kSecond) << "it reaches to the end: " << got.reason;
      EXPECT_FALSE(got.seconds.back().paths(3).queue().empty());
      EXPECT_THAT(got.reason, HasSubstr("raw samples"));
    }
  }
}

// Attack "copies for ever": a service that asks again and again reads a bounded part of the ring in an hour.
TEST_F(RingOfSeconds, WhatIsReadForTheServiceHasABudget) {
  auto ring = Open(16 << 20);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Put(*ring, Second(i, 160, 10)).ok());
  RingAnswers answers(copies());
  absl::Time now = absl::FromUnixNanos(kBegin + 310 * kSecond);
  uint64_t id = 10;
  const auto ask = [&] {
    answers.Take(Request(0, 290, 8 << 20, ++id));
    while (answers.Step(*ring, now)) {
    }
    Got got;
    EXPECT_TRUE(Fetch(answers, got));
    pb::RingAsk forget;
    forget.set_forget(id);
    answers.Take(forget);
    return got;
  };
  int served = 0;
  Got got = ask();
  for (; got.reason.find("ask again in") == std::string::npos && served < 1000; ++served) got = ask();
  EXPECT_EQ(got.bytes, 0u);
  EXPECT_GT(served, 20);
  EXPECT_LT(served, 400) << got.reason;
  EXPECT_THAT(got.reason, HasSubstr("read 1024 MiB of its ring")) << served;
  now -= absl::Hours(24);
  EXPECT_THAT(ask().reason, HasSubstr("ask again in")) << "a clock that is set back gives nothing";
  now += absl::Minutes(10);
  EXPECT_THAT(ask().reason, Not(HasSubstr("ask again in")));
}

TEST_F(RingOfSeconds, AnswersWaitForCreditAndComeAgainOverTheNextConnection) {
  auto ring = Open(16 << 20);
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(Put(*ring, Second(i, 160, 10)).ok());
  RingAnswers answers(copies());
  answers.Take(Request(100, 290));
  while (answers.Step(*ring, absl::FromUnixNanos(kBegin + 310 * kSecond))) {
  }
  for (uint32_t i = 1; i <= RingAnswers::kAhead; ++i) EXPECT_EQ(answers.Next()->chunk().number(), i);
  EXPECT_FALSE(answers.Next().has_value()) << "no credit";
  answers.Begin();
  EXPECT_FALSE(answers.Next().has_value()) << "nobody asks any more";
  answers.Take(Request(100, 290));
  Got got;
  ASSERT_TRUE(Fetch(answers, got));
  EXPECT_EQ(got.seconds.back().from_ns(), kBegin + 289 * kSecond);
  EXPECT_FALSE(fs::is_empty(copies()));
  pb::RingAsk forget;
  forget.set_forget(5);
  answers.Take(forget);
  EXPECT_TRUE(fs::is_empty(copies()));
}

TEST_F(RingOfSeconds, NonsenseIsRefusedWithAReason) {
  auto ring = Open();
  RingAnswers answers(copies());
  for (uint64_t id = 1; id <= 6; ++id) answers.Take(Request(100, 90, 1, id));
  answers.Take(Request(0, 10'000, 1, 7));
  answers.Step(*ring, absl::FromUnixNanos(kBegin));
  int ends = 0;
  while (std::optional<pb::RingAnswer> answer = answers.Next()) {
    EXPECT_NE(answer->end().reason(), "");
    ++ends;
  }
  EXPECT_EQ(ends, static_cast<int>(RingAnswers::kMostCopies)) << "what is refused fills no memory";
  answers.Take(Request(0, 10));
  answers.Step(*ring, absl::FromUnixNanos(kBegin + 60 * kSecond));
  Got got;
  ASSERT_TRUE(Fetch(answers, got));
  EXPECT_THAT(got.reason, HasSubstr("does not reach back"));
  EXPECT_THAT(got.seconds, IsEmpty());
}

TEST_F(RingOfSeconds, CopiesThatNobodyWantsMakeRoomAndNoneIsBegunTwice) {
  auto ring = Open();
  for (int i = 0; i < 100; ++i) ASSERT_TRUE(Put(*ring, Second(i, 16, 4)).ok());
  RingAnswers answers(copies());
  const auto now = absl::FromUnixNanos(kBegin + 101 * kSecond);
  for (uint64_t id = 1; id <= RingAnswers::kMostCopies; ++id) answers.Take(Request(50, 60, 1 << 20, id));
  answers.Take(Request(50, 60, 1 << 20, 1));  // asked again before it was begun
  EXPECT_FALSE(answers.Next().has_value()) << "it is no request too many";
  while (answers.Step(*ring, now)) {
  }
  answers.Take(Request(50, 60, 1 << 20, 8));
  EXPECT_THAT(answers.Next()->end().reason(), HasSubstr("ask later")) << "all of them are wanted";
  answers.Begin();
  answers.Take(Request(50, 60, 1 << 20, 1));  // the others were forgotten by the service
  answers.Take(Request(50, 60, 1 << 20, 8));
  while (answers.Step(*ring, now)) {
  }
  std::set<uint64_t> answered;
  while (const std::optional<pb::RingAnswer> answer = answers.Next()) {
    if (answer->has_end()) {
      EXPECT_EQ(answer->end().reason(), "");
    }
    answered.insert(answer->id());
  }
  EXPECT_EQ(answered, (std::set<uint64_t>{1, 8}));
}

double CpuSeconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// docs/fleet.md has the figures. 160 paths both ways, with all the samples that the budget allows.
TEST_F(RingOfSeconds, WhatAWriterCosts) {
  auto ring = Open(256 << 20);
  std::vector<SecondSeen> seen;
  for (int i = 0; i < 600; ++i) seen.push_back(Second(i, 320, 12));
  const double begun = CpuSeconds();
  for (const SecondSeen& second : seen) ASSERT_TRUE(Put(*ring, second).ok());
  const double each_ms = (CpuSeconds() - begun) / 600 * 1e3;
  RingSpot spot = ring->Find(0);
  uint64_t bytes = 0;
  bool lost = false;
  const double read_begun = CpuSeconds();
  while (true) {
    const auto records = ring->Read(spot, &lost);
    ASSERT_TRUE(records.ok());
    if (records->empty()) break;
    for (const RingRecord& record : *records) bytes += record.bytes.size();
  }
  std::printf("written: %.2f ms of CPU a second, %.1f KB a second; ten minutes read in %.0f ms of CPU\n", each_ms,
              static_cast<double>(bytes) / 600 / 1e3, (CpuSeconds() - read_begun) * 1e3);
  EXPECT_LT(each_ms, 30) << "ten times what is expected";
}

}  // namespace
}  // namespace cw::uplink
