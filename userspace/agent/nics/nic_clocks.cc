// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/nic_clocks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/fleet_clock/clock_view.h"
#include "userspace/phc/phc_clock.h"

namespace cw::agent {

NicClocks::NicClocks(NicTable& nics, const PairTable& pairs, std::shared_ptr<const Clock> local, Lines lines,
                     StampsOf device_stamps, MakeClock make_simulated)
    : nics_(nics),
      pairs_(pairs),
      local_(std::move(local)),
      lines_(std::move(lines)),
      device_stamps_(std::move(device_stamps)),
      make_simulated_(std::move(make_simulated)) {}

// A NIC without a clock is as good as it was: nothing here is an error.
void NicClocks::Open(NicState& nic) {
  if (nic.config.clock == "none") {
    nic.clock_note = "its clock is not read: clock = \"none\"";
  } else if (make_simulated_) {
    nic.node = std::make_unique<NicNode>(nic.config.name, "simulated", make_simulated_(local_));
  } else {
    std::string path = nic.config.clock;
    if (path == "auto") {
      const absl::StatusOr<int> index = phc::PhcIndexOf(nic.config.name);
      path = index.ok() ? absl::StrCat("/dev/ptp", *index) : "";
      if (!index.ok()) nic.clock_note = std::string(index.status().message());
    }
    if (!path.empty()) {
      absl::StatusOr<std::unique_ptr<phc::PhcClock>> clock = phc::PhcClock::Open(path, local_);
      if (clock.ok()) {
        nic.node = std::make_unique<NicNode>(nic.config.name, path, *std::move(clock));
      } else {
        nic.clock_note = std::string(clock.status().message());
        spdlog::warn("{}: its clock is not read: {}", nic.config.name, nic.clock_note);
      }
    }
  }
  const bool wanted = nic.config.rx_stamps == config::RxStamps::kHardware;
  if (wanted && !nic.attach.stamps_note.empty()) nic.clock_note = nic.attach.stamps_note;
  if (wanted && !nic.by_verbs && (!nic.attach.nic_stamps || nic.node == nullptr))
    spdlog::warn("{}: arrivals are stamped by software: {}", nic.config.name, nic.clock_note);
}

// What the stamps of this NIC may be off by.
void NicClocks::SetErrors(const NicState& nic, int64_t error_ns, int64_t bound_ns) {
  for (auto& [index, pair] : pairs_) {
    if (pair->ifindex != nic.ifindex) continue;
    pair->nic_error_ns = error_ns;
    pair->nic_bound_ns = bound_ns;
  }
}

void NicClocks::Look() {
  for (NicState& nic : nics_) {
    if (const probe_verbs::ArrivalStamps stamps = device_stamps_(nic); stamps.by_device)
      SetErrors(nic, stamps.error_ns, stamps.bound_ns);
    if (nic.node == nullptr) continue;
    nic.node->Look();
    const int64_t now_ns = local_->NowNs();
    if (!nic.attach.nic_stamps) continue;
    PutLine(nic, now_ns);
    const sync::Estimate tie = nic.node->UntilNextLook(now_ns);
    SetErrors(nic, tie.error_est_ns, std::min(tie.bound_ns, NicNode::kMostBoundNs));
  }
}

void NicClocks::PutLine(NicState& nic, int64_t now_ns) {
  const std::optional<cw_nic_line> line = nic.node->Line(now_ns);
  // Without a line the program takes none of the NIC's stamps; an old one ends by itself.
  if (line) {
    nic.has_line = lines_.put(nic.ifindex, *line);
  } else if (nic.has_line) {
    lines_.erase(nic.ifindex);
    nic.has_line = false;
  }
}

void NicClocks::Fill(v1::ClockReply& reply) const {
  const int64_t now_ns = local_->NowNs();
  for (const NicState& nic : nics_) {
    v1::ClockNic& out = *reply.add_nics();
    out.set_name(nic.config.name);
    out.set_note(nic.clock_note);
    out.set_stamps(nic.attach.nic_stamps);
    if (device_stamps_(nic).by_device) {
      out.set_stamps(true);
      out.set_converted(true);
    }
    if (nic.node == nullptr) continue;
    const sync::Estimate tie = nic.node->At(now_ns);
    out.set_source(nic.node->source());
    *out.mutable_tie() = ToApi(tie, now_ns);
    out.set_read_ns(static_cast<double>(tie.min_rtt_ns));
    out.set_reads(nic.node->reads());
    out.set_failed(nic.node->failed());
    out.set_epoch(tie.epoch);
    if (nic.has_line) out.set_converted(true);
  }
}

}  // namespace cw::agent
