// SPDX-License-Identifier: Apache-2.0
// What lies in the kernel: maps, programs, the control record and its lease.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/rules_of_config.h"

namespace cw::agent {
namespace {

constexpr int64_t kSettleNs = 2'000'000'000;  // flows that appear within this time of the start already ran

}  // namespace

absl::Status Agent::OpenDataplane() {
  const config::Config& config = options_.config;
  dataplane::Options options;
  options.instance = config.instance;
  options.max_pairs = static_cast<uint32_t>(config.limits.max_pairs);
  options.max_flows = static_cast<uint32_t>(config.limits.max_flows);
  options.max_tx_flows = static_cast<uint32_t>(config.limits.max_tx_flows);
  options.lab_clock = options_.lab_clock;
  options.lab_nic = options_.lab_nic;
  options.nic_failover = config.steering.nic_failover;
  absl::StatusOr<std::unique_ptr<dataplane::Dataplane>> opened = dataplane::Dataplane::Open(options);
  if (!opened.ok()) return opened.status();
  dataplane_ = std::move(*opened);
  records_ = std::make_unique<MapFlowRecords>(*dataplane_);
  for (const std::string& note : dataplane_->notes()) spdlog::info("{}", note);
  clock_ = std::make_shared<LineClock>(options_.clock, &dataplane_->local_clock()[0]);
  clock_->Look();
  absl::StatusOr<dataplane::Jiffies> jiffies = dataplane::Jiffies::Create();  // takes long enough to see a slew
  if (!jiffies.ok()) return jiffies.status();
  jiffies_ = std::make_unique<dataplane::Jiffies>(*jiffies);
  clock_->Look();
  clock_->set_on_change([this] {
    if (slew_posted_.exchange(true)) return;
    loop_->Post([this] {
      slew_posted_.store(false);
      clocks_->OnSlew();
    });
  });
  WriteControl();
  return absl::OkStatus();
}

void Agent::WriteControl() {
  const config::Config& config = options_.config;
  using maps::CtlView;
  cw_ctl& ctl = dataplane_->ctl()[0];
  BeginSession(CtlView::Load(ctl.session));
  CtlView::Store(ctl.abi_version, CW_ABI_VERSION);
  lease_ = std::make_unique<Lease>(ctl,
                                   Lease::Ticks{.at = [this](int64_t ns) { return jiffies_->AtNs(ns); },
                                                .ns = [this](uint64_t jiffies) { return jiffies_->ToNs(jiffies); }},
                                   monotonic_);
  lease_->SetBlindAfter(config.probe.idle_interval);
  WriteKnobs();
  // Adopted flows are known; only what the first agent finds running counts as old.
  const int64_t settle_ns = dataplane_->adopted() ? 0 : kSettleNs;
  CtlView::Store(ctl.assign_jiffies, config.steering.assign_new_flows ? jiffies_->AtNs(MonotonicNs() + settle_ns) : 0);
  if (dataplane_->adopted()) TellOfLease();
  lease_->Renew(config.steering.lease);
  modes_ = std::make_unique<Modes>(ctl, deadlines_, monotonic_, journal_);
  modes_->Begin(AllowedBy(config), Overrides(config.steering.allow), dataplane_->adopted());
}

// What the programs read anew for each packet.
void Agent::WriteKnobs() {
  const config::Config& config = options_.config;
  using maps::CtlView;
  cw_ctl& ctl = dataplane_->ctl()[0];
  CtlView::Store(ctl.sample_level_tx, static_cast<uint32_t>(config.samples.level_tx));
  CtlView::Store(ctl.sample_level_rx, static_cast<uint32_t>(config.samples.level_rx));
  CtlView::Store(ctl.miss_limit, static_cast<uint32_t>(config.liveness.misses));
  CtlView::Store(ctl.patience_ns, static_cast<uint32_t>(absl::ToInt64Nanoseconds(config.liveness.patience)));
  CtlView::Store(ctl.revive_limit, static_cast<uint32_t>(config.liveness.revive));
  CtlView::Store(ctl.move_gap_ns, static_cast<uint64_t>(absl::ToInt64Nanoseconds(config.steering.move_gap)));
  if (!config.steering.assign_new_flows) {
    CtlView::Store(ctl.assign_jiffies, uint64_t{0});
  } else if (CtlView::Load(ctl.assign_jiffies) == 0) {
    CtlView::Store(ctl.assign_jiffies, jiffies_->AtNs(MonotonicNs()));
  }
}

void Agent::BeginSession(uint32_t pinned) {
  const absl::Status kept = session_.Begin(pinned, absl::GetCurrentTimeNanos(), MonotonicNs());
  if (!kept.ok()) {
    spdlog::warn(
        "the session is not kept ({}): after a reboot with a clock that is behind, peers would refuse this host's "
        "probes as replayed until the clock is set; let the agent write state_dir ({})",
        std::string(kept.message()), options_.config.StateDir());
  }
  maps::CtlView::Store(dataplane_->ctl()[0].session, session_.session());
}

// A host that had booted with a clock that was behind, and knew no session before, is refused by its peers until now.
void Agent::RenewSession() {
  if (!session_.Due(absl::GetCurrentTimeNanos(), MonotonicNs())) return;
  // Where a peer answers it is believed as it is; a new session would cost every pair its history.
  const bool heard =
      std::any_of(pairs_.begin(), pairs_.end(), [](const auto& pair) { return pair.second->last_reply_ns != 0; });
  if (heard) return;
  BeginSession(session_.session());
  if (absl::Status status = engine_->SetSession(session_.session()); !status.ok()) {
    spdlog::error("new session: {}", std::string(status.message()));
  }
  Log({.type = "agent",
       .severity = telemetry::Severity::kNotice,
       .text = "the wall clock was set forward: a new session begins, so that no peer takes this host for an old one",
       .evidence = {{"session", absl::StrCat(session_.session())}}});
}

void Agent::TellOfLease() {
  const auto steered = [this] {
    size_t count = 0;
    records_->ForEachSent([&](const FlowKey&, const cw_tx_flow& flow) { count += flow.port != 0 ? 1 : 0; });
    return count;
  };
  const auto went_home = [this] {
    const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
    return sums.ok() ? sums->moves_lease : uint64_t{0};
  };
  lease_->TellOfFormer(options_.config.steering.lease, {.steered = steered, .went_home = went_home}, journal_);
}

absl::Status Agent::OpenRings() {
  auto open = [](const maps::BpfMap& map, maps::RingReader::Callback callback,
                 std::unique_ptr<maps::RingReader>* out) -> absl::Status {
    absl::StatusOr<std::unique_ptr<maps::RingReader>> reader = maps::RingReader::Create(map, std::move(callback));
    if (!reader.ok()) return reader.status();
    *out = std::move(*reader);
    return absl::OkStatus();
  };
  absl::Status status = open(
      dataplane_->probe_ring(), [this](auto record) { OnProbeRecord(record); }, &probe_reader_);
  status.Update(open(
      dataplane_->event_ring(), [this](auto record) { OnEventRecord(record); }, &event_reader_));
  status.Update(open(
      dataplane_->msg_ring(), [this](auto record) { OnMessageRecord(record); }, &message_reader_));
  if (!status.ok()) return status;
  status.Update(loop_->AddFd(event_reader_->epoll_fd(), [this] { (void)event_reader_->Consume(); }));
  status.Update(loop_->AddFd(message_reader_->epoll_fd(), [this] { (void)message_reader_->Consume(); }));
  return status;
}

}  // namespace cw::agent
