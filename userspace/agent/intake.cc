// SPDX-License-Identifier: Apache-2.0
// What the rings and the peers bring in: probes, samples, verdicts, moves, messages.
#include <array>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_samples.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/nics/verbs_probes.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/losses.h"
#include "userspace/agent/paths/path_news.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/ring_recorder.h"

namespace cw::agent {
namespace {

constexpr size_t kWindowProbes = 4096;  // per slot and decision window; more say nothing more
constexpr int64_t kHelloNs = 30'000'000'000;

std::string PortText(uint16_t port) { return port == 0 ? "its native port" : absl::StrCat("udp-port ", port); }

int SlotNumber(uint8_t slot) { return slot == CW_SLOT_NONE ? -1 : slot; }

std::string SlotText(uint8_t slot) { return slot == CW_SLOT_NONE ? "an unprobed path" : absl::StrCat("path ", slot); }

}  // namespace

void Agent::OnProbeRecord(absl::Span<const uint8_t> record) {
  switch (maps::RecordType(record)) {
    case CW_EV_PROBE:
      if (auto probe = maps::RecordAs<cw_ev_probe>(record)) OnProbe(*probe);
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
      if (auto move = maps::RecordAs<cw_ev_move>(record)) OnMove(*move);
      break;
    default:
      break;
  }
}

void Agent::OnProbe(const cw_ev_probe& probe) {
  PairState* pair = FindPair(probe.pair);
  if (pair == nullptr || probe.slot >= CW_MAX_SLOTS) return;
  const auto t1 = static_cast<int64_t>(probe.t1), t2 = static_cast<int64_t>(probe.t2);
  const auto t3 = static_cast<int64_t>(probe.t3), t4 = static_cast<int64_t>(probe.t4);
  std::optional<sync::Trip> by_nics;
  if (probe.t2_nic != 0 && probe.t4_nic != 0)
    by_nics = {t1, static_cast<int64_t>(probe.t2_nic), t3, static_cast<int64_t>(probe.t4_nic)};
  const sync::Trip trip = {t1, t2, t3, t4};
  pair->AddTrip(trip, by_nics, probe.slot, probe.rslot);
  if (pair->loss != nullptr) {
    pair->loss->Answered(probe.round, probe.slot, std::to_array(probe.arrived),
                         JudgedSlots(dataplane_->pairs()[probe.pair]));
  }
  const int64_t now_ns = MonotonicNs();
  pair->last_reply_ns = vitals_.newest_data_ns = now_ns;
  // By verbs, software stamps an arrival when a thread was woken for it. So delays take the devices' stamps where the
  // clock does; never both kinds.
  const bool by_devices = pair->ByNics() && verbs_->IsByVerbs(*pair);
  const sync::Trip& timed = by_devices && by_nics ? *by_nics : trip;
  const int64_t forward_ns = timed.OutNs() - pair->clock->OffsetAt(timed.t1_ns);
  const int64_t reverse_ns = timed.BackNs() + pair->clock->OffsetAt(timed.t4_ns);
  causes_->Answered(probe.pair, probe.slot);
  SlotState& slot = pair->slot[probe.slot];
  if (slot.answered_ns == 0) {  // rounds before it went unanswered, or were never sent: an agent begins behind a gap
    slot.forward.Restart(now_ns);
    slot.counted_round = probe.round - 1;
  }
  slot.answered_ns = std::max(slot.answered_ns, t1);
  slot.window.AddEcn(probe.flags);
  if (slot.silence) path_news_->OnProbeOfSilent(*pair, slot, probe);
  // No packet arrives before it was sent: then a clock's rate has just changed, and the line does not know it yet.
  const bool measured = pair->estimate.settled && (!by_devices || by_nics);
  if (!measured || forward_ns <= 0 || reverse_ns <= 0) {
    if (ring_ != nullptr) ring_->Answered(probe.pair, probe.slot);
    return slot.forward.AddAnswered(now_ns);
  }
  if (ring_ != nullptr) {
    ring_->Delay(probe.pair, probe.slot, /*reverse=*/false, now_ns, forward_ns);
    if (probe.rslot < CW_MAX_SLOTS) ring_->Delay(probe.pair, probe.rslot, /*reverse=*/true, now_ns, reverse_ns);
  }
  slot.forward.AddProbe(now_ns, forward_ns);
  balance_->OnProbe(probe.pair, probe.slot, t1, forward_ns);
  if (pair->delays != nullptr) {
    pair->delays->forward.Add(forward_ns);
    pair->delays->reverse.Add(reverse_ns);
  }
  if (slot.window.owd_ns.size() < kWindowProbes) slot.window.owd_ns.push_back(forward_ns);
  if (probe.rslot < CW_MAX_SLOTS) pair->slot[probe.rslot].reverse.AddProbe(now_ns, reverse_ns);
}

void Agent::OnMove(const cw_ev_move& move) {
  const FlowKey key = FromMap(move.key);
  telemetry::Event event{.flow = key.Id().ToString(),
                         .peer = peer_names_.Of(key.dst),
                         .slot = SlotNumber(move.from_slot),
                         .to_slot = SlotNumber(move.to_slot),
                         .dry = move.dry != 0};
  event.evidence = {{"psn", absl::StrCat(move.psn)},
                    {"udp_port_before", absl::StrCat(move.from_port)},
                    {"udp_port", absl::StrCat(move.to_port)}};
  if (move.type == CW_EV_FLOW) {
    busy_ns_ = MonotonicNs();
    SetPace(true);
    event.type = "flow";
    event.text = absl::StrFormat("queue pair to %s qp 0x%x %s %s, %s", event.peer, key.dqpn,
                                 event.dry ? "appeared on its native port, and would be put on" : "appeared on",
                                 SlotText(move.to_slot), PortText(move.to_port));
  } else {
    event.type = "move";
    event.severity = telemetry::Severity::kNotice;
    const std::string reason(MoveReasonName(static_cast<MoveReason>(move.reason)));
    // Another port of the same path, as when a flow goes back to its native port there.
    const bool same_path = move.from_slot == move.to_slot && move.to_slot != CW_SLOT_NONE;
    const std::string way = same_path ? absl::StrCat("stays on ", SlotText(move.to_slot), " and takes another port")
                                      : absl::StrCat(event.dry ? "would move" : "moved", " from ",
                                                     SlotText(move.from_slot), " to ", SlotText(move.to_slot));
    event.text = absl::StrFormat("queue pair to %s qp 0x%x %s, %s: %s", event.peer, key.dqpn, way,
                                 PortText(move.to_port), reason);
    event.evidence.push_back({"reason", reason});
    if (move.reason == CW_MOVE_DEAD && move.dry == 0) tails_->OnMovedOffDead(move);
    if (move.dry == 0) OnMadeMove(move);
  }
  if (move.dry != 0) dry_run_->TellMove(move, event.evidence);
  Log(std::move(event));
}

// What the kernel did: a flow left a dead path, or a wish came true, perhaps one of balance.
void Agent::OnMadeMove(const cw_ev_move& move) {
  const FlowKey key = FromMap(move.key);
  if (move.reason == CW_MOVE_DEAD) {
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
