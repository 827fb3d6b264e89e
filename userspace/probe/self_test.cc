// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/self_test.h"

#include <algorithm>
#include <set>
#include <utility>

#include "maps/wire.h"

namespace cw::probe {
namespace {

// Of two equal next hops, five more answers change at most once with 6/32; three ports make that less than 1 %.
constexpr int kRepeats = 5;
// Where there are fewer ports to test, each is tried with more QPNs.
constexpr int kQpnRepeats = 15;
constexpr int kChangesOfSpraying = 2;
constexpr int kFewestContradictions = 3;
constexpr double kContradictingShare = 0.2;

// The port in front of which all switches of the last tier stand is one host's: its leaf.
bool SwitchesAnswerAsOne(const std::map<uint16_t, Hops>& traced) {
  size_t longest = 0;
  for (const auto& [port, hops] : traced) longest = std::max(longest, hops.size());
  if (longest < 2) return false;
  std::set<Addr> last, before;
  for (const auto& [port, hops] : traced) {
    if (hops.size() != longest || hops[longest - 2].is_zero()) continue;
    last.insert(hops[longest - 1]);
    before.insert(hops[longest - 2]);
  }
  return last.size() == 1 && before.size() > 1;
}

bool ChangedTwice(const std::map<size_t, int>& changes) {
  return std::any_of(changes.begin(), changes.end(),
                     [](const auto& change) { return change.second >= kChangesOfSpraying; });
}

}  // namespace

bool PortsChoosePaths(Hashing hashing) { return hashing != Hashing::kTtl && ProbesFollowFlows(hashing); }

bool PortsSeenToChoose(Hashing hashing) { return hashing == Hashing::kPorts || hashing == Hashing::kSinglePath; }

bool ProbesFollowFlows(Hashing hashing) { return hashing != Hashing::kQpn && hashing != Hashing::kSprayed; }

uint32_t TestQpn(uint32_t n) {
  const uint32_t lower = (n + 1) * 0x9e3779b1u >> (32 - CW_TEST_QPN_SHIFT);
  return CW_TEST_QPN_TOP << CW_TEST_QPN_SHIFT | lower;
}

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
  if (SwitchesAnswerAsOne(traced)) return false;
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
  for (const auto& [port, hops] : first) {
    Port& state = ports_[port];
    state.last = hops;
    state.left = kRepeats;
    state.qpns_left = kQpnRepeats / static_cast<int>(first.size());
  }
}

std::vector<uint16_t> RepeatTest::Wanted() const {
  std::vector<uint16_t> wanted;
  for (const auto& [port, state] : ports_) {
    if (state.left + state.qpns_left > 0) wanted.push_back(port);
  }
  return wanted;
}

uint32_t RepeatTest::Qpn(uint16_t port) const {
  const auto it = ports_.find(port);
  if (it == ports_.end() || it->second.left > 0) return CW_BTH_QPN;
  return TestQpn(static_cast<uint32_t>(it->second.qpns_left));
}

void RepeatTest::Add(uint16_t port, const Hops& hops) {
  const auto it = ports_.find(port);
  if (it == ports_.end()) return;
  Port& state = it->second;
  if (state.left + state.qpns_left == 0) return;
  std::map<size_t, int>& changes = state.left > 0 ? state.changes : state.qpn_changes;
  --(state.left > 0 ? state.left : state.qpns_left);
  if (state.last.size() < hops.size()) state.last.resize(hops.size());
  for (size_t i = 0; i < hops.size(); ++i) {
    if (hops[i].is_zero()) continue;
    const Addr before = std::exchange(state.last[i], hops[i]);
    if (!before.is_zero() && before != hops[i]) ++changes[i];
  }
}

bool RepeatTest::Sprayed() const {
  return std::any_of(ports_.begin(), ports_.end(), [](const auto& port) { return ChangedTwice(port.second.changes); });
}

bool RepeatTest::QpnMatters() const {
  return std::any_of(ports_.begin(), ports_.end(),
                     [](const auto& port) { return ChangedTwice(port.second.qpn_changes); });
}

}  // namespace cw::probe
