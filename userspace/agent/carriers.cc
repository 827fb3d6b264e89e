// SPDX-License-Identifier: Apache-2.0
// Our own NICs' links: their carriers, by the kernel's news and count of losses, and the ports of RDMA devices on them.
// What happens to one is told in every mode, is what NIC failover goes by, and is the cause of what dies meanwhile.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/dataplane/link_news.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/metrics/link_flaps.h"

namespace cw::agent {
namespace {

constexpr uint64_t kMostOutages = 64;  // outages between two looks; more say nothing more

}  // namespace

absl::Status Agent::OpenCarriers() {
  LookAtCarriers();
  absl::StatusOr<std::unique_ptr<dataplane::LinkNews>> news = dataplane::LinkNews::Open();
  if (!news.ok()) {
    spdlog::warn("carriers of NICs are looked at once a second only: {}", std::string(news.status().message()));
    return absl::OkStatus();
  }
  link_news_ = *std::move(news);
  return loop_->AddFd(link_news_->fd(), [this] { OnLinkNews(); });
}

void Agent::OnLinkNews() {
  const dataplane::LinkNews::Changed changed = link_news_->Take();
  bool any = false;
  for (Nic& nic : nics_) {
    nic.removed |= changed.removed.contains(nic.ifindex);
    if (!changed.Has(nic.ifindex) && !nic.removed) continue;
    LookAtCarrier(nic);
    any = true;
  }
  if (any && nic_failover_ != nullptr) WatchNics();
}

void Agent::LookAtCarriers() {
  for (Nic& nic : nics_) LookAtCarrier(nic);
}

// The state may be ahead of the count of losses by one.
void Agent::LookAtCarrier(Nic& nic) {
  const absl::StatusOr<metrics::LinkReading> reading = metrics::ReadLink(nic.config.name);
  if (!reading.ok() && !absl::IsNotFound(reading.status())) return;  // not known: as it was
  const bool up = reading.ok() && reading->up;
  uint64_t counted = reading.ok() ? reading->downs : nic.carrier_losses;
  uint64_t losses = 0;
  if (nic.carrier_known) {
    if (!up && nic.carrier) counted = std::max(counted, nic.carrier_losses + 1);
    losses = counted > nic.carrier_losses ? counted - nic.carrier_losses : 0;
    if (counted + 1 == nic.carrier_losses) counted = nic.carrier_losses;  // less than that: the device was made anew
  }
  nic.carrier_known = true;
  nic.carrier = up;
  nic.carrier_losses = counted;
  if (losses > 0) CountCarrierLosses(nic, losses);
  TellOfLink(nic, "carrier", losses);
  LookForItsReturn(nic);
}

void Agent::LookAtMtu(Nic& nic) {
  const absl::StatusOr<uint32_t> mtu = dataplane::MtuOf(nic.config.name);
  if (!mtu.ok() || *mtu == nic.mtu) return;
  nic.mtu = *mtu;
  if (nic_failover_ != nullptr) TellOfSmallMtus();
}

// A device of this NIC's name that was made anew, or was elsewhere meanwhile, has none of our programs, and most of
// what the agent knows is bound to the one before.
void Agent::LookForItsReturn(Nic& nic) {
  const absl::StatusOr<uint32_t> ifindex = dataplane::IfindexOf(nic.config.name);
  if (absl::IsNotFound(ifindex.status())) nic.removed = true;
  if (!ifindex.ok() || (!nic.removed && *ifindex == nic.ifindex)) return;
  // Not before every NIC is there with its address: the next agent would not start. All are looked at each second.
  const bool all_there = std::all_of(nics_.begin(), nics_.end(), [](const Nic& n) { return IsThere(n.config); });
  if (!all_there) return;
  StartAnew({.type = "nic",
             .severity = telemetry::Severity::kNotice,
             .text = absl::StrFormat("NIC %s was removed and is there again: the agent ends, to be started on it anew",
                                     nic.config.name),
             .evidence = {{"nic", nic.config.name},
                          {"ifindex_before", absl::StrCat(nic.ifindex)},
                          {"ifindex", absl::StrCat(*ifindex)}}});
}

// What the service's Restart= is for; programs, maps and flows stay as they are.
void Agent::StartAnew(telemetry::Event why) {
  if (starts_anew_) return;
  starts_anew_ = true;
  Log(std::move(why));
  loop_->Stop();
}

void Agent::CountCarrierLosses(Nic& nic, uint64_t losses) {
  nic.carrier_lost_ns = MonotonicNs();
  for (uint64_t i = 0; i < std::min(losses, kMostOutages); ++i) {
    link_flaps_->OwnLinkDown(nic.config.name, nic.carrier_lost_ns);
  }
}

void Agent::OnRdmaPort(const std::string& netdev, bool up) {
  for (Nic& nic : nics_) {
    if (nic.config.name != netdev || nic.rdma_down == !up) continue;
    nic.rdma_down = !up;
    TellOfLink(nic, "rdma_port", 0);
    if (nic_failover_ != nullptr) WatchNics();
  }
}

// Once for each change, by the witness that tells it first.
void Agent::TellOfLink(Nic& nic, const char* witness, uint64_t losses) {
  const bool up = nic.carrier && !nic.rdma_down;
  const bool changed = up != nic.link_up;
  nic.link_up = up;
  if (!changed && (!up || losses == 0)) return;
  // Where another NIC carries its packets, jobs go on.
  const bool helped = nic_failover_ != nullptr && modes_->Acts(Capability::kNic);
  telemetry::Event event{.type = "nic"};
  event.severity = up || helped ? telemetry::Severity::kNotice : telemetry::Severity::kAlert;
  if (!changed) {
    event.text = absl::StrFormat("NIC %s lost its carrier %d times and has it back", nic.config.name, losses);
  } else if (up) {
    event.text = absl::StrFormat("NIC %s: its link is up again", nic.config.name);
  } else if (!nic.carrier) {
    event.text = absl::StrFormat("NIC %s: its link is down, it has no carrier", nic.config.name);
  } else {
    event.text =
        absl::StrFormat("NIC %s: the port of its RDMA device is down, though it has a carrier", nic.config.name);
  }
  event.evidence = {{"nic", nic.config.name},
                    {"witness", witness},
                    {"carrier", nic.carrier ? "up" : "down"},
                    {"rdma_port", nic.rdma_down ? "down" : "not down"},
                    {"carrier_losses", absl::StrCat(nic.carrier_losses)}};
  Log(std::move(event));
}

Agent::Nic* Agent::NicOf(const PairState& pair) {
  const auto found = std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.ifindex == pair.ifindex; });
  return found == nics_.end() ? nullptr : &*found;
}

// Since the path's last sign of life.
bool Agent::LostCarrier(const PairState& pair, const cw_ev_slot& verdict) {
  Nic* nic = NicOf(pair);
  if (nic == nullptr) return false;
  LookAtCarrier(*nic);
  const int64_t alive_ns = static_cast<int64_t>(verdict.ns) - verdict.silence_ns + MonotonicNs() - NowNs();
  return !nic->carrier || (nic->carrier_lost_ns != 0 && nic->carrier_lost_ns >= alive_ns);
}

}  // namespace cw::agent
