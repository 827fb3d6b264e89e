// SPDX-License-Identifier: Apache-2.0
// The flow records of the maps, read once per decision window, and whose queue pairs they are.
#include <net/if.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/window.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/paths/totals.h"

namespace cw::agent {
namespace {

constexpr double kRateSmoothingS = 1.0;
constexpr int64_t kActiveNs = 1'000'000'000;  // a pair carries data until this long after its last packet
constexpr uint64_t kForgetAfterS = 600;       // flows idle for longer leave the table
constexpr uint64_t kForgetScarceS = 10;       // where it is nearly full, those that were idle for longest

// Counts the packets between two readings of a flow for its class. CNPs have a class of their own. A record may have
// begun anew, or have been read between two of its counters.
void AddToClass(const cw_flow& before, const cw_flow& now, control::FlowClass& out) {
  const uint64_t had = before.packets - before.cnp, has = now.packets - now.cnp;
  if (has > had) out.Saw(now.tos >> 2, has - had);
}

}  // namespace

void Agent::ReadFlows() {
  const int64_t now_ns = MonotonicNs();
  const double seconds = std::max(static_cast<double>(now_ns - window_->began_ns()) / 1e9, 1e-3);
  for (auto& [key, flow] : flows_.sent) flow.seen = false;
  for (auto& [index, pair] : pairs_) pair->flows = 0;
  (void)dataplane_->tx_flows().ForEach([&](const cw_flow_key& map_key, const cw_tx_flow& record) {
    const FlowKey key = FromMap(map_key);
    auto [it, added] = flows_.sent.try_emplace(key);
    FlowEntry& flow = it->second;
    flow.seen = true;
    flow.window_cnps = 0;
    flow.window_bytes = added ? 0 : record.flow.bytes - flow.last_bytes;
    flow.window_packets = added ? 0 : record.flow.packets - flow.last_packets;
    flow.last_bytes = record.flow.bytes;
    flow.last_packets = record.flow.packets;
    if (PairState* pair = FindPair(record.pair); pair != nullptr && !added)
      AddToClass(flow.flow(), record.flow, pair->flow_class);
    flow.tx = record;
    const double weight = std::min(1.0, seconds / kRateSmoothingS);
    flow.rate_bps += weight * (static_cast<double>(flow.window_bytes) * 8 / seconds - flow.rate_bps);
    if (PairState* pair = FindPair(record.pair); pair != nullptr) {
      ++pair->flows;
      if (flow.window_bytes > 0) pair->last_data_ns = now_ns;
      if (pair->sums != nullptr) {
        pair->sums->sent_packets += flow.window_packets;
        pair->sums->sent_bytes += flow.window_bytes;
      }
    }
  });
  absl::erase_if(flows_.sent, [](const auto& entry) { return !entry.second.seen; });
  for (auto& [key, flow] : flows_.sent) {
    if (flow.window_bytes > 0) LinkQps(ToMap(key), flow);
    PairState* pair = FindPair(flow.tx.pair);
    if (pair != nullptr && pair->table_seen && !pair->blind && flow.native_asked != flow.flow().sport) {
      EnsureNative(*pair, flow, key);
    }
  }
  ReplaceStalePorts();
  FollowClasses(now_ns);
  for (auto& [index, pair] : pairs_) {
    const bool active = pair->last_data_ns != 0 && now_ns - pair->last_data_ns < kActiveNs;
    if (active != pair->active) engine_->SetActive(index, active);
    if (active && pair->loss == nullptr) {
      pair->loss =
          std::make_unique<control::PairLoss>(control::LossRules{.limit = options_.config.steering.loss_limit});
      pair->stalls = std::make_unique<control::DataStall>();
    }
    pair->active = active;
  }
}

// A flow may have been put on a slot just as the slot was given another port: its old port is nobody's path now.
void Agent::ReplaceStalePorts() {
  for (auto& [key, flow] : flows_.sent) {
    if (flow.tx.port == 0 || flow.tx.slot == CW_SLOT_NONE || FindPair(flow.tx.pair) == nullptr) continue;
    const uint16_t port = engine_->mesh().slots(flow.tx.pair).port(flow.tx.slot);
    if (port == flow.tx.port) continue;
    (void)dataplane_->flow_editor().Place(ToMap(key), CW_SLOT_NONE, 0);
    (void)dataplane_->flow_editor().SetFlags(ToMap(key), 0, CW_STEER_MANUAL);
    Log({.type = "move",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrFormat("queue pair to %s qp 0x%x is back on its native port: path %d means another port now",
                                 peer_names_.Of(key.dst), key.dqpn, flow.tx.slot),
         .flow = key.Id().ToString(),
         .peer = peer_names_.Of(key.dst),
         .slot = flow.tx.slot});
  }
}

// An acknowledgement arrives under our own QPN: the record of received packets has to know which flow it acknowledges.
void Agent::LinkQps(const cw_flow_key& key, FlowEntry& flow) {
  const FlowKey sent = FromMap(key);
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(sent);
  if (!qp || !rdma::IsProven(*qp)) return;
  // Two that move one queue pair would undo each other's work: its process does it.
  if (rdma::OwnFailover(*qp) && (flow.tx.flags & CW_STEER_HARD_LOCKED) == 0)
    (void)dataplane_->flow_editor().SetFlags(key, CW_STEER_LOCKED | CW_STEER_HARD_LOCKED, 0);
  const cw_flow_key received = ToMap({.src = sent.dst, .dst = sent.src, .dqpn = qp->lqpn});
  absl::StatusOr<cw_flow> record = dataplane_->flows().Lookup(received);
  if (!record.ok()) return;
  if (record->peer_qpn != sent.dqpn) (void)dataplane_->flow_editor().SetPeerQpn(received, /*received=*/true, sent.dqpn);
  if (flow.cnps_known && record->cnp > flow.last_cnps) flow.window_cnps = record->cnp - flow.last_cnps;
  flow.cnps_known = true;
  flow.answers = {.known = true, .acks = record->acks, .rnr_naks = record->rnr, .seq_naks = record->nak_seq};
  flow.last_cnps = record->cnp;
}

void Agent::ReadReceivedFlows() {
  const int64_t now_ns = MonotonicNs();
  for (auto& [key, flow] : flows_.received) flow.seen = false;
  (void)dataplane_->flows().ForEach([&](const cw_flow_key& map_key, const cw_flow& record) {
    const FlowKey key = FromMap(map_key);
    auto [it, added] = flows_.received.try_emplace(key);
    FlowEntry& flow = it->second;
    flow.received = true;
    flow.seen = true;
    totals_->CountReceived(key, flow, record, added);
    const double seconds = static_cast<double>(now_ns - flow.read_ns) / 1e9;
    if (!added && seconds > 0) flow.rate_bps = static_cast<double>(record.bytes - flow.last_bytes) * 8 / seconds;
    // Where nothing is sent, not even acknowledgements, the class is that of what arrives.
    const std::optional<uint32_t> index = engine_->mesh().Find({key.dst, key.src});
    if (PairState* pair = index ? FindPair(*index) : nullptr; pair != nullptr && pair->flows == 0 && !added)
      AddToClass(flow.flow(), record, pair->flow_class);
    flow.last_bytes = record.bytes;
    flow.read_ns = now_ns;
    flow.tx.flow = record;
    qps_.ObserveReceived(key);
  });
  absl::erase_if(flows_.received, [](const auto& entry) { return !entry.second.seen; });
  totals_->ReceivedWereRead();
}

void Agent::ReadKernelQps() {
  if (nldev_ == nullptr) {  // the RDMA modules may be loaded at any time
    absl::StatusOr<std::unique_ptr<rdma::NldevClient>> nldev = rdma::NldevClient::Open();
    if (!nldev.ok()) return;
    nldev_ = std::move(*nldev);
  }
  absl::StatusOr<std::vector<rdma::Link>> links = nldev_->Links();
  absl::StatusOr<std::vector<rdma::Qp>> qps = nldev_->Qps();
  if (!links.ok() || !qps.ok()) {
    // The devices are there still: who speaks for their queue pairs is not believed meanwhile.
    nldev_.reset();  // what is left of a broken answer would be taken for the next one
    return;
  }
  NameRdmaDevices(*links);
  rdma_links_ = *links;
  rdma::KernelCover cover;
  std::vector<rdma::QpInfo> list;
  datagram_qps_.clear();
  for (const Nic& nic : nics_) {
    if (nic.had_rdma) cover.addresses.insert(nic.address);  // with the device all of its queue pairs went
    for (const rdma::Link& link : *links) {
      if (nic.ifindex != link.ifindex) continue;
      cover.addresses.insert(nic.address);
      for (const rdma::Qp& qp : *qps) {
        if (link.device_index != qp.device_index) continue;
        cover.there.insert({nic.address, qp.lqpn});
        if (qp.type == rdma::kQpTypeUd)
          datagram_qps_[{nic.address, qp.lqpn}] = {
              .lqpn = qp.lqpn, .pid = qp.pid, .comm = qp.comm, .device = link.device, .state = qp.state};
        if (!rdma::IsConnected(qp)) {  // it waits, or has failed: it is there, to whomever
          if (qp.rqpn != 0) cover.sends.insert({.src = nic.address, .dst = {}, .dqpn = qp.rqpn});
          continue;
        }
        list.push_back({.lqpn = qp.lqpn,
                        .rqpn = qp.rqpn,
                        .laddr = nic.address,
                        .pid = qp.pid,
                        .comm = qp.comm,
                        .device = link.device,
                        .source = "nldev",
                        .state = qp.state});
      }
    }
  }
  AddConnections(*links, list);
  for (const rdma::QpInfo& ended : qps_.ReplaceKernelList(list, cover)) owner_mover_->OnOwnerGone(ended);
  ForgetEndedFlows(list, std::move(cover));
}

void Agent::NameRdmaDevices(const std::vector<rdma::Link>& links) {
  for (Nic& nic : nics_) {
    nic.rdma_devices.clear();
    for (const rdma::Link& link : links) {
      if (link.ifindex == nic.ifindex) nic.rdma_devices.push_back(link.device);
    }
    nic.had_rdma = nic.had_rdma || !nic.rdma_devices.empty();
  }
}

// Nearly full: the kernel is about to refuse new ones, or does so.
bool Agent::FlowTableScarce() const {
  const size_t room = dataplane_->tx_flows().capacity();
  return flows_.sent.size() >= room - room / 10;
}

std::vector<FlowKey> Agent::IdleFlows() const {
  const bool scarce = FlowTableScarce();
  const uint64_t now = jiffies_->AtNs(MonotonicNs());
  const uint64_t limit = (scarce ? kForgetScarceS : kForgetAfterS) * static_cast<uint64_t>(jiffies_->hz());
  std::vector<std::pair<uint64_t, FlowKey>> idle;
  for (const auto& [key, flow] : flows_.sent) {
    const uint64_t last = flow.flow().last_seen_jiffies;
    if (now > last && now - last > limit &&
        (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) == 0)
      idle.emplace_back(last, key);
  }
  if (scarce) {  // down to three quarters
    std::sort(idle.begin(), idle.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    idle.resize(std::min(idle.size(), flows_.sent.size() - dataplane_->tx_flows().capacity() / 4 * 3));
  }
  std::vector<FlowKey> keys;
  for (const auto& [last, key] : idle) keys.push_back(key);
  return keys;
}

void Agent::ForgetIdleFlows() {
  ForgetFlows(ended_.TakeDestroyed());
  ForgetFlows(IdleFlows());
}

// Unless they have just gone on.
void Agent::ForgetFlows(const std::vector<FlowKey>& keys) {
  if (std::none_of(keys.begin(), keys.end(), [&](const FlowKey& key) { return flows_.sent.contains(key); })) return;
  std::map<std::pair<uint32_t, uint16_t>, int> users;  // of native ports, by pair
  for (const auto& [key, flow] : flows_.sent) ++users[{flow.tx.pair, flow.flow().sport}];
  for (const auto& [key, qp] : unseen_->watched()) ++users[{qp.pair, qp.port}];
  for (const FlowKey& key : keys) {
    const auto known = flows_.sent.find(key);
    if (known == flows_.sent.end()) continue;
    const FlowEntry& flow = known->second;
    const absl::StatusOr<cw_tx_flow> now = dataplane_->tx_flows().Lookup(ToMap(key));
    if (now.ok() && now->flow.packets != flow.tx.flow.packets) continue;
    const std::pair<uint32_t, uint16_t> native{flow.tx.pair, flow.flow().sport};
    (void)dataplane_->tx_flows().Delete(ToMap(key));
    flows_.sent.erase(known);
    if (--users[native] == 0 && FindPair(native.first) != nullptr)
      engine_->ReleaseNative(native.first, native.second, NowNs());
  }
}

}  // namespace cw::agent
