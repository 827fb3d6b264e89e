// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/discovery.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "absl/strings/escaping.h"
#include "tests/unit/probe_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/probe/path_monitor.h"

namespace cw::probe {
namespace {

// Leaf, spine, leaf: the spine follows from the port by a hash, as in ECMP. TTL 4 is the host, which never answers.
struct Fabric {
  int spines = 4;
  uint32_t salt = 1;
  std::set<int> silent_spines;  // forward, but send no ICMP
  std::set<int> cut_spines;     // forward nothing
  bool leaves_silent = false;
  enum { kPorts, kAddresses, kTtl, kSpray, kQpn, kQpnOnly } hash = kPorts;  // what the first leaf chooses by, besides
  double lost = 0;                                                          // share of answers lost
  std::mt19937 random{99};

  int SpineOf(uint16_t port, int ttl = 0) const {
    uint32_t h = (port + (salt + static_cast<uint32_t>(ttl) * 77) * 0x9e3779b1u) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return static_cast<int>((h ^ h >> 16) % static_cast<uint32_t>(spines));
  }
  std::optional<Addr> Answer(uint16_t port, int ttl, uint32_t qpn = CW_BTH_QPN) {
    int spine = SpineOf(hash == kAddresses ? 0 : port, hash == kTtl ? ttl : 0);
    if (hash == kSpray) spine = static_cast<int>(random() % static_cast<uint32_t>(spines));
    if (hash == kQpn) spine = SpineOf(static_cast<uint16_t>(port ^ qpn * 0x9e3779b1u >> 16));
    if (hash == kQpnOnly) spine = SpineOf(static_cast<uint16_t>(qpn * 0x9e3779b1u >> 16));
    if (ttl >= 4 || (ttl >= 2 && cut_spines.contains(spine))) return std::nullopt;
    if (ttl == 2 && silent_spines.contains(spine)) return std::nullopt;
    if (ttl != 2 && leaves_silent) return std::nullopt;
    if (std::uniform_real_distribution<>(0, 1)(random) < lost) return std::nullopt;
    if (ttl == 1) return Addr::FromV4(0x0a000001);
    if (ttl == 2) return Addr::FromV4(0x0a010000 + (spine << 8));
    return Addr::FromV4(0x0a010003 + (spine << 8));  // the remote leaf, from its port to that spine
  }
};

// Runs for a while; answers take 0.2 ms.
int SimulateDiscovery(Discovery& d, Fabric& f, int64_t& now, int64_t duration, double pps = 1000) {
  const int64_t end = now + duration;
  int sent = 0;
  std::map<int, int64_t> next_ok;
  for (; now < end; now += kMs) {
    const auto probes = d.Poll(now, [&](int ttl) {
      if (next_ok[ttl] > now) return false;
      next_ok[ttl] = now + static_cast<int64_t>(1e9 / pps);
      return true;
    });
    for (const TraceProbe& p : probes) {
      ++sent;
      EXPECT_EQ(p.ttl, p.ip_id & 7);
      EXPECT_NE(0, p.ip_id);
      if (auto a = f.Answer(p.port, p.ttl, p.qpn)) d.OnAnswer(p.port, p.ip_id, *a, now + 200'000);
    }
  }
  return sent;
}

std::set<int> SpinesOf(const PathTable& t, const Fabric& f) {
  std::set<int> s;
  for (const Path& p : t.paths) s.insert(f.SpineOf(p.port));
  return s;
}

int Count(const std::vector<DiscoveryEvent>& events, DiscoveryEvent::Kind kind) {
  return static_cast<int>(std::count_if(events.begin(), events.end(), [&](const auto& e) { return e.kind == kind; }));
}

TEST(Discovery, FindsEachPathOnceForTwoToEightSpines) {
  int missed = 0, runs = 0;
  for (int spines = 1; spines <= 8; ++spines) {
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      Fabric f{.spines = spines, .salt = static_cast<uint32_t>(seed * 7919)};
      Discovery d({.seed = seed}, {});
      int64_t now = 0;
      SimulateDiscovery(d, f, now, 10 * kSecond);
      ASSERT_TRUE(d.table().valid);
      EXPECT_EQ(d.table().paths.size(), SpinesOf(d.table(), f).size()) << "one slot per path";
      for (const Path& p : d.table().paths) {
        EXPECT_TRUE(p.known);
        EXPECT_EQ(3u, p.hops.size());
      }
      ++runs;
      missed += spines - static_cast<int>(d.table().paths.size());
      EXPECT_LE(d.ports_traced(), 60);
      EXPECT_TRUE(spines > 1 || d.ports_traced() <= 20) << "one path needs few ports";
    }
  }
  EXPECT_LE(missed, 4) << "of " << runs << " tables, each with a chance of about 1 % to miss one path";
}

Hashing Tested(Fabric f, uint64_t seed) {
  f.salt = static_cast<uint32_t>(seed * 7919);
  f.random.seed(seed);
  Discovery d({.seed = seed}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  EXPECT_EQ(Count(d.TakeEvents(), DiscoveryEvent::Kind::kHashing), d.hashing() == Hashing::kUnknown ? 0 : 1);
  return d.hashing();
}

TEST(SelfTest, TellsWhatSwitchesHashOn) {
  int missed_paths = 0, missed_spraying = 0, missed_ttl = 0, missed_qpn = 0;
  for (int spines : {2, 3, 4, 8}) {
    for (uint64_t seed = 1; seed <= 25; ++seed) {
      missed_paths += Tested({.spines = spines}, seed) != Hashing::kPorts;
      EXPECT_EQ(Hashing::kSinglePath, Tested({.spines = spines, .hash = Fabric::kAddresses}, seed));
      missed_ttl += Tested({.spines = spines, .hash = Fabric::kTtl}, seed) != Hashing::kTtl;
      for (auto hash : {Fabric::kQpn, Fabric::kQpnOnly})
        if (seed <= 8) missed_qpn += Tested({.spines = spines, .hash = hash}, seed) != Hashing::kQpn;
      missed_spraying += Tested({.spines = spines, .hash = Fabric::kSpray}, seed) != Hashing::kSprayed;
    }
  }
  EXPECT_LE(missed_paths, 2) << "all ports on one path, by chance";
  EXPECT_LE(missed_ttl, 3);
  EXPECT_LE(missed_spraying, 3);
  EXPECT_LE(missed_qpn, 2) << "of 64";
}

TEST(SelfTest, LostAnswersAndSilentSwitchesMakeNoSpraying) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    EXPECT_EQ(Hashing::kPorts, Tested({.spines = 4, .lost = 0.2}, seed));
    EXPECT_EQ(Hashing::kQpn, Tested({.spines = 4, .leaves_silent = true, .hash = Fabric::kQpn, .lost = 0.2}, seed));
    EXPECT_EQ(Hashing::kPorts, Tested({.spines = 4, .leaves_silent = true}, seed));
    EXPECT_EQ(Hashing::kUnknown, Tested({.spines = 2, .silent_spines = {0, 1}, .leaves_silent = true}, seed));
  }
}

TEST(SelfTest, OneChangeOfRoutesIsNeitherSprayingNorTtl) {
  for (int64_t at = 100 * kMs; at < 3 * kSecond; at += 100 * kMs) {
    Fabric f{.spines = 4};
    Discovery d({.seed = 5}, {});
    int64_t now = 0;
    SimulateDiscovery(d, f, now, at, /*pps=*/20);
    f.salt = 2;
    SimulateDiscovery(d, f, now, 100 * kSecond, /*pps=*/20);
    EXPECT_EQ(Hashing::kPorts, d.hashing()) << at;
    EXPECT_TRUE(d.table().valid);
    EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
  }
}

TEST(SelfTest, AFabricThatStopsSprayingIsFoundAgain) {
  Fabric f{.spines = 4, .hash = Fabric::kSpray};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_EQ(Hashing::kSprayed, d.hashing());
  std::vector<DiscoveryEvent> events = d.TakeEvents();
  EXPECT_EQ(0, Count(events, DiscoveryEvent::Kind::kInvalid)) << "what changes each time is not told each time";
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kHashing));
  f.hash = Fabric::kPorts;
  SimulateDiscovery(d, f, now, 60 * kSecond);
  EXPECT_EQ(Hashing::kPorts, d.hashing());
  EXPECT_EQ(4u, d.table().paths.size());
  EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
  // And the other way: the hops of a path differ, the table is built anew, and its test fails.
  f.hash = Fabric::kSpray;
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_EQ(Hashing::kSprayed, d.hashing());
}

