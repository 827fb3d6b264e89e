// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/flow_reader.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_format.h"
#include "userspace/rdma/move_book.h"

namespace cw::agent {
namespace {

constexpr double kRateSmoothingS = 1.0;
constexpr int64_t kActiveNs = 1'000'000'000;  // a pair carries data until this long after its last packet
constexpr int kMostClasses = 64;              // pairs per window: each change makes up to sixteen packets anew

// Counts the packets between two readings of a flow for its class. CNPs have a class of their own. A record may have
// begun anew, or have been read between two of its counters.
void AddToClass(const cw_flow& before, const cw_flow& now, control::FlowClass& out) {
  const uint64_t had = before.packets - before.cnp, has = now.packets - now.cnp;
  if (has > had) out.Saw(now.tos >> 2, has - had);
}

}  // namespace

void FlowReader::ReadSent(int64_t since_ns) {
  const int64_t now_ns = monotonic_.NowNs();
  const double seconds = std::max(static_cast<double>(now_ns - since_ns) / 1e9, 1e-3);
  for (auto& [key, flow] : flows_.sent) flow.seen = false;
  for (const auto& [index, pair] : pairs_) pair->flows = 0;
  records_.ForEachSent([&](const FlowKey& key, const cw_tx_flow& record) { TakeSent(key, record, now_ns, seconds); });
  absl::erase_if(flows_.sent, [](const auto& entry) { return !entry.second.seen; });
  for (auto& [key, flow] : flows_.sent) {
    if (flow.window_bytes > 0) LinkQps(key, flow);
    const PairState* pair = FindIn(pairs_, flow.tx.pair);
    if (pair != nullptr && pair->table_seen && !pair->blind && flow.native_asked != flow.flow().sport)
      natives_.Ensure(key, flow);
  }
  ReplaceStalePorts();
  if (asks_.follows_classes()) FollowClasses(now_ns);
  for (const auto& [index, pair] : pairs_) SetActive(*pair, now_ns);
}

void FlowReader::TakeSent(const FlowKey& key, const cw_tx_flow& record, int64_t now_ns, double seconds) {
  auto [it, added] = flows_.sent.try_emplace(key);
  FlowEntry& flow = it->second;
  flow.seen = true;
  flow.window_cnps = 0;
  flow.window_bytes = added ? 0 : record.flow.bytes - flow.last_bytes;
  flow.window_packets = added ? 0 : record.flow.packets - flow.last_packets;
  flow.last_bytes = record.flow.bytes;
  flow.last_packets = record.flow.packets;
  PairState* pair = FindIn(pairs_, record.pair);
  if (pair != nullptr && !added) AddToClass(flow.flow(), record.flow, pair->flow_class);
  flow.tx = record;
  const double weight = std::min(1.0, seconds / kRateSmoothingS);
  flow.rate_bps += weight * (static_cast<double>(flow.window_bytes) * 8 / seconds - flow.rate_bps);
  if (pair == nullptr) return;
  ++pair->flows;
  if (flow.window_bytes > 0) pair->last_data_ns = now_ns;
  if (pair->sums == nullptr) return;
  pair->sums->sent_packets += flow.window_packets;
  pair->sums->sent_bytes += flow.window_bytes;
}

// Probes ride in the class of the flows that they stand for (control/flow_class.h): otherwise they would wait in other
// queues than the flows do, and pass while the flows' class is paused.
void FlowReader::FollowClasses(int64_t now_ns) {
  int changed = 0;
  for (const auto& [index, pair] : pairs_) {
    if (changed == kMostClasses) return;
    if (!pair->flow_class.Step(now_ns)) continue;
    asks_.set_class(index, *pair->flow_class.dscp());
    ++changed;
  }
}

void FlowReader::SetActive(PairState& pair, int64_t now_ns) {
  const bool active = pair.last_data_ns != 0 && now_ns - pair.last_data_ns < kActiveNs;
  if (active != pair.active) asks_.set_active(pair.index, active);
  if (active && pair.loss == nullptr) {
    pair.loss = std::make_unique<control::PairLoss>(control::LossRules{.limit = asks_.loss_limit()});
    pair.stalls = std::make_unique<control::DataStall>();
  }
  pair.active = active;
}

// A flow may have been put on a slot just as the slot was given another port: its old port is nobody's path now.
void FlowReader::ReplaceStalePorts() {
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.port == 0 || flow.tx.slot == CW_SLOT_NONE || FindIn(pairs_, flow.tx.pair) == nullptr) continue;
    if (mesh_.slots(flow.tx.pair).port(flow.tx.slot) == flow.tx.port) continue;
    (void)records_.Place(key, CW_SLOT_NONE, 0);
    (void)records_.SetFlags(key, 0, CW_STEER_MANUAL);
    events_.Log(
        {.type = "move",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrFormat("queue pair to %s qp 0x%x is back on its native port: path %d means another port now",
                                 names_.Of(key.dst), key.dqpn, flow.tx.slot),
         .flow = key.Id().ToString(),
         .peer = names_.Of(key.dst),
         .slot = flow.tx.slot});
  }
}

