// SPDX-License-Identifier: Apache-2.0
#include "userspace/uplink/delivery.h"

#include <algorithm>
#include <utility>

#include "userspace/api/calm_records.h"

namespace cw::uplink {
namespace {

constexpr absl::Duration kEcho = absl::Seconds(1);
// A batch of more than 1 MiB is refused as a whole.
constexpr size_t kMostBatchBytes = 800 << 10;

// So many of them as take `room` bytes, hop lists first, since paths name them.
wire::Definitions TakeSome(wire::Definitions& all, size_t room) {
  wire::Definitions some;
  size_t bytes = 0;
  while (all.hop_lists_size() > 0 && bytes < room) {
    bytes += all.hop_lists(all.hop_lists_size() - 1).ByteSizeLong() + 4;
    *some.add_hop_lists() = all.hop_lists(all.hop_lists_size() - 1);
    all.mutable_hop_lists()->RemoveLast();
  }
  while (all.paths_size() > 0 && bytes < room) {
    bytes += all.paths(all.paths_size() - 1).ByteSizeLong() + 4;
    *some.add_paths() = all.paths(all.paths_size() - 1);
    all.mutable_paths()->RemoveLast();
  }
  while (all.flows_size() > 0 && bytes < room) {
    bytes += all.flows(all.flows_size() - 1).ByteSizeLong() + 4;
    *some.add_flows() = all.flows(all.flows_size() - 1);
    all.mutable_flows()->RemoveLast();
  }
  return some;
}

void LeaveOutWork(wire::Batch& batch) {
  batch.clear_flows();
  batch.clear_other_flows();
  batch.clear_jobs();
  batch.clear_collectives();
  if (batch.has_definitions()) batch.mutable_definitions()->clear_flows();
}

}  // namespace

void Delivery::Begin(absl::Time now) {
  GoBack();
  paused_until_ = absl::InfinitePast();
  heard_ = now;
}

void Delivery::GoBack() {
  cursor_ = 0;
  sent_.clear();
  in_flight_.clear();
  in_flight_bytes_ = 0;
}

absl::Status Delivery::OnWelcome(uint64_t run, const wire::Welcome& welcome) {
  takes_work_ = welcome.takes_work();
  takes_calm_paths_ = welcome.takes_calm_paths();
  return spool_.Acknowledge(run, welcome.acknowledged_sequence());
}

absl::StatusOr<bool> Delivery::OnAck(const wire::Ack& ack, absl::Time now) {
  heard_ = now;
  if (ack.refusals_size() > 0) {
    refused_ += static_cast<uint64_t>(ack.refusals_size());
    last_refusal_ = ack.refusals(ack.refusals_size() - 1).reason();
  }
  if (absl::Status status = spool_.Acknowledge(ack.run(), ack.through_sequence()); !status.ok()) return status;
  const auto acknowledged = [&](const Sent& sent) {
    return sent.run == ack.run() && sent.sequence <= ack.through_sequence();
  };
  std::erase_if(in_flight_, acknowledged);
  in_flight_bytes_ = 0;
  for (const Sent& sent : in_flight_) in_flight_bytes_ += sent.bytes;
  // All that were under way behind the missing one are answered so, one by one: going back once is enough.
  const std::pair place{ack.run(), ack.through_sequence()};
  const bool echo = ack.pause_s() == 0 && went_back_ == place && now < went_back_at_ + kEcho;
  if (ack.again() && !echo) {
    GoBack();
    went_back_ = place;
    went_back_at_ = now;
  }
  if (ack.pause_s() > 0) paused_until_ = now + absl::Seconds(std::min(ack.pause_s(), 300.0));
  return ack.send_definitions();
}

absl::StatusOr<std::vector<wire::Batch>> Delivery::Next(absl::Time now, uint64_t run, wire::Definitions* definitions) {
  std::vector<wire::Batch> batches;
  if (now < paused_until_ || WindowFull()) return batches;
  absl::StatusOr<std::vector<SpoolRecord>> records = spool_.After(cursor_, kWindowBytes - in_flight_bytes_);
  if (!records.ok()) return records.status();
  if (in_flight_.empty()) heard_ = now;
  for (SpoolRecord& record : *records) {
    if (WindowFull()) break;
    cursor_ = record.head.position;
    wire::Batch batch;
    // What nobody will ever take (the host was renamed) would hold up all behind it.
    if (!batch.ParseFromString(record.bytes) || batch.host() != host_) {
      ++refused_;
      last_refusal_ = "the spool holds batches of another host name; they are dropped";
      if (absl::Status status = spool_.Acknowledge(record.head.run, record.head.sequence); !status.ok()) return status;
      continue;
    }
    uint64_t& before = sent_[batch.run()];
    batch.set_after_sequence(before);
    before = batch.sequence();
    if (batch.run() == run && definitions != nullptr && record.bytes.size() < kMostBatchBytes) {
      // What the batch says of a number is newer than what was known when it was asked for.
      wire::Definitions some = TakeSome(*definitions, kMostBatchBytes - record.bytes.size());
      if (some.ByteSizeLong() > 0) {
        some.MergeFrom(batch.definitions());
        *batch.mutable_definitions() = std::move(some);
      }
    }
    if (!takes_work_) LeaveOutWork(batch);
    if (takes_calm_paths_) api::PackCalmRecords(batch);
    const SpoolState& state = spool_.state();
    if (state.dropped_bytes > told_bytes_) {
      batch.mutable_dropped()->set_detail_batches(state.dropped_detail -
                                                  std::exchange(told_detail_, state.dropped_detail));
      batch.mutable_dropped()->set_event_batches(state.dropped_events -
                                                 std::exchange(told_events_, state.dropped_events));
      batch.mutable_dropped()->set_bytes(state.dropped_bytes - std::exchange(told_bytes_, state.dropped_bytes));
    }
    in_flight_.push_back({batch.run(), batch.sequence(), record.bytes.size()});
    in_flight_bytes_ += record.bytes.size();
    batches.push_back(std::move(batch));
  }
  return batches;
}

bool Delivery::Stuck(absl::Time now) const {
  return !in_flight_.empty() && now > std::max(heard_, paused_until_) + kPatience;
}

}  // namespace cw::uplink
