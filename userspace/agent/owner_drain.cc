// SPDX-License-Identifier: Apache-2.0
// What operators drain, and queue pairs whose packets the kernel does not see: those that the library in their process
// moves leave it and come back, the others are told of. All of them keep it from being called safe.
#include <algorithm>
#include <map>
#include <utility>

#include "userspace/agent/agent.h"
#include "userspace/agent/flows/owner_mover.h"

namespace cw::agent {
namespace {

constexpr int kTraceLooks = 5;  // by then the path of a port is known, unless switches do not answer

}  // namespace

using control::Crosses;

// Once per second, as owners tell of them, and when a drain begins.
void Agent::DrainUnseen() {
  if (drains_.entries().empty()) return;
  const std::vector<UnseenFlows::OnPath> unseen = unseen_->OnPaths();
  for (auto& [what, drain] : drains_.entries()) {
    const std::map<FlowKey, int> unknown_before = std::exchange(drain.unseen, {}).unknown;
    std::map<std::pair<uint32_t, Crosses>, std::vector<rdma::QpInfo>> on_it;
    for (const UnseenFlows::OnPath& each : unseen) {
      const Crosses crosses = control::CrossesSlot(drain.CrossingOf(each.pair), drain.UnknownOf(each.pair), each.slot);
      if (crosses == Crosses::kNo) continue;
      const FlowKey key = rdma::SentFlow(each.qp);
      drain.unseen.on_it.insert(key);
      if (crosses == Crosses::kMaybe) {
        const auto before = unknown_before.find(key);
        const int looks = before == unknown_before.end() ? 1 : before->second + 1;
        drain.unseen.unknown[key] = looks;
        if (looks < kTraceLooks) continue;
      }
      on_it[{each.pair, crosses}].push_back(each.qp);
    }
    for (const auto& [where, qps] : on_it)
      MoveOwnersOffDrained(drain, *pairs_.at(where.first), qps, where.second == Crosses::kYes);
  }
}

// Paths that are known to cross nothing that is drained.
std::vector<rdma::PathLoad> Agent::LoadsBesidesDrains(const PairState& pair) const {
  uint16_t avoid = pair.blocked;
  for (const auto& [what, drain] : drains_.entries()) avoid |= drain.UnknownOf(pair.index);
  return owner_mover_->Loads(pair, {}, avoid);
}

// certainly: they are on paths that cross it. Others, which may, do not leave for a path of which no more is known.
void Agent::MoveOwnersOffDrained(DrainEntry& drain, const PairState& pair, const std::vector<rdma::QpInfo>& on_it,
                                 bool certainly) {
  const bool act = modes_->ActsAtAll();
  std::vector<rdma::QpInfo> leaving;
  const auto stays = [&](const rdma::QpInfo& qp) {
    if (act) drain.unseen.held.push_back(rdma::SentFlow(qp));
  };
  for (const rdma::QpInfo& qp : on_it) {
    if (owner_mover_->book().Of(qp).asked) {
      ++drain.unseen.leaving;  // it may be on its way; the next look tells
    } else if (owner_mover_->book().MayAsk(qp) && owner_mover_->WhyNot(qp).empty()) {
      leaving.push_back(qp);
    } else {
      stays(qp);
    }
  }
  if (leaving.empty()) return;
  std::vector<rdma::PathLoad> loads = LoadsBesidesDrains(pair);
  if (loads.empty() && certainly) loads = owner_mover_->Loads(pair, {}, pair.blocked);
  if (loads.empty()) {
    std::for_each(leaving.begin(), leaving.end(), stays);
    return;
  }
  if (!act) {  // told of once
    std::erase_if(leaving, [&](const rdma::QpInfo& qp) {
      return modes_->mode() == Mode::kOff || !drain.told.insert(rdma::SentFlow(qp)).second;
    });
  }
  std::sort(leaving.begin(), leaving.end(), [](const auto& a, const auto& b) { return a.lqpn < b.lqpn; });
  owner_mover_->MoveTo(pair, leaving, std::move(loads), rdma::MoveWhy::kDrained, act);
  for (const rdma::QpInfo& qp : leaving) {
    const uint16_t port = owner_mover_->book().PortOf(qp);
    if (port == qp.udp_sport) continue;
    ++drain.unseen.leaving;
    drain.moved.try_emplace(rdma::SentFlow(qp), DrainEntry::Moved{.from = qp.udp_sport}).first->second.to = port;
    drains_.Changed();
  }
}

// Those that are still where the drain put them, unless where they were is drained by somebody else, or dead now.
size_t Agent::ReturnDrainedOwners(const std::map<FlowKey, DrainEntry::Moved>& moved) {
  if (moved.empty() || !modes_->ActsAtAll()) return 0;
  std::vector<rdma::QpInfo> qps;
  std::vector<rdma::MoveOrder> orders;
  for (rdma::QpInfo& qp : qps_.Owned()) {
    const auto move = moved.find(rdma::SentFlow(qp));
    if (move == moved.end() || owner_mover_->book().PortOf(qp) != move->second.to || !owner_mover_->WhyNot(qp).empty())
      continue;
    const std::optional<uint32_t> index = engine_->mesh().Find({qp.laddr, qp.raddr});
    const PairState* pair = index ? FindPair(*index) : nullptr;
    const uint8_t slot = owner_mover_->SlotOf(qp, move->second.from);
    if (pair == nullptr || slot >= CW_MAX_SLOTS || (pair->drained >> slot & 1) != 0) continue;
    const bool dead = probe::Load(dataplane_->pairs()[*index].slot[slot].state) == CW_SLOT_DEAD;
    if (dead || move->second.from < CW_INPROC_FIRST_PORT) continue;
    orders.push_back(owner_mover_->book().Ask(qp, move->second.from, 0, rdma::MoveWhy::kDrainOver, MonotonicNs()));
    qps.push_back(std::move(qp));
  }
  owner_mover_->Send(qps, orders);
  return orders.size();
}

}  // namespace cw::agent
