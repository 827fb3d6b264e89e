// SPDX-License-Identifier: Apache-2.0
//
// Traces of many pairs: who comes first, and no switch gets more than its budget.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/unit/probe_traced_fabric.h"
#include "userspace/probe/path_monitor.h"

namespace cw::probe {
namespace {

TEST(PathMonitor, NoSwitchGetsMoreThanItsBudget) {
  PathMonitorOptions options;
  options.per_switch_pps = 10;
  std::map<int, std::vector<int64_t>> sent;  // by TTL
  int64_t now = 0;
  std::map<uint32_t, int> tables;
  TracedFabric f{.spines = 4};
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
  TracedFabric f;
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

  TracedFabric fabric;
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

}  // namespace
}  // namespace cw::probe
