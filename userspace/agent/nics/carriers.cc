// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/carriers.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

constexpr uint64_t kMostOutages = 64;  // outages between two looks; more say nothing more

}  // namespace

void Carriers::OnNews(const dataplane::LinkNews::Changed& changed) {
  bool any = false;
  for (NicState& nic : nics_) {
    nic.removed |= changed.removed.contains(nic.ifindex);
    if (!changed.Has(nic.ifindex) && !nic.removed) continue;
    LookAt(nic);
    any = true;
  }
  if (any) asks_.changed();
}

void Carriers::LookAtAll() {
  for (NicState& nic : nics_) LookAt(nic);
}

// The state may be ahead of the count of losses by one.
void Carriers::LookAt(NicState& nic) {
  const absl::StatusOr<metrics::LinkReading> reading = asks_.read(nic.ifindex);
  if (!reading.ok() && !absl::IsNotFound(reading.status())) return;  // not known: as it was
  nic.removed |= !reading.ok();
  if (!nic.removed) Follow(nic, reading->name);
  const bool up = !nic.removed && reading->up;
  uint64_t counted = nic.removed ? nic.carrier_losses : reading->downs;
  uint64_t losses = 0;
  if (nic.carrier_known) {
    if (!up && nic.carrier) counted = std::max(counted, nic.carrier_losses + 1);
    losses = counted > nic.carrier_losses ? counted - nic.carrier_losses : 0;
    if (counted + 1 == nic.carrier_losses) counted = nic.carrier_losses;  // less than that: the device was made anew
  }
  nic.carrier_known = true;
  nic.carrier = up;
  nic.carrier_losses = counted;
  if (losses > 0) CountLosses(nic, losses);
  Tell(nic, "carrier", losses);
  if (nic.removed) LookForItsReturn(nic);
}

// Another name is no other NIC: programs, sockets and routes are bound to the ifindex.
void Carriers::Follow(NicState& nic, const std::string& name) {
  if (name.empty() || name == nic.device) return;
  const std::string before = std::exchange(nic.device, name);
  events_.Log({.type = "nic",
               .severity = telemetry::Severity::kNotice,
               .text = name == nic.config.name ? absl::StrFormat("NIC %s is called so again", name)
                                               : absl::StrFormat("NIC %s is now called %s", nic.config.name, name),
               .evidence = {{"nic", nic.config.name}, {"device_before", before}, {"device", name}}});
}

// A device of this NIC's name that was made anew, or was elsewhere meanwhile, has none of our programs, and most of
// what the agent knows is bound to the one before. Never one that is another of our NICs and got the name.
void Carriers::LookForItsReturn(const NicState& nic) {
  const absl::StatusOr<uint32_t> ifindex = asks_.ifindex_of(nic.config.name);
  if (!ifindex.ok()) return;
  if (const NicState* other = NicOf(nics_, *ifindex); other != nullptr && other != &nic && !other->removed) return;
  // Not before every NIC is there with its address: the next agent would not start. All are looked at each second.
  const bool all_there =
      std::all_of(nics_.begin(), nics_.end(), [this](const NicState& n) { return asks_.is_there(n.config); });
  if (!all_there) return;
  asks_.start_anew(
      {.type = "nic",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrFormat("NIC %s was removed and is there again: the agent ends, to be started on it anew",
                               nic.config.name),
       .evidence = {{"nic", nic.config.name},
                    {"ifindex_before", absl::StrCat(nic.ifindex)},
                    {"ifindex", absl::StrCat(*ifindex)}}});
}

void Carriers::CountLosses(NicState& nic, uint64_t losses) {
  nic.carrier_lost_ns = monotonic_.NowNs();
  for (uint64_t i = 0; i < std::min(losses, kMostOutages); ++i) {
    links_.OwnLinkDown(nic.config.name, nic.carrier_lost_ns);
  }
}

void Carriers::OnRdmaPort(const std::string& netdev, bool up) {
  for (NicState& nic : nics_) {
    if (nic.removed || nic.device != netdev || nic.rdma_down == !up) continue;
    nic.rdma_down = !up;
    Tell(nic, "rdma_port", 0);
    asks_.changed();
  }
}

// Once for each change, by the witness that tells it first.
void Carriers::Tell(NicState& nic, const char* witness, uint64_t losses) {
  const bool up = nic.carrier && !nic.rdma_down;
  const bool changed = up != nic.link_up;
  nic.link_up = up;
  if (!changed && (!up || losses == 0)) return;
  // Where another NIC carries its packets, jobs go on.
  const bool helped = asks_.helped(nic);
  telemetry::Event event{.type = "nic"};
  event.severity = up || helped ? telemetry::Severity::kNotice : telemetry::Severity::kAlert;
  if (!changed) {
    event.text = absl::StrFormat("NIC %s lost its carrier %d times and has it back", nic.config.name, losses);
  } else if (up) {
    event.text = absl::StrFormat("NIC %s: its link is up again", nic.config.name);
  } else if (nic.removed) {
    event.text = absl::StrFormat("NIC %s: its link is down, the device was removed", nic.config.name);
  } else if (!nic.carrier) {
    event.text = absl::StrFormat("NIC %s: its link is down, it has no carrier", nic.config.name);
  } else {
    event.text =
        absl::StrFormat("NIC %s: the port of its RDMA device is down, though it has a carrier", nic.config.name);
  }
  event.evidence = {{"nic", nic.config.name},
                    {"device", nic.device},
                    {"witness", witness},
                    {"carrier", nic.carrier ? "up" : "down"},
                    {"rdma_port", nic.rdma_down ? "down" : "not down"},
                    {"carrier_losses", absl::StrCat(nic.carrier_losses)}};
  events_.Log(std::move(event));
}

// Since the path's last sign of life.
bool Carriers::Lost(const PairState& pair, const cw_ev_slot& verdict) {
  NicState* nic = NicOf(nics_, pair.ifindex);
  if (nic == nullptr) return false;
  LookAt(*nic);
  const int64_t alive_ns = static_cast<int64_t>(verdict.ns) - verdict.silence_ns + monotonic_.NowNs() - local_.NowNs();
  return !nic->carrier || (nic->carrier_lost_ns != 0 && nic->carrier_lost_ns >= alive_ns);
}

}  // namespace cw::agent
