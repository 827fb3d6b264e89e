// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/insight/chunks.h"

#include <algorithm>
#include <cmath>

#include "userspace/agent/insight/jobs.h"

namespace cw::agent {
namespace {

constexpr size_t kOpsPerPoll = 64;        // operations on a queue pair, of the whole host
constexpr size_t kMessagesPerPeriod = 4;  // to one peer
constexpr int64_t kOldNs = 10'000'000'000;

}  // namespace

Chunks::Chunks(profile::Profiles& profiles, const rdma::QpRegistry& qps, const FleetClock& fleet, const Clock& local,
               const Clock& monotonic, const PairTable& pairs, const probe::Mesh& mesh, PeerMail& mail)
    : profiles_(profiles),
      qps_(qps),
      fleet_(fleet),
      local_(local),
      monotonic_(monotonic),
      pairs_(pairs),
      mesh_(mesh),
      mail_(mail) {}

std::optional<profile::ChunkTime> Chunks::FleetTimeOf(uint32_t number, int64_t monotonic_ns) const {
  const sync::FleetTime& now = fleet_.now();
  const int64_t age_ns = monotonic_.NowNs() - monotonic_ns;
  if (now.state != sync::SyncState::kSynchronised || age_ns < 0 || age_ns > kOldNs) return std::nullopt;
  const int64_t local_ns = local_.AtNs(monotonic_ns);
  const double drift_ns =
      static_cast<double>(std::abs(local_ns - now.anchor_ns)) * sync::AgreementOptions().max_drift_ppb / 1e9;
  const int64_t bound_ns = now.bound_ns + std::llround(drift_ns);
  const int64_t fleet_ns = now.ToFleetNs(local_ns);
  if (bound_ns < 0 || bound_ns > probe::kMaxChunkBoundNs || std::abs(fleet_ns) > probe::kMaxClaimNs)
    return std::nullopt;
  return profile::ChunkTime{.number = number, .fleet_ns = fleet_ns, .bound_ns = bound_ns};
}

// What was matched by another fleet time, or waits for its other half, cannot be held against the present one.
uint64_t Chunks::KeepOneTimeline() {
  const std::pair<uint64_t, uint32_t> now = {fleet_.Claim().timeline, fleet_.now().epoch};
  if (now == time_) return now.first;
  time_ = now;
  matcher_.Void();
  for (auto& [index, pair] : pairs_) pair->chunks_out.clear();
  return now.first;
}

// Both ends choose the same of too many, because names decide.
void Chunks::Read() {
  (void)KeepOneTimeline();
  std::vector<profile::ChunkOp> ops = profiles_.TakeChunks();
  if (ops.size() > kOpsPerPoll) {
    const auto last = ops.begin() + static_cast<std::ptrdiff_t>(kOpsPerPoll);
    std::nth_element(ops.begin(), last, ops.end(),
                     [](const auto& a, const auto& b) { return a.operation < b.operation; });
    ops.erase(last, ops.end());
  }
  std::optional<QpsByNumber> known;
  if (!ops.empty()) known.emplace(qps_);
  for (const profile::ChunkOp& op : ops) {
    const rdma::QpInfo* qp = known->Find(op.pid, op.qpn);
    if (qp == nullptr) continue;
    std::vector<profile::ChunkTime> times;
    for (const auto& [number, at_ns] : op.stamps) {
      if (const std::optional<profile::ChunkTime> time = FleetTimeOf(number, at_ns)) times.push_back(*time);
    }
    if (times.empty()) continue;
    if (op.send) {
      matcher_.AddPosts({qp->laddr, qp->raddr, qp->rqpn}, op, times, monotonic_.NowNs());
    } else {
      HoldArrivals(*qp, op, times);
    }
  }
  for (const profile::ChunkMatcher::Match& match : matcher_.Take(monotonic_.NowNs())) profiles_.AddDelays(match);
}

void Chunks::HoldArrivals(const rdma::QpInfo& qp, const profile::ChunkOp& op,
                          const std::vector<profile::ChunkTime>& times) {
  const std::optional<uint32_t> index = mesh_.Find({.local = qp.laddr, .remote = qp.raddr});
  PairState* pair = index ? FindIn(pairs_, *index) : nullptr;
  if (pair == nullptr || qp.lqpn == 0) return;
  constexpr size_t kMost = kMessagesPerPeriod * probe::kMaxChunkArrivalsPerMessage;
  if (pair->chunks_out.size() + times.size() > kMost) return;
  for (const profile::ChunkTime& time : times) {
    pair->chunks_out.push_back({.operation = op.operation,
                                .qpn = qp.lqpn,
                                .number = time.number,
                                .posted = op.posted,
                                .bound_ns = static_cast<uint32_t>(time.bound_ns),
                                .fleet_ns = time.fleet_ns,
                                .bytes = op.bytes});
  }
}

// An agent that does not know the message passes it over.
void Chunks::Send(PairState& pair) {
  if (pair.chunks_out.empty()) return;
  const uint64_t timeline = KeepOneTimeline();
  const std::vector<probe::ChunkArrival> out = std::exchange(pair.chunks_out, {});
  for (size_t at = 0; at < out.size(); at += probe::kMaxChunkArrivalsPerMessage) {
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(at);
    const size_t count = std::min(probe::kMaxChunkArrivalsPerMessage, out.size() - at);
    mail_.Send(pair.index, probe::ChunkArrivals{.timeline = timeline,
                                                .arrivals = {first, first + static_cast<std::ptrdiff_t>(count)}});
  }
}

// Times of another timeline cannot be compared with ours.
void Chunks::OnArrivals(const PairState& pair, const probe::ChunkArrivals& batch) {
  if (profiles_.empty() || batch.timeline != KeepOneTimeline()) return;
  for (const probe::ChunkArrival& arrival : batch.arrivals) {
    const profile::ChunkKey key{.flow = {.src = pair.key.local, .dst = pair.key.remote, .dqpn = arrival.qpn},
                                .operation = arrival.operation};
    matcher_.AddArrival(key, arrival.posted, arrival.bytes,
                        {.number = arrival.number, .fleet_ns = arrival.fleet_ns, .bound_ns = arrival.bound_ns},
                        monotonic_.NowNs());
  }
}

void Chunks::TellCounts(const CounterSink& add) const {
  add("chunks_matched", matcher_.stats().matched, "chunks of collectives whose one-way delay was measured");
  add("chunks_doubtful", matcher_.stats().doubtful,
      "operations on a queue pair whose two ends contradict each other: no delays");
  add("chunks_unanswered", matcher_.stats().unanswered,
      "operations on a queue pair of which the receiver's agent told nothing: no delays");
  add("chunks_dropped", matcher_.stats().dropped, "operations, or arrivals of chunks, for which there was no room");
}

}  // namespace cw::agent
