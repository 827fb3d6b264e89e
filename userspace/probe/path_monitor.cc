// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/path_monitor.h"

#include <algorithm>

namespace cw::probe {
namespace {

constexpr double kBurstSeconds = 0.1;  // what an idle switch may get at once

}  // namespace

PathMonitor::PathMonitor(const PathMonitorOptions& options, SendFn send, EventFn event)
    : options_(options), send_(std::move(send)), event_(std::move(event)) {
  options_.per_switch_pps = std::max(options_.per_switch_pps, 0.01);
}

void PathMonitor::AddPair(uint32_t pair, const PairKey& key, int ifindex, const std::vector<uint16_t>& preferred,
                          std::vector<uint16_t> ports) {
  DiscoveryOptions o = options_.discovery;
  o.ports = std::move(ports);
  o.seed ^= 0x9e3779b97f4a7c15u * (pair + 1);
  Pair& p = pairs_[pair];
  p.key = key;
  p.ifindex = ifindex;
  p.discovery = std::make_unique<Discovery>(o, preferred);
  by_key_[key] = pair;
}

void PathMonitor::RemovePair(uint32_t pair) {
  const auto it = pairs_.find(pair);
  if (it == pairs_.end()) return;
  by_key_.erase(it->second.key);
  pairs_.erase(it);
}

void PathMonitor::SetActive(uint32_t pair, bool carries_data) {
  if (auto it = pairs_.find(pair); it != pairs_.end()) it->second.active = carries_data;
}

void PathMonitor::TracePort(uint32_t pair, uint16_t port) {
  if (auto it = pairs_.find(pair); it != pairs_.end()) it->second.discovery->TracePort(port);
}

void PathMonitor::ForgetPort(uint32_t pair, uint16_t port) {
  if (auto it = pairs_.find(pair); it != pairs_.end()) it->second.discovery->ForgetPort(port);
}

void PathMonitor::Rebuild(uint32_t pair) {
  if (auto it = pairs_.find(pair); it != pairs_.end()) it->second.discovery->Rebuild();
}

void PathMonitor::Doubt(uint32_t pair, int64_t now_ns) {
  if (auto it = pairs_.find(pair); it != pairs_.end()) it->second.discovery->Doubt(now_ns);
}

const Discovery* PathMonitor::Find(uint32_t pair) const {
  const auto it = pairs_.find(pair);
  return it == pairs_.end() ? nullptr : it->second.discovery.get();
}

void PathMonitor::OnAnswer(const TraceAnswer& answer, int64_t now_ns) {
  const auto it = by_key_.find(PairKey{answer.local, answer.remote});
  if (it == by_key_.end()) return;
  ++answers_;
  pairs_.at(it->second).discovery->OnAnswer(answer.port, answer.ip_id, answer.router, now_ns);
}

bool PathMonitor::Grant(int ifindex, int ttl, int64_t now_ns) {
  Bucket& b = buckets_[{ifindex, ttl}];
  const double full = std::max(1.0, kBurstSeconds * options_.per_switch_pps);
  if (b.filled_ns == INT64_MIN) {
    b.tokens = full;
  } else {
    b.tokens = std::min(full, b.tokens + static_cast<double>(now_ns - b.filled_ns) * 1e-9 * options_.per_switch_pps);
  }
  b.filled_ns = now_ns;
  if (b.tokens < 1) return false;
  b.tokens -= 1;
  return true;
}

// In turn, from first_ on.
void PathMonitor::Poll(bool active, int64_t now_ns) {
  auto it = pairs_.lower_bound(first_);
  for (size_t i = 0; i < pairs_.size(); ++i, ++it) {
    if (it == pairs_.end()) it = pairs_.begin();
    Discovery& d = *it->second.discovery;
    if (it->second.active != active || d.NextDeadlineNs() > now_ns) continue;
    const int ifindex = it->second.ifindex;
    for (const TraceProbe& t : d.Poll(now_ns, [&](int ttl) { return Grant(ifindex, ttl, now_ns); })) {
      send_(it->first, t);
      ++sent_;
    }
  }
}

void PathMonitor::Tick(int64_t now_ns) {
  Poll(/*active=*/true, now_ns);
  Poll(/*active=*/false, now_ns);
  if (!pairs_.empty()) {
    auto next = pairs_.upper_bound(first_);
    first_ = next == pairs_.end() ? 0 : next->first;
  }
  // The callee may add and remove pairs: collect first.
  std::vector<std::pair<uint32_t, DiscoveryEvent>> events;
  for (auto& [pair, p] : pairs_) {
    for (DiscoveryEvent& e : p.discovery->TakeEvents()) events.emplace_back(pair, std::move(e));
  }
  for (const auto& [pair, e] : events) event_(pair, e);
}

int64_t PathMonitor::NextTickNs(int64_t now_ns) const {
  int64_t next = INT64_MAX;
  for (const auto& [pair, p] : pairs_) next = std::min(next, p.discovery->NextDeadlineNs());
  if (next == INT64_MAX) return next;
  // What waits for the budget looks due all the time: come back when there may be a token.
  const auto refill = static_cast<int64_t>(1e9 / options_.per_switch_pps);
  return std::max(next, now_ns + std::clamp<int64_t>(refill, 1'000'000, 100'000'000));
}

}  // namespace cw::probe
