// SPDX-License-Identifier: Apache-2.0
// Drains over the fleet: what is meant, who is asked, when it is safe, and which findings they explain.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "userspace/fleet/drains/drain_book.h"
#include "userspace/fleet/drains/muting.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kNow = 1'800'000'000'000'000'000, kSecond = 1'000'000'000;

void AddLink(pb::FleetTopologyReply& topology, const char* from, const char* to, const char* port) {
  pb::FleetLink& link = *topology.add_links();
  link.set_from(from);
  link.set_to(to);
  link.set_port(port);
}

// A leaf and two spines; two cables to the second one.
pb::FleetTopologyReply Fabric() {
  pb::FleetTopologyReply topology;
  for (const auto& [name, addresses] : std::vector<std::pair<const char*, std::vector<const char*>>>{
           {"leaf1", {"10.2.0.1", "10.2.0.2"}}, {"spine1", {"10.1.0.1", "10.1.0.3"}}}) {
    pb::FleetSwitch& s = *topology.add_switches();
    s.set_name(name);
    for (const char* address : addresses) s.add_addresses(address);
  }
  AddLink(topology, "leaf1", "spine1", "10.1.0.1");
  AddLink(topology, "spine1", "leaf1", "10.2.0.1");
  AddLink(topology, "leaf1", "spine2", "10.1.1.1");
  AddLink(topology, "leaf1", "spine2", "10.1.1.3");
  AddLink(topology, "spine2", "leaf1", "10.2.1.1");
  AddLink(topology, "spine2", "leaf1", "10.2.1.3");
  return topology;
}

const std::vector<HostNics> kHosts = {{"h1", {{"eth0", "10.0.0.1"}, {"eth1", "10.0.1.1"}}}, {"h2", {}}};

DrainFabric With(const std::vector<HostNics>& hosts) { return {.topology = Fabric(), .switches = {}, .hosts = hosts}; }
const DrainFabric kFabric = With(kHosts);

TEST(DrainTargets, ASwitchIsAllItsPortsByNameOrAddress) {
  for (const char* name : {"spine1", "10.1.0.3"}) {
    const absl::StatusOr<DrainTargets> targets = FindTargets("switch", name, kFabric);
    ASSERT_TRUE(targets.ok()) << targets.status();
    EXPECT_EQ(targets->name, "spine1");
    EXPECT_THAT(targets->addresses, ElementsAre("10.1.0.1", "10.1.0.3"));
  }
  EXPECT_THAT(std::string(FindTargets("switch", "nope", kFabric).status().message()),
              HasSubstr("cwctl fleet topology"));
}

TEST(DrainTargets, PortsThatOneHostAloneKeepsApartBelongToTheSwitch) {
  DrainFabric fabric = kFabric;
  fabric.switches = {{"10.1.0.3", "10.1.0.5"}, {"10.2.0.1"}, {"10.9.0.1"}};
  EXPECT_THAT(FindTargets("switch", "spine1", fabric)->addresses, ElementsAre("10.1.0.1", "10.1.0.3", "10.1.0.5"));
}

pb::FleetDrain Drained(const char* kind, const char* name, std::vector<const char*> addresses) {
  pb::FleetDrain drain;
  drain.set_kind(kind);
  drain.set_name(name);
  for (const char* address : addresses) drain.add_addresses(address);
  return drain;
}

// Ports and NICs that came later; the name of a switch may be another one by now.
TEST(DrainTargets, WhatBecameKnownLaterIsMissing) {
  EXPECT_THAT(MissingTargets(Drained("switch", "10.1.0.1", {"10.1.0.1"}), kFabric).addresses, ElementsAre("10.1.0.3"));
  EXPECT_THAT(MissingTargets(Drained("switch", "spine1", {"10.1.0.1", "10.1.0.3"}), kFabric).addresses, IsEmpty());
  EXPECT_THAT(MissingTargets(Drained("switch", "gone", {"10.9.9.9"}), kFabric).addresses, IsEmpty());
  const DrainTargets host = MissingTargets(Drained("host", "h1", {"10.0.0.1"}), kFabric);
  EXPECT_THAT(host.addresses, ElementsAre("10.0.1.1"));
  EXPECT_THAT(host.nics, ElementsAre("eth0", "eth1"));
  EXPECT_THAT(MissingTargets(Drained("host", "h2", {"10.0.0.2"}), kFabric).addresses, IsEmpty());
  EXPECT_THAT(MissingTargets(Drained("link", "x", {"10.1.0.1"}), kFabric).addresses, IsEmpty());
}