// Switches that answer from one address each, whichever port the packet came in by.
TEST(SelfTest, LoopbackAddressesOfTheFarLeafAreNoContradiction) {
  std::map<uint16_t, Hops> traced;
  const auto address = [](int hop, int n) { return Addr::FromV4(static_cast<uint32_t>(0x0a000000 + hop * 256 + n)); };
  for (int port = 0; port < 40; ++port) {
    traced[static_cast<uint16_t>(port)] = {address(1, 0), address(2, port % 4), address(3, 0)};
  }
  EXPECT_FALSE(TracesContradict(traced));
  for (auto& [port, hops] : traced) hops[2] = address(3, port % 4);
  EXPECT_FALSE(TracesContradict(traced)) << "each port of the far leaf behind its own spine";
  for (auto& [port, hops] : traced) hops[2] = address(3, port / 4 % 4);
  EXPECT_TRUE(TracesContradict(traced));
}

// Four aggregation switches that each lead to all of four cores; each switch answers from one address. (With addresses
// of ports, the far leaf would show four.)
TEST(SelfTest, SwitchesWithOneAddressEachAndPathsThatMeetAreNoContradiction) {
  std::map<uint16_t, Hops> traced;
  const auto address = [](int hop, int n) { return Addr::FromV4(static_cast<uint32_t>(0x0a000000 + hop * 256 + n)); };
  for (int port = 0; port < 64; ++port) {
    traced[static_cast<uint16_t>(port)] = {address(1, 0), address(2, port % 4), address(3, port / 4 % 4),
                                           address(4, port / 16), address(5, 0)};
  }
  EXPECT_FALSE(TracesContradict(traced));
  for (auto& [port, hops] : traced) hops[4] = address(5, port % 4);  // the far leaf's four ports
  EXPECT_TRUE(TracesContradict(traced)) << "a port of a core with four switches in front of it";
}

