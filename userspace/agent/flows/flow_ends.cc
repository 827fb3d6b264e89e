// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/flow_ends.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/str_format.h"
#include "maps/views.h"

namespace cw::agent {
namespace {

constexpr int64_t kForgetAfterNs = 600'000'000'000;  // flows idle for longer leave the table
constexpr int64_t kForgetScarceNs = 10'000'000'000;  // where it is nearly full, those that were idle for longest

// Of both ends' queue pairs a packet of these names one; any queue pair may send datagrams to any other.
bool HasOneSender(const FlowEntry& flow) { return flow.flow().transport <= 1; }  // RC, UC

}  // namespace

void FlowEnds::OnList(const std::vector<rdma::QpInfo>& list, rdma::KernelCover cover) {
  for (const rdma::QpInfo& qp : list) {
    const auto known = qps_.ByReceivedFlow({.dst = qp.laddr, .dqpn = qp.lqpn});
    cover.sends.insert({.src = qp.laddr, .dst = known ? known->raddr : Addr{}, .dqpn = qp.rqpn});
  }
  std::vector<rdma::EndedFlows::Flow> flows;
  for (const auto* book : {&flows_.sent, &flows_.received}) {
    for (const auto& [key, flow] : *book) {
      const uint32_t sender = flow.received || HasOneSender(flow) ? 0 : flow.flow().peer_qpn;
      if (HasOneSender(flow) || sender != 0) flows.push_back({key, flow.received, flow.flow().packets, sender});
    }
  }
  std::vector<FlowKey> sent;
  for (const rdma::EndedFlows::Flow& flow : ended_.Step(cover, flows)) {
    if (!flow.received) {
      sent.push_back(flow.key);
      continue;
    }
    records_.EraseReceived(flow.key);
    flows_.received.erase(flow.key);
  }
  Forget(sent);
}

void FlowEnds::OnQpEnds(const rdma::QpInfo& qp) {
  if (qp.rqpn == 0 || qp.raddr.is_zero()) return;
  const FlowKey received{.src = qp.raddr, .dst = qp.laddr, .dqpn = qp.lqpn};
  records_.EraseReceived(received);
  flows_.received.erase(received);
  if (!qps_.BySentFlow(rdma::SentFlow(qp))) ended_.Add(rdma::SentFlow(qp));
}

// Nearly full: the kernel is about to refuse new ones, or does so.
bool FlowEnds::TableScarce() const {
  const size_t room = records_.SentRoom();
  return flows_.sent.size() >= room - room / 10;
}

std::vector<FlowKey> FlowEnds::Idle() const {
  const bool scarce = TableScarce();
  const uint64_t oldest = jiffies_at_(monotonic_.NowNs() - (scarce ? kForgetScarceNs : kForgetAfterNs));
  std::vector<std::pair<uint64_t, FlowKey>> idle;
  for (const auto& [key, flow] : flows_.sent) {
    const uint64_t last = flow.flow().last_seen_jiffies;
    if (last < oldest && (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) == 0)
      idle.emplace_back(last, key);
  }
  if (scarce) {  // down to three quarters
    std::sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    idle.resize(std::min(idle.size(), flows_.sent.size() - records_.SentRoom() / 4 * 3));
  }
  std::vector<FlowKey> keys;
  for (const auto& [last, key] : idle) keys.push_back(key);
  return keys;
}

void FlowEnds::ForgetIdle() {
  Forget(ended_.TakeDestroyed());
  Forget(Idle());
}

// Unless they have just gone on.
void FlowEnds::Forget(const std::vector<FlowKey>& keys) {
  if (std::none_of(keys.begin(), keys.end(), [&](const FlowKey& key) { return flows_.sent.contains(key); })) return;
  std::map<std::pair<uint32_t, uint16_t>, int> users;  // of native ports, by pair
  for (const auto& [key, flow] : flows_.sent) ++users[{flow.tx.pair, flow.flow().sport}];
  for (const auto& [key, qp] : unseen_.watched()) ++users[{qp.pair, qp.port}];
  for (const FlowKey& key : keys) {
    const auto known = flows_.sent.find(key);
    if (known == flows_.sent.end()) continue;
    const FlowEntry& flow = known->second;
    const absl::StatusOr<cw_tx_flow> now = records_.Sent(key);
    if (now.ok() && now->flow.packets != flow.tx.flow.packets) continue;
    const std::pair<uint32_t, uint16_t> native{flow.tx.pair, flow.flow().sport};
    records_.EraseSent(key);
    flows_.sent.erase(known);
    if (--users[native] == 0 && FindIn(pairs_, native.first) != nullptr)
      natives_.ReleaseUnused(native.first, native.second);
  }
}

void FlowEnds::ReopenTable() {
  using maps::CtlView;
  if (CtlView::Load(ctl_.steer_full) == 0) return;
  if (!std::exchange(table_full_told_, true)) {
    events_.Log({.type = "flow",
                 .severity = telemetry::Severity::kAlert,
                 .text = absl::StrFormat(
                     "the flow table is full (%d): further flows stay on their native ports; raise limits.max_tx_flows",
                     records_.SentRoom())});
  }
  if (TableScarce()) return;
  CtlView::Store(ctl_.steer_full, 0);
  table_full_told_ = false;
}

void FlowEnds::ForgetPair(uint32_t pair) {
  std::vector<FlowKey> theirs;
  records_.ForEachSent([&](const FlowKey& key, const cw_tx_flow& flow) {
    if (flow.pair == pair) theirs.push_back(key);
  });
  for (const FlowKey& key : theirs) {
    records_.EraseSent(key);
    flows_.sent.erase(key);
  }
}

}  // namespace cw::agent