TEST(DrainTargets, WhatMayBeHalfASwitchIsRefused) {
  DrainFabric fabric = kFabric;
  pb::FleetSwitch& half = *fabric.topology.add_switches();
  half.set_name("10.1.2.0");
  half.add_addresses("10.1.2.0");
  AddLink(fabric.topology, "leaf1", "10.1.2.0", "10.1.2.0");
  AddLink(fabric.topology, "10.1.2.0", "leaf2", "10.2.2.1");
  const absl::Status refused = FindTargets("switch", "10.1.2.0", fabric).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()), HasSubstr("fabric_file"));
  half.set_named(true);
  EXPECT_TRUE(FindTargets("switch", "10.1.2.0", fabric).ok());
}

TEST(DrainTargets, ACableIsBothDirectionsWhereTheyCanBeTold) {
  const absl::StatusOr<DrainTargets> both = FindTargets("link", "10.1.0.1", kFabric);
  EXPECT_THAT(both->addresses, ElementsAre("10.1.0.1", "10.2.0.1"));
  EXPECT_EQ(both->note, "");
  const absl::StatusOr<DrainTargets> one = FindTargets("link", "10.1.1.3", kFabric);
  EXPECT_THAT(one->addresses, ElementsAre("10.1.1.3"));
  EXPECT_THAT(one->note, HasSubstr("this direction alone"));
  EXPECT_TRUE(absl::IsNotFound(FindTargets("link", "10.9.9.9", kFabric).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(FindTargets("rack", "r1", kFabric).status()));
}

// It answers traces by every port with its own address, so agents cannot tell its links apart.
TEST(DrainTargets, OneLinkOfASwitchThatAnswersWithOneAddressIsRefused) {
  DrainFabric fabric = kFabric;
  AddLink(fabric.topology, "h1", "leaf3", "10.9.0.9");
  AddLink(fabric.topology, "spine1", "leaf3", "10.9.0.9");
  AddLink(fabric.topology, "leaf3", "spine1", "10.1.0.7");
  for (const char* name : {"10.9.0.9", "link spine1>10.9.0.9", "cable spine1 = leaf3"}) {
    const absl::Status refused = FindTargets("link", name, fabric).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << name << refused;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("cwctl fleet drain switch leaf3")) << name;
  }
}

TEST(DrainTargets, AHostIsItsNics) {
  const absl::StatusOr<DrainTargets> targets = FindTargets("host", "h1", kFabric);
  EXPECT_THAT(targets->addresses, ElementsAre("10.0.0.1", "10.0.1.1"));
  EXPECT_THAT(targets->nics, ElementsAre("eth0", "eth1"));
  EXPECT_TRUE(absl::IsNotFound(FindTargets("host", "h2", kFabric).status()));
  EXPECT_TRUE(absl::IsNotFound(FindTargets("host", "h3", kFabric).status()));
}

// A host alone says which addresses it has.
TEST(DrainTargets, NoHostKeepsTheFleetOffWhatIsOthers) {
  std::vector<HostNics> hosts = {{"h1",
                                  {{"eth0", "10.0.0.1"},
                                   {"eth0", "::"},
                                   {"eth1", "0.0.0.0"},
                                   {"eth1", "10.1.0.3"},
                                   {"docker0", "172.17.0.1"},
                                   {"eth2", "nonsense"}}},
                                 {"h2", {{"eth0", "10.0.0.2"}, {"docker0", "172.17.0.1"}}}};
  const absl::StatusOr<DrainTargets> targets = FindTargets("host", "h1", With(hosts));
  ASSERT_TRUE(targets.ok()) << targets.status();
  EXPECT_THAT(targets->addresses, ElementsAre("10.0.0.1"));
  EXPECT_THAT(targets->nics, ElementsAre("eth0", "eth1", "docker0", "eth2"));
  for (const char* named :
       {":: of eth0 (no address", "0.0.0.0 of eth1 (no address", "10.1.0.3 of eth1 (of switch spine1)",
        "172.17.0.1 of docker0 (of h2, too)", "nonsense of eth2"})
    EXPECT_THAT(targets->note, HasSubstr(named));
  EXPECT_EQ(FindTargets("host", "h1", kFabric)->note, "");
  hosts[0].nics = {{"eth1", "10.1.0.3"}};
  const absl::Status none = FindTargets("host", "h1", With(hosts)).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("10.1.0.3 of eth1 (of switch spine1)"));
}

