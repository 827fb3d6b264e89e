// SPDX-License-Identifier: Apache-2.0
// What the rings and the peers bring in: probes, samples, verdicts, moves, messages.
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_samples.h"
#include "userspace/agent/flows/move_news.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/paths/losses.h"
#include "userspace/agent/paths/path_news.h"
#include "userspace/agent/paths/probe_news.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/recovery/tails.h"

namespace cw::agent {
namespace {

constexpr int64_t kHelloNs = 30'000'000'000;

}  // namespace

void Agent::OnProbeRecord(absl::Span<const uint8_t> record) {
  switch (maps::RecordType(record)) {
    case CW_EV_PROBE:
      if (auto probe = maps::RecordAs<cw_ev_probe>(record)) probe_news_->OnProbe(*probe);
      break;
    case CW_EV_SAMPLE:
      if (auto sample = maps::RecordAs<cw_ev_sample>(record)) samples_->OnRecord(*sample);
      break;
    default:
      break;
  }
}

void Agent::OnEventRecord(absl::Span<const uint8_t> record) {
  switch (maps::RecordType(record)) {
    case CW_EV_SLOT:
      if (auto verdict = maps::RecordAs<cw_ev_slot>(record)) path_news_->OnSlot(*verdict);
      break;
    case CW_EV_MOVE:
    case CW_EV_FLOW:
      if (auto move = maps::RecordAs<cw_ev_move>(record)) move_news_->OnMove(*move);
      break;
    default:
      break;
  }
}

// What the kernel did: a flow left a dead path, or a wish came true, perhaps one of balance.
void Agent::OnMadeMove(const cw_ev_move& move) {
  const FlowKey key = FromMap(move.key);
  if (move.reason == CW_MOVE_DEAD) {
    tails_->OnMovedOffDead(move);
    returns_->Left(key, move.pair, {move.from_slot, move.from_port}, {move.to_slot, move.to_port});
    breaker_->Forget(key);
  }
  if (balance_->OnMade(move)) breaker_->OnMoved(move);
}

void Agent::OnMessageRecord(absl::Span<const uint8_t> record) {
  auto message = maps::RecordAs<cw_ev_msg>(record);
  PairState* pair = message ? FindPair(message->pair) : nullptr;
  if (pair == nullptr) return;
  absl::StatusOr<probe::Body> body = engine_->ReceiveMessage(*message);
  if (!body.ok()) return;  // counted by the channel
  if (const auto* samples = std::get_if<probe::SampleBatch>(&*body)) {
    samples_->OnBatch(*pair, *samples);
  } else if (const auto* points = std::get_if<probe::ClockBatch>(&*body)) {
    for (const probe::ClockPoint& point : points->points) pair->HeardClock().AddRemote({point.t_tx_ns, point.t_rx_ns});
  } else if (const auto* trips = std::get_if<probe::TripBatch>(&*body)) {
    if (trips->by_nics) {
      pair->peer_nic_error_ns = trips->error_ns;
      pair->peer_nic_bound_ns = trips->bound_ns;
    }
    if (trips->by_nics != pair->ByNics()) return;  // one series, one kind of stamps
    for (const sync::Trip& trip : trips->trips) pair->HeardClock().AddRemoteProbe(trip);
  } else if (const auto* claim = std::get_if<probe::ClockClaim>(&*body)) {
    clocks_->OnClaim(*pair, claim->claim);
  } else if (const auto* links = std::get_if<probe::LinkBatch>(&*body)) {
    clocks_->OnLinks(*pair, *links);
  } else if (const auto* reports = std::get_if<probe::NicReports>(&*body)) {
    nic_failover_->OnReports(*pair, *reports);
  } else if (const auto* hello = std::get_if<probe::Hello>(&*body)) {
    pair->version = hello->version;
  } else if (const auto* death = std::get_if<probe::PathDeath>(&*body)) {
    tails_->OnPeersPathDied(*pair, *death);
  } else if (const auto* question = std::get_if<probe::ClassQuestion>(&*body)) {
    path_news_->OnClassQuestion(*pair, *question);
  } else if (const auto* gaps = std::get_if<probe::GapReport>(&*body)) {
    causes_->OnGapReport(*pair, *gaps, MonotonicNs());
  } else if (const auto* chunks = std::get_if<probe::ChunkArrivals>(&*body)) {
    chunks_->OnArrivals(*pair, *chunks);
  }
}

void Agent::ReadProbes() {
  (void)probe_reader_->Consume();
  if (const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum(); sums.ok())
    samples_->CountLost(sums->probe_ring_full);
}

void Agent::ConsumeRings() {
  ReadProbes();
  losses_->Judge();
  clocks_->Update();
}

void Agent::SendMessages() {
  const int64_t now_ns = MonotonicNs();
  for (auto& [index, pair] : pairs_) {
    samples_->Send(*pair);
    chunks_->Send(*pair);
    clocks_->SendTrips(*pair, now_ns);
    if (pair->last_reply_ns != 0 && (pair->hello_ns == 0 || now_ns - pair->hello_ns > kHelloNs)) {
      pair->hello_ns = now_ns;
      mail_->Send(index, probe::Hello{.host = vitals_.host_name, .version = kVersion});
    }
  }
  samples_->Match();
}

void Agent::Log(telemetry::Event event) { journal_.Log(std::move(event)); }

}  // namespace cw::agent
