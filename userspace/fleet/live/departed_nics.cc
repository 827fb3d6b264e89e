// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/live/departed_nics.h"

#include <utility>
#include <vector>

#include "absl/time/clock.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/ingest/translate.h"

namespace cw::fleet {

absl::Status DepartedNics::Look(uint64_t removals) {
  if (removals_ == removals) return absl::OkStatus();
  const absl::StatusOr<std::vector<HostSeen>> hosts = store_.Hosts();
  if (!hosts.ok()) return hosts.status();
  std::set<Addr> nics, kept;
  for (const HostSeen& seen : *hosts) {
    const absl::StatusOr<HostView> view = store_.LatestAt(seen.host, absl::GetCurrentTimeNanos(), absl::ZeroDuration());
    if (!view.ok()) continue;
    for (const Document& document : view->documents) {
      cwfabric::v1::Inventory inventory;
      if (document.kind != "inventory" || !inventory.ParseFromString(document.bytes)) continue;
      for (const cwfabric::v1::NicFacts& nic : inventory.nics()) {
        for (const std::string& bytes : nic.addresses()) {
          if (const std::optional<Addr> address = AddressOf(bytes); address) {
            kept.insert(*address);
            if (seen.facts.removed_ns != 0) nics.insert(*address);
          }
        }
      }
    }
  }
  nics_ = std::move(nics);
  kept_ = std::move(kept);
  removals_ = removals;
  return absl::OkStatus();
}

}  // namespace cw::fleet