// Leaf, four aggregation switches, four cores behind each, and again four aggregation switches that each core leads to.
TEST(SelfTest, PathsThatMeetAgainInThreeTiersAreNoContradiction) {
  std::map<uint16_t, Hops> traced;
  const auto address = [](int hop, int n) { return Addr::FromV4(static_cast<uint32_t>(0x0a000000 + hop * 256 + n)); };
  for (int port = 0; port < 64; ++port) {
    traced[static_cast<uint16_t>(port)] = {address(1, 0), address(2, port % 4), address(3, port % 16),
                                           address(4, port / 16)};
  }
  EXPECT_FALSE(TracesContradict(traced));
  for (auto& [port, hops] : traced) hops[2] = address(3, port / 4);  // a core does not belong to one aggregation switch
  EXPECT_TRUE(TracesContradict(traced));
}

TEST(Discovery, LostAnswersAreTriedAgain) {
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    Fabric f{.spines = 4, .lost = 0.1};
    f.random.seed(seed);
    Discovery d({.seed = seed}, {});
    int64_t now = 0;
    SimulateDiscovery(d, f, now, 30 * kSecond);
    ASSERT_TRUE(d.table().valid);
    int known = 0;
    std::set<int> spines;
    for (const Path& p : d.table().paths) {
      known += p.known;
      if (p.known) spines.insert(f.SpineOf(p.port));
    }
    EXPECT_EQ(4, known);
    EXPECT_EQ(4u, spines.size());
  }
}

