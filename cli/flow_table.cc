// SPDX-License-Identifier: Apache-2.0
#include "cli/flow_table.h"

#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "cli/format.h"
#include "userspace/api/flow_ref.h"

namespace cw::cli {
namespace {

namespace v1 = ::cwfabric::v1;

std::string Name(const v1::Flow& flow) {
  const std::string name = api::QpName(flow);
  return name.empty() ? kNoValue : name;
}

std::string Peer(const v1::Flow& flow) {
  const std::string peer = flow.peer().empty() ? flow.remote_address() : flow.peer();
  if (peer.empty()) return kNoValue;  // the kernel does not tell it
  return (flow.received() ? "from " : "") + peer;
}

// How the port of a flow is known that nobody here saw.
std::string PortSource(const std::string& from) {
  if (from == "owner") return " told";
  if (from == "label") return " by label";
  return from == "qpns" ? " by QPNs" : "";
}

// The native port, and where the flow is instead.
std::string Port(const v1::Flow& flow) {
  if (flow.udp_port() == 0) return kNoValue;
  if (flow.udp_port() == flow.udp_port_native()) return std::to_string(flow.udp_port()) + PortSource(flow.port_from());
  return absl::StrFormat("%d→%d", flow.udp_port_native(), flow.udp_port());
}

std::string Owner(const v1::Flow& flow) {
  if (flow.pid() == 0) return flow.label().empty() ? kNoValue : flow.label();
  const std::string owner = absl::StrFormat("%s[%d]", flow.process(), flow.pid());
  return flow.label().empty() ? owner : owner + " " + flow.label();
}

std::string Owd(const v1::Flow& flow, double ns) {
  return flow.owd().samples() == 0 ? kNoValue : DelayText(ns, flow.owd_error_ns());
}

Cell Trouble(uint64_t count) { return {CountText(count), count > 0 ? Tone::kWarn : Tone::kPlain}; }

std::string LastMove(const v1::Flow& flow) {
  if (flow.moves() == 0 && flow.last_reason().empty()) return kNoValue;
  return absl::StrFormat("%s, %s ago", flow.last_reason().empty() ? "moved" : flow.last_reason(),
                         AgoText(flow.moved_ago_s()));
}

std::string Held(const v1::Flow& flow) {
  std::string held = flow.manual() ? "by hand" : "";
  if (const std::string lock = LockText(flow.lock()); !lock.empty()) {
    held += (held.empty() ? "" : ", ") + std::string("lock ") + lock;
  }
  if (flow.reverts_s() > 0) held += (held.empty() ? "for " : ", for ") + DurationText(flow.reverts_s());
  return held.empty() ? kNoValue : held;
}

}  // namespace

const std::vector<ColumnChoice>& FlowColumns() {
  static const std::vector<ColumnChoice> columns = {{"flow", 16}, {"qp", 9},    {"remote-qpn", 5}, {"peer", 15},
                                                    {"path", 14}, {"port", 6},  {"owd-p50", 11},   {"owd-p99", 10},
                                                    {"rate", 13}, {"gaps", 4},  {"dup", 1},        {"nak", 7},
                                                    {"cnp", 3},   {"moves", 2}, {"last-move", 8},  {"owner", 12}};
  return columns;
}

Table FlowTable(const Flows& flows) {
  Table table({"FLOW", "QP", ">REMOTE QPN", "PEER", ">PATH", ">UDP-PORT", ">OWD P50", ">OWD P99", ">RATE", ">GAPS",
               ">DUP", ">NAK", ">CNP", ">MOVES", "LAST MOVE", "OWNER"});
  for (const v1::Flow& flow : flows) {
    const bool idle = flow.idle_s() > 5;
    table.Add({flow.id(), Name(flow), QpnText(flow.remote_qpn()), Peer(flow), SlotText(flow.slot()), Port(flow),
               Owd(flow, flow.owd().p50_ns()), Owd(flow, flow.owd().p99_ns()),
               idle ? Cell("idle " + DurationText(flow.idle_s()), Tone::kFaint) : Cell(RateText(flow.rate_bps())),
               Trouble(flow.gaps()), Trouble(flow.duplicates()), Trouble(flow.nak_seq() + flow.nak_other()),
               CountText(flow.cnps()), std::to_string(flow.moves()), LastMove(flow),
               Owner(flow) + (flow.gone().empty() ? "" : " (" + flow.gone() + ")")});
  }
  return table;
}

Table SteeringTable(const Flows& flows) {
  Table table({"FLOW", "QP", "PEER", ">PATH", ">NATIVE PATH", ">PENDING", ">UDP-PORT", "HELD", ">MOVES", "LAST MOVE"});
  for (const v1::Flow& flow : flows) {
    table.Add({flow.id(), Name(flow), Peer(flow), SlotText(flow.slot()), SlotText(flow.native_slot()),
               SlotText(flow.want_slot()), Port(flow), Held(flow), std::to_string(flow.moves()), LastMove(flow)});
  }
  return table;
}

}  // namespace cw::cli
