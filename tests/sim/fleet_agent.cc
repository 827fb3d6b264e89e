// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_agent.h"

#include <algorithm>

#include "userspace/model/addr_bytes.h"

namespace cw::sim {
namespace {

constexpr int64_t kPeriodNs = 10 * kSecondNs, kSoonestNs = kSecondNs;
constexpr int64_t kGatherNs = 100'000'000, kLateNs = 90 * kSecondNs;
constexpr double kClockBoundNs = 16'384;

}  // namespace

int64_t FleetAgent::ClockNs(int64_t now_ns) const { return now_ns - (late ? kLateNs : 0); }

void FleetAgent::Start(int64_t now_ns, uint64_t run) {
  run_ = run;
  builder_.emplace(name_, run);
  running = up = true;
  path_changed_ = false;
  taken_ns_ = 0;
  last_ns_ = now_ns;
  detail_ns_ = now_ns + kSecondNs;
  Connect(now_ns);
}

void FleetAgent::PathNews(int64_t now_ns) {
  if (!path_changed_) changed_ns_ = now_ns;
  path_changed_ = true;
}

void FleetAgent::Report(int64_t now_ns, std::vector<std::unique_ptr<ProbePair>>& all, const std::vector<bool>& awake) {
  const bool soon = path_changed_ && now_ns >= std::max(taken_ns_ + kSoonestNs, changed_ns_ + kGatherNs);
  if (!running || !builder_ || (now_ns < detail_ns_ && !soon)) return;
  path_changed_ = false;
  taken_ns_ = now_ns;
  detail_ns_ = soon ? now_ns + kPeriodNs : std::max(detail_ns_ + kPeriodNs, now_ns);
  const int64_t seconds = std::clamp<int64_t>((now_ns - last_ns_ + kSecondNs - 1) / kSecondNs, 1, 10);
  std::vector<uplink::PathSeen> seen;
  for (const size_t p : pairs) {
    if (!awake[p]) all[p]->CatchUp(now_ns);
    all[p]->AppendTo(seen, now_ns, static_cast<int>(seconds));
  }
  if (lie) lie(seen);
  // As Uplink::Inventory: neither rail, rate nor what RDMA makes of the MTU.
  cwfabric::v1::Inventory inventory;
  for (const Nic& nic : nics) {
    cwfabric::v1::NicFacts* facts = inventory.add_nics();
    facts->set_name(nic.name);
    facts->add_addresses(AddressBytes(nic.address));
    facts->set_mtu(nic.mtu);
  }
  cwfabric::v1::ClockState clock;
  clock.set_synced(clock_synced);
  if (clock_synced) clock.set_bound_ns(kClockBoundNs);
  const uplink::Interval interval{.from_ns = ClockNs(last_ns_), .to_ns = ClockNs(now_ns), .bound_ns = 1'000'000};
  last_ns_ = now_ns;
  service_.Take(name_, builder_->Detail(seen, inventory, clock, interval), now_ns);
}

void FleetAgent::Tell(int64_t now_ns, const std::string& type, const std::string& peer, bool alert,
                      const std::vector<std::pair<std::string, std::string>>& evidence) {
  if (!running || !builder_) return;
  cwfabric::v1::Event event;
  event.set_seq(++seq_);
  event.set_run(run_);
  event.set_time_unix_ns(ClockNs(now_ns));
  event.set_type(type);
  event.set_severity(alert ? cwfabric::v1::SEVERITY_ALERT : cwfabric::v1::SEVERITY_NOTICE);
  event.set_peer(peer);
  if (type == "cause") event.set_flow("flow to " + peer);
  for (const auto& [key, value] : evidence) {
    cwfabric::v1::Evidence* out = event.add_evidence();
    out->set_name(key);
    out->set_value(value);
  }
  for (const cwfabric::v1::Batch& batch :
       builder_->Events({&event, 1}, {.from_ns = ClockNs(now_ns), .to_ns = ClockNs(now_ns), .bound_ns = 1'000'000}))
    service_.Take(name_, batch, now_ns);
}

}  // namespace cw::sim
