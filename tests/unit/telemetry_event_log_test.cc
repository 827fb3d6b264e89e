// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "absl/cleanup/cleanup.h"
#include "nlohmann/json.hpp"
#include "userspace/telemetry/event_log.h"

namespace cw::telemetry {
namespace {

Event Say(const std::string& text) {
  Event e;
  e.type = "agent";
  e.text = text;
  return e;
}

TEST(EventLog, NumbersAndKeepsTheNewest) {
  EventLog log(3);
  EXPECT_EQ(log.newest(), 0u);
  EXPECT_EQ(log.oldest(), 0u);
  for (int i = 1; i <= 5; ++i) EXPECT_EQ(log.Add(Say(std::to_string(i))), static_cast<uint64_t>(i));
  EXPECT_EQ(log.oldest(), 3u);  // a reader that saw 1 knows that one was lost
  EXPECT_EQ(log.newest(), 5u);
  const auto all = log.After(0);
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].text, "3");
  EXPECT_GT(all[0].time_unix_ns, 1'600'000'000'000'000'000);
  EXPECT_EQ(log.After(4).size(), 1u);
  EXPECT_EQ(log.After(3, 1).front().seq, 4u);
  EXPECT_TRUE(log.After(5).empty());
  EXPECT_TRUE(log.After(99).empty());
}

TEST(EventLog, EachRunHasANumberOfItsOwn) {
  EventLog log, next;
  EXPECT_NE(log.run(), 0u);
  EXPECT_NE(log.run(), next.run());
  log.Add({.type = "agent", .text = "x"});
  EXPECT_EQ(log.After(0).at(0).run, log.run());
  EXPECT_NE(ToJsonLine(log.After(0).at(0)).find("\"run\":\""), std::string::npos);
}

TEST(EventLog, AWaitingReaderIsWoken) {
  EventLog log;
  std::thread writer([&] { log.Add(Say("now")); });
  const auto got = log.WaitAfter(0, absl::Seconds(60));
  writer.join();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].text, "now");
  EXPECT_TRUE(log.WaitAfter(1, absl::Milliseconds(1)).empty());
}

TEST(EventLog, ThreadsLoseNothing) {
  EventLog log;
  std::vector<std::thread> writers;
  for (int w = 0; w < 4; ++w) {
    writers.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) log.Add(Say("x"));
    });
  }
  uint64_t seen = 0;
  while (seen < 4000) {
    for (const Event& e : log.WaitAfter(seen, absl::Seconds(60))) ASSERT_EQ(e.seq, ++seen);
  }
  for (auto& w : writers) w.join();
}

TEST(EventLog, FileHoldsOneJsonObjectALine) {
  const std::string path = testing::TempDir() + "events-" + std::to_string(getpid()) + ".jsonl";
  std::filesystem::remove(path);
  {
    EventLog log(1);  // the file keeps what memory does not
    ASSERT_TRUE(log.OpenFile(path).ok());
    Event e = Say("path 2 is dead");
    e.severity = Severity::kAlert;
    e.slot = 2;
    e.peer = "h1";
    e.time_unix_ns = 1'700'000'000'000'000'000;
    e.evidence = {{"misses", "3"}, {"witness", "1"}};
    log.Add(e);
    e.text = "not UTF-8: \xff";
    e.dry = true;
    log.Add(e);
    EXPECT_EQ(log.file_error(), "");
  }
  std::ifstream in(path);
  std::string line;
  ASSERT_TRUE(std::getline(in, line));
  const auto j = nlohmann::json::parse(line);
  EXPECT_EQ(j["seq"], 1);
  EXPECT_EQ(j["severity"], "alert");
  EXPECT_EQ(j["path"], 2);
  EXPECT_EQ(j["evidence"]["misses"], "3");
  EXPECT_THAT(j["time"].get<std::string>(), testing::StartsWith("2023-11-14T22:13:20"));
  EXPECT_FALSE(j.contains("flow"));
  EXPECT_FALSE(j.contains("dry"));
  ASSERT_TRUE(std::getline(in, line));
  EXPECT_TRUE(nlohmann::json::parse(line)["dry"]);
  EXPECT_FALSE(std::getline(in, line));
  std::filesystem::remove(path);
}

TEST(EventLog, AFileThatCannotBeWrittenIsAnErrorAndLosesNothing) {
  EventLog log;
  const absl::Status status = log.OpenFile("/no/such/folder/events");
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), testing::HasSubstr("/no/such/folder/events"));
  ASSERT_TRUE(log.OpenFile("/dev/full").ok());
  log.Add(Say("x"));
  EXPECT_NE(log.file_error(), "");
  EXPECT_EQ(log.newest(), 1u);
}

// A file system of 64 KiB that fills up in the middle of a line, and is then given room.
TEST(EventLog, ALineThatWasCutOffSpoilsNoOther) {
  const std::string folder = std::filesystem::temp_directory_path() / ("cw-events-" + std::to_string(getpid()));
  std::filesystem::create_directory(folder);
  if (mount("cw-events", folder.c_str(), "tmpfs", 0, "size=65536") != 0) {
    std::filesystem::remove(folder);
    GTEST_SKIP() << "no right to mount a small file system";
  }
  const absl::Cleanup unmount = [&] {
    umount2(folder.c_str(), MNT_DETACH);
    std::filesystem::remove(folder);
  };
  {
    EventLog log;
    ASSERT_TRUE(log.OpenFile(folder + "/events").ok());
    for (int i = 0; i < 2000; ++i) log.Add(Say("path " + std::to_string(i) + " is dead"));
    EXPECT_NE(log.file_error(), "");
    ASSERT_EQ(mount("cw-events", folder.c_str(), "tmpfs", MS_REMOUNT, "size=1048576"), 0);
    log.Add(Say("after"));
    EXPECT_EQ(log.file_error(), "");
    log.Add(Say("the last"));
  }
  std::ifstream in(folder + "/events");
  int whole = 0, torn = 0;
  std::string line, newest;
  while (std::getline(in, line)) {
    const auto parsed = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
    (parsed.is_discarded() ? torn : whole)++;
    if (!parsed.is_discarded()) newest = parsed["text"];
  }
  EXPECT_GT(whole, 100);
  EXPECT_LE(torn, 1);
  EXPECT_EQ(newest, "the last");
}

TEST(EventLog, AFileThatEndsWithinALineGoesOnWithANewOne) {
  const std::string path = std::filesystem::temp_directory_path() / ("cw-torn-" + std::to_string(getpid()));
  std::ofstream(path) << "{\"text\": \"cut o";
  {
    EventLog log;
    ASSERT_TRUE(log.OpenFile(path).ok());
    log.Add(Say("whole"));
  }
  std::ifstream in(path);
  std::string line;
  ASSERT_TRUE(std::getline(in, line) && std::getline(in, line));
  EXPECT_EQ(nlohmann::json::parse(line)["text"], "whole");
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace cw::telemetry
