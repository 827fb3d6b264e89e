// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/config_in_force.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class ConfigInForcePart : public ::testing::Test {
 protected:
  ::cwfabric::v1::ConfigStatus Status(int64_t now_ns) {
    ::cwfabric::v1::StatusReply reply;
    part_.AddTo(reply, now_ns);
    return reply.config();
  }
  RecordedEvents events_;
  ConfigInForce part_{events_};
  config::Config config_;
};

TEST_F(ConfigInForcePart, StatusHasItsFingerprintAndAge) {
  part_.Begin(config_, 5 * kSecond);
  EXPECT_EQ(Status(7 * kSecond).fingerprint(), config::Fingerprint(config_));
  EXPECT_EQ(Status(7 * kSecond).loaded_ago_s(), 2);
  EXPECT_THAT(events_.all, SizeIs(0));
}

TEST_F(ConfigInForcePart, WhatIsTakenAndWhatWaitsAreTold) {
  part_.Begin(config_, 0);
  config_.probe.max_paths = 3;
  part_.Reloaded(config_,
                 {{.key = "steering.lease", .from = "10m", .to = "5m", .live = true},
                  {.key = "peer", .from = "a", .to = "b", .live = true},
                  {.key = "probe.max_paths", .from = "8", .to = "3", .live = false}},
                 10 * kSecond);
  ASSERT_THAT(events_.all, SizeIs(1));
  EXPECT_EQ(events_.all[0].text,
            "the configuration was read again: steering.lease 10m → 5m, the [[peer]] tables; waits for a restart: "
            "probe.max_paths");
  EXPECT_THAT(events_.all[0].evidence, SizeIs(2)) << "tables are long";
  EXPECT_THAT(Status(10 * kSecond).waiting(), ElementsAre("probe.max_paths"));
  EXPECT_EQ(Status(11 * kSecond).loaded_ago_s(), 1);
  EXPECT_EQ(Status(11 * kSecond).fingerprint(), config::Fingerprint(config_));
  part_.Reloaded(config_, {}, 20 * kSecond);
  EXPECT_THAT(events_.all[1].text, HasSubstr("is the same"));
  EXPECT_THAT(Status(20 * kSecond).waiting(), SizeIs(0)) << "the file has what runs";
}

TEST_F(ConfigInForcePart, ManyChangesAreCounted) {
  std::vector<config::Change> changes;
  for (int i = 0; i < 9; ++i) changes.push_back({.key = absl::StrCat("k", i), .from = "1", .to = "2", .live = true});
  part_.Reloaded(config_, changes, 0);
  EXPECT_THAT(events_.all[0].text, HasSubstr("k5 1 → 2 and 3 more"));
  EXPECT_THAT(events_.all[0].evidence, SizeIs(9));
}

}  // namespace
}  // namespace cw::agent
