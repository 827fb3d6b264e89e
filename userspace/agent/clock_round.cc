// SPDX-License-Identifier: Apache-2.0
// The clocks of the peers and fleet time: estimates, claims in and out, rounds, events.
#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "maps/names.h"
#include "sync/neighbours.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/clock_view.h"
#include "userspace/agent/peer_mail.h"

namespace cw::agent {
namespace {

constexpr int64_t kIdleUpdateNs = 100'000'000;  // an idle pair's line needs no more …
constexpr int64_t kClockUpdateNs = 15'000'000;  // … but one that is probed for the clock shows when a rate changes
constexpr uint64_t kFirstRounds = 30;           // in which peers are heard for the first time
constexpr int64_t kYoungLineNs = 3'000'000'000;
constexpr int64_t kMuchMissedNs = 100;  // of local time: readers shall know
constexpr uint64_t kSlowRounds = 10;    // hosts that do not compare themselves with us hear us once a second …
constexpr size_t kSlowHosts = 200;      // … up to so many, and less often beyond: the cost stays the same

}  // namespace

void Agent::NameInFleet() {
  fleet_clock_ =
      std::make_unique<FleetClock>(host_name_, sync::HostId(absl::StrCat(host_name_, " ", session_.session())));
  if (options_.config.clock.anchor == config::Anchor::kRealtime) {
    anchor_ = std::make_unique<RealtimeAnchor>(clock_, options_.config.clock.anchor_bound, options_.kernel_time);
  }
}

void Agent::UpdateClocks() {
  const int64_t now_ns = NowNs();
  const int64_t monotonic_ns = MonotonicNs();
  bool moved = fleet_clock_->claims_moved();
  for (auto& [index, pair] : pairs_) {
    const int64_t every_ns = pair->active ? 0 : pair->measures_clock ? kClockUpdateNs : kIdleUpdateNs;
    if (monotonic_ns - pair->updated_ns >= every_ns) {
      pair->estimate = pair->EstimateAt(now_ns);
      pair->updated_ns = monotonic_ns;
      PaceClockPair(*pair);
      moved |= std::abs(pair->estimate.slope_ppb - pair->round_slope_ppb) > FleetClock::kRateMovedPpb;
    }
    if (pair->estimate.state == sync::SyncState::kUnknown || pair->epoch == pair->estimate.epoch) continue;
    if (pair->epoch != 0) {
      Log({.type = "clock",
           .severity = telemetry::Severity::kNotice,
           .text = absl::StrCat("the clock of ", pair->peer, ", or ours, was set: delays are measured afresh"),
           .peer = pair->peer});
    }
    pair->epoch = pair->estimate.epoch;
    pair->clock_paths.Reset();
    for (SlotState& slot : pair->slot) {
      slot.forward.ForgetDelays();
      slot.reverse.ForgetDelays();
      slot.window.owd_ns.clear();
    }
  }
  if (moved && fleet_clock_->RateJumped(now_ns, ClockLinks())) ClockRound();
}

std::vector<ClockLink> Agent::ClockLinks() const {
  std::vector<ClockLink> links;
  for (const auto& [index, pair] : pairs_) {
    if (!fleet_clock_->IsNeighbour(pair->peer) || pair->estimate.state == sync::SyncState::kUnknown) continue;
    ClockLink link{.peer = pair->peer,
                   .pair = index,
                   .address = pair->key.remote.ToString(),
                   .nic = "",
                   .by_nics = pair->ByNics(),
                   .estimate = pair->estimate};
    for (const Nic& nic : nics_) {
      if (nic.ifindex == pair->ifindex) link.nic = nic.config.name;
    }
    links.push_back(std::move(link));
  }
  return links;
}

// More probes while a line is young: after the start, a step, or a jump of a clock's rate.
void Agent::PaceClockPair(PairState& pair) {
  const bool young = pair.estimate.line_age_ns < kYoungLineNs;
  const probe::ClockPace pace = !pair.measures_clock ? probe::ClockPace::kNone
                                : young              ? probe::ClockPace::kYoung
                                                     : probe::ClockPace::kSteady;
  if (pace == pair.clock_pace) return;
  engine_->SetClock(pair.index, pace);
  pair.clock_pace = pace;
  if (pace == probe::ClockPace::kYoung) busy_ns_ = MonotonicNs();  // the newest probes are needed
}

// One pair per host that is to be probed more often: the one that fleet time rests on, for as long as it is known.
void Agent::ChooseClockPairs() {
  const auto better = [](const PairState& a, const PairState& b) {
    const bool a_known = a.estimate.state == sync::SyncState::kSynchronised;
    const bool b_known = b.estimate.state == sync::SyncState::kSynchronised;
    return a_known != b_known ? a_known : a.measures_clock && !b.measures_clock;
  };
  std::map<std::string, const PairState*> chosen;
  for (const auto& [index, pair] : pairs_) {
    if (!fleet_clock_->IsFast(pair->peer) || pair->last_reply_ns == 0) continue;
    const PairState*& best = chosen[pair->peer];
    if (best == nullptr || better(*pair, *best)) best = pair.get();
  }
  for (auto& [index, pair] : pairs_) {
    const auto found = chosen.find(pair->peer);
    const bool wanted = found != chosen.end() && found->second == pair.get();
    pair->measures_clock = wanted;
    PaceClockPair(*pair);
  }
}

// Fleet time serves others; the agent's own work does not rest on its being published.
void Agent::OpenClockOutput() {
  const std::string page = options_.config.ClockPage();
  if (page.empty()) return;
  const std::string pin = absl::StrCat(CW_PIN_ROOT, "/", options_.config.instance, "/", CW_MAP_FLEET_CLOCK);
  absl::StatusOr<std::unique_ptr<ClockOutput>> output =
      ClockOutput::Create({.page = page,
                           .pin = pin,
                           .clock = clock_,
                           .tai_minus_utc = options_.config.clock.tai_minus_utc,
                           .chrony = options_.config.clock.chrony});
  if (output.ok()) {
    clock_output_ = *std::move(output);
    if (const absl::Status& error = clock_output_->chrony_error(); !error.ok()) {
      Log({.type = "clock",
           .severity = telemetry::Severity::kAlert,
           .text = absl::StrCat("chronyd is not fed: ", error.message())});
    }
  } else {
    Log({.type = "clock",
         .severity = telemetry::Severity::kAlert,
         .text = absl::StrCat("fleet time is not published: ", output.status().message())});
  }
}

void Agent::PublishClock() {
  if (clock_output_ == nullptr) return;
  const absl::Status status = clock_output_->Publish(*fleet_clock_, has_anchor_);
  TellOfChrony();
  if (status.ok() != publish_failed_) return;
  publish_failed_ = !status.ok();
  Log({.type = "clock",
       .severity = status.ok() ? telemetry::Severity::kNotice : telemetry::Severity::kAlert,
       .text = status.ok() ? "fleet time is published again"
                           : absl::StrCat("fleet time's page cannot be written: ", status.message())});
}

// Both ways: chronyd may be started at any time, and TAI may get lost.
void Agent::TellOfChrony() {
  if (!clock_output_->feeds_chrony()) return;
  const absl::Status& status = clock_output_->chrony_status();
  if (status.ok() == chrony_fed_) return;
  chrony_fed_ = status.ok();
  Log({.type = "clock",
       .severity = telemetry::Severity::kNotice,
       .text = status.ok() ? "chronyd is fed with fleet time's TAI"
                           : absl::StrCat("chronyd is not fed any more: ", status.message())});
}

void Agent::ClockRound() {
  LookAtNics();
  if (!busy_) ReadProbes();  // the newest count, and the ring's own turn may come later
  if (clock_rounds_ < kFirstRounds) ChooseClockPairs();
  if (clock_output_ != nullptr && clock_output_->Disrupted()) ForgetClocks();
  const int64_t now_ns = NowNs();
  for (auto& [index, pair] : pairs_) {
    if (fleet_clock_->IsNeighbour(pair->peer)) pair->estimate = pair->EstimateAt(now_ns);
    pair->round_slope_ppb = pair->estimate.slope_ppb;
  }
  const sync::AnchorReading anchor = anchor_ == nullptr ? sync::AnchorReading{} : anchor_->Read();
  has_anchor_ = anchor.has;
  fleet_clock_->SetLocalError(clock_->missing_ns(), clock_->bound_ns());
  for (telemetry::Event& event : fleet_clock_->Round(now_ns, ClockLinks(), anchor)) Log(std::move(event));
  PublishClock();
  SendClaims();
  ++clock_rounds_;
}

// Our own fastest probes, for the peer to have the same kind of stamps in both directions.
void Agent::SendTrips(PairState& pair, int64_t now_ns) {
  if (pair.clock == nullptr) return;
  const bool often = pair.active || fleet_clock_->IsNeighbour(pair.peer);
  if (!often && now_ns - pair.clock_sent_ns < 1'000'000'000) return;
  pair.clock_sent_ns = now_ns;
  probe::TripBatch batch;
  batch.by_nics = pair.ByNics();
  if (batch.by_nics) {
    batch.bound_ns = std::min(pair.nic_bound_ns, probe::kMaxNicErrorNs);
    batch.error_ns = std::min(pair.nic_error_ns, batch.bound_ns);
  }
  for (const sync::Trip& trip : pair.clock->TakeOutboundTrips()) {
    batch.trips.push_back(trip);
    if (batch.trips.size() < probe::kMaxTripsPerMessage) continue;
    mail_->Send(pair.index, batch);
    batch.trips.clear();
  }
  if (!batch.trips.empty()) mail_->Send(pair.index, batch);
}

// One claim per host, over one of its pairs; the next round takes the next pair, so that a dead NIC silences nobody.
void Agent::SendClaims() {
  std::map<std::string, std::vector<const PairState*>> hosts;
  for (const auto& [index, pair] : pairs_) {
    if (pair->last_reply_ns != 0) hosts[pair->peer].push_back(pair.get());
  }
  const uint64_t slow = kSlowRounds * (hosts.size() / kSlowHosts + 1);
  uint64_t turn = clock_rounds_;
  const probe::ClockClaim claim{fleet_clock_->Claim()};
  const bool tell_links = clock_rounds_ % kSlowRounds == 0;
  for (const auto& [peer, pairs] : hosts) {
    const bool often = fleet_clock_->IsNeighbour(peer) ||
                       std::any_of(pairs.begin(), pairs.end(), [](const PairState* pair) { return pair->active; });
    if (!often && turn++ % slow != 0) continue;
    const uint32_t over = pairs[clock_rounds_ % pairs.size()]->index;
    mail_->Send(over, claim);
    if (tell_links && fleet_clock_->IsNeighbour(peer)) SendLinks(over);
  }
}

void Agent::SendLinks(uint32_t pair) {
  probe::LinkBatch batch;
  for (const LinkReport& link : fleet_clock_->OwnLinks()) {
    if (batch.links.size() == probe::kMaxLinksPerMessage) break;  // nobody has so many neighbours
    batch.links.push_back({.host_id = link.peer_id,
                           .disagreement_ns = link.disagreement_ns,
                           .error_ns = std::min(link.error_ns, probe::kMaxLinkErrorNs)});
  }
  if (!batch.links.empty()) mail_->Send(pair, batch);
}

// The local clock was set, or the machine slept.
void Agent::ForgetClocks() {
  for (auto& [index, pair] : pairs_) {
    if (pair->clock != nullptr) pair->clock->Reset();
  }
  fleet_clock_->Disrupted(NowNs());
}

// CLOCK_MONOTONIC's rate has changed, and local time's has not: what readers are told in terms of the former has to
// change at once.
void Agent::OnSlew() {
  slew_posted_.store(false);
  if (clock_->given_up() != clock_given_up_) {
    clock_given_up_ = clock_->given_up();
    Log({.type = "clock",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrFormat("CLOCK_MONOTONIC was slewed faster than can be made good: local time is off by %d us, "
                                 "and the clocks are compared afresh",
                                 clock_->last_given_up_ns() / 1000)});
    ForgetClocks();
  }
  std::abs(clock_->missing_ns()) > kMuchMissedNs ? ClockRound() : PublishClock();
}

absl::StatusOr<api::v1::ClockReply> Agent::Clock() {
  return loop_->Call<api::v1::ClockReply>([this] {
    const std::string kind(config::ToString(options_.config.clock.anchor));
    api::v1::ClockReply reply = MakeClockReply(*fleet_clock_, NowNs(), kind, anchor_ == nullptr ? "" : anchor_->note());
    reply.mutable_tracking()->set_slew_ppb(-clock_->slew_ppb());
    FillNics(reply);
    if (clock_output_ != nullptr && clock_output_->feeds_chrony()) {
      const absl::Status& fed = clock_output_->chrony_status();
      reply.mutable_tracking()->set_chrony(fed.ok() ? "fed" : std::string(fed.message()));
      reply.mutable_tracking()->set_chrony_samples(clock_output_->chrony_samples());
    }
    return absl::StatusOr<api::v1::ClockReply>(std::move(reply));
  });
}

}  // namespace cw::agent
