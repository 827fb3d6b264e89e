// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/jobs/acts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr int64_t kOneSecondNs = 1'000'000'000, kNowNs = 1'700'000'000 * kOneSecondNs;

HostEvent Move(const std::string& host, const std::string& flow, const std::string& port) {
  return {.host = host,
          .type = "move",
          .peer = "h9",
          .flow = flow,
          .time_ns = kNowNs,
          .evidence = {{"udp_port_before", port}, {"udp_port", "50001"}}};
}

class Acts : public ::testing::Test {
 protected:
  // By 50000, and by ports that are not known, its link is crossed.
  static FlowWay WayOf(const FlowAct& act) {
    const bool over = act.port_before == 50000 || act.port_before == 0;
    return {.ports = {Addr::FromV4(over ? 7 : 8)}, .nics = {}};
  }
  bool Look(absl::Duration after = absl::ZeroDuration()) {
    return book_.Look(finding_, {}, kNowNs + absl::ToInt64Nanoseconds(after), WayOf);
  }
  std::vector<std::string> Did() const { return book_.Did(finding_.id); }
  const Finding finding_{.id = 7, .scope = "link x", .links = {{Addr::FromV4(6), Addr::FromV4(7)}}, .start_ns = kNowNs};
  ActBook book_;
};

TEST_F(Acts, FlowsThatLeftItAreCountedOnceAndThoseThatWentBack) {
  for (const char* host : {"h1", "h2"}) {
    for (const char* flow : {"a", "b"}) book_.Take(Move(host, flow, "50000"));
  }
  book_.Take(Move("h1", "a", "50000"));
  book_.Take(Move("h3", "c", "50007"));  // left another way
  EXPECT_TRUE(Look());
  EXPECT_THAT(Did(), ElementsAre("4 flows of 2 hosts left it, 22:13:20.000 to 22:13:20.000 UTC"));
  EXPECT_FALSE(Look()) << "nothing is new";
  HostEvent back{.host = "h2", .type = "return", .peer = "h9", .flow = "b", .time_ns = kNowNs + kOneSecondNs};
  book_.Take(back);
  back.flow = "a";
  back.evidence = {{"taken_back", "1"}};  // it stays where it is
  book_.Take(back);
  EXPECT_FALSE(Look(absl::Seconds(30))) << "once a minute is enough";
  EXPECT_THAT(Did(), ElementsAre(HasSubstr("4 flows of 2 hosts left it"), "1 flow went back"));
  EXPECT_TRUE(Look(absl::Seconds(60)));
}

TEST_F(Acts, InModeObserveItSaysWhatWouldHaveBeenDone) {
  HostEvent dry = Move("h1", "a", "0");  // the kernel's program knows no port where it does not act
  dry.dry = true;
  book_.Take(dry);
  EXPECT_TRUE(Look());
  EXPECT_THAT(Did(), ElementsAre("1 flow of 1 host would have left it, but the mode is observe"));
}

TEST_F(Acts, WhatWasRefusedOrIsOldOrOdd) {
  HostEvent refused = Move("h1", "a", "50000");
  refused.alert = true;
  book_.Take(refused);
  HostEvent old = Move("h1", "b", "50000");
  old.time_ns -= absl::ToInt64Nanoseconds(2 * ActBook::kBefore);
  book_.Take(old);
  book_.Take(Move("h1", "c", "50007"));
  book_.Take(Move("h1", "", "50000"));
  EXPECT_FALSE(Look());
  EXPECT_THAT(Did(), IsEmpty());
}

TEST_F(Acts, OfAHostTheNewestAreKeptAndWhatIsOldGoes) {
  for (size_t i = 0; i < 2 * ActBook::kMostOfHost; ++i) book_.Take(Move("h1", absl::StrCat(i), i < 9 ? "50000" : "1"));
  book_.Take(Move("h1", "newest", "50000"));
  book_.Take(Move("h2", "a", "50000"));
  EXPECT_TRUE(Look());
  EXPECT_THAT(Did(), ElementsAre(HasSubstr("2 flows of 2 hosts"))) << "the first nine made room";
  book_.Age(kNowNs + absl::ToInt64Nanoseconds(absl::Minutes(2)));
  EXPECT_FALSE(Did().empty()) << "it may come back";
  book_.Age(kNowNs + absl::ToInt64Nanoseconds(ActBook::kLately) + 1);
  EXPECT_THAT(Did(), IsEmpty());
  EXPECT_FALSE(Look()) << "nothing is left of it";
}

TEST_F(Acts, WhatAFindingAccusesIsALinkANicASwitchOrAHost) {
  book_.Take(Move("h1", "a", "50000"));
  const auto left = [&](Finding finding) {
    static uint64_t id = 100;
    finding.id = ++id;
    finding.start_ns = kNowNs;
    Topology topology;
    topology.switches.push_back({.name = "s", .addresses = {Addr::FromV4(7)}});
    const auto way = [](const FlowAct&) { return FlowWay{.ports = {Addr::FromV4(7)}, .nics = {Addr::FromV4(9)}}; };
    return book_.Look(finding, topology, kNowNs, way);
  };
  EXPECT_TRUE(left({.scope = "switch s"}));
  EXPECT_FALSE(left({.scope = "switch t"}));
  EXPECT_TRUE(left({.scope = "NIC 0.0.0.9"}));
  EXPECT_FALSE(left({.scope = "NIC 0.0.0.7"}));
  EXPECT_TRUE(left({.scope = "host h9"}));
  EXPECT_FALSE(left({.scope = "host h1"})) << "its own flows did not leave it";
}

}  // namespace
}  // namespace cw::fleet
