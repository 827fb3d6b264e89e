// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/change.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cw::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr char kOneNic[] = "[[nic]]\nname = \"eth0\"\n";

Config Of(const std::string& text) {
  absl::StatusOr<Config> config = ParseConfig(text, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : Config();
}

std::vector<std::string> KeysOf(const std::vector<Change>& changes, bool live) {
  std::vector<std::string> keys;
  for (const Change& change : changes) {
    if (change.live == live) keys.push_back(change.key);
  }
  return keys;
}

TEST(ConfigChange, NothingDiffersFromItself) {
  const Config config = Of(std::string("mode = \"protect\"\n[probe]\ndscp = 26\n") + kOneNic);
  EXPECT_THAT(Changes(config, config), IsEmpty());
  const absl::StatusOr<Config> merged = MergeLive(config, config);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(ToToml(*merged), ToToml(config));
}

TEST(ConfigChange, TellsWhatARunningAgentTakes) {
  const Config running = Of(kOneNic);
  const Config fresh =
      Of(std::string("mode = \"protect\"\n[steering]\nmove_gap = \"1ms\"\n[steering.allow]\nbalance = \"off\"\n"
                     "[limits]\nmax_flows = 64\n[log]\nlevel = \"debug\"\n") +
         kOneNic + "[[nic]]\nname = \"eth1\"\n");
  const std::vector<Change> changes = Changes(running, fresh);
  EXPECT_THAT(KeysOf(changes, true), ElementsAre("mode", "steering.move_gap", "steering.allow.balance", "log.level"));
  EXPECT_THAT(KeysOf(changes, false), ElementsAre("limits.max_flows", "nic"));
  EXPECT_EQ(changes[1].from, "\"500us\"");
  EXPECT_EQ(changes[1].to, "\"1ms\"");
}

TEST(ConfigChange, MergesWhatIsTakenAndKeepsTheRest) {
  const Config running = Of(std::string("[limits]\nmax_flows = 128\n") + kOneNic);
  const Config fresh =
      Of(std::string("[keys]\nsecret_file = \"/k\"\n[steering]\nmove_gap = \"1ms\"\n[limits]\n"
                     "max_flows = 64\n[[nic]]\nname = \"eth1\"\n[[peer]]\nname = \"h1\"\n"
                     "addresses = [\"10.0.0.1\"]\n"));
  const absl::StatusOr<Config> merged = MergeLive(running, fresh);
  ASSERT_TRUE(merged.ok()) << merged.status();
  EXPECT_EQ(merged->limits.max_flows, 128);
  EXPECT_EQ(merged->steering.move_gap, absl::Milliseconds(1));
  ASSERT_EQ(merged->nics.size(), 1u);
  EXPECT_EQ(merged->nics[0].name, "eth0");
  ASSERT_EQ(merged->peers.size(), 1u);
  EXPECT_EQ(merged->peers[0].name, "h1");
  EXPECT_THAT(KeysOf(Changes(*merged, fresh), true), IsEmpty()) << "all of it was taken";
  const absl::StatusOr<Config> without = MergeLive(*merged, running);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_THAT(without->peers, IsEmpty()) << "peers go as they come";
}

// The file is good. But [api] waits for a restart, and the fleet's address is nothing without its certificates.
TEST(ConfigChange, TwoHalvesThatDoNotFitAreRefused) {
  const Config running = Of(kOneNic);
  const Config fresh = Of(std::string("[api]\ntls_cert = \"/c\"\ntls_key = \"/k\"\ntls_ca = \"/a\"\n[fleet]\n"
                                      "endpoints = [\"fleet:9480\"]\n") +
                          kOneNic);
  const std::string why(MergeLive(running, fresh).status().message());
  EXPECT_THAT(why, HasSubstr("set fleet.tls_cert"));
  EXPECT_THAT(why, HasSubstr("restart the agent"));
}

TEST(ConfigChange, KnowsKeysAndWholeTables) {
  for (const char* key : {"mode", "peer", "peers_dir", "keys.secret_file", "liveness.misses", "samples.level_rx",
                          "steering.lease", "steering.allow.nic", "fleet.endpoints", "metrics.listen", "inproc.place",
                          "scope", "probe.active_interval", "probe.budget_pps", "probe.pause_dscp"})
    EXPECT_TRUE(TakenLive(key)) << key;
  for (const char* key :
       {"steering.nic_failover", "probe.ports", "probe.dscp", "limits.max_pairs", "nic", "api.listen", "keys", "model"})
    EXPECT_FALSE(TakenLive(key)) << key;
}

TEST(ConfigChange, AFingerprintIsOfWhatIsInForce) {
  const Config small = Of(kOneNic);
  EXPECT_EQ(Fingerprint(small), Fingerprint(Of(std::string("mode = \"observe\"\n") + kOneNic)))
      << "the default, spelled out";
  EXPECT_NE(Fingerprint(small), Fingerprint(Of(std::string("mode = \"protect\"\n") + kOneNic)));
  EXPECT_EQ(Fingerprint(small).size(), 16u);
}

}  // namespace
}  // namespace cw::config