// An acknowledgement arrives under our own QPN: the record of received packets has to know which flow it acknowledges.
void FlowReader::LinkQps(const FlowKey& sent, FlowEntry& flow) {
  const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(sent);
  if (!qp || !rdma::IsProven(*qp)) return;
  // Two that move one queue pair would undo each other's work: its process does it.
  if (rdma::OwnFailover(*qp) && (flow.tx.flags & CW_STEER_HARD_LOCKED) == 0)
    (void)records_.SetFlags(sent, CW_STEER_LOCKED | CW_STEER_HARD_LOCKED, 0);
  const FlowKey received{.src = sent.dst, .dst = sent.src, .dqpn = qp->lqpn};
  const absl::StatusOr<cw_flow> record = records_.Received(received);
  if (!record.ok()) return;
  if (record->peer_qpn != sent.dqpn) (void)records_.SetPeerQpn(received, sent.dqpn);
  if (flow.cnps_known && record->cnp > flow.last_cnps) flow.window_cnps = record->cnp - flow.last_cnps;
  flow.cnps_known = true;
  flow.answers = {.known = true, .acks = record->acks, .rnr_naks = record->rnr, .seq_naks = record->nak_seq};
  flow.last_cnps = record->cnp;
}

void FlowReader::ReadReceived() {
  const int64_t now_ns = monotonic_.NowNs();
  for (auto& [key, flow] : flows_.received) flow.seen = false;
  records_.ForEachReceived([&](const FlowKey& key, const cw_flow& record) { TakeReceived(key, record, now_ns); });
  absl::erase_if(flows_.received, [](const auto& entry) { return !entry.second.seen; });
  totals_.ReceivedWereRead();
}

void FlowReader::TakeReceived(const FlowKey& key, const cw_flow& record, int64_t now_ns) {
  auto [it, added] = flows_.received.try_emplace(key);
  FlowEntry& flow = it->second;
  flow.received = true;
  flow.seen = true;
  totals_.CountReceived(key, flow, record, added);
  const double seconds = static_cast<double>(now_ns - flow.read_ns) / 1e9;
  if (!added && seconds > 0) flow.rate_bps = static_cast<double>(record.bytes - flow.last_bytes) * 8 / seconds;
  // Where nothing is sent, not even acknowledgements, the class is that of what arrives.
  const std::optional<uint32_t> index = mesh_.Find({key.dst, key.src});
  if (PairState* pair = index ? FindIn(pairs_, *index) : nullptr; pair != nullptr && pair->flows == 0 && !added)
    AddToClass(flow.flow(), record, pair->flow_class);
  flow.last_bytes = record.bytes;
  flow.read_ns = now_ns;
  flow.tx.flow = record;
  qps_.ObserveReceived(key);
}

}  // namespace cw::agent
