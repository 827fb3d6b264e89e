// SPDX-License-Identifier: Apache-2.0
// The fleet service's file of who changed what: what is in it, and what cannot wash it away.
#include "userspace/fleet/main/acts_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "userspace/api/fleet.pb.h"

namespace cw::fleet {
namespace {

class ActsLogTest : public ::testing::Test {
 protected:
  ActsLogTest() {
    char name[] = "/tmp/cw-acts-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~ActsLogTest() override { std::filesystem::remove_all(folder_); }
  std::vector<nlohmann::json> Lines() const {
    std::vector<nlohmann::json> lines;
    std::ifstream file(path());
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line, nullptr, false));
    return lines;
  }
  std::string path() const { return folder_ + "/acts.jsonl"; }

  std::string folder_;
};

TEST_F(ActsLogTest, KeepsWhoDidWhatAndWhoWasRefused) {
  ActsLog log(path());
  cwfabric::v1::FleetDrainRequest request;
  request.set_name("spine1");
  log.Keep({.name = "alice", .role = api::Role::kSteer, .via = "CN=alice"}, "Drain", request, absl::OkStatus());
  log.Keep({.name = "b\x1b[2Job\xe2\x80\xae", .role = api::Role::kRead, .via = "CN=bob"}, "Drain", request,
           absl::PermissionDeniedError("needs steer"));
  const std::vector<nlohmann::json> lines = Lines();
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["by"], "alice");
  EXPECT_EQ(lines[0]["outcome"], "allowed");
  EXPECT_THAT(lines[0]["request"].get<std::string>(), ::testing::HasSubstr("spine1"));
  EXPECT_EQ(lines[1]["by"], "b?[2Job?");
  EXPECT_EQ(lines[1]["outcome"], "refused");
}

// Attack "wash the file of acts": what fails again and again pushes out nothing.
TEST_F(ActsLogTest, WhatFailsAgainAndAgainWashesNothingAway) {
  ActsLog log(path());
  cwfabric::v1::FleetMuteRequest request;
  request.set_reason(std::string(4000, 'x'));
  const api::Caller bob{.name = "bob", .role = api::Role::kSteer, .via = "CN=bob"};
  log.Keep({.name = "alice", .role = api::Role::kSteer, .via = ""}, "Mute", request, absl::OkStatus());
  for (int i = 0; i < 10'000; ++i) log.Keep(bob, "Mute", request, absl::NotFoundError("no such finding"));
  log.Keep(bob, "Mute", request, absl::OkStatus());
  const std::vector<nlohmann::json> lines = Lines();
  EXPECT_LE(lines.size(), 20u);
  EXPECT_EQ(lines.front()["by"], "alice");
  EXPECT_EQ(lines.back()["outcome"], "allowed") << "what was done is always kept";
}

}  // namespace
}  // namespace cw::fleet