class DrainBookTest : public ::testing::Test {
 protected:
  uint64_t Add(const std::string& kind, const std::string& name, double for_s = 0) {
    pb::FleetDrainRequest request;
    request.set_for_s(for_s);
    request.set_reason("new optics");
    const absl::StatusOr<uint64_t> id = book_.Add(request, *FindTargets(kind, name, kFabric), "alice", kNow);
    EXPECT_TRUE(id.ok()) << id.status();
    return id.value_or(0);
  }
  void Answer(const std::string& host, uint64_t id, pb::DrainState state) {
    pb::DrainReport report;
    pb::DrainAnswer& answer = *report.add_answers();
    answer.set_id(id);
    answer.set_state(state);
    answer.set_words("words");
    book_.Take(host, report, kNow);
  }
  // "a safe, b asked: under way"
  std::string Show(uint64_t id) {
    const pb::FleetDrain drain = book_.Show(id, hosts_, crossing_, now_ns_);
    std::string text;
    for (const pb::FleetDrainHost& host : drain.hosts()) text += host.host() + " " + host.state() + ", ";
    return text + drain.state();
  }

  int64_t now_ns_ = kNow;
  DrainBook book_{"one"};
  std::map<std::string, DrainHost> hosts_ = {{"a", {true, true}}, {"b", {true, true}}};
  DrainCrossing crossing_ = {.hosts = {"a", "b"}, .strangers = {}};
};

TEST_F(DrainBookTest, IsSafeWhenAllSaySo) {
  const uint64_t id = Add("switch", "spine1");
  EXPECT_EQ(Show(id), "a asked, b asked, under way");
  Answer("a", id, pb::DRAIN_STATE_SAFE);
  Answer("b", id, pb::DRAIN_STATE_UNDER_WAY);
  EXPECT_EQ(Show(id), "a safe, b under way, under way");
  Answer("b", id, pb::DRAIN_STATE_SAFE);
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
  book_.Forget("a");
  EXPECT_EQ(Show(id), "a asked, b safe, under way") << "a new connection has to say it again";
  Answer("a", id, pb::DRAIN_STATE_REFUSED);
  EXPECT_EQ(Show(id), "a refused, b safe, refused");
}

TEST_F(DrainBookTest, HostsThatDoNotAllowItCountOnlyWhereTheirPathsCrossIt) {
  const uint64_t id = Add("switch", "spine1");
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  hosts_["c"] = {.connected = true, .takes = false};
  hosts_["d"] = {.connected = false, .takes = true};
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
  crossing_.hosts = {"c", "d"};
  EXPECT_EQ(Show(id), "a safe, b safe, c not allowed, d not connected, refused");
}

TEST_F(DrainBookTest, APeerThatIsNoHostOfTheFleetMayCrossIt) {
  const uint64_t id = Add("switch", "spine1");
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  crossing_.strangers["10.0.9.1"] = "b";
  EXPECT_EQ(Show(id), "a safe, b safe, 10.0.9.1 not connected, refused");
  EXPECT_THAT(book_.Show(id, hosts_, crossing_, now_ns_).hosts(2).words(),
              HasSubstr("a peer of b and no host of the fleet"));
  for (int i = 0; i < 100; ++i) crossing_.strangers["10.0.8." + std::to_string(i)] = "a";
  const pb::FleetDrain many = book_.Show(id, hosts_, crossing_, now_ns_);
  EXPECT_THAT(many.hosts(), SizeIs(2 + DrainBook::kMostStrangers));
  EXPECT_THAT(many.hosts(1 + DrainBook::kMostStrangers).words(), HasSubstr("and 85 more"));
}

