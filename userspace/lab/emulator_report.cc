// SPDX-License-Identifier: Apache-2.0
#include "nlohmann/json.hpp"
#include "userspace/lab/emulator.h"

namespace cw::lab {
namespace {

using nlohmann::json;

json CountersJson(const QpCounters& c) {
  return {{"data_packets", c.data_packets}, {"retransmissions", c.retransmissions},
          {"timeouts", c.timeouts},         {"naks_received", c.naks_received},
          {"naks_sent", c.naks_sent},       {"acks_sent", c.acks_sent},
          {"cnps_sent", c.cnps_sent},       {"cnps_received", c.cnps_received},
          {"ce_packets", c.ce_packets},     {"duplicates", c.duplicates},
          {"out_of_order", c.out_of_order}, {"invalid", c.invalid}};
}

json GapJson(const Gap& gap) { return {{"begin_ns", gap.begin_ns}, {"length_ns", gap.Length()}}; }

json MessagesJson(const FlowReport& f) {
  return {{"posted", f.send.messages_posted},
          {"done", f.send.messages_done},
          {"delivered", f.receive.messages()},
          {"latency_p50_ns", f.send.latency.QuantileNs(0.5)},
          {"latency_p99_ns", f.send.latency.QuantileNs(0.99)},
          {"latency_max_ns", f.send.latency.max_ns()},
          {"longest", GapJson(f.send.longest_message)},
          {"longest_stall", GapJson(f.send.longest_stall)}};
}

json FlowJson(const FlowReport& f) {
  json delays = json::array();
  for (const OneWayDelay& d : f.delays) delays.push_back({d.psn, d.sent_realtime_ns, d.received_realtime_ns});
  json flow = {{"id", f.id},
               {"job", f.job},
               {"source", f.source},
               {"destination", f.destination},
               {"source_qpn", f.source_qpn},
               {"destination_qpn", f.destination_qpn},
               {"source_port", f.source_port},
               {"finished", f.finished},
               {"dead", f.dead},
               {"dead_ns", f.send.dead_ns},
               {"rate_bps", f.rate_bps},
               {"waiting_since_ns", f.waiting_since_ns},
               {"completion_ns", absl::ToInt64Nanoseconds(f.CompletionTime())},
               {"goodput_bps", f.GoodputBps()},
               {"bytes", f.receive.bytes()},
               {"packets", f.receive.packets()},
               {"first_delivery_ns", f.receive.first_ns()},
               {"last_delivery_ns", f.receive.last_ns()},
               {"longest_gap", GapJson(f.receive.longest_gap())},
               {"messages", MessagesJson(f)},
               {"requester", CountersJson(f.requester)},
               {"responder", CountersJson(f.responder)},
               {"bins_bytes", f.receive.bins()}};
  if (!f.delays.empty()) flow["kernel_times"] = std::move(delays);
  return flow;
}

json PortJson(const PortCounters& p) {
  return {{"sent", p.sent},
          {"received", p.received},
          {"send_errors", p.send_errors},
          {"icrc_errors", p.icrc_errors},
          {"unknown", p.unknown},
          {"ring_drops", p.ring_drops}};
}

}  // namespace

absl::Duration FlowReport::CompletionTime() const {
  if (send.last_done_ns == 0) return absl::ZeroDuration();
  return absl::Nanoseconds(send.last_done_ns - send.first_post_ns);
}

double FlowReport::GoodputBps() const {
  const int64_t span = receive.last_ns() - receive.first_ns();
  return span <= 0 ? 0 : 8e9 * static_cast<double>(receive.bytes()) / static_cast<double>(span);
}

PortCounters Snapshot::Total() const {
  PortCounters t;
  for (const PortCounters& p : ports) {
    t.sent += p.sent;
    t.received += p.received;
    t.send_errors += p.send_errors;
    t.icrc_errors += p.icrc_errors;
    t.unknown += p.unknown;
    t.ring_drops += p.ring_drops;
  }
  return t;
}

int Snapshot::FlowsDied() const {
  int died = 0;
  for (const FlowReport& f : flows) died += f.dead ? 1 : 0;
  return died;
}

json ToJson(const Snapshot& s) {
  json jobs = json::array(), flows = json::array(), ports = json::array();
  for (const JobReport& j : s.jobs) {
    jobs.push_back(
        {{"name", j.name}, {"start_ns", j.start_ns}, {"finished", j.finished}, {"rounds_done", j.rounds_done}});
  }
  for (const FlowReport& f : s.flows) flows.push_back(FlowJson(f));
  for (const PortCounters& p : s.ports) ports.push_back(PortJson(p));
  return {{"taken_ns", s.taken_ns},       {"origin_ns", s.origin_ns},   {"bin_ns", s.bin_ns},
          {"jobs", std::move(jobs)},      {"flows", std::move(flows)},  {"ports", std::move(ports)},
          {"total", PortJson(s.Total())}, {"flows_died", s.FlowsDied()}};
}

}  // namespace cw::lab