TEST(Discovery, WithoutIcmpEveryPortIsItsOwnUnknownPath) {
  Fabric f{.spines = 4, .leaves_silent = true};
  f.silent_spines = {0, 1, 2, 3};
  Discovery d({}, {});
  int64_t now = 0;
  const int sent = SimulateDiscovery(d, f, now, 3 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(8u, d.table().paths.size());
  std::set<uint16_t> ports;
  for (const Path& p : d.table().paths) {
    EXPECT_FALSE(p.known);
    ports.insert(p.port);
  }
  EXPECT_EQ(8u, ports.size());
  EXPECT_LE(sent, 10 * 4 * 3) << "silence is not asked for ever";
  EXPECT_EQ(std::nullopt, d.Fold(d.table().paths[0].port));
  // ICMP is switched on: the next verification finds out.
  f.leaves_silent = false;
  f.silent_spines.clear();
  SimulateDiscovery(d, f, now, 60 * kSecond);
  EXPECT_EQ(4u, d.table().paths.size());
  for (const Path& p : d.table().paths) EXPECT_TRUE(p.known);
}

TEST(Discovery, ASilentSpineInBetweenIsNotFoldedByGuess) {
  Fabric f{.spines = 4, .leaves_silent = true};
  f.silent_spines = {2};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 60 * kSecond);
  ASSERT_TRUE(d.table().valid);
  std::set<int> known;
  for (const Path& p : d.table().paths) {
    if (p.known) known.insert(f.SpineOf(p.port));
  }
  EXPECT_TRUE(known.empty()) << "with a silent first hop no path is complete";
  f.leaves_silent = false;
  Discovery e({}, {});
  SimulateDiscovery(e, f, now, 60 * kSecond);
  std::set<int> unknown;
  known.clear();
  for (const Path& p : e.table().paths) (p.known ? known : unknown).insert(f.SpineOf(p.port));
  EXPECT_EQ((std::set<int>{0, 1, 3}), known);
  EXPECT_EQ((std::set<int>{2}), unknown);
  EXPECT_LE(e.table().paths.size(), 12u);
}

TEST(Discovery, AChangedRouteInvalidatesTheTableAndItIsBuiltAnew) {
  Fabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  ASSERT_TRUE(d.table().valid);
  d.TakeEvents();
  const uint64_t before = d.table().generation;
  SimulateDiscovery(d, f, now, 65 * kSecond);
  EXPECT_TRUE(d.TakeEvents().empty()) << "nothing changed";
  for (const Path& p : d.table().paths) EXPECT_LE(now - p.verified_ns, 32 * kSecond);
  f.salt = 12345;  // every port hashes anew
  bool was_invalid = false;
  for (int i = 0; i < 40'000 && !(was_invalid && d.table().valid); ++i) {
    SimulateDiscovery(d, f, now, kMs);
    was_invalid = was_invalid || !d.table().valid;
  }
  const auto events = d.TakeEvents();
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kInvalid));
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kTable));
  ASSERT_TRUE(d.table().valid);
  EXPECT_GT(d.table().generation, before);
  EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
}

// A spine goes, the hash is over three, and comes back half a second later: the usual verification would lean on the
// table of three for half a minute.
TEST(Discovery, WhileTheFabricIsInMotionItIsTracedOften) {
  Fabric f;
  Discovery d({.seed = 4}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 2 * kSecond);
  ASSERT_EQ(4u, d.table().paths.size());
  EXPECT_FALSE(d.InMotion());
  f.spines = 3;
  d.Doubt(now);  // some path died
  SimulateDiscovery(d, f, now, 3 * kSecond);
  EXPECT_TRUE(d.InMotion());
  EXPECT_EQ(3u, d.table().paths.size());
  f.spines = 4;
  SimulateDiscovery(d, f, now, 4 * kSecond);
  EXPECT_EQ(4u, d.table().paths.size()) << "without a doubt, by the hurried verification";
  EXPECT_TRUE(d.InMotion());
  d.TakeEvents();
  SimulateDiscovery(d, f, now, 70 * kSecond);
  EXPECT_FALSE(d.InMotion());
  const auto events = d.TakeEvents();
  EXPECT_EQ(1, Count(events, DiscoveryEvent::Kind::kCalm));
  EXPECT_EQ(0, Count(events, DiscoveryEvent::Kind::kInvalid));
}

