// SPDX-License-Identifier: Apache-2.0
//
// The clock part of the agent, several hosts of it, with links and claims carried by hand: what it tells people.
#include "userspace/agent/fleet_clock/clock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "sync/neighbours.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/fleet_clock/clock_anchor.h"
#include "userspace/agent/fleet_clock/clock_events.h"
#include "userspace/agent/fleet_clock/clock_view.h"

namespace cw::agent {
namespace {

namespace v1 = ::cwfabric::v1;

using sync::SyncState;
using ::testing::HasSubstr;

constexpr int64_t kRoundNs = 100'000'000;
constexpr int64_t kStartNs = 1000 * kSecond;

// Hosts whose clocks are known. Links are exact but for an asymmetry; claims arrive in the round in which they are
// made.
class Fleet {
 public:
  explicit Fleet(int hosts) {
    for (int i = 0; i < hosts; ++i)
      hosts_.push_back({.name = Name(i), .offset_ns = i * 100'000'000, .rate = (i - hosts / 2) * 20e-6});
    for (int i = 0; i < hosts; ++i) Start(i);
  }

  static std::string Name(int host) { return absl::StrCat("h", host); }

  void Start(int host) {
    std::vector<std::string> peers;
    for (const Host& other : hosts_) {
      if (other.name != Name(host)) peers.push_back(other.name);
    }
    hosts_[static_cast<size_t>(host)].clock = std::make_unique<FleetClock>(Name(host), ++starts_);
    clock(host).SetPeers(peers);
  }
  void Stop(int host) { hosts_[static_cast<size_t>(host)].clock.reset(); }
  bool Runs(int host) const { return hosts_[static_cast<size_t>(host)].clock != nullptr; }

  int64_t Local(int host) const {
    const Host& h = hosts_[static_cast<size_t>(host)];
    return true_ns_ + h.offset_ns + std::llround(h.rate * static_cast<double>(true_ns_ - kStartNs));
  }

  void Run(double seconds) {
    for (const int64_t until_ns = true_ns_ + std::llround(seconds * 1e9); true_ns_ < until_ns; true_ns_ += kRoundNs)
      Round();
  }

  FleetClock& clock(int host) { return *hosts_[static_cast<size_t>(host)].clock; }
  int64_t FleetNs(int host) { return clock(host).now().ToFleetNs(Local(host)); }
  v1::ClockReply Reply(int host) { return MakeClockReply(clock(host), Local(host), "none", ""); }
  std::vector<telemetry::Event>& events(int host) { return events_[host]; }
  int CountEvents(int host, const std::string& text) {
    int count = 0;
    for (const telemetry::Event& event : events_[host]) count += event.text.find(text) != std::string::npos;
    return count;
  }

  std::map<int, int64_t> lie_ns;  // added to what a host claims
  std::map<int, sync::AnchorReading> anchors;
  int64_t link_error_ns = 100;

 private:
  struct Host {
    std::string name;
    int64_t offset_ns = 0;
    double rate = 0;
    std::unique_ptr<FleetClock> clock;
  };

  void Round() {
    const int n = static_cast<int>(hosts_.size());
    for (int i = 0; i < n; ++i) {
      for (int j = 0; j < n; ++j) {
        if (i == j || !Runs(i) || !Runs(j)) continue;
        sync::FleetClaim claim = clock(j).Claim();
        claim.offset_ns += lie_ns[j];
        clock(i).OnClaim(Name(j), claim, Local(i));
      }
    }
    for (int i = 0; i < n; ++i) {
      if (!Runs(i)) continue;
      std::vector<ClockLink> links;
      for (int j = 0; j < n; ++j) {
        if (i == j || !Runs(j)) continue;
        sync::Estimate e{.state = SyncState::kSynchronised, .offset_ns = Local(j) - Local(i)};
        e.slope_ppb = (hosts_[static_cast<size_t>(j)].rate - hosts_[static_cast<size_t>(i)].rate) * 1e9;
        e.error_est_ns = link_error_ns;
        e.settled = true;
        e.bound_ns = 5'200;
        e.min_rtt_ns = 10'000;
        links.push_back(
            {.peer = Name(j), .pair = static_cast<uint32_t>(j), .address = "10.0.0.1", .nic = "eth0", .estimate = e});
      }
      for (telemetry::Event& event : clock(i).Round(Local(i), links, anchors[i]))
        events_[i].push_back(std::move(event));
    }
  }

