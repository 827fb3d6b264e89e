// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "userspace/control/contention_state.h"
#include "userspace/control/link_queues.h"

namespace cw::control {
namespace {

constexpr double kLeastErrorNs = 300;  // of a path's mean queueing delay: its base may be so far off

// A name for the last link, which discovery does not name: FNV-1a, the same in every process.
uint64_t ReceiversLink(const PairKey& pair) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const uint8_t byte : pair.remote.bytes) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

struct Fit {
  std::vector<PathId> ids;
  std::vector<PathQueue> queues;  // of these
};

Fit Collect(const Observation& seen, const ContentionState::Impl& state) {
  Fit fit;
  for (const PairObservation& pair : seen.pairs) {
    const double error_ns = StandardError(pair, state);
    if (!pair.table_valid || error_ns >= 1e17) continue;
    for (const PathObservation& path : pair.paths) {
      const PathId id{pair.pair, path.slot};
      const auto memory = state.paths.find(id);
      if (path.links.empty() || memory == state.paths.end()) continue;
      if (memory->second.queue.count() < state.rules.evidence_windows) continue;
      std::set<uint64_t> links(path.links.begin(), path.links.end());
      links.insert(ReceiversLink(pair.pair));
      fit.ids.push_back(id);
      fit.queues.push_back({.queue_ns = memory->second.queue.Mean(),
                            .error_ns = std::max(error_ns, kLeastErrorNs),
                            .links = {links.begin(), links.end()}});
    }
  }
  return fit;
}

// Links that paths to more than one receiver take.
std::set<uint64_t> SharedLinks(const Fit& fit) {
  std::map<uint64_t, PairKey> first;
  std::set<uint64_t> shared;
  for (size_t i = 0; i < fit.ids.size(); ++i) {
    for (const uint64_t link : fit.queues[i].links) {
      const auto [it, fresh] = first.try_emplace(link, fit.ids[i].pair);
      if (!fresh && !(it->second == fit.ids[i].pair)) shared.insert(link);
    }
  }
  return shared;
}

}  // namespace

std::map<PathId, FittedQueue> FitPaths(const Observation& seen, const ContentionState::Impl& state) {
  const Fit fit = Collect(seen, state);
  const std::set<uint64_t> shared = SharedLinks(fit);
  if (shared.empty()) return {};
  std::map<uint64_t, LinkQueue> by_link;  // a group of links that nothing tells apart is counted once, by its first
  for (const LinkQueue& queue : FitLinkQueues(fit.queues)) by_link[queue.links.front()] = queue;
  std::map<PathId, FittedQueue> out;
  for (size_t i = 0; i < fit.ids.size(); ++i) {
    const std::vector<uint64_t>& links = fit.queues[i].links;
    const bool tells = std::any_of(links.begin(), links.end(), [&](uint64_t link) { return shared.contains(link); });
    if (!tells) continue;
    double sum = 0, variance = kLeastErrorNs * kLeastErrorNs;
    for (const uint64_t link : links) {
      const auto found = by_link.find(link);
      if (found == by_link.end()) continue;
      sum += found->second.queue_ns;
      variance += found->second.error_ns * found->second.error_ns;  // 0 where no queue stands out
    }
    out[fit.ids[i]] = {.queue_ns = sum, .error_ns = std::sqrt(variance)};
  }
  return out;
}

}  // namespace cw::control