TEST(Discovery, DoubtsCostOneLookASecond) {
  Fabric f;
  Discovery d({.seed = 4}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 2 * kSecond);
  int sent = 0;
  for (int i = 0; i < 100; ++i) {  // a path that flaps
    d.Doubt(now);
    sent += SimulateDiscovery(d, f, now, 10 * kMs);
  }
  EXPECT_GE(sent, 4 * 3);
  EXPECT_LE(sent, 2 * 4 * 4) << "four paths, at most four TTLs, twice";
  EXPECT_FALSE(d.InMotion());
}

TEST(Discovery, ASilentlyDeadSpineIsNoReasonToRebuild) {
  Fabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  const PathTable before = d.table();
  d.TakeEvents();
  f.cut_spines = {1};
  SimulateDiscovery(d, f, now, 100 * kSecond);
  EXPECT_TRUE(d.TakeEvents().empty());
  EXPECT_TRUE(d.table().valid);
  for (const Path& p : d.table().paths) {
    const int64_t age = now - p.verified_ns;
    if (f.SpineOf(p.port) == 1) {
      EXPECT_GT(age, 90 * kSecond) << "its age shows";
    } else {
      EXPECT_LT(age, 32 * kSecond);
    }
  }
}

TEST(Discovery, BuiltWhileASpineIsCutItTakesFewSlotsAndHealsLater) {
  Fabric f{.spines = 4};
  f.cut_spines = {1};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 40 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_LE(d.table().paths.size(), 5u) << "three paths, and at most two ports that end at the leaf";
  f.cut_spines.clear();
  SimulateDiscovery(d, f, now, 40 * kSecond);
  EXPECT_EQ(4u, d.table().paths.size());
  EXPECT_EQ(4u, SpinesOf(d.table(), f).size());
}

TEST(Discovery, NativePortsAreTracedOnDemandAndFold) {
  Fabric f{.spines = 4};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 5 * kSecond);
  d.TakeEvents();
  EXPECT_EQ(std::nullopt, d.Fold(0xd001));
  d.TracePort(0xd001);
  EXPECT_LE(d.NextDeadlineNs(), now);
  SimulateDiscovery(d, f, now, kSecond);
  const auto events = d.TakeEvents();
  ASSERT_EQ(1, Count(events, DiscoveryEvent::Kind::kTraced));
  ASSERT_TRUE(d.Fold(0xd001).has_value());
  EXPECT_EQ(f.SpineOf(0xd001), f.SpineOf(*d.Fold(0xd001)));
  EXPECT_EQ(4u, d.table().paths.size());
  d.Rebuild();
  EXPECT_FALSE(d.table().valid);
  SimulateDiscovery(d, f, now, 10 * kSecond);
  ASSERT_TRUE(d.Fold(0xd001).has_value()) << "and again in each build";
}

TEST(Discovery, AdoptedPortsStayThePathsPorts) {
  Fabric f{.spines = 4};
  Discovery first({.seed = 1}, {});
  int64_t now = 0;
  SimulateDiscovery(first, f, now, 5 * kSecond);
  std::vector<uint16_t> ports;
  for (const Path& p : first.table().paths) ports.push_back(p.port);
  Discovery second({.seed = 2}, ports);
  SimulateDiscovery(second, f, now, 5 * kSecond);
  std::vector<uint16_t> again;
  for (const Path& p : second.table().paths) again.push_back(p.port);
  EXPECT_EQ(ports, again);
}

