// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/paths/fabric_news.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

std::string HopText(const probe::Hops& hops) {
  return absl::StrJoin(
      hops, " ", [](std::string* out, const Addr& hop) { absl::StrAppend(out, hop.is_zero() ? "*" : hop.ToString()); });
}

}  // namespace

void FabricNews::OnTable(uint32_t index, const probe::PathTable& table) {
  PairState* pair = FindIn(pairs_, index);
  if (pair == nullptr) return;
  size_t unknown = 0, silent = 0;
  for (const probe::Path& path : table.paths) {
    unknown += path.known ? 0 : 1;
    silent += path.hops.empty() ? 1 : 0;
  }
  const std::string paths = absl::StrCat(Counted(table.paths.size(), "path"), " to ", pair->peer);
  const bool no_switch = silent > 1 && silent == table.paths.size();  // as on a cable, where ports choose nothing
  events_.Log({.type = "fabric",
               .text = no_switch     ? absl::StrCat("no switch on the way to ", pair->peer, " answers: ", silent,
                                                    " ports are probed, each as a path")
                       : unknown > 0 ? absl::StrCat(paths, ", ", unknown, " of them with switches that do not answer")
                                     : paths,
               .peer = pair->peer});
  pair->table_seen = true;
  links_.Remember(*pair);
}

void FabricNews::OnInvalid(uint32_t index, const probe::DiscoveryEvent& event) {
  PairState* pair = FindIn(pairs_, index);
  if (pair == nullptr) return;
  events_.Log({.type = "fabric",
               .severity = telemetry::Severity::kNotice,
               .text = absl::StrCat("paths to ", pair->peer, " changed: port ", event.port,
                                    " now takes other switches; no moves until the paths are known again"),
               .peer = pair->peer,
               .evidence = {{"hops_before", HopText(event.before)}, {"hops_now", HopText(event.after)}}});
}

void FabricNews::OnHashing(uint32_t index, probe::Hashing hashing) {
  PairState* pair = FindIn(pairs_, index);
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
  events_.Log(std::move(event));
  const bool blind = !probe::ProbesFollowFlows(hashing);
  if (std::exchange(pair->blind, blind) == blind) return;
  asks_.blind(*pair);
}

void FabricNews::OnSlotUpdate(uint32_t index, const probe::SlotUpdate& update) {
  PairState* pair = FindIn(pairs_, index);
  if (pair == nullptr) return;
  for (const probe::SlotChange& change : update.slots) {
    // Another port is another path: its past belongs to the old one.
    pair->slot[change.slot].forward.Restart(monotonic_.NowNs());
    pair->path_silence.Forget(change.slot);
    pair->clock_paths.ForgetThere(change.slot);
    pair->slot[change.slot].damping = control::PathDamping();
    pair->slot[change.slot].flaps = control::FlapCounter();
    links_.Leave(*pair, change.slot);
    pair->slot[change.slot].answered_ns = 0;
    pair->slot[change.slot].silence.reset();
    pair->slot[change.slot].size = control::PathSize();
    pair->slot[change.slot].queue_ns = 0;
    if (pair->loss != nullptr) pair->loss->Forget(change.slot);
    if (pair->stalls != nullptr) pair->stalls->Forget(change.slot);
    if (change.old_port == 0) continue;
    // Flows that were steered to a port that this slot no longer means go to another path, or back to their own port.
    if (!pair->blind && asks_.leave(*pair, change.slot, change.old_port)) continue;
    for (auto& [key, flow] : flows_.sent) {
      if (flow.tx.pair != index || flow.tx.slot != change.slot || flow.tx.port == 0) continue;
      (void)records_.Place(key, CW_SLOT_NONE, 0);
    }
  }
  links_.Remember(*pair);
  for (const probe::NativeChange& change : update.natives) asks_.native(index, change);
}

}  // namespace cw::agent