  std::vector<Host> hosts_;
  std::map<int, std::vector<telemetry::Event>> events_;
  int64_t true_ns_ = kStartNs;
  uint64_t starts_ = 0;
};

void ExpectAgreement(Fleet& fleet, const std::vector<int>& hosts) {
  for (int i : hosts) {
    EXPECT_EQ(fleet.clock(i).now().state, SyncState::kSynchronised)
        << "h" << i << " " << TroubleText(fleet.clock(i).now());
    for (int j : hosts) {
      EXPECT_LE(std::abs(fleet.FleetNs(i) - fleet.FleetNs(j)), 1'000)
          << "h" << i << " h" << j << ": ten times the links' error";
      EXPECT_EQ(fleet.clock(i).Claim().timeline, fleet.clock(j).Claim().timeline);
    }
  }
}

// Six hosts that all compare with all; hosts tell their links as the agents do.
MeshAudit AuditOf(const std::function<int64_t(int from, int to)>& disagreement_ns, int64_t asked_ns = kStartNs) {
  constexpr int kHosts = 6;
  std::vector<std::string> names;
  for (int i = 0; i < kHosts; ++i) names.push_back(Fleet::Name(i));
  std::vector<std::vector<LinkReport>> links(kHosts);
  for (int i = 0; i < kHosts; ++i) {
    for (int j = 0; j < kHosts; ++j) {
      if (i == j) continue;
      links[static_cast<size_t>(i)].push_back({.peer_id = sync::HostId(Fleet::Name(j)),
                                               .disagreement_ns = disagreement_ns(i, j) + (i * 7 + j * 3) % 11 - 5,
                                               .error_ns = 50});
    }
  }
  LinkBook book(Fleet::Name(0));
  book.SetNames(names);
  for (int i = 1; i < kHosts; ++i) book.OnReport(Fleet::Name(i), links[static_cast<size_t>(i)], kStartNs);
  return book.Audit(links[0], asked_ns);
}

TEST(LinkBook, NamesAnAsymmetricLinkBetweenOthers) {
  const MeshAudit audit = AuditOf([](int from, int to) {
    if (from == 2 && to == 4) return 3000;
    return from == 4 && to == 2 ? -3000 : 0;
  });
  int suspects = 0;
  for (const AuditedLink& link : audit.links) {
    const bool is_it = (link.from == "h2" && link.to == "h4") || (link.from == "h4" && link.to == "h2");
    EXPECT_EQ(link.suspect, is_it) << link.from << " " << link.to << " " << link.deviations;
    suspects += link.suspect;
  }
  EXPECT_EQ(suspects, 2);
  EXPECT_TRUE(audit.suspect_hosts.empty());
  EXPECT_EQ(audit.links.size(), 30u);
}

TEST(LinkBook, FleetTimesThatStandApartAreNoFaultOfALink) {
  for (const AuditedLink& link : AuditOf([](int from, int to) { return (to - from) * 1000; }).links) {
    EXPECT_FALSE(link.suspect) << link.from << " " << link.to << " " << link.residual_ns;
  }
}

TEST(LinkBook, OldReportsAreLeftOutAndStrangersHaveLabels) {
  EXPECT_EQ(AuditOf([](int, int) { return 0; }, kStartNs + 6 * kSecond).links.size(), 5u) << "its own alone";
  LinkBook book("h0");
  book.SetNames({"h0", "h1"});
  book.OnReport("h1", {{.peer_id = sync::HostId("far"), .disagreement_ns = 1, .error_ns = 1}}, 0);
  const MeshAudit audit = book.Audit({}, 0);
  ASSERT_EQ(audit.links.size(), 1u);
  EXPECT_EQ(audit.links[0].from, "h1");
  EXPECT_EQ(audit.links[0].to, sync::HostLabel(sync::HostId("far")));
}

TEST(FleetClock, BothEndsOfMostLinksChooseThemForFasterProbes) {
  constexpr int kHosts = 40;
  constexpr size_t kFast = 4;
  std::vector<std::string> names;
  for (int i = 0; i < kHosts; ++i) names.push_back(absl::StrCat("host", i));
  std::vector<std::unique_ptr<FleetClock>> clocks;
  for (const std::string& name : names) {
    clocks.push_back(std::make_unique<FleetClock>(name, 1));
    clocks.back()->SetPeers(names, kFast);
  }
  int chosen = 0, by_both = 0;
  for (int i = 0; i < kHosts; ++i) {
    size_t fast = 0;
    for (int j = 0; j < kHosts; ++j) {
      if (!clocks[static_cast<size_t>(i)]->IsFast(names[static_cast<size_t>(j)])) continue;
      EXPECT_TRUE(clocks[static_cast<size_t>(i)]->IsNeighbour(names[static_cast<size_t>(j)]));
      ++fast;
      by_both += clocks[static_cast<size_t>(j)]->IsFast(names[static_cast<size_t>(i)]);
    }
    EXPECT_EQ(fast, kFast);
    chosen += static_cast<int>(fast);
  }
  EXPECT_GE(by_both * 2, chosen) << "at least half, where independent draws would make two fifths";
}

TEST(AgentClock, HostsAgreeAndTellItOnce) {
  Fleet fleet(5);
  fleet.Run(20);
  ExpectAgreement(fleet, {0, 1, 2, 3, 4});
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(fleet.CountEvents(i, "fleet time is synchronised: likely within"), 1);
    EXPECT_EQ(fleet.CountEvents(i, "false ticker"), 0);
    const telemetry::Event& event = fleet.events(i).back();
    EXPECT_EQ(event.type, "clock");
    EXPECT_EQ(event.evidence[0].first, "timeline");
    EXPECT_EQ(event.evidence[0].second, TimelineName(fleet.clock(i).Claim().timeline));
  }
}

// What scatters may be far more than what is proven.
TEST(AgentClock, NoViewSaysThatMoreIsLikelyThanIsPossible) {
  Fleet fleet(5);
  fleet.link_error_ns = 352'799'500;
  fleet.Run(20);
  for (int i = 0; i < 5; ++i) {
    const sync::FleetTime& time = fleet.clock(i).now();
    EXPECT_LE(time.error_est_ns, time.bound_ns);
    EXPECT_LE(fleet.clock(i).Claim().error_est_ns, time.bound_ns);
    const v1::ClockTracking t = fleet.Reply(i).tracking();
    EXPECT_LE(t.error_est_ns(), t.bound_ns());
    for (const telemetry::Event& event : fleet.events(i)) {
      std::map<std::string, int64_t> numbers;
      for (const auto& [name, value] : event.evidence) (void)absl::SimpleAtoi(value, &numbers[name]);
      EXPECT_LE(numbers["error_est_ns"], numbers["bound_ns"]) << event.text;
    }
    EXPECT_EQ(fleet.CountEvents(i, "352799.5 us"), 0);
  }
}

TEST(AgentClock, TheReplyIsCoherent) {
  Fleet fleet(5);
  fleet.Run(20);
  for (int i = 0; i < 5; ++i) {
    const v1::ClockReply reply = fleet.Reply(i);
    const v1::ClockTracking& t = reply.tracking();
    EXPECT_EQ(t.state(), v1::ClockTracking::STATE_SYNCHRONISED);
    EXPECT_EQ(t.why(), "");
    EXPECT_EQ(t.timeline().size(), 16u);
    EXPECT_EQ(t.fleet_ns(), t.local_ns() + t.offset_ns());
    EXPECT_NEAR(static_cast<double>(t.fleet_ns()),
                static_cast<double>(t.local_ns() + t.line_offset_ns()) +
                    t.rate_ppb() * 1e-9 * static_cast<double>(t.local_ns() - t.line_ns()),
                300);
    EXPECT_EQ(t.neighbours(), 4u);
    EXPECT_EQ(t.peers(), 4u);
    EXPECT_GE(t.neighbours_used(), 2u);
    EXPECT_FALSE(t.has_tai());
    ASSERT_EQ(reply.sources().sources_size(), 4);
    for (const v1::ClockSource& source : reply.sources().sources()) {
      EXPECT_TRUE(source.letter() == "*" || source.letter() == "+") << source.name() << " " << source.letter();
      EXPECT_EQ(source.timeline(), t.timeline());
      EXPECT_EQ(source.link().state(), v1::PeerClock::STATE_SYNCED);
    }
    EXPECT_EQ(reply.mesh().links_size(), 4);
    EXPECT_EQ(reply.mesh().suspects(), "");
    double sum_ns = 0;
    for (const v1::ClockBoundTerm& term : reply.bound().terms()) sum_ns += term.ns();
    EXPECT_NEAR(sum_ns, reply.bound().bound_ns(), 1.5);
    EXPECT_EQ(reply.bound().bound_ns(), t.bound_ns());
    EXPECT_FALSE(t.reference().empty());
    if (t.reference() == t.host_name()) {
      EXPECT_EQ(t.hops(), 0u);
    } else {
      EXPECT_GE(t.bound_ns(), 5'000) << "half a round trip cannot be excluded";
      EXPECT_LT(t.bound_ns(), 50'000);
    }
  }
}

TEST(AgentClock, ALiarIsNamedWithEvidenceAndClearedWhenItStops) {
  Fleet fleet(7);
  fleet.Run(20);
  fleet.lie_ns[3] = 200'000;
  fleet.Run(10);
  ExpectAgreement(fleet, {0, 1, 2, 4, 5, 6});
  EXPECT_EQ(fleet.CountEvents(0, "h3 is a false ticker: its fleet time differs by"), 1);
  for (const telemetry::Event& event : fleet.events(0)) {
    if (event.text.find("false ticker") == std::string::npos) continue;
    EXPECT_EQ(event.peer, "h3");
    EXPECT_EQ(event.severity, telemetry::Severity::kAlert);
    EXPECT_EQ(event.evidence[0].first, "disagreement_ns");
    EXPECT_NEAR(std::stod(event.evidence[0].second), 200'000, 10'000);
  }
  const v1::ClockReply reply = fleet.Reply(0);
  for (const v1::ClockSource& source : reply.sources().sources())
    EXPECT_EQ(source.letter() == "x", source.name() == "h3") << source.name();
  EXPECT_THAT(reply.mesh().suspects(), HasSubstr("h0–h3"));
  fleet.lie_ns.clear();
  fleet.Run(60);
  EXPECT_EQ(fleet.CountEvents(0, "h3 agrees with the majority again"), 1);
  ExpectAgreement(fleet, {0, 1, 2, 3, 4, 5, 6});
}

TEST(AgentClock, HalfOfTheNeighboursLyingIsRefusedAndSaid) {
  Fleet fleet(9);
  fleet.Run(20);
  for (int liar : {1, 2, 3, 4}) fleet.lie_ns[liar] = 300'000;
  fleet.Run(10);
  const v1::ClockReply reply = fleet.Reply(0);
  if (reply.tracking().state() == v1::ClockTracking::STATE_SYNCHRONISED) {
    // Five of nine hosts are honest, ourselves among them: then the honest ones must be followed.
    for (int other : {5, 6, 7, 8}) EXPECT_LE(std::abs(fleet.FleetNs(0) - fleet.FleetNs(other)), 1'000);
  } else {
    EXPECT_NE(reply.tracking().why(), "");
    EXPECT_GE(fleet.CountEvents(0, "refused"), 1);
  }
}

TEST(AgentClock, ARestartedHostRejoinsWithoutDisturbingTheOthers) {
  Fleet fleet(5);
  fleet.Run(20);
  const uint64_t timeline = fleet.clock(0).Claim().timeline;
  std::map<int, uint32_t> epochs;
  for (int i : {0, 1, 2, 4}) epochs[i] = fleet.clock(i).now().epoch;
  fleet.Stop(3);
  fleet.Run(5);
  fleet.Start(3);
  fleet.events(3).clear();
  fleet.Run(10);
  ExpectAgreement(fleet, {0, 1, 2, 3, 4});
  EXPECT_EQ(fleet.clock(3).Claim().timeline, timeline);
  EXPECT_EQ(fleet.CountEvents(3, "fleet time is synchronised"), 1);
  for (const auto& [host, epoch] : epochs) {
    EXPECT_EQ(fleet.clock(host).now().epoch, epoch) << "h" << host;
    EXPECT_EQ(fleet.CountEvents(host, "fleet time is synchronised"), 1) << "told once, at the start";
  }
}

TEST(AgentClock, ADisruptedHostSaysSoAndComesBack) {
  Fleet fleet(5);
  fleet.Run(20);
  fleet.clock(2).Disrupted(fleet.Local(2));
  EXPECT_EQ(fleet.Reply(2).tracking().state(), v1::ClockTracking::STATE_DISRUPTED);
  EXPECT_THAT(fleet.Reply(2).tracking().why(), HasSubstr("set or slept"));
  fleet.Run(10);
  ExpectAgreement(fleet, {0, 1, 2, 3, 4});
  EXPECT_EQ(fleet.CountEvents(2, "fleet time is synchronised"), 2);
}

TEST(AgentClock, AnchorsThatContradictEachOtherOrStepAreTold) {
  ClockEvents events;
  std::vector<telemetry::Event> told;
  std::vector<sync::AnchorVerdict> anchors(2);
  anchors[0].anchor_id = sync::HostId("a");
  anchors[1].anchor_id = sync::HostId("b");
  anchors[0].contradicts = anchors[1].contradicts = true;
  for (int i = 0; i < 20; ++i) events.LookAtAnchors(anchors, false, told);
  ASSERT_EQ(told.size(), 1u) << "once";
  for (const char* name : {"a", "b"}) EXPECT_THAT(told[0].text, HasSubstr(sync::HostLabel(sync::HostId(name))));
  for (int i = 0; i < 20; ++i) events.LookAtAnchors(anchors, true, told);  // a third one decides
  EXPECT_EQ(told.size(), 2u);
  anchors[1].stepped = true;
  for (int i = 0; i < 20; ++i) events.LookAtAnchors(anchors, true, told);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(told[2].text, HasSubstr("stepped"));
}

TEST(AgentClock, AnchorsThatSmearAreToldWithTheirNames) {
  ClockEvents events;
  std::vector<telemetry::Event> told;
  std::vector<sync::AnchorVerdict> anchors(3);
  for (size_t i = 0; i < 3; ++i) anchors[i].anchor_id = sync::HostId(std::string(1, static_cast<char>('a' + i)));
  anchors[2].smears = true;
  anchors[2].reason = sync::Reason::kFalseTicker;
  for (int i = 0; i < 40; ++i) events.LookAtAnchors(anchors, true, told);
  ASSERT_EQ(told.size(), 1u) << "once";
  EXPECT_THAT(told[0].text, HasSubstr("anchors smear a leap second: " + sync::HostLabel(sync::HostId("c"))));
  EXPECT_EQ(told[0].text.find(sync::HostLabel(sync::HostId("a"))), std::string::npos);
  anchors[2].smears = false;
  for (int i = 0; i < 200; ++i) events.LookAtAnchors(anchors, true, told);
  ASSERT_EQ(told.size(), 2u);
  EXPECT_THAT(told[1].text, HasSubstr("no anchor smears"));
  for (sync::AnchorVerdict& a : anchors) a.smears = true, a.reason = sync::Reason::kWaiting;
  for (int i = 0; i < 40; ++i) events.LookAtAnchors(anchors, true, told);
  ASSERT_EQ(told.size(), 3u);
  EXPECT_THAT(told[2].text, HasSubstr("No majority says which"));
}

TEST(AgentClock, AnAnchorsTaiReachesEveryHost) {
  Fleet fleet(5);
  fleet.Run(20);
  const int64_t tai_minus_local = 1'700'000'000 * kSecond;
  for (int second = 0; second < 30; ++second) {
    fleet.anchors[1] = {
        .has = true, .local_ns = fleet.Local(1), .tai_ns = fleet.FleetNs(1) + tai_minus_local, .bound_ns = 1'000'000};
    fleet.Run(1);
  }
  for (int i = 0; i < 5; ++i) {
    const v1::ClockReply reply = fleet.Reply(i);
    const v1::ClockTracking& t = reply.tracking();
    ASSERT_TRUE(t.has_tai()) << "h" << i;
    EXPECT_EQ(t.tai().hops(), i == 1 ? 0u : 1u);
    EXPECT_LE(std::abs(t.tai().offset_ns() - tai_minus_local), t.tai().bound_ns()) << "h" << i;
    EXPECT_EQ(t.tai().now_ns(), t.fleet_ns() + t.tai().offset_ns());
    ASSERT_EQ(reply.sources().anchors_size(), 1) << "h" << i;
    const v1::ClockAnchor& anchor = reply.sources().anchors(0);
    EXPECT_EQ(anchor.host(), "h1");
    EXPECT_EQ(anchor.reason(), v1::ClockSource::REASON_USED);
    EXPECT_EQ(anchor.hops(), i == 1 ? 0u : 1u);
    EXPECT_FALSE(anchor.smears());
  }
}

TEST(AgentClock, LateClaimsDoNotReplaceNewerOnes) {
  FleetClock clock("h0", 1);
  clock.SetPeers({"h1"});
  sync::FleetClaim newer, late, set_back;
  newer.host_id = late.host_id = set_back.host_id = sync::HostId("h1");
  newer.anchor_ns = 10 * kSecond;
  late.anchor_ns = newer.anchor_ns - kSecond / 2;
  set_back.anchor_ns = kSecond;
  const std::vector<ClockLink> links = {{.peer = "h1", .estimate = {.state = SyncState::kSynchronised}}};
  clock.OnClaim("h1", newer, kSecond);
  clock.OnClaim("h1", late, kSecond + 1);
  clock.OnClaim("stranger", late, kSecond + 1);
  clock.Round(kSecond + 2, links, {});
  ASSERT_EQ(clock.neighbours().size(), 1u);
  EXPECT_EQ(clock.neighbours()[0].claim.anchor_ns, newer.anchor_ns);
  set_back.host_id = sync::HostId("stranger");
  clock.OnClaim("h1", set_back, kSecond + 3);
  clock.Round(kSecond + 3, links, {});
  EXPECT_EQ(clock.neighbours()[0].claim.anchor_ns, newer.anchor_ns) << "a claim in another host's name";
  set_back.host_id = sync::HostId("h1");
  clock.OnClaim("h1", set_back, kSecond + 3);
  clock.Round(kSecond + 4, links, {});
  EXPECT_EQ(clock.neighbours()[0].claim.anchor_ns, set_back.anchor_ns) << "its clock was set back";
}

TEST(AgentClock, TheBestOfSeveralLinksIsTaken) {
  FleetClock clock("h0", 1);
  clock.SetPeers({"h1"});
  auto link = [](uint32_t pair, SyncState state, int64_t error_ns) {
    return ClockLink{.peer = "h1", .pair = pair, .estimate = {.state = state, .error_est_ns = error_ns}};
  };
  clock.Round(kSecond,
              {link(0, SyncState::kFreeRunning, 10), link(1, SyncState::kSynchronised, 90),
               link(2, SyncState::kSynchronised, 80)},
              {});
  EXPECT_EQ(clock.neighbours()[0].link.pair, 2u);
}

TEST(AgentClock, NeighboursAreFewAndMutual) {
  constexpr int kHosts = 60;
  std::vector<std::unique_ptr<FleetClock>> clocks;
  for (int i = 0; i < kHosts; ++i) {
    std::vector<std::string> peers;
    for (int j = 0; j < kHosts; ++j) {
      if (j != i) peers.push_back(Fleet::Name(j));
    }
    clocks.push_back(std::make_unique<FleetClock>(Fleet::Name(i), 1));
    clocks.back()->SetPeers(peers);
  }
  for (int i = 0; i < kHosts; ++i) {
    EXPECT_GE(clocks[static_cast<size_t>(i)]->neighbours().size(), 7u);
    EXPECT_LE(clocks[static_cast<size_t>(i)]->neighbours().size(), 14u) << "about log2 N, not N";
    EXPECT_EQ(clocks[static_cast<size_t>(i)]->peers(), size_t{kHosts - 1});
    for (int j = 0; j < kHosts; ++j) {
      EXPECT_EQ(clocks[static_cast<size_t>(i)]->IsNeighbour(Fleet::Name(j)),
                clocks[static_cast<size_t>(j)]->IsNeighbour(Fleet::Name(i)));
    }
  }
}

class Anchor : public ::testing::Test {
 protected:
  RealtimeAnchor Make(absl::Duration least = absl::Milliseconds(1)) {
    return RealtimeAnchor(local_, least,
                          {.adjtimex =
                               [this](timex* t) {
                                 *t = kernel_;
                                 return result_;
                               },
                           .tai_ns =
                               [this] {
                                 local_->Advance(100);
                                 return tai_ns_;
                               }});
  }
  Anchor() {
    kernel_.maxerror = 2'000;
    kernel_.tai = 37;
  }
  std::shared_ptr<ManualClock> local_ = std::make_shared<ManualClock>(5 * kSecond);
  timex kernel_{};
  int result_ = TIME_OK;
  int64_t tai_ns_ = 1'700'000'037 * kSecond;
};

TEST_F(Anchor, ReadsTaiWithTheKernelsBound) {
  RealtimeAnchor anchor = Make();
  const sync::AnchorReading reading = anchor.Read();
  ASSERT_TRUE(reading.has) << anchor.note();
  EXPECT_EQ(anchor.note(), "");
  EXPECT_EQ(reading.tai_ns, tai_ns_);
  EXPECT_EQ(reading.local_ns, 5 * kSecond + 50) << "the middle of the read";
  EXPECT_EQ(reading.bound_ns, 2'000'000 + 51);
}

TEST_F(Anchor, IsNeverCloserThanConfigured) {
  kernel_.maxerror = 0;  // as phc2sys leaves it
  RealtimeAnchor anchor = Make(absl::Microseconds(300));
  EXPECT_EQ(anchor.Read().bound_ns, 300'000 + 51);
}

TEST_F(Anchor, SaysWhyItIsNotUsed) {
  RealtimeAnchor anchor = Make();
  result_ = TIME_ERROR;
  EXPECT_FALSE(anchor.Read().has);
  EXPECT_THAT(anchor.note(), HasSubstr("start chronyd or phc2sys"));
  result_ = TIME_OK;
  kernel_.status = STA_UNSYNC;
  EXPECT_FALSE(anchor.Read().has);
  kernel_.status = 0;
  kernel_.tai = 0;
  EXPECT_FALSE(anchor.Read().has);
  EXPECT_THAT(anchor.note(), HasSubstr("leapsectz right/UTC"));
  kernel_.tai = 37;
  kernel_.maxerror = 16'000'000;
  EXPECT_FALSE(anchor.Read().has);
  kernel_.maxerror = 10;
  EXPECT_TRUE(anchor.Read().has);
  EXPECT_EQ(anchor.note(), "");
}

}  // namespace
}  // namespace cw::agent
