// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/move_news.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw::agent {
namespace {

std::string PortText(uint16_t port) { return port == 0 ? "its native port" : absl::StrCat("udp-port ", port); }

int SlotNumber(uint8_t slot) { return slot == CW_SLOT_NONE ? -1 : slot; }

std::string SlotText(uint8_t slot) { return slot == CW_SLOT_NONE ? "an unprobed path" : absl::StrCat("path ", slot); }

}  // namespace

void MoveNews::OnMove(const cw_ev_move& move) {
  const FlowKey key = FromMap(move.key);
  telemetry::Event event{.flow = key.Id().ToString(),
                         .peer = names_.Of(key.dst),
                         .slot = SlotNumber(move.from_slot),
                         .to_slot = SlotNumber(move.to_slot),
                         .dry = move.dry != 0};
  event.evidence = {{"pair", PairText(key.src, key.dst)},
                    {"psn", absl::StrCat(move.psn)},
                    {"udp_port_before", absl::StrCat(move.from_port)},
                    {"udp_port", absl::StrCat(move.to_port)}};
  if (move.type == CW_EV_FLOW) {
    asks_.appeared();
    event.type = "flow";
    event.text = absl::StrFormat("queue pair to %s qp 0x%x %s %s, %s", event.peer, key.dqpn,
                                 event.dry ? "appeared on its native port, and would be put on" : "appeared on",
                                 SlotText(move.to_slot), PortText(move.to_port));
  } else {
    event.type = "move";
    event.severity = telemetry::Severity::kNotice;
    const std::string reason(MoveReasonName(static_cast<MoveReason>(move.reason)));
    // Another port of the same path, as when a flow goes back to its native port there.
    const bool same_path = move.from_slot == move.to_slot && move.to_slot != CW_SLOT_NONE;
    const std::string way = same_path ? absl::StrCat("stays on ", SlotText(move.to_slot), " and takes another port")
                                      : absl::StrCat(event.dry ? "would move" : "moved", " from ",
                                                     SlotText(move.from_slot), " to ", SlotText(move.to_slot));
    event.text = absl::StrFormat("queue pair to %s qp 0x%x %s, %s: %s", event.peer, key.dqpn, way,
                                 PortText(move.to_port), reason);
    event.evidence.push_back({"reason", reason});
    if (move.dry == 0) asks_.made(move);
  }
  if (move.dry != 0) dry_run_.TellMove(move, event.evidence);
  events_.Log(std::move(event));
}

}  // namespace cw::agent
