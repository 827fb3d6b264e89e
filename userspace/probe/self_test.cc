// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/self_test.h"

#include <algorithm>
#include <set>
#include <utility>

namespace cw::probe {
namespace {

// Of two equal next hops, five more answers change at most once with 6/32; three ports make that less than 1 %.
constexpr int kRepeats = 5;
constexpr int kChangesOfSpraying = 2;
constexpr int kFewestContradictions = 3;
constexpr double kContradictingShare = 0.2;

}  // namespace

bool PortsChoosePaths(Hashing hashing) { return hashing != Hashing::kTtl && hashing != Hashing::kSprayed; }

bool PortsDiffer(const std::map<uint16_t, Hops>& traced) {
  Hops first;
  for (const auto& [port, hops] : traced) {
    if (first.size() < hops.size()) first.resize(hops.size());
    for (size_t i = 0; i < hops.size(); ++i) {
      if (first[i].is_zero()) first[i] = hops[i];
      if (!hops[i].is_zero() && hops[i] != first[i]) return true;
    }
  }
  return false;
}

bool TracesContradict(const std::map<uint16_t, Hops>& traced) {
  // At each distance: the address, and how often each address was in front of it.
  std::map<size_t, std::map<Addr, std::map<Addr, int>>> before;
  for (const auto& [port, hops] : traced) {
    for (size_t i = 1; i < hops.size(); ++i) {
      if (!hops[i - 1].is_zero() && !hops[i].is_zero()) ++before[i][hops[i]][hops[i - 1]];
    }
  }
  for (const auto& [distance, addresses] : before) {
    int all = 0, against = 0;
    std::set<Addr> in_front;
    for (const auto& [address, previous] : addresses) {
      int most = 0;
      for (const auto& [hop, count] : previous) {
        in_front.insert(hop);
        all += count;
        against += count;
        most = std::max(most, count);
      }
      against -= most;
    }
    // One address for all is a switch that many paths lead to, or the one that all leave.
    if (addresses.size() < 2 || in_front.size() < 2) continue;
    // The first such distance decides: further on, paths that have parted may well meet again.
    return against >= kFewestContradictions && against > kContradictingShare * all;
  }
  return false;
}

void RepeatTest::Begin(const std::map<uint16_t, Hops>& first) {
  ports_.clear();
  for (const auto& [port, hops] : first) ports_[port] = {.last = hops, .changes = {}, .left = kRepeats};
}

std::vector<uint16_t> RepeatTest::Wanted() const {
  std::vector<uint16_t> wanted;
  for (const auto& [port, state] : ports_) {
    if (state.left > 0) wanted.push_back(port);
  }
  return wanted;
}

void RepeatTest::Add(uint16_t port, const Hops& hops) {
  const auto it = ports_.find(port);
  if (it == ports_.end() || it->second.left == 0) return;
  Port& state = it->second;
  --state.left;
  if (state.last.size() < hops.size()) state.last.resize(hops.size());
  for (size_t i = 0; i < hops.size(); ++i) {
    if (hops[i].is_zero()) continue;
    const Addr before = std::exchange(state.last[i], hops[i]);
    if (!before.is_zero() && before != hops[i]) ++state.changes[i];
  }
}

bool RepeatTest::Sprayed() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const auto& port) {
    return std::any_of(port.second.changes.begin(), port.second.changes.end(),
                       [](const auto& change) { return change.second >= kChangesOfSpraying; });
  });
}

}  // namespace cw::probe
