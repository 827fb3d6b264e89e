// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "userspace/agent/views/links_view.h"

namespace cw::agent {
namespace {

namespace v1 = ::cwfabric::v1;
using ::testing::ElementsAre;

// Two peers on one leaf, over two spines: hops leaf 10.0.0.1, spine 10.1.S.0, leaf 10.1.S.3.
v1::PathsReply TwoPeers() {
  v1::PathsReply reply;
  for (int peer = 1; peer <= 2; ++peer) {
    v1::Pair& pair = *reply.add_pairs();
    pair.set_local_address("10.0.0.10");
    pair.set_peer("h" + std::to_string(peer));
    pair.set_remote_address("10.0.1." + std::to_string(10 + peer));
    for (int spine = 0; spine < 2; ++spine) {
      v1::Path& path = *pair.add_paths();
      path.set_slot(static_cast<uint32_t>(spine));
      path.set_state(v1::PATH_STATE_UP);
      const std::string net = "10.1." + std::to_string(spine);
      for (const std::string& hop : {std::string("10.0.0.1"), net + ".0", net + ".3"}) path.add_hops(hop);
      v1::PathWindow& window = *path.add_windows();
      window.set_seconds(10);
      window.mutable_forward()->set_samples(1000);
      window.mutable_forward()->set_mean_ns(10'000);
      window.mutable_queueing_forward()->set_samples(1000);
      window.mutable_queueing_forward()->set_mean_ns(500);
      window.mutable_queueing_forward()->set_p99_ns(2'000);
    }
  }
  return reply;
}

v1::Delay& Waited(v1::PathsReply& reply, int pair, int path) {
  return *reply.mutable_pairs(pair)->mutable_paths(path)->mutable_windows(0)->mutable_queueing_forward();
}

TEST(LinksView, AQueueIsGivenToItsLink) {
  v1::PathsReply paths = TwoPeers();
  Waited(paths, 1, 0).set_mean_ns(90'000);  // both paths to h2: its own link
  Waited(paths, 1, 1).set_mean_ns(91'000);
  const v1::LinksReply links = MakeLinks(paths, 10);
  ASSERT_EQ(7, links.links_size()) << "one, two and two, one for each peer";
  EXPECT_EQ(4u, links.paths());
  EXPECT_EQ("10.0.1.12", links.links(0).to());
  EXPECT_EQ("h2", links.links(0).peer());
  EXPECT_NEAR(90'500, links.links(0).queue_ns(), 3'000);
  EXPECT_EQ(2u, links.links(0).paths());
  EXPECT_EQ(0, links.links(1).queue_ns()) << links.links(1).ShortDebugString();
}

TEST(LinksView, ADeadSpineIsSuspectedAndWhatIsTheSameIsNamed) {
  v1::PathsReply paths = TwoPeers();
  for (int pair = 0; pair < 2; ++pair) paths.mutable_pairs(pair)->mutable_paths(1)->set_state(v1::PATH_STATE_DEAD);
  const v1::LinksReply links = MakeLinks(paths, 10);
  EXPECT_TRUE(links.links(0).suspect());
  EXPECT_TRUE(links.links(1).suspect());
  EXPECT_FALSE(links.links(2).suspect());
  EXPECT_EQ("10.1.1.0", links.links(0).to());
  EXPECT_EQ("10.0.0.1", links.links(0).from());
  EXPECT_THAT(links.links(0).alike(), ElementsAre("10.1.1.3"));
  EXPECT_EQ(2u, links.links(0).paths_dead());
  EXPECT_EQ(0u, links.paths_dead_unexplained());
}

TEST(LinksView, OutagesAreToldOfTheLinkThatHadThem) {
  LinkPast flaps;
  flaps.by_end["10.1.0.0"] = {.flaps = 9, .certain = 4};
  flaps.by_end["eth0"] = {.flaps = 2, .certain = 2};
  flaps.own["10.0.0.10"] = {.flaps = 2, .certain = 2};
  const v1::LinksReply links = MakeLinks(TwoPeers(), 10, flaps);
  ASSERT_EQ(7, links.links_size());
  for (const v1::Link& link : links.links()) {
    const bool own = link.from() == "10.0.0.10", up = link.to() == "10.1.0.0";
    EXPECT_EQ(own ? 2u : up ? 9u : 0u, link.flaps_1h()) << link.ShortDebugString();
    EXPECT_EQ(own ? 2u : up ? 4u : 0u, link.flaps_1h_certain()) << link.ShortDebugString();
  }
}

TEST(LinksView, ALinkLosesNoMoreThanItsBestPath) {
  v1::PathsReply paths = TwoPeers();
  for (int pair = 0; pair < 2; ++pair) {
    for (int path = 0; path < 2; ++path) {
      v1::Path& of = *paths.mutable_pairs(pair)->mutable_paths(path);
      of.set_age_s(pair + path);
      of.mutable_windows(0)->set_sent(1000);
      of.mutable_windows(0)->set_loss(path == 1 ? 0.02 + 0.01 * pair : 0);
    }
  }
  const v1::LinksReply links = MakeLinks(paths, 10);
  for (const v1::Link& link : links.links()) {
    const bool spine1 = link.to() == "10.1.1.0" || link.to() == "10.1.1.3";
    EXPECT_DOUBLE_EQ(spine1 ? 0.02 : 0, link.loss()) << link.ShortDebugString();
    EXPECT_GE(link.checked_ago_s(), spine1 ? 1 : 0);
  }
}

TEST(LinksView, ALinkThatPathsLeftIsNamedUntilOneIsBack) {
  LinkPast past;
  past.gone.push_back({{.from = "10.0.0.1", .to = "10.1.2.0", .left_ns = 0}, 12.5});
  past.gone.push_back({{.from = "10.0.0.1", .to = "10.1.1.0", .left_ns = 0}, 50});
  v1::PathsReply paths = TwoPeers();
  v1::LinksReply links = MakeLinks(paths, 10, past);
  ASSERT_EQ(8, links.links_size());
  EXPECT_EQ("10.1.2.0", links.links(0).to());
  EXPECT_EQ(12.5, links.links(0).gone_ago_s());
  EXPECT_EQ(0u, links.links(0).paths());
  for (int pair = 0; pair < 2; ++pair) paths.mutable_pairs(pair)->mutable_paths(1)->set_state(v1::PATH_STATE_DEAD);
  links = MakeLinks(paths, 10, past);
  EXPECT_TRUE(links.links(0).suspect()) << "what is dead comes first";
}

TEST(GoneLinks, AreKeptForAnHourAndNoMoreThanSoMany) {
  control::GoneLinks gone;
  const std::vector<std::string> ends = {"10.0.0.1", "10.1.0.0"};
  gone.Left("10.0.0.10", ends, 1000);
  ASSERT_EQ(2u, gone.All(1000).size());
  EXPECT_EQ("10.0.0.10", gone.All(1000)[0].from);
  EXPECT_EQ("10.0.0.1", gone.All(1000)[1].from);
  EXPECT_TRUE(gone.All(1001 + control::GoneLinks::kWindowNs).empty());
  for (int i = 0; i < 3000; ++i) {
    const std::vector<std::string> one = {"end" + std::to_string(i)};
    gone.Left("10.0.0.10", one, 2000 + i);
  }
  EXPECT_EQ(control::GoneLinks::kMost, gone.All(6000).size());
}

TEST(LinksView, WhatIsNotKnownSaysNothing) {
  v1::PathsReply paths = TwoPeers();
  paths.mutable_pairs(0)->mutable_paths(0)->set_hops(1, "*");
  paths.mutable_pairs(0)->mutable_paths(1)->clear_hops();
  paths.mutable_pairs(1)->mutable_paths(0)->set_state(v1::PATH_STATE_NEW);
  const v1::LinksReply links = MakeLinks(paths, 10);
  EXPECT_EQ(1u, links.paths());
  EXPECT_EQ(4, links.links_size());
  EXPECT_EQ(0, MakeLinks({}, 1).links_size());
}

}  // namespace
}  // namespace cw::agent
