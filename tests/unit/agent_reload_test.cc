// SPDX-License-Identifier: Apache-2.0
//
// A configuration that is read again: what is taken, by whom, and in which order; the pairs that come and go with it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "tests/unit/agent_fakes.h"
#include "userspace/agent/reloader.h"

namespace cw::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

class Reload : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "cw_reload_XXXXXX").string();
    ASSERT_NE(mkdtemp(name.data()), nullptr);
    folder_ = name;
    const std::string secret = folder_ + "/group.key";
    std::ofstream(secret) << "the first secret of a group";
    chmod(secret.c_str(), 0600);
    running_.keys.secret_file = secret;
    running_.nics = {{.name = "eth0"}};
    running_.peers = {{.name = "h2", .addresses = {"10.0.1.1"}}};
    vitals_.host_name = "h1";
    host_.pairs.clear();
    host_.names.names.clear();
    ASSERT_TRUE(keys_.Open(running_.keys).ok());
    ASSERT_TRUE(Peers(running_).ok());
    done_.clear();
  }
  void TearDown() override { fs::remove_all(folder_); }
  absl::Status Peers(const config::Config& config) {
    absl::StatusOr<PeerPlan> plan = pairs_.Plan(config);
    return plan.ok() ? pairs_.Take(*std::move(plan)) : plan.status();
  }
  Reloader::Taker Takes(const char* name) {
    return [this, name](const config::Config& before, const config::Config& now) {
      done_.push_back(absl::StrCat(name, " ", before.liveness.misses, " to ", now.liveness.misses));
    };
  }

  std::string folder_;
  OnePair host_;
  ManualClock clock_;
  Vitals vitals_;
  config::Config running_;
  std::vector<std::string> done_;
  absl::Status no_pairs_;  // why whoever probes does not take them
  GroupKeys keys_{clock_, host_.events};
  ConfigInForce in_force_{host_.events};
  Totals totals_{host_.nics, host_.names, host_.pairs, host_.mesh, host_.store};
  PairKeeper pairs_{
      host_.pairs,
      host_.names,
      host_.nics,
      host_.mesh,
      totals_,
      {.planned = [this](const PeerPlan& plan) { done_.push_back(absl::StrCat(plan.peers.size(), " peers")); },
       .configure = [this](const std::vector<probe::PairSpec>& specs) -> absl::StatusOr<probe::ConfigureResult> {
         if (!no_pairs_.ok()) return no_pairs_;
         return host_.mesh.Configure(specs);
       },
       .forgotten = [this](uint32_t pair) { done_.push_back(absl::StrCat("forgot ", pair)); }}};
  Reloader reloader_{running_,
                     keys_,
                     pairs_,
                     in_force_,
                     vitals_,
                     clock_,
                     host_.events,
                     [this] {
                       done_.push_back("keys");
                       return absl::OkStatus();
                     },
                     {Takes("knobs"), Takes("rules")}};
};

TEST_F(Reload, TakersAreCalledInTheirOrderBehindThePeers) {
  config::Config fresh = running_;
  fresh.liveness.misses = running_.liveness.misses + 2;
  fresh.peers.push_back({.name = "h3", .addresses = {"10.0.2.1"}});
  const absl::StatusOr<config::Config> taken = reloader_.Take(fresh);
  ASSERT_TRUE(taken.ok()) << taken.status();
  EXPECT_EQ(taken->liveness.misses, fresh.liveness.misses);
  EXPECT_EQ(running_.liveness.misses, fresh.liveness.misses);
  const std::string change = absl::StrCat(" ", fresh.liveness.misses - 2, " to ", fresh.liveness.misses);
  EXPECT_THAT(done_, ElementsAre("2 peers", "knobs" + change, "rules" + change));
  EXPECT_EQ(host_.pairs.size(), 2u);
}

TEST_F(Reload, APairThatGoesIsForgottenBeforeItsNumberIsFree) {
  const uint32_t gone = host_.pairs.begin()->first;
  config::Config fresh = running_;
  fresh.peers = {{.name = "h3", .addresses = {"10.0.2.1"}}};
  ASSERT_TRUE(reloader_.Take(fresh).ok());
  ASSERT_GE(done_.size(), 2u);
  EXPECT_EQ(done_[1], absl::StrCat("forgot ", gone));
  ASSERT_EQ(host_.pairs.size(), 1u);
  EXPECT_EQ(host_.pairs.begin()->second->peer, "h3");
}

