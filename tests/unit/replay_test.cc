// SPDX-License-Identifier: Apache-2.0
//
// What was recorded is decided again to the bit; damage is named, and nothing before it is lost.
#include "userspace/replay/replay.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "control_fabric_sim.h"
#include "userspace/control/contention_rules.h"
#include "userspace/replay/recorder.h"

namespace cw::replay {
namespace {

using ::testing::HasSubstr;

// A host of a generated run on an unevenly loaded fabric, recorded.
class Recording : public ::testing::Test {
 protected:
  Recording() {
    char name[] = "/tmp/cw-replay-XXXXXX";
    folder_ = mkdtemp(name);
    file_ = folder_ + "/observations";
  }
  ~Recording() override { std::filesystem::remove_all(folder_); }

  void Record(uint64_t most_bytes = 1 << 30) {
    control::SimSpec spec{.hosts = 1,
                          .seconds = 6,
                          .look_again = true,
                          .placement = {0, 0, 0, 0, 0, 1, 1, 1},
                          .on_start = {},
                          .on_window = {}};
    std::unique_ptr<Recorder> recorder;
    spec.on_window = [&](int, const control::Observation& seen, const control::Decision& decided,
                         const control::ContentionState& after) {
      ASSERT_NE(recorder, nullptr);
      ASSERT_TRUE(recorder->Add(seen, decided, after).ok());
      moves_ += decided.moves.size();
      ++windows_;
    };
    spec.on_start = [&](int, const control::ContentionState& state) {
      absl::StatusOr<std::unique_ptr<Recorder>> opened = Recorder::Open(file_, most_bytes, {"h0", "0.1.0"}, state);
      ASSERT_TRUE(opened.ok()) << opened.status();
      recorder = *std::move(opened);
    };
    control::Simulate(spec, {});
    ASSERT_GT(moves_, 2u);
  }

