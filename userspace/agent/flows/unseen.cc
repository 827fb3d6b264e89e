// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/unseen.h"

#include <algorithm>
#include <set>

#include "userspace/host/nic_checks.h"
#include "userspace/rdma/native_port.h"

namespace cw::agent {
namespace {

constexpr size_t kMaxWatched = CW_MAX_SLOTS;  // ports of one pair: it has no more slots

}  // namespace

const std::string& Drivers::Of(const std::string& device) {
  const auto [at, added] = drivers_.try_emplace(device);
  if (added && !device.empty()) at->second = host::RdmaDriver(host::Roots(), device);
  return at->second;
}

bool UnseenFlows::KernelHas(const rdma::QpInfo& qp) const {
  if (flows_.sent.contains(rdma::SentFlow(qp))) return true;
  const auto nic = std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.address == qp.laddr; });
  return nic == nics_.end() || (nic->attached && asks_.assigns());
}

// Where programs are attached, packets will tell, but for those that an owner's library speaks of and no program sees.
bool UnseenFlows::IsUnseen(const rdma::QpInfo& qp, const NicState& nic) const {
  if (flows_.sent.contains(rdma::SentFlow(qp))) return false;
  return qp.owner ? !KernelHas(qp) : !nic.attached;
}

void UnseenFlows::Follow() {
  const std::map<FlowKey, Watched> wanted = Wanted();
  const std::map<FlowKey, Watched> before = watched_;
  for (const auto& [key, had] : before) {
    const auto now = wanted.find(key);
    if (now == wanted.end() || now->second.pair != had.pair || now->second.port != had.port) Release(key);
  }
  for (const auto& [key, qp] : wanted) {
    const auto [at, added] = watched_.try_emplace(key, qp);
    if (added) at->second.slot = asks_.watch(qp.pair, qp.port);
  }
}

// A soft-RoCE device's own probes have ports of their own only.
std::map<FlowKey, UnseenFlows::Watched> UnseenFlows::Wanted() const {
  std::map<FlowKey, Watched> wanted;
  std::map<uint32_t, std::set<uint16_t>> watched;
  Drivers drivers;
  std::vector<rdma::QpInfo> all = qps_.All();
  // Those that are watched stay so, whatever else wants a slot.
  std::partition(all.begin(), all.end(), [&](const auto& qp) { return watched_.contains(rdma::SentFlow(qp)); });
  for (const rdma::QpInfo& qp : all) {
    if (qp.rqpn == 0 || qp.raddr.is_zero()) continue;
    const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
    const PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
    if (pair == nullptr || !pair->table_seen || pair->blind) continue;
    const NicState* nic = NicOf(nics_, pair->ifindex);
    if (nic == nullptr || !IsUnseen(qp, *nic)) continue;
    if (nic->by_verbs && drivers.Of(qp.device) == "rdma_rxe") continue;
    const uint16_t port = rdma::NativePortOf(qp, drivers.Of(qp.device)).port;
    std::set<uint16_t>& ports = watched[*index];
    if (port == 0 || (ports.size() >= kMaxWatched && !ports.contains(port))) continue;
    ports.insert(port);
    wanted[rdma::SentFlow(qp)] = {.pair = *index, .port = port};
  }
  return wanted;
}

void UnseenFlows::Release(const FlowKey& key) {
  const auto at = watched_.find(key);
  const Watched gone = at->second;
  watched_.erase(at);
  // Its packets are seen now, and its port is watched for them.
  const auto sent = flows_.sent.find(key);
  if (sent != flows_.sent.end() && sent->second.flow().sport == gone.port) return;
  if (FindIn(pairs_, gone.pair) != nullptr) asks_.release(gone.pair, gone.port, key);
}

void UnseenFlows::OnNative(uint32_t pair, const probe::NativeChange& change) {
  for (auto& [key, qp] : watched_) {
    if (qp.pair == pair && qp.port == change.port) qp.slot = change.slot;
  }
}

void UnseenFlows::Forget(uint32_t pair) {
  std::erase_if(watched_, [&](const auto& entry) { return entry.second.pair == pair; });
}

std::vector<UnseenFlows::OnPath> UnseenFlows::OnPaths() const {
  std::vector<OnPath> out;
  Drivers drivers;
  for (rdma::QpInfo& qp : qps_.All()) {
    if (qp.rqpn == 0 || qp.raddr.is_zero()) continue;
    const std::optional<uint32_t> index = mesh_.Find({qp.laddr, qp.raddr});
    const PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
    const NicState* nic = pair != nullptr ? NicOf(nics_, pair->ifindex) : nullptr;
    if (nic == nullptr || !IsUnseen(qp, *nic)) continue;
    const uint16_t port = rdma::NativePortOf(qp, drivers.Of(qp.device)).port;
    const uint8_t slot = SlotOf(rdma::SentFlow(qp), port);
    out.push_back({.qp = std::move(qp), .pair = *index, .slot = slot});
  }
  return out;
}

uint8_t UnseenFlows::SlotOf(const FlowKey& key, uint16_t port) const {
  const auto watched = watched_.find(key);
  if (watched != watched_.end() && watched->second.port == port && watched->second.slot != CW_SLOT_NONE)
    return watched->second.slot;
  const std::optional<uint32_t> index = mesh_.Find({key.src, key.dst});
  if (!index || port == 0) return CW_SLOT_NONE;
  return mesh_.slots(*index).SlotOfPort(asks_.fold(*index, port).value_or(port)).value_or(CW_SLOT_NONE);
}

}  // namespace cw::agent
