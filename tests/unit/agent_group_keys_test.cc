// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/group_keys.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

class GroupKeysFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "cw_group_keys_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    config_.secret_file = Write("first", "the first secret of a group");
    clock_.Set(10 * kSecond);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& secret) const {
    std::string path = folder_ + "/" + name;
    std::ofstream(path) << secret;
    chmod(path.c_str(), 0600);
    return path;
  }
  // As a reload does it; how often the engine was told.
  int Reload() {
    absl::StatusOr<probe::KeyRing> ring = keys_.Check(config_);
    EXPECT_TRUE(ring.ok()) << ring.status();
    int told = 0;
    if (ring.ok()) {
      EXPECT_TRUE(keys_
                      .Take(*std::move(ring),
                            [&] {
                              ++told;
                              return absl::OkStatus();
                            })
                      .ok());
    }
    return told;
  }

  std::string folder_;
  config::KeysConfig config_;
  ManualClock clock_;
  RecordedEvents events_;
  GroupKeys keys_{clock_, events_};
};

TEST_F(GroupKeysFiles, ASecondSecretIsTakenAndToldWithoutBeingNamed) {
  ASSERT_TRUE(keys_.Open(config_).ok());
  EXPECT_EQ(Reload(), 0);
  EXPECT_THAT(events_.Take().at(0).text, testing::HasSubstr("are the same: sends with key id 0, accepts 0"));

  config_.second_secret_file = Write("second", "another secret of the group");
  EXPECT_EQ(Reload(), 1);
  const telemetry::Event event = events_.Take().at(0);
  EXPECT_THAT(event.text, testing::HasSubstr("keys changed: sends with key id 0, accepts 0 and 1"));
  EXPECT_THAT(event.text, testing::Not(testing::HasSubstr("another")));

  clock_.Advance(3 * kSecond);
  cwfabric::v1::StatusReply reply;
  keys_.AddTo(reply);
  EXPECT_EQ(reply.keys().accepted_size(), 2);
  EXPECT_DOUBLE_EQ(reply.keys().changed_ago_s(), 3);
}

TEST_F(GroupKeysFiles, WhatPeersCouldNotFollowIsRefusedAndTheOldRingStays) {
  ASSERT_TRUE(keys_.Open(config_).ok());
  config_.secret_file = Write("first", "suddenly another secret");
  EXPECT_EQ(keys_.Check(config_).status().code(), absl::StatusCode::kFailedPrecondition);
  config_.secret_file = folder_ + "/none";
  EXPECT_FALSE(keys_.Check(config_).ok());
  EXPECT_TRUE(keys_.ring().has(0));
}

TEST_F(GroupKeysFiles, WithoutSecretsStatusSaysNothing) {
  ASSERT_TRUE(keys_.Open({}).ok());
  cwfabric::v1::StatusReply reply;
  keys_.AddTo(reply);
  EXPECT_FALSE(reply.has_keys());
}

}  // namespace
}  // namespace cw::agent