TEST(Discovery, MoreThanTwelvePathsAreTruncated) {
  Fabric f{.spines = 16};
  Discovery d({.max_candidates = 100}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  EXPECT_EQ(12u, d.table().paths.size());
  EXPECT_TRUE(d.table().truncated);
}

TEST(Discovery, AnswersThatNobodyAskedForChangeNothing) {
  Fabric f{.spines = 2};
  Discovery d({}, {});
  int64_t now = 0;
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    SimulateDiscovery(d, f, now, kMs);
    d.OnAnswer(static_cast<uint16_t>(random()), static_cast<uint16_t>(random()),
               Addr::FromV4(0x0b000000 + random() % 9), now);
  }
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(2u, d.table().paths.size());
}

TEST(Hops, CertainHopsCompletesOnlyWhatIsUnambiguous) {
  const Addr a = Addr::FromV4(1), b = Addr::FromV4(2), c = Addr::FromV4(3), d = Addr::FromV4(4), none;
  const auto certain = CertainHops({{1, {a, b, c}}, {2, {a, b}}, {3, {a, none, c}}, {4, {a}}, {5, {a, d, c}}, {6, {}}});
  EXPECT_EQ((std::map<uint16_t, Hops>{{1, {a, b, c}}, {2, {a, b, c}}, {5, {a, d, c}}}), certain);
  EXPECT_FALSE(Conflict({a, b, c}, {a, none, c}));
  EXPECT_FALSE(Conflict({a, b, c}, {}));
  EXPECT_FALSE(Conflict({a, none, c}, {a, b, c}));
  EXPECT_TRUE(Conflict({a, b, c}, {a, d}));
  EXPECT_TRUE(Conflict({a, b}, {a, b, c}));
  EXPECT_EQ("0.0.0.1 *", HopsToString({a, none}));
}

TEST(Discovery, HopsOfACutPathDoNotEndAtTheLastSwitch) {
  Fabric f;
  f.cut_spines = {2};
  Discovery d({}, {});
  int64_t now = 0;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  ASSERT_TRUE(d.table().valid);
  for (const Path& p : d.table().paths) {
    EXPECT_EQ(d.EndsAtLastSwitch(p.port), f.SpineOf(p.port) != 2) << HopsToString(p.hops);
  }
  EXPECT_FALSE(d.EndsAtLastSwitch(1)) << "never traced";
}

TEST(PathMonitor, NoSwitchGetsMoreThanItsBudget) {
  PathMonitorOptions options;
  options.per_switch_pps = 10;
  std::map<int, std::vector<int64_t>> sent;  // by TTL
  int64_t now = 0;
  std::map<uint32_t, int> tables;
  Fabric f{.spines = 4};
  PathMonitor* self = nullptr;
  PathMonitor monitor(
      options,
      [&](uint32_t pair, const TraceProbe& p) {
        sent[p.ttl].push_back(now);
        if (auto a = f.Answer(p.port, p.ttl)) {
          const TraceAnswer answer{*a, TestAddr("10.0.0.10"), Addr::FromV4(0x0a00010a + pair), p.port, p.ip_id};
          self->OnAnswer(answer, now);
        }
      },
      [&](uint32_t pair, const DiscoveryEvent& e) { tables[pair] += e.kind == DiscoveryEvent::Kind::kTable; });
  self = &monitor;
  for (uint32_t i = 0; i < 4; ++i) {
    monitor.AddPair(i, PairKey{TestAddr("10.0.0.10"), Addr::FromV4(0x0a00010a + i)}, 2, {});
  }
  int ticks = 0;
  while (now < 60 * kSecond) {
    monitor.Tick(now);
    const int64_t next = monitor.NextTickNs(now);
    ASSERT_GT(next, now);
    now = std::min(next, now + kSecond);
    ++ticks;
  }
  for (const auto& [ttl, times] : sent) {
    for (size_t i = 10; i < times.size(); ++i) EXPECT_GE(times[i] - times[i - 10], kSecond - kMs) << "TTL " << ttl;
  }
  EXPECT_EQ(4u, tables.size()) << "every pair has its table";
  EXPECT_LT(ticks, 2000) << "no busy loop while the budget is used up";
  EXPECT_NE(nullptr, monitor.Find(3));
  monitor.RemovePair(3);
  EXPECT_EQ(nullptr, monitor.Find(3));
}

