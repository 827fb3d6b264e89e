// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/emulator_flow.h"

#include <algorithm>

namespace cw::lab {
namespace {

constexpr size_t kMaxStamps = 1 << 16;
constexpr uint8_t kCnpTos = 48 << 2;  // the DSCP that NICs use for CNPs by default

}  // namespace

Endpoint::Endpoint(const EndpointSpec& spec, JobState* job)
    : spec_(spec),
      job_(job),
      qp_(spec.qp, this),
      receive_(spec.origin_ns, spec.bin_ns, spec.max_bins),
      arrivals_(spec.arrivals),
      ip_id_(static_cast<uint16_t>(spec.qp.qpn * 0x9e37u)) {
  finished_ = !spec.posts;
}

int64_t Endpoint::InPeriodNs(int64_t now_ns) const {
  if (job_->spec.burst <= absl::ZeroDuration()) return 0;
  return (now_ns - job_->start_ns) % absl::ToInt64Nanoseconds(job_->spec.burst_period);
}

bool Endpoint::Pauses(int64_t now_ns) const {
  const int64_t burst_ns = absl::ToInt64Nanoseconds(job_->spec.burst);
  return burst_ns > 0 && InPeriodNs(now_ns) >= burst_ns;
}

bool Endpoint::WantsPost(int64_t now_ns) const { return WantsMore(now_ns) && !Pauses(now_ns); }

bool Endpoint::WantsMore(int64_t now_ns) const {
  const JobSpec& job = job_->spec;
  if (job.messages > 0 && posted_in_round_ >= job.messages) return false;
  return job.duration <= absl::ZeroDuration() || now_ns < job_->start_ns + absl::ToInt64Nanoseconds(job.duration);
}

void Endpoint::Drive(int64_t now_ns) {
  if (finished_ || now_ns < job_->start_ns) return;
  if (round_done_) {
    if (job_->round.load(std::memory_order_acquire) == round_) return;
    ++round_;
    round_done_ = false;
    posted_in_round_ = 0;
  }
  const auto depth = static_cast<uint64_t>(job_->spec.outstanding);
  while (!qp_.dead() && qp_.messages_outstanding() < depth && WantsPost(now_ns)) {
    Message m;
    m.id = send_.messages_posted++;
    m.bytes = job_->spec.message_bytes;
    m.va = 0x7f0000000000 + m.id * m.bytes;
    m.operation = job_->spec.operation;
    if (send_.first_post_ns == 0) send_.first_post_ns = now_ns;
    qp_.Post(m, now_ns);
    ++posted_in_round_;
  }
  if (qp_.dead() || (qp_.messages_outstanding() == 0 && !WantsMore(now_ns))) FinishRound();
}

void Endpoint::FinishRound() {
  round_done_ = true;
  const int rounds = job_->spec.kind == JobKind::kAllToAll ? job_->spec.rounds : 1;
  if (round_ + 1 >= rounds) {
    finished_ = true;
    job_->unfinished.fetch_sub(1, std::memory_order_acq_rel);
    return;
  }
  // Whoever finishes a round last opens the next one for all.
  if (job_->in_round.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  job_->in_round.store(job_->flows, std::memory_order_relaxed);
  job_->round.fetch_add(1, std::memory_order_release);
}

void Endpoint::Receive(const RocePacket& packet, int64_t now_ns) {
  if (packet.source != spec_.remote_address) return;
  qp_.Receive(packet, (packet.tos & kEcnMask) == kEcnCe, now_ns);
}

bool Endpoint::PollTransmit(int64_t now_ns, RocePacket* packet) {
  if (!qp_.PollTransmit(now_ns, packet)) return false;
  packet->source = spec_.address;
  packet->destination = spec_.remote_address;
  packet->source_port = spec_.source_port;
  packet->tos = packet->opcode == kCnp ? kCnpTos : job_->spec.tos;
  if (++ip_id_ == 0) ip_id_ = 1;  // 0 would make the kernel choose, after the ICRC was computed
  packet->ip_id = ip_id_;
  return true;
}

int64_t Endpoint::NextEventNs(int64_t now_ns) const {
  const int64_t at = qp_.NextEventNs(now_ns);
  if (finished_) return at;
  if (now_ns < job_->start_ns) return std::min(at, job_->start_ns);
  if (!Pauses(now_ns)) return at;
  const int64_t period_ns = absl::ToInt64Nanoseconds(job_->spec.burst_period);
  return std::min(at, now_ns - InPeriodNs(now_ns) + period_ns);
}

void Endpoint::AddStamp(const RocePacket& packet, bool sent, int64_t realtime_ns) {
  std::vector<KernelStamp>& stamps = sent ? sent_stamps_ : received_stamps_;
  if (stamps.size() < kMaxStamps) stamps.push_back({packet.psn, realtime_ns});
}

void Endpoint::OnData(int64_t now_ns, uint32_t, uint32_t bytes, bool in_order) {
  receive_.OnData(now_ns, bytes, in_order);
  arrivals_.Add(now_ns, in_order);
}

void Endpoint::OnMessageDelivered(int64_t, uint64_t, uint64_t bytes) { receive_.OnMessage(bytes); }

void Endpoint::OnMessageDone(int64_t now_ns, const Message& message, int64_t posted_ns) {
  ++send_.messages_done;
  send_.bytes_done += message.bytes;
  send_.last_done_ns = now_ns;
  send_.latency.Add(now_ns - posted_ns);
  if (now_ns - posted_ns > send_.longest_message.Length()) send_.longest_message = {posted_ns, now_ns};
}

void Endpoint::OnProgress(int64_t now_ns, int64_t stall_ns) { send_.OnStall({now_ns - stall_ns, now_ns}); }

void Endpoint::OnDead(int64_t now_ns) { send_.dead_ns = now_ns; }

}  // namespace cw::lab