  static std::string Bytes(const std::string& file) {
    std::ifstream in(file, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }

  static absl::StatusOr<ReplayResult> Again(const std::string& bytes, const RuleChanges& rules = {}) {
    auto reader = Reader::Read(std::make_unique<std::istringstream>(bytes), "FILE");
    if (!reader.ok()) return reader.status();
    return Replay(**reader, rules, [](const ReplayedWindow&) {});
  }

  std::string folder_, file_;
  uint64_t moves_ = 0, windows_ = 0;
};

TEST_F(Recording, IsDecidedAgainToTheBit) {
  Record();
  auto reader = Reader::Open(file_);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ((*reader)->head().host, "h0");
  EXPECT_EQ((*reader)->head().version, "0.1.0");
  const auto result = Replay(**reader, {}, [](const ReplayedWindow& w) { EXPECT_TRUE(w.same) << w.number; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_TRUE(result->end.ok()) << result->end;
  EXPECT_EQ(result->windows, windows_);
  EXPECT_EQ(result->moves_recorded, moves_);
  EXPECT_EQ(result->moves_decided, moves_);
  EXPECT_EQ(result->different, 0u);
}

TEST_F(Recording, EachFileOfARotatedOneStandsByItself) {
  Record(64 << 10);
  const std::string now = Bytes(file_), before = Bytes(file_ + ".1");
  EXPECT_GE(before.size(), size_t{64} << 10);
  EXPECT_LT(before.size(), size_t{80} << 10);
  for (const std::string& bytes : {now, before}) {
    const auto result = Again(bytes);
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(result->end.ok()) << result->end;
    EXPECT_EQ(result->different, 0u);
  }
  EXPECT_GT(Again(before)->windows, 10u);
}

TEST_F(Recording, OtherRulesDecideOtherwise) {
  Record();
  const std::string bytes = Bytes(file_);
  const auto never = Again(bytes, {{"min_gain", 1e9}});
  ASSERT_TRUE(never.ok()) << never.status();
  EXPECT_EQ(never->moves_decided, 0u);
  EXPECT_EQ(never->moves_recorded, moves_);
  EXPECT_GT(never->different, 0u);
  EXPECT_GT(never->first_different, 0u);
  EXPECT_THAT(Again(bytes, {{"gain", 1}}).status().ToString(), HasSubstr("no rule is called \"gain\""));
  EXPECT_TRUE(absl::IsInvalidArgument(Again(bytes, {{"min_gain", -1}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Again(bytes, {{"rate_windows", 1.5}}).status()));
}

TEST_F(Recording, ACutFileGivesWhatStandsBeforeTheCut) {
  Record();
  const std::string bytes = Bytes(file_);
  const auto whole = Again(bytes.substr(0, bytes.size() - 1));
  ASSERT_TRUE(whole.ok()) << whole.status();
  EXPECT_EQ(whole->windows, windows_ - 1);
  EXPECT_EQ(whole->different, 0u);
  EXPECT_TRUE(absl::IsDataLoss(whole->end));
  EXPECT_THAT(whole->end.ToString(), testing::ContainsRegex("FILE: offset [0-9]+: the file ends [0-9]+ bytes into"));
  for (size_t size = 0; size < bytes.size(); size += 97) {
    const auto result = Again(bytes.substr(0, size));
    if (result.ok()) {
      EXPECT_EQ(result->different, 0u) << size;
    }
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Again("").status()));
  EXPECT_TRUE(absl::IsInvalidArgument(Again(bytes.substr(0, 40)).status()));
}

TEST_F(Recording, DamageIsSeenWhereverItIs) {
  Record();
  const std::string bytes = Bytes(file_);
  const size_t second = kFileHead + kRecordHead + Encode((*Reader::Open(file_))->head()).size();
  std::string damaged = bytes;
  damaged[second + kRecordHead + 5] ^= 1;
  const auto result = Again(damaged);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->windows, 0u);
  EXPECT_THAT(result->end.ToString(), HasSubstr(absl::StrCat("offset ", second, ": the record's check sum is wrong")));
  for (size_t at = 0; at < bytes.size(); at += 211) {
    damaged = bytes;
    damaged[at] ^= 0x10;
    const auto seen = Again(damaged);
    EXPECT_TRUE(!seen.ok() || !seen->end.ok()) << "a changed byte at " << at << " was not seen";
  }
}

TEST_F(Recording, OfAnotherReleaseIsSaidToBeSo) {
  Record();
  for (const uint32_t other : {kVersion - 1, kVersion + 1}) {
    std::string bytes = Bytes(file_);
    bytes[8] = static_cast<char>(other);
    EXPECT_TRUE(absl::IsUnimplemented(Again(bytes).status()));
    EXPECT_THAT(Again(bytes).status().ToString(), HasSubstr(absl::StrCat("FILE: offset 8: version ", other)));
  }
  const auto unknown = Again(Bytes(file_) + replay::Record(static_cast<RecordKind>(9), "what comes"));
  ASSERT_TRUE(unknown.ok()) << unknown.status();
  EXPECT_EQ(unknown->windows, windows_);
  EXPECT_TRUE(absl::IsUnimplemented(unknown->end));
}

TEST_F(Recording, TheRunBeforeIsKept) {
  Record();
  const std::string first = Bytes(file_);
  auto next = Recorder::Open(file_, 1 << 20, {"h0", "0.1.0"}, control::ContentionState({}, 1));
  ASSERT_TRUE(next.ok()) << next.status();
  EXPECT_EQ(Bytes(file_ + ".1"), first);
  EXPECT_EQ(Recorder::Open(folder_ + "/none/file", 1, {}, control::ContentionState({}, 1)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(Rules, EveryNumberHasANameAndKeepsItsValue) {
  control::ContentionRules rules;
  for (const control::NamedRule& rule : control::NamedRules(rules)) {
    EXPECT_TRUE(control::SetRule(rule.name, 7, rules).ok()) << rule.name;
  }
  for (const control::NamedRule& rule : control::NamedRules(rules)) EXPECT_EQ(rule.value, 7) << rule.name;
}

TEST(Memory, RubbishIsRefused) {
  const std::string memory = control::Snapshot(control::ContentionState({}, 3));
  ASSERT_TRUE(control::Restore(memory).ok());
  EXPECT_EQ(control::Snapshot(*control::Restore(memory)), memory);
  EXPECT_FALSE(control::Restore(memory + "x").ok());
  for (size_t size = 0; size < memory.size(); size += 7) EXPECT_FALSE(control::Restore(memory.substr(0, size)).ok());
}

}  // namespace
}  // namespace cw::replay