TEST_F(DrainBookTest, WhatGrewHasToBeSaidToBeSafeAgain) {
  const uint64_t id = Add("switch", "spine1");
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  EXPECT_FALSE(book_.Grow(id, {}));
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
  EXPECT_TRUE(book_.Grow(id, {.addresses = {"10.1.0.5"}}));
  EXPECT_EQ(Show(id), "a asked, b asked, under way");
  EXPECT_THAT(book_.OrdersFor("a", kNow).orders(0).targets(), SizeIs(3));
  pb::DrainReport late;
  late.add_answers()->set_id(id);
  late.mutable_answers(0)->set_state(pb::DRAIN_STATE_SAFE);
  late.mutable_answers(0)->set_targets(2);
  book_.Take("a", late, kNow);
  EXPECT_EQ(Show(id), "a asked, b asked, under way") << "an answer to the smaller order";
  late.mutable_answers(0)->set_targets(3);
  book_.Take("a", late, kNow);
  Answer("b", id, pb::DRAIN_STATE_SAFE);
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
  DrainTargets many;
  for (size_t i = 0; i < DrainBook::kMostAddresses; ++i) many.addresses.push_back("10.2.0." + std::to_string(i));
  EXPECT_TRUE(book_.Grow(id, many));
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  EXPECT_EQ(Show(id), "a safe, b safe, refused");
  EXPECT_THAT(book_.Show(id, hosts_, crossing_, now_ns_).note(), HasSubstr("3 ports that became known later"));
}

// An agent that is stopped is connected still.
TEST_F(DrainBookTest, AnAnswerThatIsNotRepeatedHoldsNoLonger) {
  const uint64_t id = Add("switch", "spine1");
  pb::DrainReport report;
  report.add_answers()->set_id(id);
  report.mutable_answers(0)->set_state(pb::DRAIN_STATE_SAFE);
  report.mutable_answers(0)->set_targets(2);
  book_.Take("a", report, kNow);
  Answer("b", id, pb::DRAIN_STATE_SAFE);
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
  now_ns_ = kNow + DrainBook::kAnswerHoldsNs + 1;
  EXPECT_EQ(Show(id), "a asked, b safe, under way") << "b is of a release that says it once";
  EXPECT_THAT(book_.Show(id, hosts_, crossing_, now_ns_).hosts(0).words(), HasSubstr("answers no more since 8 s"));
  book_.Take("a", report, now_ns_);
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
}

TEST_F(DrainBookTest, AHostOfWhichNothingWasHeardMayCrossIt) {
  const uint64_t id = Add("switch", "spine1");
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  hosts_["c"] = {.unheard = true};
  EXPECT_EQ(Show(id), "a safe, b safe, c not connected, refused");
  EXPECT_THAT(book_.Show(id, hosts_, crossing_, now_ns_).hosts(2).words(), HasSubstr("cwctl fleet remove c"));
  hosts_["c"] = {.connected = true, .unheard = true};
  EXPECT_EQ(Show(id), "a safe, b safe, c not allowed, refused");
  hosts_["c"].unheard = false;
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
}

// One of them says that it is safe, whichever it is.
TEST_F(DrainBookTest, WhereTwoAgentsSpeakAsOneHostItsWordCountsForNothing) {
  const uint64_t id = Add("switch", "spine1");
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  hosts_["a"].twins = "two agents speak as a, from 10.0.0.1 and from 10.0.0.2";
  EXPECT_EQ(Show(id), "a asked, b safe, under way");
  EXPECT_THAT(book_.Show(id, hosts_, crossing_, now_ns_).hosts(0).words(), HasSubstr("from 10.0.0.1 and"));
}

