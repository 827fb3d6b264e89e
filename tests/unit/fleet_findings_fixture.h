// SPDX-License-Identifier: Apache-2.0
//
// A fabric of two tiers, three NICs behind each of three leaves, and what findings make of what its hosts report.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/fleet_fabric.h"
#include "userspace/fleet/findings/findings.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {

inline constexpr int64_t kSecondNs = 1'000'000'000;

// Each NIC of the fabric is a host, and all probe all over all ways.
class FindingsTest : public ::testing::Test {
 protected:
  explicit FindingsTest(const FabricShape& shape = {.leaves = 3, .spines = 2, .nics = 3}) : fabric_(shape) {
    topology_ = BuildTopology(traces_, fabric_.Plan());
    picture_.topology = &topology_;
    picture_.now_ns = 1'700'000'000 * kSecondNs;
    for (size_t n = 0; n < fabric_.nics(); ++n)
      picture_.hosts.push_back({.name = absl::StrCat("h", n), .connected = true, .nics = {{"eth0", fabric_.nic(n)}}});
    for (const Trace& trace : traces_) {
      uint32_t host = 0;
      while (fabric_.nic(host) != trace.source) ++host;
      picture_.paths.push_back({.host = host,
                                .source = trace.source,
                                .destination = trace.destination,
                                .hops = &trace.hops,
                                .hops_id = HopsId(trace.hops),
                                .sent = 200,
                                .base_ns = 5000});
    }
    Pass(15);
  }

  // All hosts tell what holds every second.
  std::vector<Finding> Pass(int seconds) {
    std::vector<Finding> changed;
    for (int i = 0; i < seconds; ++i) {
      picture_.now_ns += kSecondNs;
      for (HostEvidence& host : picture_.hosts) {
        const bool silent = silent_.contains(&host - picture_.hosts.data());
        if (host.connected && !silent) host.last_seen_ns = host.newest_ns = picture_.now_ns;
      }
      for (size_t p = 0; p < std::min(picture_.paths.size(), told_); ++p)
        picture_.paths[p].time_ns = picture_.hosts[picture_.paths[p].host].newest_ns;
      for (Finding& f : findings_.Evaluate(picture_)) changed.push_back(std::move(f));
      picture_.events.clear();
    }
    return changed;
  }
  bool Crosses(const PathEvidence& path, int s) const {
    for (const Addr& hop : *path.hops) {
      const auto at = topology_.switch_of.find(hop);
      if (at != topology_.switch_of.end() &&
          topology_.switches[static_cast<size_t>(at->second)].name == fabric_.name(s))
        return true;
    }
    return false;
  }
  template <typename Which>
  void Set(PathEvidence::State state, const Which& which) {
    for (PathEvidence& path : picture_.paths) {
      if (which(path)) path.state = state;
    }
  }
  static bool All(const PathEvidence&) { return true; }

  const Fabric fabric_;
  const std::vector<Trace> traces_ = fabric_.Traces();
  Topology topology_;
  Picture picture_;
  Findings findings_;
  size_t told_ = SIZE_MAX;      // of the paths so many are reported again and again; the rest were once
  std::set<ptrdiff_t> silent_;  // hosts that are connected and tell nothing
};

}  // namespace cw::fleet
