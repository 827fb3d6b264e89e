// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_world.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cw::sim {
namespace {

constexpr int64_t kBeginNs = 1'700'000'000'000'000'000;
constexpr int kTicks = 10, kSoonestTicks = 2;  // of a second; between looks
constexpr int kFirstRounds = 12;

}  // namespace

FleetWorld::FleetWorld(const FleetShape& shape, uint64_t seed, const std::set<int>& dead)
    : shape_(shape), random_(seed), fabric_(shape, random_), service_(fabric_.Plan()), now_ns_(kBeginNs) {
  AddHosts();
  seen_by_.resize(fabric_.edges.size());
  AddPairs();
  StartAll(dead);
}

void FleetWorld::AddHosts() {
  size_t n = 0;
  for (int h = 0; h < fabric_.AllHosts(); ++h) {
    std::vector<FleetAgent::Nic> nics;
    for (; n < fabric_.nics.size() && fabric_.nics[n].host == h; ++n)
      nics.push_back({absl::StrCat("eth", fabric_.nics[n].rail), fabric_.nics[n].address});
    host_.push_back(std::make_unique<FleetAgent>(absl::StrCat("h", h), std::move(nics), service_));
    FleetAgent& host = *host_.back();
    host.missing = Chance(random_) < shape_.missing;
    host.late = !host.missing && Chance(random_) < shape_.late;
  }
  const int liar = Draw(random_, static_cast<int>(host_.size()));
  if (shape_.liar && !Host(liar).missing && !Host(liar).late) MakeLiar(liar);
}

void FleetWorld::MakeLiar(int h) {
  FleetAgent& host = Host(h);
  host.liar = true;
  host.lie = [this, h](std::vector<uplink::PathSeen>& paths) {
    const auto mode = static_cast<int>((now_ns_ / (40 * kSecondNs) + h) % 4);
    for (size_t i = 0; i < paths.size(); ++i) {
      if (paths[i].reverse) continue;
      const bool some = i % 3 == 0, over = !paths[i].hops || paths[i].hops->size() < 2 || paths[0].hops->size() < 2 ||
                                           (*paths[i].hops)[1] == (*paths[0].hops)[1];
      if (mode == 0 || (mode == 1 && some) || (mode == 2 && over)) paths[i].state = cwfabric::v1::PATH_STATE_DEAD;
      if (mode == 3 && some)
        paths[i].lost = static_cast<uint64_t>(static_cast<double>(paths[i].known) * 0.05 * (1 + Draw(random_, 6)));
    }
  };
}

// Who has no agent is not probed.
void FleetWorld::AddPairs() {
  std::vector<std::vector<int>> by_rail(static_cast<size_t>(shape_.rails));
  for (size_t n = 0; n < fabric_.nics.size(); ++n) {
    if (!Host(fabric_.nics[n].host).missing)
      by_rail[static_cast<size_t>(fabric_.nics[n].rail)].push_back(static_cast<int>(n));
  }
  for (const std::vector<int>& rail : by_rail) {
    for (const int from : rail) {
      const int wanted = (shape_.peers + 1) / 2;
      int added = 0;
      for (int tries = 0; tries < 8 * wanted && added < wanted; ++tries) {
        const int to = rail[static_cast<size_t>(Draw(random_, static_cast<int>(rail.size())))];
        const bool same = fabric_.nics[static_cast<size_t>(to)].host == fabric_.nics[static_cast<size_t>(from)].host;
        if (same || pair_of_.contains({from, to})) continue;
        AddPair(from, to);
        AddPair(to, from);
        pair_[pair_.size() - 1]->SetPeer(pair_[pair_.size() - 2].get());
        pair_[pair_.size() - 2]->SetPeer(pair_[pair_.size() - 1].get());
        ++added;
      }
    }
  }
}

void FleetWorld::AddPair(int from, int to) {
  const FleetFabric::Nic &a = fabric_.nics[static_cast<size_t>(from)], &b = fabric_.nics[static_cast<size_t>(to)];
  pair_of_[{from, to}] = pair_.size();
  Host(a.host).pairs.push_back(pair_.size());
  ends_.emplace_back(from, to);
  pair_.push_back(std::make_unique<ProbePair>(
      fabric_, random_, fabric_.Ways(from, to, random_),
      uplink::PathSeen{.local = a.address, .remote = b.address, .peer = Host(b.host).name()}));
  if (Host(a.host).late) return;
  for (const FleetFabric::Way& way : pair_.back()->ways()) {
    for (const int e : way) {
      std::set<int>& seen = seen_by_[static_cast<size_t>(e)];
      if (seen.size() < 4) seen.insert(a.host);
    }
  }
}

