// SPDX-License-Identifier: Apache-2.0
//
// A fabric of one to three tiers that answers traces, for tests of discovery. Not thread safe.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <vector>

#include "tests/unit/probe_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/probe/discovery.h"

namespace cw::probe {

// Leaf, spine, leaf: the spine follows from the port by a hash, as in ECMP. Then comes the host, which never answers.
// With three tiers a spine has one core, whose other end is a spine of the remote leaf.
struct TracedFabric {
  int spines = 4;
  int tiers = 2;  // 1: both hosts hang on one leaf
  uint32_t salt = 1;
  std::set<int> silent_spines;  // forward, but send no ICMP
  std::set<int> cut_spines;     // forward nothing …
  int cut_ttl = 2;              // … to what answers this TTL
  bool leaves_silent = false;
  enum { kPorts, kAddresses, kTtl, kSpray, kQpn, kQpnOnly } hash = kPorts;  // what the first leaf chooses by, besides
  double lost = 0;                                                          // share of answers lost
  std::mt19937 random{99};

  int SpineOf(uint16_t port, int ttl = 0) const {
    uint32_t h = (port + (salt + static_cast<uint32_t>(ttl) * 77) * 0x9e3779b1u) * 0x85ebca6bu;
    h = (h ^ h >> 13) * 0xc2b2ae35u;
    return static_cast<int>((h ^ h >> 16) % static_cast<uint32_t>(spines));
  }
  int Switches() const { return 2 * tiers - 1; }
  std::optional<Addr> Answer(uint16_t port, int ttl, uint32_t qpn = CW_BTH_QPN) {
    int spine = SpineOf(hash == kAddresses ? 0 : port, hash == kTtl ? ttl : 0);
    if (hash == kSpray) spine = static_cast<int>(random() % static_cast<uint32_t>(spines));
    if (hash == kQpn) spine = SpineOf(static_cast<uint16_t>(port ^ qpn * 0x9e3779b1u >> 16));
    if (hash == kQpnOnly) spine = SpineOf(static_cast<uint16_t>(qpn * 0x9e3779b1u >> 16));
    if (ttl > Switches() || (ttl >= cut_ttl && cut_spines.contains(spine))) return std::nullopt;
    if (ttl == 2 && silent_spines.contains(spine)) return std::nullopt;
    if ((ttl == 1 || ttl == Switches()) && leaves_silent) return std::nullopt;
    if (std::uniform_real_distribution<>(0, 1)(random) < lost) return std::nullopt;
    if (ttl == 1) return Addr::FromV4(0x0a000001);
    if (ttl == 2) return Addr::FromV4(0x0a010000 + (spine << 8));
    return Addr::FromV4(0x0a010000 + (spine << 8) + ttl);  // from the port that this way comes in by
  }
};

// Runs for a while; answers take 0.2 ms.
inline int SimulateDiscovery(Discovery& d, TracedFabric& f, int64_t& now, int64_t duration, double pps = 1000) {
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

inline std::set<int> SpinesOf(const PathTable& t, const TracedFabric& f) {
  std::set<int> s;
  for (const Path& p : t.paths) s.insert(f.SpineOf(p.port));
  return s;
}

inline int Count(const std::vector<DiscoveryEvent>& events, DiscoveryEvent::Kind kind) {
  return static_cast<int>(std::count_if(events.begin(), events.end(), [&](const auto& e) { return e.kind == kind; }));
}

}  // namespace cw::probe
