// SPDX-License-Identifier: Apache-2.0
// What lies in the kernel: maps, programs, the control record and its lease.
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/rules_of_config.h"

namespace cw::agent {

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
  OpenControl();
  return absl::OkStatus();
}

// The record that the programs read with each packet, and what writes there.
void Agent::OpenControl() {
  const config::Config& config = options_.config;
  const bool adopted = dataplane_->adopted();
  cw_ctl& ctl = dataplane_->ctl()[0];
  const auto jiffies_at = [this](int64_t ns) { return jiffies_->AtNs(ns); };
  control_ = std::make_unique<ControlRecord>(ctl, config.StateDir() + "/" + SessionKeeper::kFile, jiffies_at,
                                             monotonic_, journal_);
  control_->Begin(config, adopted, absl::GetCurrentTimeNanos());
  lease_ = std::make_unique<Lease>(
      ctl, Lease::Ticks{.at = jiffies_at, .ns = [this](uint64_t jiffies) { return jiffies_->ToNs(jiffies); }},
      monotonic_);
  lease_->SetBlindAfter(config.probe.idle_interval);
  ShowPresence();
  const Lease::Flows flows{
      .steered =
          [this] {
            size_t count = 0;
            records_->ForEachSent([&](const FlowKey&, const cw_tx_flow& flow) { count += flow.port != 0 ? 1 : 0; });
            return count;
          },
      .went_home =
          [this] {
            const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
            return sums.ok() ? sums->moves_lease : uint64_t{0};
          }};
  if (adopted) lease_->TellOfFormer(config.steering.lease, flows, journal_);
  lease_->Renew(config.steering.lease);
  modes_ = std::make_unique<Modes>(ctl, deadlines_, monotonic_, journal_);
  modes_->Begin(AllowedBy(config), Overrides(config.steering.allow), adopted);
}

void Agent::ShowPresence() {
  absl::StatusOr<dataplane::Presence> presence = dataplane::Presence::Enter(dataplane_->PinOf(CW_MAP_PRESENCE));
  if (!presence.ok())
    spdlog::warn(
        "the programs can't know whether this process is there, so a host short of processors may look as if "
        "its agent were gone: {}; CAP_PERFMON is wanted",
        std::string(presence.status().message()));
  else
    presence_ = std::make_unique<dataplane::Presence>(*std::move(presence));
  lease_->SetPresent(presence_ != nullptr, ProcessorsOf(options_.config.probe));
}

}  // namespace cw::agent
