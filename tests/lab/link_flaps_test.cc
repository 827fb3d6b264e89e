// SPDX-License-Identifier: Apache-2.0
// Links that flap, as a host tells of them: a leaf–spine link that many of its paths cross, and its own.
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kHost = 0;  // who looks
constexpr uint32_t kSilent = 8;

class LinkFlapsOnFabric : public ::testing::Test {
 protected:
  // Two peers behind another leaf and two behind a third, so that a spine's links to them are told apart.
  void Up(int leaves, int hosts_per_leaf) {
    TestbedSpec spec;
    spec.fabric = {.lab = "flaptest",
                   .leaves = leaves,
                   .spines = 2,
                   .hosts_per_leaf = hosts_per_leaf,
                   .link_mbps = 200,
                   .ecmp_seed = 1};
    spec.mode = "protect";
    spec.active_interval = absl::Milliseconds(5);
    spec.idle_interval = absl::Milliseconds(10);
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed = std::move(*up);
    ASSERT_TRUE(testbed->WaitPathsUp(absl::Seconds(20)).ok());
  }

  v1::Link LinkTo(const std::string& end) {
    const absl::StatusOr<v1::LinksReply> reply = testbed->agent(kHost).Links({});
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok()) return {};
    for (const v1::Link& link : reply->links()) {
      if (link.to() == end) return link;
    }
    return {};
  }

  std::vector<v1::Event> Events(const std::string& type) {
    v1::EventsRequest request;
    request.set_type(type);
    std::vector<v1::Event> events;
    const absl::Status status = testbed->agent(kHost).Events(request, [&](const v1::Event& event) {
      events.push_back(event);
      return true;
    });
    EXPECT_TRUE(status.ok()) << status;
    return events;
  }

  static std::string EvidenceOf(const v1::Event& event, const std::string& name) {
    for (const v1::Evidence& each : event.evidence()) {
      if (each.name() == name) return each.value();
    }
    return "";
  }

  // One outage that all paths over the link die of, and return from.
  void Flap(const LinkDirection& link, const std::string& end) {
    ASSERT_TRUE(testbed->fabric().SetFault(link, Fault::Drop()).ok());
    EXPECT_TRUE(Eventually([&] {
      const v1::Link seen = LinkTo(end);
      return seen.paths() > 0 && seen.paths_dead() == seen.paths();
    })) << LinkTo(end).ShortDebugString();
    Hold(absl::Milliseconds(100));  // longer than it takes to tell a pause from a death
    ASSERT_TRUE(testbed->fabric().ClearFault(link).ok());
    EXPECT_TRUE(Eventually([&] { return LinkTo(end).paths_dead() == 0; })) << LinkTo(end).ShortDebugString();
  }

  std::unique_ptr<Testbed> testbed;
};

TEST_F(LinkFlapsOnFabric, TheNinthFlapOfAnUplinkIsToldOnceThoughPathsToFourPeersCrossIt) {
  Up(3, 2);
  ASSERT_NE(testbed, nullptr);
  const LinkDirection uplink = LinkDirection::LeafToSpine(0, 0);
  const std::string end = "10.1.0.0";
  ASSERT_EQ(LinkTo(end).paths(), 4u) << "to each of four peers";
  for (uint32_t flap = 1; flap <= kSilent + 2; ++flap) {
    ASSERT_NO_FATAL_FAILURE(Flap(uplink, end));
    EXPECT_TRUE(Eventually([&] { return LinkTo(end).flaps_1h() >= flap; })) << LinkTo(end).ShortDebugString();
    EXPECT_EQ(LinkTo(end).flaps_1h(), flap);
    EXPECT_EQ(Events("link").size(), flap > kSilent ? 1u : 0u) << "flap " << flap;
    if (flap != 4) continue;
    // What an agent saw is known to the next one.
    ASSERT_EQ(kill(testbed->agent_pid(kHost), SIGTERM), 0);
    absl::Status started;
    EXPECT_TRUE(Eventually([&] { return (started = testbed->StartAgent(kHost)).ok(); })) << started;  // it has to end
    ASSERT_TRUE(testbed->WaitPathsUp(absl::Seconds(20)).ok());
    ASSERT_TRUE(Eventually([&] { return LinkTo(end).paths() == 4; }));
  }
  EXPECT_EQ(LinkTo(end).flaps_1h_certain(), kSilent + 2) << "peers on two leaves tell it from the spine's other links";
  for (const char* other : {"10.1.0.3", "10.1.0.5", "10.1.1.0"}) EXPECT_EQ(LinkTo(other).flaps_1h(), 0u) << other;
  const std::vector<v1::Event> events = Events("link");
  ASSERT_EQ(events.size(), 1u);
  const v1::Event& told = events[0];
  EXPECT_TRUE(absl::StrContains(told.text(), "has flapped more than 8 times within the past hour")) << told.text();
  EXPECT_EQ(EvidenceOf(told, "link"), end);
  EXPECT_EQ(EvidenceOf(told, "flaps"), "9");
  EXPECT_LT(EvidenceOf(told, "first"), EvidenceOf(told, "last"));
  for (const char* peer : {"h2/", "h3/", "h4/", "h5/"}) {
    EXPECT_TRUE(absl::StrContains(EvidenceOf(told, "seen_by"), peer)) << told.ShortDebugString();
  }
}

TEST_F(LinkFlapsOnFabric, OurOwnLinkIsToldAtOnceAndNoPathIsBlamed) {
  Up(2, 1);
  ASSERT_NE(testbed, nullptr);
  for (uint32_t flap = 1; flap <= kSilent + 1; ++flap) {
    ASSERT_TRUE(testbed->fabric().SetHostLinkUp(kHost, false).ok());
    EXPECT_TRUE(Eventually([&] { return Events("nic").size() == 2 * flap - 1; })) << flap;
    Hold(absl::Milliseconds(100));
    ASSERT_TRUE(testbed->fabric().SetHostLinkUp(kHost, true).ok());
    EXPECT_TRUE(Eventually([&] { return Events("nic").size() == 2 * flap; })) << flap;
    EXPECT_EQ(Events("link").size(), flap > kSilent ? 1u : 0u) << "flap " << flap;
  }
  const std::vector<v1::Event> told = Events("nic");
  ASSERT_EQ(told.size(), 2 * (kSilent + 1));
  EXPECT_EQ(told[0].severity(), v1::SEVERITY_ALERT) << told[0].text();
  EXPECT_EQ(EvidenceOf(told[0], "witness"), "carrier");
  EXPECT_EQ(EvidenceOf(told[0], "carrier"), "down");
  EXPECT_EQ(told[1].severity(), v1::SEVERITY_NOTICE) << told[1].text();
  EXPECT_EQ(EvidenceOf(told[1], "carrier"), "up");
  EXPECT_EQ(EvidenceOf(Events("link")[0], "link"), "eth0");
  EXPECT_TRUE(testbed->WaitPathsUp(absl::Seconds(20)).ok());
  const v1::Link own = LinkTo(testbed->fabric().HostGateway(kHost));
  EXPECT_EQ(own.flaps_1h(), kSilent + 1) << own.ShortDebugString();
  for (const char* other : {"10.1.0.0", "10.1.0.3", "10.1.1.0", "10.1.1.3"})
    EXPECT_EQ(LinkTo(other).flaps_1h(), 0u) << other;
  for (const v1::Event& event : Events("path")) {
    if (absl::StrContains(event.text(), " is dead")) {
      EXPECT_EQ(EvidenceOf(event, "nic_carrier"), "down") << event.ShortDebugString();
    }
  }
}

}  // namespace
}  // namespace cw::lab
