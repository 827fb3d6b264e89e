// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_clock/clock_keeper.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "sync/neighbours.h"
#include "userspace/agent/fleet_clock/clock_view.h"

namespace cw::agent {
namespace {

constexpr int64_t kClockUpdateNs = 15'000'000;     // a pair that is probed for the clock shows when a rate changes
constexpr int64_t kIdleUpdateNs = 100'000'000;     // an idle one's line needs no more, …
constexpr int64_t kLazyUpdateNs = 2'000'000'000;   // … and where there are many, and it is known, this does …
constexpr int64_t kIdleShareNs = 5'000'000;        // … at one line in so long, all of them together, …
constexpr int64_t kIdleEachNs = 2'000'000;         // … those that are due one in so long, …
constexpr int64_t kIdleLeast = 8, kIdleMost = 64;  // … so many in one go: the loop has other work
constexpr uint64_t kFirstRounds = 30;              // in which peers are heard for the first time
constexpr int64_t kYoungLineNs = 3'000'000'000;
constexpr int64_t kMuchMissedNs = 100;  // of local time: readers shall know
constexpr uint64_t kSlowRounds = 10;    // hosts that do not compare themselves with us hear us once a second …
constexpr size_t kSlowHosts = 200;      // … up to so many, and less often beyond: the cost stays the same

}  // namespace

ClockKeeper::ClockKeeper(const ClockKeeperOptions& options, std::shared_ptr<const LineClock> clock,
                         const Clock& monotonic, const PairTable& pairs, const NicTable& nics, PeerMail& mail,
                         EventSink& events, Probing probing)
    : options_(options),
      clock_(std::move(clock)),
      monotonic_(monotonic),
      pairs_(pairs),
      nics_(nics),
      mail_(mail),
      events_(events),
      probing_(std::move(probing)),
      fleet_(options.host, sync::HostId(absl::StrCat(options.host, " ", options.session))) {
  if (options_.anchor == config::Anchor::kRealtime)
    anchor_ = std::make_unique<RealtimeAnchor>(clock_, options_.anchor_bound, options_.kernel_time);
  OpenOutput();
}

// A line costs some 50 us to fit, and a host of a large fleet has thousands of pairs that carry nothing. Fleet time
// does not rest on them; what does look at one (its paths, a flow that begins) brings it up to date first.
int64_t ClockKeeper::IdleUpdateNs(const PairState& pair) const {
  const bool known = pair.estimate.settled && pair.estimate.line_age_ns >= kYoungLineNs;
  if (!known) return kIdleUpdateNs;
  return std::clamp(kIdleShareNs * idle_pairs_, kIdleUpdateNs, kLazyUpdateNs);
}

void ClockKeeper::Update() {
  const int64_t now_ns = clock_->NowNs();
  const int64_t monotonic_ns = monotonic_.NowNs();
  bool moved = fleet_.claims_moved();
  int64_t idle_pairs = 0;
  const int64_t passed_ns = monotonic_ns - std::exchange(looked_ns_, monotonic_ns);
  const auto at_once = static_cast<int>(std::clamp(passed_ns / kIdleEachNs, kIdleLeast, kIdleMost));
  int idle_updates = 0;
  const uint32_t turn = std::exchange(idle_turn_, 0);  // those before it had theirs
  for (auto& [index, pair] : pairs_) {
    if (pair->clock != nullptr) pair->clock->FitSeldom(slowed_);
    const bool idle = !pair->active && !pair->measures_clock;
    const int64_t every_ns = pair->active ? 0 : pair->measures_clock ? kClockUpdateNs : IdleUpdateNs(*pair);
    idle_pairs += idle && pair->clock != nullptr;
    if (monotonic_ns - pair->updated_ns >= every_ns && (!idle || (index >= turn && idle_updates < at_once))) {
      idle_updates += idle && pair->clock != nullptr;
      if (idle && idle_updates == at_once) idle_turn_ = index + 1;
      pair->estimate = pair->EstimateAt(now_ns);
      pair->updated_ns = monotonic_ns;
      Pace(*pair);
      moved |= std::abs(pair->estimate.slope_ppb - pair->round_slope_ppb) > FleetClock::kRateMovedPpb;
    }
    if (pair->estimate.state == sync::SyncState::kUnknown || pair->epoch == pair->estimate.epoch) continue;
    if (pair->epoch != 0) {
      events_.Log({.type = "clock",
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
  idle_pairs_ = idle_pairs;
  if (moved && fleet_.RateJumped(now_ns, Links())) Round();
}

std::vector<ClockLink> ClockKeeper::Links() const {
  std::vector<ClockLink> links;
  for (const auto& [index, pair] : pairs_) {
    if (!fleet_.IsNeighbour(pair->peer) || pair->estimate.state == sync::SyncState::kUnknown) continue;
    ClockLink link{.peer = pair->peer,
                   .pair = index,
                   .address = pair->key.remote.ToString(),
                   .nic = "",
                   .by_nics = pair->ByNics(),
                   .estimate = pair->estimate};
    for (const NicState& nic : nics_) {
      if (nic.ifindex == pair->ifindex) link.nic = nic.config.name;
    }
    links.push_back(std::move(link));
  }
  return links;
}

// More probes while a line is young: after the start, a step, or a jump of a clock's rate.
void ClockKeeper::Pace(PairState& pair) {
  const bool young = pair.estimate.line_age_ns < kYoungLineNs;
  const probe::ClockPace pace = !pair.measures_clock ? probe::ClockPace::kNone
                                : young              ? probe::ClockPace::kYoung
                                                     : probe::ClockPace::kSteady;
  if (pace == pair.clock_pace) return;
  probing_.set_pace(pair.index, pace);
  pair.clock_pace = pace;
}

// One pair per host that is to be probed more often: the one that fleet time rests on, for as long as it is known.
void ClockKeeper::ChoosePairs() {
  const auto better = [](const PairState& a, const PairState& b) {
    const bool a_known = a.estimate.state == sync::SyncState::kSynchronised;
    const bool b_known = b.estimate.state == sync::SyncState::kSynchronised;
    return a_known != b_known ? a_known : a.measures_clock && !b.measures_clock;
  };
  std::map<std::string, const PairState*> chosen;
  for (const auto& [index, pair] : pairs_) {
    if (!fleet_.IsFast(pair->peer) || pair->last_reply_ns == 0) continue;
    const PairState*& best = chosen[pair->peer];
    if (best == nullptr || better(*pair, *best)) best = pair.get();
  }
  for (auto& [index, pair] : pairs_) {
    const auto found = chosen.find(pair->peer);
    const bool wanted = found != chosen.end() && found->second == pair.get();
    pair->measures_clock = wanted;
    Pace(*pair);
  }
}

// Fleet time serves others; the agent's own work does not rest on its being published.
void ClockKeeper::OpenOutput() {
  if (options_.output.page.empty()) return;
  absl::StatusOr<std::unique_ptr<ClockOutput>> output = ClockOutput::Create(options_.output);
  if (output.ok()) {
    output_ = *std::move(output);
    if (const absl::Status& error = output_->chrony_error(); !error.ok()) {
      events_.Log({.type = "clock",
                   .severity = telemetry::Severity::kAlert,
                   .text = absl::StrCat("chronyd is not fed: ", error.message())});
    }
  } else {
    events_.Log({.type = "clock",
                 .severity = telemetry::Severity::kAlert,
                 .text = absl::StrCat("fleet time is not published: ", output.status().message())});
  }
}

void ClockKeeper::Publish() {
  if (output_ == nullptr) return;
  const absl::Status status = output_->Publish(fleet_, has_anchor_);
  TellOfChrony();
  if (status.ok() != publish_failed_) return;
  publish_failed_ = !status.ok();
  events_.Log({.type = "clock",
               .severity = status.ok() ? telemetry::Severity::kNotice : telemetry::Severity::kAlert,
               .text = status.ok() ? "fleet time is published again"
                                   : absl::StrCat("fleet time's page cannot be written: ", status.message())});
}

// Both ways: chronyd may be started at any time, and TAI may get lost.
void ClockKeeper::TellOfChrony() {
  if (!output_->feeds_chrony()) return;
  const absl::Status& status = output_->chrony_status();
  if (status.ok() == chrony_fed_) return;
  chrony_fed_ = status.ok();
  events_.Log({.type = "clock",
               .severity = telemetry::Severity::kNotice,
               .text = status.ok() ? "chronyd is fed with fleet time's TAI"
                                   : absl::StrCat("chronyd is not fed any more: ", status.message())});
}

void ClockKeeper::Round() {
  probing_.before_round();
  if (rounds_ < kFirstRounds) ChoosePairs();
  if (output_ != nullptr && output_->Disrupted()) Forget();
  const int64_t now_ns = clock_->NowNs();
  for (auto& [index, pair] : pairs_) {
    if (fleet_.IsNeighbour(pair->peer)) pair->estimate = pair->EstimateAt(now_ns);
    pair->round_slope_ppb = pair->estimate.slope_ppb;
  }
  const sync::AnchorReading anchor = anchor_ == nullptr ? sync::AnchorReading{} : anchor_->Read();
  has_anchor_ = anchor.has;
  fleet_.SetLocalError(clock_->missing_ns(), clock_->bound_ns());
  for (telemetry::Event& event : fleet_.Round(now_ns, Links(), anchor)) events_.Log(std::move(event));
  Publish();
  SendClaims();
  ++rounds_;
}

// Our own fastest probes, for the peer to have the same kind of stamps in both directions.
void ClockKeeper::SendTrips(PairState& pair, int64_t now_ns) {
  if (pair.clock == nullptr) return;
  const bool often = pair.active || fleet_.IsNeighbour(pair.peer);
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
    mail_.Send(pair.index, batch);
    batch.trips.clear();
  }
  if (!batch.trips.empty()) mail_.Send(pair.index, batch);
}

// One claim per host, over one of its pairs; the next round takes the next pair, so that a dead NIC silences nobody.
void ClockKeeper::SendClaims() {
  std::map<std::string, std::vector<const PairState*>> hosts;
  for (const auto& [index, pair] : pairs_) {
    if (pair->last_reply_ns != 0) hosts[pair->peer].push_back(pair.get());
  }
  const uint64_t slow = kSlowRounds * (hosts.size() / kSlowHosts + 1);
  uint64_t turn = rounds_;
  const probe::ClockClaim claim{fleet_.Claim()};
  const bool tell_links = rounds_ % kSlowRounds == 0;
  for (const auto& [peer, pairs] : hosts) {
    const bool often = fleet_.IsNeighbour(peer) ||
                       std::any_of(pairs.begin(), pairs.end(), [](const PairState* pair) { return pair->active; });
    if (!often && turn++ % slow != 0) continue;
    const uint32_t over = pairs[rounds_ % pairs.size()]->index;
    mail_.Send(over, claim);
    if (tell_links && fleet_.IsNeighbour(peer)) SendLinks(over);
  }
}

void ClockKeeper::SendLinks(uint32_t pair) {
  probe::LinkBatch batch;
  for (const LinkReport& link : fleet_.OwnLinks()) {
    if (batch.links.size() == probe::kMaxLinksPerMessage) break;  // nobody has so many neighbours
    batch.links.push_back({.host_id = link.peer_id,
                           .disagreement_ns = link.disagreement_ns,
                           .error_ns = std::min(link.error_ns, probe::kMaxLinkErrorNs)});
  }
  if (!batch.links.empty()) mail_.Send(pair, batch);
}

void ClockKeeper::OnLinks(const PairState& pair, const probe::LinkBatch& batch) {
  std::vector<LinkReport> told;
  for (const probe::LinkRecord& link : batch.links) {
    told.push_back({.peer_id = link.host_id, .disagreement_ns = link.disagreement_ns, .error_ns = link.error_ns});
  }
  fleet_.OnLinks(pair.peer, std::move(told), clock_->NowNs());
}

// The local clock was set, or the machine slept.
void ClockKeeper::Forget() {
  for (auto& [index, pair] : pairs_) {
    if (pair->clock != nullptr) pair->clock->Reset();
  }
  fleet_.Disrupted(clock_->NowNs());
}

// CLOCK_MONOTONIC's rate has changed, and local time's has not: what readers are told in terms of the former has to
// change at once.
void ClockKeeper::OnSlew() {
  if (clock_->given_up() != given_up_) {
    given_up_ = clock_->given_up();
    events_.Log(
        {.type = "clock",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrFormat("CLOCK_MONOTONIC was slewed faster than can be made good: local time is off by %d us, "
                                 "and the clocks are compared afresh",
                                 clock_->last_given_up_ns() / 1000)});
    Forget();
  }
  std::abs(clock_->missing_ns()) > kMuchMissedNs ? Round() : Publish();
}

v1::ClockReply ClockKeeper::Reply() const {
  const std::string kind(config::ToString(options_.anchor));
  v1::ClockReply reply = MakeClockReply(fleet_, clock_->NowNs(), kind, anchor_ == nullptr ? "" : anchor_->note());
  reply.mutable_tracking()->set_slew_ppb(-clock_->slew_ppb());
  if (output_ == nullptr || !output_->feeds_chrony()) return reply;
  const absl::Status& fed = output_->chrony_status();
  reply.mutable_tracking()->set_chrony(fed.ok() ? "fed" : std::string(fed.message()));
  reply.mutable_tracking()->set_chrony_samples(output_->chrony_samples());
  return reply;
}

}  // namespace cw::agent
