// SPDX-License-Identifier: Apache-2.0
// Who listens for what the rings and the peers bring in. A new kind of record or message has a line here.
#include "userspace/agent/agent.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_samples.h"
#include "userspace/agent/flows/move_news.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/intake.h"
#include "userspace/agent/nics/blind_notes.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/paths/path_news.h"
#include "userspace/agent/paths/probe_news.h"
#include "userspace/agent/paths/size_check.h"
#include "userspace/agent/recovery/tails.h"

namespace cw::agent {

absl::Status Agent::OpenIntake() {
  intake_ =
      std::make_unique<Intake>(pairs_, [this](const cw_ev_msg& sealed) { return engine_->ReceiveMessage(sealed); });
  intake_->On<cw_ev_probe>(CW_EV_PROBE, [this](const auto& probe) {
    probe_news_->OnProbe(probe);
    records_read_.fetch_add(1, std::memory_order_relaxed);
  });
  intake_->On<cw_ev_sample>(CW_EV_SAMPLE, [this](const auto& sample) { samples_->OnRecord(sample); });
  intake_->On<cw_ev_slot>(CW_EV_SLOT, [this](const auto& verdict) { path_news_->OnSlot(verdict); });
  intake_->On<cw_ev_move>(CW_EV_MOVE, [this](const auto& move) { move_news_->OnMove(move); });
  intake_->On<cw_ev_move>(CW_EV_FLOW, [this](const auto& flow) { move_news_->OnMove(flow); });

  intake_->OnMessage<probe::SampleBatch>([this](auto& pair, const auto& samples) { samples_->OnBatch(pair, samples); });
  intake_->OnMessage<probe::ClockBatch>([](PairState& pair, const auto& points) { pair.AddRemote(points); });
  intake_->OnMessage<probe::TripBatch>([](PairState& pair, const auto& trips) { pair.AddRemote(trips); });
  intake_->OnMessage<probe::ClockClaim>([this](auto& pair, const auto& claim) { clocks_->OnClaim(pair, claim.claim); });
  intake_->OnMessage<probe::LinkBatch>([this](auto& pair, const auto& links) { clocks_->OnLinks(pair, links); });
  intake_->OnMessage<probe::NicReports>([this](auto& pair, const auto& told) { nic_failover_->OnReports(pair, told); });
  intake_->OnMessage<probe::Hello>([](PairState& pair, const auto& hello) { pair.version = hello.version; });
  intake_->OnMessage<probe::PathDeath>([this](auto& pair, const auto& death) {
    tails_->OnPeersPathDied(pair, death);
    causes_->OnPeersPathDied(pair, death);
  });
  intake_->OnMessage<probe::ClassQuestion>(
      [this](auto& pair, const auto& question) { path_news_->OnClassQuestion(pair, question); });
  intake_->OnMessage<probe::GapReport>(
      [this](auto& pair, const auto& gaps) { causes_->OnGapReport(pair, gaps, MonotonicNs()); });
  intake_->OnMessage<probe::SizeReport>(
      [this](auto& pair, const auto& report) { sizes_->OnReport(pair, report, MonotonicNs()); });
  intake_->OnMessage<probe::NicMeasures>(
      [this](auto& pair, const auto& note) { blind_notes_->OnNote(pair, note, MonotonicNs()); });
  intake_->OnMessage<probe::ChunkArrivals>(
      [this](auto& pair, const auto& chunks) { chunks_->OnArrivals(pair, chunks); });
  return intake_->Open(
      {.probes = dataplane_->probe_ring(), .events = dataplane_->event_ring(), .messages = dataplane_->msg_ring()},
      [this](int fd, Loop::Callback readable) { return loop_->AddFd(fd, std::move(readable)); });
}

void Agent::ReadProbes() {
  intake_->ReadProbes();
  const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
  if (!sums.ok()) return;
  samples_->CountLost(sums->probe_ring_full);
  records_lost_.store(sums->probe_ring_full, std::memory_order_relaxed);
}

}  // namespace cw::agent