void FleetWorld::StartAll(const std::set<int>& dead) {
  for (const int e : dead) fabric_.edges[static_cast<size_t>(e)].loss = 1;
  awake_.assign(pair_.size(), true);
  for (const auto& pair : pair_) {
    pair->Boot(now_ns_);
    pair->StartAgent(now_ns_, ++session_);
  }
  for (const auto& pair : pair_) pair->Look(now_ns_, true);
  for (int round = 0; round < kFirstRounds; ++round, now_ns_ += ProbePair::kIntervalNs) {
    for (const auto& pair : pair_) pair->Begin(now_ns_);
  }
  for (const auto& host : host_) {
    if (!host->missing)
      After(Draw(random_, 2000) * int64_t{1'000'000}, [this, h = host.get()] { h->Start(now_ns_, ++run_); });
    host->running = !host->missing;
  }
}

void FleetWorld::Change(const std::set<int>& edges, const std::function<void()>& apply) {
  std::vector<bool> touched(pair_.size());
  for (size_t p = 0; p < pair_.size(); ++p) {
    if (std::none_of(edges.begin(), edges.end(), [&](int e) { return pair_[p]->Crosses(e); })) continue;
    touched[p] = touched[pair_of_.at({ends_[p].second, ends_[p].first})] = true;
  }
  const auto runs = [&](size_t p) { return Host(fabric_.nics[static_cast<size_t>(ends_[p].first)].host).running; };
  for (size_t p = 0; p < pair_.size(); ++p) {
    if (touched[p] && !awake_[p] && runs(p)) pair_[p]->Wake(now_ns_);
  }
  apply();
  for (size_t p = 0; p < pair_.size(); ++p) {
    if (!touched[p]) continue;
    pair_[p]->Look(now_ns_, Host(fabric_.nics[static_cast<size_t>(ends_[p].second)].host).up);
    awake_[p] = true;
  }
}

std::set<int> FleetWorld::EdgesOf(int host) const {
  std::set<int> edges;
  for (const FleetFabric::Nic& nic : fabric_.nics) {
    if (nic.host == host) edges.insert({nic.up, nic.down});
  }
  return edges;
}

bool FleetWorld::IsOfLate(const fleet::Finding& finding) const {
  return finding.cause == fleet::Cause::kReportsRefused &&
         std::any_of(host_.begin(), host_.end(),
                     [&](const auto& host) { return host->late && finding.scope == "host " + host->name(); });
}

bool FleetWorld::IsOfLiar(const std::string& scope) const {
  return std::any_of(host_.begin(), host_.end(), [&](const auto& host) {
    if (!host->liar) return false;
    if (scope == "host " + host->name()) return true;
    return std::any_of(host->nics.begin(), host->nics.end(), [&](const FleetAgent::Nic& nic) {
      const std::string address = nic.address.ToString();
      return scope == "NIC " + address || absl::StartsWith(scope, absl::StrCat("link ", address, ">"));
    });
  });
}

void FleetWorld::TickPair(size_t p) {
  ProbePair& pair = *pair_[p];
  FleetAgent& host = Host(fabric_.nics[static_cast<size_t>(ends_[p].first)].host);
  if (!host.running) return;
  bool news = pair.Tick(now_ns_);
  if (pair.retrace_ns() != 0 && now_ns_ >= pair.retrace_ns()) news |= pair.Trace(false);
  if (news) host.PathNews(now_ns_);
  if (pair.IsCalm(now_ns_)) awake_[p] = false;
}

bool FleetWorld::Tick() {
  ++tick_;
  now_ns_ += ProbePair::kIntervalNs;
  while (!agenda_.empty() && agenda_.begin()->first <= now_ns_) {
    const auto due = agenda_.extract(agenda_.begin());
    due.mapped()();
  }
  const bool second = tick_ % kTicks == 0;
  for (FleetFault& fault : flapping_) {
    const int64_t phase = tick_ % (24 * kTicks);
    if (phase != 0 && phase != 5 * kTicks) continue;
    fault.loss = phase == 0 ? 1 : 0;
    SetEdges(fault, true);
  }
  for (size_t p = 0; p < pair_.size(); ++p) {
    if (awake_[p]) TickPair(p);
  }
  for (const auto& host : host_) host->Report(now_ns_, pair_, awake_);
  const bool changed = service_.Settle(now_ns_);
  if (!second && !(changed && tick_ - looked_tick_ >= kSoonestTicks)) return false;
  looked_tick_ = tick_;
  return true;
}

}  // namespace cw::sim
