// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/path_monitor.h"

#include <algorithm>
#include <utility>

namespace cw::probe {
namespace {

constexpr double kBurstSeconds = 0.1;  // what an idle switch may get at once
constexpr double kShareOfKept = 0.25;  // of the budget, while tables are built
constexpr int kIdleTurns = 4;          // pairs without data are looked at first in every n-th turn
// Tables built at once, with data and without: many, since those behind switches that do not answer wait for time, not
// for the budget. Those that came first have the budget first.
constexpr size_t kBuiltAtOnce = 64;
constexpr size_t kKeptAtOnce = 16;            // pairs looked at in one turn
constexpr int64_t kPoolNs = 600'000'000'000;  // what pairs learned together is learned anew then

}  // namespace

PathMonitor::PathMonitor(const PathMonitorOptions& options, SendFn send, EventFn event)
    : options_(options), send_(std::move(send)), event_(std::move(event)) {
  SetRate(options.per_switch_pps);
}

PathMonitor::Queue& PathMonitor::QueueOf(Nic& nic, const Pair& pair) {
  switch (pair.stage) {
    case Stage::kWaiting:
      return nic.waiting[pair.active];
    case Stage::kBuilt:
      return nic.built[pair.active];
    case Stage::kKept:
      break;
  }
  return nic.kept[pair.active];
}

void PathMonitor::Take(uint32_t number, Pair& pair) {
  QueueOf(nics_.at(pair.ifindex), pair).erase({pair.place, number});
}

// After whatever changed its discovery: the queue that it belongs to now.
void PathMonitor::Place(uint32_t number, Pair& pair) {
  if (!pair.discovery->Busy()) {
    pair.stage = Stage::kKept;
    pair.place = pair.discovery->NextDeadlineNs();
  } else if (pair.stage == Stage::kKept) {
    pair.stage = Stage::kWaiting;
    pair.place = ++last_place_;
  }
  QueueOf(nics_.at(pair.ifindex), pair).insert({pair.place, number});
  changed_.insert(number);
}

template <typename Change>
void PathMonitor::With(uint32_t number, Change&& change) {
  const auto it = pairs_.find(number);
  if (it == pairs_.end()) return;
  Take(number, it->second);
  change(it->second);
  Place(number, it->second);
}

void PathMonitor::AddPair(uint32_t pair, const PairKey& key, int ifindex, const std::vector<uint16_t>& preferred,
                          std::vector<uint16_t> ports) {
  RemovePair(pair);
  DiscoveryOptions o = options_.discovery;
  o.ports = std::move(ports);
  o.seed ^= 0x9e3779b97f4a7c15u * (pair + 1);
  Pair& p = pairs_[pair];
  p.key = key;
  p.ifindex = ifindex;
  p.discovery = std::make_unique<Discovery>(o, preferred, &nics_[ifindex].pool);
  by_key_[key] = pair;
  Place(pair, p);
}

void PathMonitor::RemovePair(uint32_t pair) {
  const auto it = pairs_.find(pair);
  if (it == pairs_.end()) return;
  Take(pair, it->second);
  by_key_.erase(it->second.key);
  pairs_.erase(it);
}

void PathMonitor::SetActive(uint32_t pair, bool carries_data) {
  With(pair, [&](Pair& p) {
    if (std::exchange(p.active, carries_data) == carries_data) return;
    if (p.stage == Stage::kBuilt) p.stage = Stage::kWaiting;  // its queue's room may be taken
  });
}

void PathMonitor::TracePort(uint32_t pair, uint16_t port) {
  With(pair, [&](Pair& p) { p.discovery->TracePort(port); });
}

void PathMonitor::ForgetPort(uint32_t pair, uint16_t port) {
  With(pair, [&](Pair& p) { p.discovery->ForgetPort(port); });
}

void PathMonitor::Rebuild(uint32_t pair) {
  With(pair, [&](Pair& p) {
    ForgetWhatIsShared(p);
    p.discovery->Rebuild();
  });
}

void PathMonitor::Doubt(uint32_t pair, int64_t now_ns) {
  With(pair, [&](Pair& p) {
    ForgetWhatIsShared(p);
    p.discovery->Doubt(now_ns);
  });
}

// The fabric may be another one than its pairs learned.
void PathMonitor::ForgetWhatIsShared(const Pair& pair) {
  for (const Path& path : pair.discovery->table().paths) nics_.at(pair.ifindex).pool.Forget(path.hops);
}

const Discovery* PathMonitor::Find(uint32_t pair) const {
  const auto it = pairs_.find(pair);
  return it == pairs_.end() ? nullptr : it->second.discovery.get();
}

void PathMonitor::OnAnswer(const TraceAnswer& answer, int64_t now_ns) {
  const auto it = by_key_.find(PairKey{answer.local, answer.remote});
  if (it == by_key_.end()) return;
  ++answers_;
  With(it->second, [&](Pair& p) {
    p.discovery->OnAnswer(answer.port, answer.ip_id, answer.router, now_ns);
    Learn(p, now_ns);
  });
}

bool PathMonitor::Grant(Nic& nic, int ttl, bool for_kept, int64_t now_ns) {
  Bucket& b = nic.buckets[ttl];
  const double full = std::max(1.0, kBurstSeconds * options_.per_switch_pps);
  const double more =
      b.filled_ns == INT64_MIN ? full : static_cast<double>(now_ns - b.filled_ns) * 1e-9 * options_.per_switch_pps;
  b.tokens = std::min(full, b.tokens + more);
  b.for_kept = std::min(full, b.for_kept + more * kShareOfKept);
  b.filled_ns = now_ns;
  const bool others = !nic.built[0].empty() || !nic.built[1].empty();
  if (b.tokens < 1 || (for_kept && others && b.for_kept < 1)) return false;
  b.tokens -= 1;
  if (for_kept) b.for_kept = std::max(0.0, b.for_kept - 1);
  return true;
}

// False: it was refused something.
bool PathMonitor::Poll(Nic& nic, uint32_t number, Pair& pair, int64_t now_ns) {
  bool refused = false;
  const bool kept = pair.stage == Stage::kKept;
  Take(number, pair);
  for (const TraceProbe& trace : pair.discovery->Poll(now_ns, [&](int ttl) {
         const bool granted = Grant(nic, ttl, kept, now_ns);
         refused |= !granted;
         return granted;
       })) {
    send_(number, trace);
    ++sent_;
  }
  Learn(pair, now_ns);
  Place(number, pair);
  return !refused;
}

// The longest overdue first, until the budget is used up.
void PathMonitor::Keep(Nic& nic, bool active, int64_t now_ns) {
  const Queue& kept = nic.kept[active];
  std::vector<uint32_t> due;
  for (auto it = kept.begin(); it != kept.end() && it->first <= now_ns && due.size() < kKeptAtOnce; ++it) {
    due.push_back(it->second);
  }
  for (const uint32_t number : due) {
    if (!Poll(nic, number, pairs_.at(number), now_ns)) return;
  }
}

void PathMonitor::Build(Nic& nic, bool active, int64_t now_ns) {
  Queue &waiting = nic.waiting[active], &built = nic.built[active];
  while (built.size() < kBuiltAtOnce && !waiting.empty()) {
    pairs_.at(waiting.begin()->second).stage = Stage::kBuilt;
    built.insert(waiting.extract(waiting.begin()));
  }
  const Queue now = built;  // whose table is done leaves it
  for (const auto& [place, number] : now) {
    Pair& pair = pairs_.at(number);
    if (pair.discovery->NextDeadlineNs() <= now_ns) Poll(nic, number, pair, now_ns);
  }
}

// What a table that is done shows is shared.
void PathMonitor::Learn(const Pair& pair, int64_t now_ns) {
  if (pair.stage != Stage::kBuilt || pair.discovery->Busy()) return;
  const Discovery::Sample sample = pair.discovery->SampleSoFar();
  nics_.at(pair.ifindex).pool.Add(sample.paths, sample.drawn, pair.discovery->hashing(), now_ns);
}

// A port's hops are others than before: those who have the same paths look, too.
void PathMonitor::TellTheGroup(const Pair& changed, const DiscoveryEvent& event, int64_t now_ns) {
  PathPool& pool = nics_.at(changed.ifindex).pool;
  const PathPool::Group* group = pool.Find({event.before});
  if (group == nullptr) return;
  std::vector<uint32_t> told;
  for (const auto& [number, pair] : pairs_) {
    const std::vector<Path>& paths = pair.discovery->table().paths;
    if (pair.ifindex == changed.ifindex &&
        std::any_of(paths.begin(), paths.end(), [&](const Path& path) { return group->paths.contains(path.hops); })) {
      told.push_back(number);
    }
  }
  pool.Forget(event.before);
  for (const uint32_t number : told) Doubt(number, now_ns);
}

void PathMonitor::Tick(int64_t now_ns) {
  for (auto& [ifindex, nic] : nics_) {
    nic.pool.ForgetBefore(now_ns - kPoolNs);
    const bool first = ++nic.turn % kIdleTurns != 0;
    for (const bool active : {first, !first}) Keep(nic, active, now_ns);
    for (const bool active : {true, false}) Build(nic, active, now_ns);
  }
  // The callee may add and remove pairs: collect first.
  std::vector<std::pair<uint32_t, DiscoveryEvent>> events;
  for (const uint32_t number : std::exchange(changed_, {})) {
    const auto it = pairs_.find(number);
    if (it == pairs_.end()) continue;
    for (DiscoveryEvent& e : it->second.discovery->TakeEvents()) events.emplace_back(number, std::move(e));
  }
  for (const auto& [number, e] : events) {
    if (e.kind == DiscoveryEvent::Kind::kInvalid) TellTheGroup(pairs_.at(number), e, now_ns);
  }
  for (const auto& [pair, e] : events) event_(pair, e);
}

int64_t PathMonitor::NextTickNs(int64_t now_ns) const {
  int64_t next = changed_.empty() ? INT64_MAX : 0;
  for (const auto& [ifindex, nic] : nics_) {
    for (const bool active : {false, true}) {
      if (!nic.kept[active].empty()) next = std::min(next, nic.kept[active].begin()->first);
      if (!nic.waiting[active].empty() && nic.built[active].size() < kBuiltAtOnce) next = 0;
      for (const auto& [place, number] : nic.built[active]) {
        next = std::min(next, pairs_.at(number).discovery->NextDeadlineNs());
      }
    }
  }
  if (next == INT64_MAX) return next;
  // What waits for the budget looks due all the time: come back when there may be a token.
  const auto refill = static_cast<int64_t>(1e9 / options_.per_switch_pps);
  return std::max(next, now_ns + std::clamp<int64_t>(refill, 1'000'000, 100'000'000));
}

}  // namespace cw::probe
