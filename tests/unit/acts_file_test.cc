// SPDX-License-Identifier: Apache-2.0
#include "userspace/acts/acts_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace cw::acts {
namespace {

using testing::HasSubstr;

class ActsFileTest : public testing::Test {
 protected:
  ActsFileTest() {
    char name[] = "/tmp/cw_acts_XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ActsFileTest() override { std::filesystem::remove_all(folder_); }

  std::string Path() const { return folder_ + "/acts.jsonl"; }
  static std::vector<nlohmann::json> Lines(const std::string& path) {
    std::vector<nlohmann::json> lines;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  static Act By(const std::string& who) {
    return {
        .by = who, .role = "admin", .via = "uid 0", .what = "Off", .request = "", .outcome = "allowed", .error = ""};
  }

  std::string folder_;
};

// --check-config says so, and the fleet service does not start.
TEST_F(ActsFileTest, WhatIsNoFileTakesNoLineAndIsSaid) {
  const ActsFile file(Path());
  EXPECT_EQ(file.NoFile(), "") << "it is made when it is needed";
  ASSERT_EQ(mkfifo(Path().c_str(), 0600), 0);
  EXPECT_THAT(file.NoFile(), HasSubstr("no file"));
  EXPECT_THAT(file.Append(By("anna"), 1), HasSubstr("no file"));
  std::filesystem::remove(Path());
  std::filesystem::create_directory(Path());
  EXPECT_THAT(file.NoFile(), HasSubstr("no file"));
  EXPECT_THAT(file.Append(By("anna"), 1), HasSubstr("no file"));
  std::filesystem::remove(Path());
  EXPECT_EQ(file.Append(By("anna"), 1), "");
  EXPECT_EQ(file.NoFile(), "");
}

TEST(ActsLine, IsJsonWhateverStandsInIt) {
  const Act act{.by = "o\"neil\\",
                .role = "steer",
                .via = "CN=\xff\n",
                .what = "SteerSet",
                .request = "flow: \"7\" J\u00fcrgen \U0001f600",
                .outcome = "failed",
                .error = "no such flow"};
  const nlohmann::json line = nlohmann::json::parse(LineOf(act, 1'764'141'300'000'000'005));
  EXPECT_EQ(line["time"], "2025-11-26T07:15:00.000000005Z");
  EXPECT_EQ(line["by"], "o\"neil\\");
  EXPECT_EQ(line["via"], "CN=\u00ff\n");
  EXPECT_EQ(line["request"], "flow: \"7\" J\u00fcrgen \U0001f600");
  EXPECT_EQ(line["error"], "no such flow");
}

TEST_F(ActsFileTest, IsAppendedToAndReadableByItsGroupAlone) {
  EXPECT_EQ(ActsFile(Path()).Append(By("ann"), 1), "");
  EXPECT_EQ(ActsFile(Path()).Append(By("bob"), 2), "");
  ASSERT_EQ(Lines(Path()).size(), 2u);
  EXPECT_EQ(Lines(Path())[1]["by"], "bob");
  struct stat now {};
  ASSERT_EQ(stat(Path().c_str(), &now), 0);
  EXPECT_EQ(now.st_mode & 0007, 0u);
}

TEST_F(ActsFileTest, AFullOneIsKeptOnceAndItsSizeIsBounded) {
  const ActsFile file(Path(), /*most_bytes=*/1000);
  for (int i = 0; i < 100; ++i) ASSERT_EQ(file.Append(By(absl::StrCat("user", i)), i), "");
  EXPECT_LE(std::filesystem::file_size(Path()), 1000u);
  EXPECT_LE(std::filesystem::file_size(Path() + ".1"), 1000u);
  const std::vector<nlohmann::json> older = Lines(Path() + ".1"), newer = Lines(Path());
  ASSERT_FALSE(older.empty());
  ASSERT_FALSE(newer.empty());
  EXPECT_EQ(newer.back()["by"], "user99");
  EXPECT_EQ(older.back()["by"], absl::StrCat("user", 99 - newer.size()));
}

TEST_F(ActsFileTest, WritersAtOnceLoseNothing) {
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&, w] {
      const ActsFile file(Path(), /*most_bytes=*/40'000);
      for (int i = 0; i < 100; ++i) EXPECT_EQ(file.Append(By(absl::StrCat(w, "/", i)), i), "");
    });
  }
  for (std::thread& writer : writers) writer.join();
  const size_t kept =
      Lines(Path()).size() + (access((Path() + ".1").c_str(), F_OK) == 0 ? Lines(Path() + ".1").size() : 0);
  EXPECT_EQ(kept, 400u);
}

TEST_F(ActsFileTest, FollowsNoLinkAndSaysWhatIsWrong) {
  ASSERT_EQ(symlink("/etc/passwd", Path().c_str()), 0);
  EXPECT_THAT(ActsFile(Path()).Append(By("ann"), 1), HasSubstr(Path()));
  const ActsFile nowhere(folder_ + "/none/acts.jsonl");
  EXPECT_THAT(nowhere.Append(By("ann"), 1), HasSubstr("none"));
  EXPECT_FALSE(nowhere.HasFolder());
  EXPECT_EQ(ActsFile("").Append(By("ann"), 1), "");
}

TEST_F(ActsFileTest, AReaderWhoLocksItHoldsNobodyUp) {
  ASSERT_EQ(ActsFile(Path()).Append(By("ann"), 1), "");
  const int reader = open(Path().c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_EQ(flock(reader, LOCK_EX), 0);
  EXPECT_THAT(ActsFile(Path()).Append(By("bob"), 2), HasSubstr("held by another program"));
  close(reader);
  EXPECT_EQ(ActsFile(Path()).Append(By("bob"), 3), "");
  EXPECT_EQ(Lines(Path()).size(), 2u);
}

TEST_F(ActsFileTest, SaysWhoRunsThisProcess) {
  const Act act = ByThisProcess("cwctl off", "no agent answers");
  EXPECT_FALSE(act.by.empty());
  EXPECT_THAT(act.via, HasSubstr("uid "));
  EXPECT_EQ(act.what, "cwctl off");
}

}  // namespace
}  // namespace cw::acts
