// SPDX-License-Identifier: Apache-2.0
// What path discovery and the slots have to say.
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

std::string HopText(const probe::Hops& hops) {
  return absl::StrJoin(
      hops, " ", [](std::string* out, const Addr& hop) { absl::StrAppend(out, hop.is_zero() ? "*" : hop.ToString()); });
}

}  // namespace

void Agent::AddPair(uint32_t index) {
  const probe::PairSpec& spec = engine_->mesh().spec(index);
  auto pair = std::make_unique<PairState>();
  pair->index = index;
  pair->key = spec.key();
  pair->ifindex = static_cast<uint32_t>(spec.local_ifindex);
  pair->peer = spec.peer;
  pair->delays = totals_->DelaysOf(*pair);
  pair->sums = totals_->FlowsOf(pair->key.local);
  pairs_[index] = std::move(pair);
}

void Agent::ScheduleTick() {
  const int64_t now_ns = NowNs();
  const int64_t next_ns = engine_->NextTickNs(now_ns);
  if (next_ns == INT64_MAX || next_ns >= engine_tick_ns_) return;
  engine_tick_ns_ = next_ns;
  loop_->After(absl::Nanoseconds(std::max<int64_t>(next_ns - now_ns, 0)), [this, next_ns] {
    if (engine_tick_ns_ != next_ns) return;  // an earlier one was scheduled since, and took over
    engine_tick_ns_ = INT64_MAX;
    engine_->Tick(NowNs());
    ScheduleTick();
  });
}

void Agent::OnTable(uint32_t index, const probe::PathTable& table) {
  PairState* pair = FindPair(index);
  if (pair == nullptr) return;
  size_t unknown = 0, silent = 0;
  for (const probe::Path& path : table.paths) {
    unknown += path.known ? 0 : 1;
    silent += path.hops.empty() ? 1 : 0;
  }
  const std::string paths = absl::StrCat(Counted(table.paths.size(), "path"), " to ", pair->peer);
  const bool no_switch = silent > 1 && silent == table.paths.size();  // as on a cable, where ports choose nothing
  Log({.type = "fabric",
       .text = no_switch     ? absl::StrCat("no switch on the way to ", pair->peer, " answers: ", silent,
                                            " ports are probed, each as a path")
               : unknown > 0 ? absl::StrCat(paths, ", ", unknown, " of them with switches that do not answer")
                             : paths,
       .peer = pair->peer});
  pair->table_seen = true;
  link_flaps_->Remember(*pair);
}

void Agent::OnInvalid(uint32_t index, const probe::DiscoveryEvent& event) {
  PairState* pair = FindPair(index);
  if (pair == nullptr) return;
  Log({.type = "fabric",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrCat("paths to ", pair->peer, " changed: port ", event.port,
                            " now takes other switches; no moves until the paths are known again"),
       .peer = pair->peer,
       .evidence = {{"hops_before", HopText(event.before)}, {"hops_now", HopText(event.after)}}});
}

void Agent::OnHashing(uint32_t index, probe::Hashing hashing) {
  PairState* pair = FindPair(index);
  if (pair == nullptr) return;
  telemetry::Event event{.type = "fabric", .peer = pair->peer};
  switch (hashing) {
    case probe::Hashing::kPorts:
      event.text = "ports choose the paths to " + pair->peer;
      break;
    case probe::Hashing::kSinglePath:
      event.text = "all ports take one path to " + pair->peer;
      break;
    case probe::Hashing::kUnknown:
      event.text = "which switches ports take to " + pair->peer + " cannot be seen, so flows are not moved for balance";
      break;
    case probe::Hashing::kSprayed:
      event.text = "packets to " + pair->peer +
                   " are sprayed: a port takes other switches each time, so flows keep their own ports";
      break;
    case probe::Hashing::kQpn:
      event.text = "switches on the paths to " + pair->peer +
                   " hash on the destination QPN too: probes do not take the paths of flows, so flows keep their own "
                   "ports, are not moved for balance, and leave a dead path by chance only";
      break;
    case probe::Hashing::kTtl:
      event.text = "paths to " + pair->peer +
                   " depend on the TTL too, so flows are not moved for balance, and "
                   "those with another TTL than the probes' 64 leave a dead path by chance only";
      break;
  }
  if (!probe::PortsChoosePaths(hashing)) event.severity = telemetry::Severity::kAlert;
  Log(std::move(event));
  const bool blind = !probe::ProbesFollowFlows(hashing);
  if (std::exchange(pair->blind, blind) == blind) return;
  natives_->OnBlind(*pair);
  damping_->Publish(*pair);
}

void Agent::OnSlotUpdate(uint32_t index, const probe::SlotUpdate& update) {
  PairState* pair = FindPair(index);
  if (pair == nullptr) return;
  for (const probe::SlotChange& change : update.slots) {
    // Another port is another path: its past belongs to the old one.
    pair->slot[change.slot].forward.Restart(MonotonicNs());
    pair->clock_paths.ForgetThere(change.slot);
    pair->slot[change.slot].damping = control::PathDamping();
    pair->slot[change.slot].flaps = control::FlapCounter();
    link_flaps_->Leave(*pair, change.slot);
    pair->slot[change.slot].answered_ns = 0;
    pair->slot[change.slot].silence.reset();
    pair->slot[change.slot].queue_ns = 0;
    if (pair->loss != nullptr) pair->loss->Forget(change.slot);
    if (pair->stalls != nullptr) pair->stalls->Forget(change.slot);
    if (change.old_port == 0) continue;
    // Flows that were steered to a port that this slot no longer means go to another path, or back to their own port.
    if (modes_->Acts(Capability::kFailover) && !pair->blind &&
        kernel_mover_->Leave(*pair, change.slot, Capability::kFailover, change.old_port) > 0)
      continue;
    for (auto& [key, flow] : flows_.sent) {
      if (flow.tx.pair != index || flow.tx.slot != change.slot || flow.tx.port == 0) continue;
      (void)records_->Place(key, CW_SLOT_NONE, 0);
    }
  }
  link_flaps_->Remember(*pair);
  for (const probe::NativeChange& change : update.natives) {
    unseen_->OnNative(index, change);
    natives_->OnNative(index, change);
  }
}

}  // namespace cw::agent