TEST(PathMonitor, PairsThatCarryDataComeFirst) {
  constexpr uint32_t kPairs = 200;
  std::map<uint32_t, int64_t> built_ns;
  int64_t now = 0;
  std::vector<std::pair<uint32_t, TraceProbe>> sent;
  PathMonitor m(
      {.per_switch_pps = 200}, [&](uint32_t pair, const TraceProbe& t) { sent.emplace_back(pair, t); },
      [&](uint32_t pair, const DiscoveryEvent& e) {
        if (e.kind == DiscoveryEvent::Kind::kTable) built_ns.try_emplace(pair, now);
      });
  const auto address = [](uint32_t pair) { return Addr::FromV4(0x0a020000 + pair); };
  for (uint32_t p = 0; p < kPairs; ++p) m.AddPair(p, {Addr::FromV4(1), address(p)}, 3, {});
  m.SetActive(150, true);
  Fabric f;
  for (; now < 10 * kSecond; now += kMs) {
    m.Tick(now);
    for (const auto& [pair, t] : std::exchange(sent, {})) {
      if (auto a = f.Answer(t.port, t.ttl)) m.OnAnswer({Addr::FromV4(1), address(pair), *a, t.port, t.ip_id}, now);
    }
  }
  ASSERT_TRUE(built_ns.contains(150));
  for (const auto& [pair, at_ns] : built_ns) EXPECT_GE(at_ns, built_ns[150]) << pair;
  EXPECT_GT(built_ns.size(), 1u) << "the others have the rest of the budget";
  EXPECT_LT(built_ns.size(), kPairs) << "there is enough to do for an order to matter";
}

// Pairs of one host with one fabric, whose answers come at once; time passes by milliseconds.
struct Monitored {
  explicit Monitored(PathMonitorOptions options)
      : monitor(
            options, [this](uint32_t pair, const TraceProbe& trace) { sent.emplace_back(pair, trace); },
            [this](uint32_t pair, const DiscoveryEvent& event) { events.emplace_back(now_ns, pair, event.kind); }) {}

  static Addr Remote(uint32_t pair) { return Addr::FromV4(0x0a020000 + pair); }
  void Add(uint32_t pair) { monitor.AddPair(pair, {Addr::FromV4(1), Remote(pair)}, 3, {}); }
  void Run(int64_t duration_ns) {
    for (const int64_t end_ns = now_ns + duration_ns; now_ns < end_ns; now_ns += kMs) {
      monitor.Tick(now_ns);
      for (const auto& [pair, t] : std::exchange(sent, {})) {
        ++traces[pair];
        if (auto a = fabric.Answer(t.port, t.ttl, t.qpn)) {
          monitor.OnAnswer({*a, Addr::FromV4(1), Remote(pair), t.port, t.ip_id}, now_ns);
        }
      }
    }
  }
  int64_t FirstNs(uint32_t pair, DiscoveryEvent::Kind kind) const {
    const auto found = std::find_if(events.begin(), events.end(), [&](const auto& event) {
      return std::get<1>(event) == pair && std::get<2>(event) == kind;
    });
    return found == events.end() ? INT64_MAX : std::get<0>(*found);
  }

  Fabric fabric;
  int64_t now_ns = kSecond;
  std::vector<std::pair<uint32_t, TraceProbe>> sent;
  std::map<uint32_t, int> traces;
  std::vector<std::tuple<int64_t, uint32_t, DiscoveryEvent::Kind>> events;
  PathMonitor monitor;
};