TEST_F(DrainBookTest, AHostThatIsDrainedMayGo) {
  hosts_["h1"] = {.connected = true, .takes = true};
  const uint64_t id = Add("host", "h1");
  const pb::DrainOrders own = book_.OrdersFor("h1", kNow), others = book_.OrdersFor("a", kNow);
  ASSERT_THAT(own.orders(), SizeIs(1));
  EXPECT_EQ(own.orders(0).targets(1).what(), "eth1");
  EXPECT_EQ(own.orders(0).targets(1).kind(), pb::DRAIN_KIND_NIC);
  EXPECT_EQ(others.orders(0).targets(0).what(), "10.0.0.1");
  EXPECT_EQ(others.orders(0).targets(0).kind(), pb::DRAIN_KIND_LINK);
  EXPECT_TRUE(others.orders(0).now()) << "its flows have nowhere to go: it is watched";
  for (const char* host : {"a", "b"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  EXPECT_EQ(Show(id), "a safe, b safe, h1 asked, under way");
  Answer("h1", id, pb::DRAIN_STATE_SAFE);
  hosts_["h1"].connected = false;
  book_.Forget("h1");
  EXPECT_EQ(Show(id), "a safe, b safe, safe");
}

// Its agent ended while its queue pairs were still there, as far as anybody knows.
TEST_F(DrainBookTest, WhoWasAskedAndWentBeforeItWasSafeStaysInTheWay) {
  hosts_["h1"] = {.connected = true, .takes = true};
  const uint64_t id = Add("host", "h1");
  for (const char* host : {"a", "b", "h1"}) (void)book_.OrdersFor(host, kNow);
  Answer("a", id, pb::DRAIN_STATE_SAFE);
  Answer("b", id, pb::DRAIN_STATE_UNDER_WAY);
  crossing_.hosts = {};
  for (const char* host : {"b", "h1"}) {
    hosts_[host].connected = false;
    book_.Forget(host);
  }
  EXPECT_EQ(Show(id), "a safe, b not connected, h1 not connected, refused");
  EXPECT_THAT(book_.Show(id, hosts_, crossing_, now_ns_).hosts(2).words(), HasSubstr("start its agent"));
  hosts_["h1"].connected = hosts_["b"].connected = true;
  for (const char* host : {"b", "h1"}) Answer(host, id, pb::DRAIN_STATE_SAFE);
  EXPECT_EQ(Show(id), "a safe, b safe, h1 safe, safe");
}

TEST_F(DrainBookTest, OrdersEndByTheirTimeAndOutliveTheService) {
  const uint64_t id = Add("link", "10.1.0.1", 60), other = Add("switch", "spine1");
  EXPECT_EQ(book_.OrdersFor("a", kNow + 20 * kSecond).orders(0).left_s(), 40);
  EXPECT_EQ(book_.OrdersFor("a", kNow).orders(1).left_s(), 0);
  DrainBook again("one");
  for (const uint64_t each : {id, other}) ASSERT_TRUE(again.Resume(DrainBook::BodyOf(*book_.Find(each))).ok());
  EXPECT_EQ(again.OrdersFor("a", kNow).SerializeAsString(), book_.OrdersFor("a", kNow).SerializeAsString());
  EXPECT_THAT(again.Over(kNow + 59 * kSecond), IsEmpty());
  EXPECT_THAT(again.Over(kNow + 60 * kSecond), ElementsAre(id));
  EXPECT_THAT(again.OrdersFor("a", kNow + 60 * kSecond).orders(), SizeIs(1)) << "even before anybody ended it";
  EXPECT_FALSE(again.Resume("nonsense").ok());
}

TEST_F(DrainBookTest, RefusesASecondOneAndTooMany) {
  Add("switch", "spine1");
  EXPECT_TRUE(absl::IsAlreadyExists(book_.Add({}, *FindTargets("switch", "10.1.0.1", kFabric), "bob", kNow).status()));
  DrainTargets large{.scope = DrainScope::kSwitch, .name = "s"};
  large.addresses.resize(DrainBook::kMostAddresses + 1);
  EXPECT_TRUE(absl::IsResourceExhausted(book_.Add({}, large, "bob", kNow).status()));
  for (size_t i = 1; i < DrainBook::kMost; ++i)
    ASSERT_TRUE(book_.Add({}, {.name = std::to_string(i), .addresses = {"10.0.0.1"}}, "bob", kNow).ok());
  EXPECT_TRUE(absl::IsResourceExhausted(book_.Add({}, {.name = "x"}, "bob", kNow).status()));
}

TEST_F(DrainBookTest, RefusesATimeThatCannotBe) {
  const DrainTargets targets = *FindTargets("switch", "spine1", kFabric);
  pb::FleetDrainRequest request;
  for (const double seconds : {-1.0, -1e300, 1e300, DrainBook::kMostSeconds + 1,
                               std::numeric_limits<double>::infinity(), std::numeric_limits<double>::quiet_NaN()}) {
    request.set_for_s(seconds);
    const absl::Status refused = book_.Add(request, targets, "bob", kNow).status();
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << seconds;
    EXPECT_THAT(std::string(refused.message()), HasSubstr("--for 8h")) << seconds;
  }
  EXPECT_TRUE(book_.empty());
  request.set_for_s(DrainBook::kMostSeconds);
  EXPECT_TRUE(book_.Add(request, targets, "bob", kNow).ok());
}

TEST_F(DrainBookTest, IsFoundByNameAddressAndId) {
  const uint64_t id = Add("switch", "spine1");
  pb::FleetUndrainRequest request;
  for (const std::string& name : {std::string("spine1"), std::string("10.1.0.3"), IdText(id)}) {
    request.set_name(name);
    EXPECT_THAT(*book_.Named(request), ElementsAre(id)) << name;
  }
  request.set_name("spine2");
  EXPECT_TRUE(absl::IsNotFound(book_.Named(request).status()));
  request.set_all(true);
  EXPECT_THAT(*book_.Named(request), SizeIs(1));
}

// What a host sends fills neither memory nor tables.
TEST_F(DrainBookTest, WhatHostsSayIsBounded) {
  const uint64_t id = Add("switch", "spine1");
  pb::DrainReport report;
  pb::DrainAnswer& answer = *report.add_answers();
  answer.set_id(id);
  answer.set_words(std::string(100'000, 'x'));
  for (int i = 0; i < 10'000; ++i) answer.add_held(std::string(1000, 'y'));
  report.add_answers()->set_id(4711);
  book_.Take("a", report, kNow);
  EXPECT_LT(book_.Show(id, hosts_, crossing_, now_ns_).ByteSizeLong(), 4000u);
}

// A character at the cut, in what the store keeps and in what is answered.
TEST_F(DrainBookTest, WhatIsCutCanBeReadAgain) {
  pb::FleetDrainRequest request;
  request.set_reason(std::string(DrainBook::kMostWords - 1, 'x') + "\u00fc");
  const uint64_t id = *book_.Add(request, *FindTargets("switch", "spine1", kFabric), "alice", kNow);
  EXPECT_EQ(book_.Find(id)->reason(), std::string(DrainBook::kMostWords - 1, 'x'));
  DrainBook again("one");
  EXPECT_TRUE(again.Resume(DrainBook::BodyOf(*book_.Find(id))).ok());
  pb::DrainReport report;
  pb::DrainAnswer& answer = *report.add_answers();
  answer.set_id(id);
  answer.set_words(std::string(DrainBook::kMostWords - 2, 'x') + "\u20ac");
  answer.add_held(std::string(DrainBook::kMostFlowBytes - 1, 'x') + "\u20ac");
  book_.Take("a", report, kNow);
  pb::FleetDrain read;
  ASSERT_TRUE(read.ParseFromString(book_.Show(id, hosts_, crossing_, now_ns_).SerializeAsString()));
  EXPECT_EQ(read.hosts(0).words(), std::string(DrainBook::kMostWords - 2, 'x'));
}

LinkId Link(const char* from, const char* to) { return {*Addr::Parse(from), *Addr::Parse(to)}; }

TEST_F(DrainBookTest, ExplainsWhatIsADrainedPartAndNothingElse) {
  const pb::FleetDrain spine = *book_.Find(Add("switch", "spine1"));
  EXPECT_TRUE(Explains(spine, {.cause = Cause::kSwitchDead, .scope = "switch spine1"}));
  EXPECT_FALSE(Explains(spine, {.cause = Cause::kSwitchDead, .scope = "switch spine11"}));
  EXPECT_TRUE(Explains(spine, {.cause = Cause::kLinkDead, .links = {Link("10.9.0.1", "10.1.0.3")}}));
  EXPECT_TRUE(Explains(spine, {.cause = Cause::kLinkGrey, .links = {Link("10.1.0.3", "10.9.0.1")}})) << "from it";
  EXPECT_FALSE(Explains(spine, {.cause = Cause::kLinkDead, .links = {Link("10.9.0.1", "10.9.0.3")}}));
  EXPECT_FALSE(Explains(
      spine, {.cause = Cause::kLinkDead, .links = {Link("10.9.0.1", "10.1.0.3"), Link("10.9.0.1", "10.9.0.3")}}));
  EXPECT_FALSE(Explains(spine, {.cause = Cause::kCongestion, .links = {Link("10.9.0.1", "10.1.0.3")}}));
  EXPECT_FALSE(Explains(spine, {.cause = Cause::kAgentGone, .scope = "host h1"}));
  const pb::FleetDrain link = *book_.Find(Add("link", "10.1.0.1"));
  EXPECT_TRUE(Explains(link, {.cause = Cause::kLinkDead, .links = {Link("10.9.0.1", "10.1.0.1")}}));
  EXPECT_TRUE(Explains(link, {.cause = Cause::kLinkDead, .links = {Link("10.9.0.1", "10.2.0.1")}})) << "the way back";
  EXPECT_FALSE(Explains(link, {.cause = Cause::kLinkDead, .links = {Link("10.1.0.1", "10.9.0.1")}}));
  EXPECT_FALSE(Explains(link, {.cause = Cause::kSwitchDead, .scope = "switch spine1"}));
  const pb::FleetDrain host = *book_.Find(Add("host", "h1"));
  for (const char* scope : {"host h1", "NIC 10.0.1.1", "NIC eth0 of h1"})
    EXPECT_TRUE(Explains(host, {.cause = Cause::kNicDown, .scope = scope})) << scope;
  EXPECT_FALSE(Explains(host, {.cause = Cause::kNicDown, .scope = "NIC 10.0.0.2"}));
  EXPECT_THAT(book_.MutedBy([](const pb::FleetDrain& d) { return d.kind() == "link"; }),
              "the drain of link leaf1 > spine1 at 10.1.0.1 by alice (new optics)");
}

class MuteBookTest : public ::testing::Test {
 protected:
  // Alerts: "1+" begins, "1-" ends.
  std::string Take(std::vector<Finding> changed) {
    for (const Finding& f : changed) {
      std::erase_if(open_, [&](const Finding& o) { return o.id == f.id; });
      if (f.end_ns == 0) open_.push_back(f);
    }
    const MuteBook::News news = book_.Take(
        changed, open_, [&](const Finding&) { return by_; }, 99);
    std::string text;
    for (const Finding& f : news.alerts) text += std::to_string(f.id) + (f.end_ns == 0 ? "+" : "-");
    kept_ = news.keep.empty() ? "nothing" : news.keep.back().second;
    return text;
  }

  MuteBook book_;
  std::vector<Finding> open_;
  std::string by_, kept_;
};

TEST_F(MuteBookTest, AMutedFindingAlarmsNobody) {
  by_ = "drain";
  EXPECT_EQ(Take({{.id = 1}}), "");
  EXPECT_EQ(kept_, "drain");
  EXPECT_TRUE(book_.IsMuted(1));
  EXPECT_EQ(Take({}), "");
  EXPECT_EQ(kept_, "nothing");
  EXPECT_EQ(Take({{.id = 1, .end_ns = 5}}), "");
  EXPECT_EQ(kept_, "drain") << "history says by what";
  EXPECT_EQ(book_.muted(), 0u);
}

TEST_F(MuteBookTest, OneThatIsMutedLaterEndsAndComesBackWithTheDrainsEnd) {
  EXPECT_EQ(Take({{.id = 1}}), "1+");
  by_ = "drain";
  EXPECT_EQ(Take({}), "1-");
  EXPECT_EQ(Take({{.id = 1}}), "") << "news of it is none";
  by_ = "";
  EXPECT_EQ(Take({}), "1+");
  EXPECT_EQ(kept_, "");
  EXPECT_EQ(Take({}), "");
  EXPECT_EQ(Take({{.id = 1, .end_ns = 5}}), "1-");
}

TEST_F(MuteBookTest, GoesOnAfterARestart) {
  open_ = {{.id = 1}, {.id = 2}};
  book_.Resume({.id = 1}, "drain");
  book_.Resume({.id = 2}, "");
  EXPECT_EQ(Take({}), "1+") << "its drain ended meanwhile";
  EXPECT_EQ(Take({{.id = 2, .end_ns = 5}}), "2-");
}

}  // namespace
}  // namespace cw::fleet
