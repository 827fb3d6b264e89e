// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/host_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "userspace/config/config.h"

namespace cw::agent {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string FaultsOf(const std::string& text) {
  const absl::StatusOr<config::Config> config = config::ParseConfig(text, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? std::string(CheckHost(*config).message()) : "";
}

TEST(HostCheck, EachMissingNicIsToldWithItsLine) {
  EXPECT_THAT(FaultsOf("mode = \"observe\"\n[[nic]]\nname = \"eth99\"\n\n[[nic]]\nname = \"eth98\"\n"),
              AllOf(HasSubstr("a.toml:2: no interface eth99"), HasSubstr("a.toml:5: no interface eth98")));
}

TEST(HostCheck, LoopbackIsNoNic) {
  EXPECT_THAT(FaultsOf("[[nic]]\nname = \"lo\"\n"), HasSubstr("a.toml:1: NIC lo is this host's loopback"));
}

TEST(HostCheck, AMissingSecretIsToldByItsKey) {
  EXPECT_THAT(FaultsOf("[keys]\nsecret_file = \"/nowhere/key\"\n[[nic]]\nname = \"eth99\"\n"),
              AllOf(HasSubstr("a.toml:3: no interface eth99"), HasSubstr("keys.secret_file: ")));
}

TEST(HostCheck, WhatTheFleetServiceNeedsIsLookedAtBeforeAnUplinkEnds) {
  const std::string fleet =
      "[fleet]\nendpoints = [\"a.example:9411\"]\ntls_cert = \"/nowhere/c\"\n"
      "tls_key = \"/nowhere/k\"\ntls_ca = \"/nowhere/a\"\nspool_dir = \"/dev/null/spool\"\n";
  const absl::StatusOr<config::Config> config = config::ParseConfig(fleet + "[[nic]]\nname = \"eth99\"\n", "a.toml");
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_THAT(std::string(CheckFleet(*config).message()), AllOf(HasSubstr("[fleet]: "), HasSubstr("/nowhere/"),
                                                                HasSubstr("fleet.spool_dir: /dev/null is no folder")));
  EXPECT_THAT(std::string(CheckHost(*config).message()), Not(HasSubstr("/nowhere/"))) << "an agent starts without it";
  EXPECT_TRUE(CheckFleet({}).ok()) << "no fleet service is named";
}

TEST(HostCheck, TheSameFaultIsToldOnce) {
  EXPECT_EQ(Together({absl::OkStatus(), absl::NotFoundError("gone"), absl::NotFoundError("gone"),
                      absl::NotFoundError("lost")})
                .message(),
            "gone\nlost");
  EXPECT_TRUE(Together({absl::OkStatus()}).ok());
}

}  // namespace
}  // namespace cw::agent