TEST(PathMonitor, WhatTheFirstPairLearnedSparesTheNext) {
  Monitored m({.per_switch_pps = 1000});
  m.Add(0);
  m.Run(10 * kSecond);
  const int first = m.traces[0];
  m.Add(1);
  m.Run(10 * kSecond);
  ASSERT_TRUE(m.monitor.Find(1)->table().valid);
  EXPECT_EQ(m.monitor.Find(1)->table().paths.size(), 4u);
  EXPECT_EQ(m.monitor.Find(1)->hashing(), Hashing::kPorts) << "as the first was tested";
  EXPECT_LT(m.traces[1], first / 2);
}

// A spine more than others know of is no less found: what they know is not all then.
TEST(PathMonitor, APathThatIsNewIsFound) {
  Monitored m({.per_switch_pps = 1000});
  m.Add(0);
  m.Run(10 * kSecond);
  m.fabric.spines = 5;
  m.Add(1);
  m.Run(10 * kSecond);
  EXPECT_EQ(m.monitor.Find(1)->table().paths.size(), 5u);
}

TEST(PathMonitor, OnePairsChangeIsLookedForByTheOthers) {
  PathMonitorOptions options{.per_switch_pps = 1000};
  options.discovery.verify_interval_ns = 300 * kSecond;
  Monitored m(options);
  for (uint32_t pair = 0; pair < 2; ++pair) {
    m.Add(pair);
    m.Run(100 * kSecond);  // so that their turns come at different times
  }
  m.fabric.salt = 99;
  m.Run(300 * kSecond);
  const int64_t first_ns = m.FirstNs(0, DiscoveryEvent::Kind::kInvalid);
  const int64_t second_ns = m.FirstNs(1, DiscoveryEvent::Kind::kInvalid);
  ASSERT_NE(first_ns, INT64_MAX);
  EXPECT_LE(std::abs(second_ns - first_ns), 5 * kSecond);
}

// Keeping what is known, of many pairs that carry data, leaves room for those that wait for a table.
TEST(PathMonitor, NobodyWaitsForeverBehindThoseThatCarryData) {
  Monitored m({.per_switch_pps = 10});
  m.fabric.spines = 8;  // to look at 50 × 8 paths each 30 s takes more than there is
  for (uint32_t pair = 0; pair < 60; ++pair) {
    m.Add(pair);
    m.monitor.SetActive(pair, pair < 50);
  }
  m.Run(600 * kSecond);
  for (uint32_t pair = 0; pair < 60; ++pair) EXPECT_TRUE(m.monitor.Find(pair)->table().valid) << pair;
}

// A transport that has a few ports only: candidates are those, whatever the range says, and all of them at most.
TEST(Discovery, DrawsFromThePortsThatThereAre) {
  DiscoveryOptions o;
  o.max_candidates = 64;
  for (uint16_t port = 50000; port < 50640; port += 20) o.ports.push_back(port);
  Discovery d(o, {});
  Fabric f;
  int64_t now = kSecond;
  SimulateDiscovery(d, f, now, 20 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(d.table().paths.size(), 4u);
  for (const Path& p : d.table().paths) EXPECT_NE(std::find(o.ports.begin(), o.ports.end(), p.port), o.ports.end());
  EXPECT_LE(d.ports_traced(), 32);
}

TEST(Discovery, FewPortsAndNoAnswers) {
  DiscoveryOptions o;
  o.ports = {50000, 50001, 50002};
  Discovery d(o, {});
  Fabric f;
  f.leaves_silent = true;
  f.silent_spines = {0, 1, 2, 3};
  int64_t now = kSecond;
  SimulateDiscovery(d, f, now, 60 * kSecond);
  ASSERT_TRUE(d.table().valid);
  EXPECT_EQ(d.table().paths.size(), 3u);
}

}  // namespace
}  // namespace cw::probe