TEST_F(Reload, ThePairsThatStayKeepWhatIsKnownOfThem) {
  PairState* const before = host_.pairs.begin()->second.get();
  config::Config fresh = running_;
  fresh.peers[0].name = "renamed";
  ASSERT_TRUE(reloader_.Take(fresh).ok());
  EXPECT_EQ(host_.pairs.begin()->second.get(), before);
  EXPECT_EQ(before->peer, "renamed");
}

TEST_F(Reload, MorePairsThanThereIsRoomForChangeNothing) {
  running_.limits.max_pairs = 1;
  config::Config fresh = running_;
  fresh.liveness.misses = running_.liveness.misses + 1;
  fresh.peers.push_back({.name = "h3", .addresses = {"10.0.2.1"}});
  const absl::StatusOr<config::Config> taken = reloader_.Take(fresh);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("raise it and restart the agent"));
  EXPECT_THAT(done_, IsEmpty());
  EXPECT_NE(running_.liveness.misses, fresh.liveness.misses);
  EXPECT_THAT(host_.events.Take().at(0).text, HasSubstr("nothing is changed: 2 pairs of NICs"));
}

TEST_F(Reload, WhatCouldNotBeTakenIsNamedAndTakenByTheNext) {
  config::Config fresh = running_;
  fresh.liveness.misses = running_.liveness.misses + 2;
  fresh.peers.push_back({.name = "h3", .addresses = {"10.0.2.1"}});
  no_pairs_ = absl::ResourceExhaustedError("no room in a map");
  ASSERT_TRUE(reloader_.Take(fresh).ok());
  EXPECT_EQ(host_.pairs.size(), 1u);
  EXPECT_EQ(running_.liveness.misses, fresh.liveness.misses) << "the rest is taken";
  ASSERT_FALSE(host_.events.all.empty());
  EXPECT_THAT(host_.events.all.back().text, AllOf(HasSubstr("[[peer]]"), HasSubstr("no room in a map")));
  ::cwfabric::v1::StatusReply status;
  in_force_.AddTo(status, 0);
  EXPECT_THAT(status.config().waiting(), ElementsAre("peer"));
  no_pairs_ = absl::OkStatus();
  ASSERT_TRUE(reloader_.Take(fresh).ok());
  EXPECT_EQ(host_.pairs.size(), 2u) << "the same file again";
  ::cwfabric::v1::StatusReply after;
  in_force_.AddTo(after, 0);
  EXPECT_THAT(after.config().waiting(), Not(Contains("peer")));
}

TEST_F(Reload, AnotherNameOfThisHostIsForTheNextStart) {
  config::Config fresh = running_;
  fresh.peers.push_back({.name = "other", .addresses = {"10.0.0.1"}});
  const absl::StatusOr<config::Config> taken = reloader_.Take(fresh);
  EXPECT_THAT(std::string(taken.status().message()), HasSubstr("now call this host other, and it runs as h1"));
}

TEST_F(Reload, ASecretThatCannotBeReadLeavesTheOldOneAtWork) {
  fs::remove(running_.keys.secret_file);
  const absl::StatusOr<config::Config> taken = reloader_.Take(running_);
  EXPECT_FALSE(taken.ok());
  EXPECT_THAT(host_.events.all.at(0).text, HasSubstr("keys stay as they were"));
  EXPECT_THAT(done_, IsEmpty());
}

TEST_F(Reload, ARailMeansTheNicsThatRun) {
  config::Config fresh = running_;
  fresh.nics = {{.name = "eth1"}, {.name = "eth0"}};
  EXPECT_TRUE(reloader_.Take(fresh).ok()) << "they wait for the next start";
  config::ScopeConfig scope;
  scope.rail = 0;
  fresh.scopes = {scope};
  EXPECT_THAT(std::string(reloader_.Take(fresh).status().message()), HasSubstr("names a rail"));
}

}  // namespace
}  // namespace cw::agent
