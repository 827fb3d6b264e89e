// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/peer_plan.h"

#include <gtest/gtest.h>

namespace cw::agent {
namespace {

Addr At(const char* text) { return *Addr::Parse(text); }

config::Config WithPeers(std::vector<config::PeerConfig> peers) {
  config::Config config;
  config.peers = std::move(peers);
  config.probe.dscp = 26;
  return config;
}

TEST(PeerPlan, PairsEachNicWithEachAddressOfItsFamily) {
  const config::Config config =
      WithPeers({{.name = "h1", .addresses = {"10.0.1.1", "10.0.2.1"}}, {.name = "h2", .addresses = {"fd00::2"}}});
  const absl::StatusOr<PeerPlan> plan =
      PlanPeers(config, {{.address = At("10.0.1.9"), .ifindex = 3}, {.address = At("fd00::9"), .ifindex = 4}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->peers, (std::vector<std::string>{"h1", "h2"}));
  ASSERT_EQ(plan->specs.size(), 3u);
  EXPECT_EQ(plan->specs[1].key(), (PairKey{At("10.0.1.9"), At("10.0.2.1")}));
  EXPECT_EQ(plan->specs[1].local_ifindex, 3);
  EXPECT_EQ(plan->specs[1].dscp, 26);
  EXPECT_EQ(plan->specs[2].key(), (PairKey{At("fd00::9"), At("fd00::2")}));
  EXPECT_EQ(plan->rails.at(At("10.0.2.1")), 1u);
  EXPECT_EQ(plan->names.at(At("fd00::2")), "h2");
}

TEST(PeerPlan, OneListServesEveryHost) {
  const config::Config config =
      WithPeers({{.name = "h1", .addresses = {"10.0.1.1"}}, {.name = "me", .addresses = {"10.0.1.9", "10.0.2.9"}}});
  const absl::StatusOr<PeerPlan> plan = PlanPeers(
      config, {{.address = At("10.0.1.9"), .ifindex = 3}, {.address = At("10.0.2.9"), .ifindex = 4, .probes = false}});
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->own_name, "me");
  EXPECT_EQ(plan->peers, std::vector<std::string>{"h1"});
  EXPECT_EQ(plan->specs.size(), 1u) << "a NIC without probes is this host's all the same";
}

TEST(PeerPlan, PeersThatContradictEachOtherAreNoPlan) {
  const config::Config config =
      WithPeers({{.name = "h1", .addresses = {"10.0.1.1"}}, {.name = "h2", .addresses = {"10.0.1.1"}}});
  EXPECT_FALSE(PlanPeers(config, {{.address = At("10.0.1.9"), .ifindex = 3}}).ok());
}

TEST(HostName, IsTheOneThatPeersHave) {
  config::Config config;
  EXPECT_EQ(HostNameOf(config, "", "kernel"), "kernel");
  config.host_name = "configured";
  EXPECT_EQ(HostNameOf(config, "", "kernel"), "configured");
  EXPECT_EQ(HostNameOf(config, "in-tables", "kernel"), "in-tables");
}

}  // namespace
}  // namespace cw::agent
