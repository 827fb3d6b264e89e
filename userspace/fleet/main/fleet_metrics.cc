// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/fleet_metrics.h"

#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace cw::fleet {
namespace {

class TextPage {
 public:
  void Family(const char* name, const char* type, const char* help) {
    name_ = name;
    absl::StrAppendFormat(&text_, "# HELP cwfabric_fleet_%s %s\n# TYPE cwfabric_fleet_%s %s\n", name, help, name, type);
  }
  void Value(double value) { absl::StrAppendFormat(&text_, "cwfabric_fleet_%s %.17g\n", name_, value); }
  void Value(double value, const char* label, absl::string_view of) {
    const std::string quoted = absl::StrReplaceAll(of, {{"\\", "\\\\"}, {"\"", "\\\""}, {"\n", "\\n"}});
    absl::StrAppendFormat(&text_, "cwfabric_fleet_%s{%s=\"%s\"} %.17g\n", name_, label, quoted, value);
  }
  std::string Take() { return std::move(text_); }

 private:
  std::string text_;
  const char* name_ = "";
};

void AddHosts(const HostNumbers& hosts, TextPage& page) {
  const auto one = [&](const char* name, const char* type, const char* help, uint64_t value) {
    page.Family(name, type, help);
    page.Value(static_cast<double>(value));
  };
  one("hosts_known", "gauge", "Hosts that connected since the service began.", hosts.known);
  one("hosts_connected", "gauge", "Of them, those that are connected.", hosts.connected);
  one("batches_total", "counter", "Batches that are in the store.", hosts.batches);
  page.Family("refused_total", "counter", "What hosts sent that is not taken.");
  page.Value(static_cast<double>(hosts.refused), "what", "batch");
  page.Value(static_cast<double>(hosts.left_out), "what", "record");
  page.Value(static_cast<double>(hosts.reports), "what", "report");
  page.Family("spool_dropped_total", "counter", "Batches that hosts' spools had no room for.");
  page.Value(static_cast<double>(hosts.detail), "what", "detail");
  page.Value(static_cast<double>(hosts.events), "what", "events");
}

}  // namespace

void HostNumbers::Add(const LiveHost& host) {
  ++known;
  connected += host.connected;
  batches += host.batches;
  refused += host.refused;
  left_out += host.records_left_out;
  detail += host.dropped_detail;
  events += host.dropped_events;
  reports += host.refused_reports;
}

std::string MetricsPage(const HostNumbers& hosts, const FinderNumbers& finder, const std::vector<AlertCounts>& alerts,
                        const StoreNumbers& store) {
  TextPage page;
  AddHosts(hosts, page);
  page.Family("findings_open", "gauge", "Findings that go on, but for muted ones.");
  for (int c = 1; c <= kFleetCauses; ++c)
    page.Value(static_cast<double>(finder.open[static_cast<size_t>(c)]), "cause", CauseName(static_cast<Cause>(c)));
  page.Family("findings_muted", "gauge", "Findings that go on and that a drain explains, or a person muted.");
  page.Value(static_cast<double>(finder.muted));
  const auto of_slas = [&](const char* name, const char* help, const auto& known, const auto& value) {
    if (finder.slas.empty()) return;
    page.Family(name, "gauge", help);
    for (const SlaWord& sla : finder.slas) {
      if (known(sla)) page.Value(value(sla), "sla", sla.name);
    }
  };
  const auto delay = [](const SlaWord& sla) { return sla.delay_known; };
  const auto loss = [](const SlaWord& sla) { return sla.loss_known; };
  const auto any = [](const SlaWord& sla) { return sla.delay_known || sla.loss_known; };
  of_slas("sla_missed", "1: what was promised is not kept.", any,
          [](const SlaWord& sla) { return sla.missed ? 1.0 : 0.0; });
  of_slas("sla_delay_p99_seconds", "One-way delay between its hosts.", delay,
          [](const SlaWord& sla) { return sla.p99_ns / 1e9; });
  of_slas("sla_loss_ratio", "Share of probes lost between its hosts.", loss,
          [](const SlaWord& sla) { return sla.loss; });
  page.Family("evaluation_seconds", "summary", "Time that one search for findings takes.");
  std::string text = page.Take();
  absl::StrAppendFormat(&text,
                        "cwfabric_fleet_evaluation_seconds_sum %.9g\ncwfabric_fleet_evaluation_seconds_count %d\n",
                        finder.evaluation_seconds, finder.evaluations);
  TextPage rest;
  rest.Family("store_bytes", "gauge", "Size of the store's files.");
  rest.Value(static_cast<double>(store.bytes));
  rest.Family("store_thinned_bytes_total", "counter", "Samples that a full disk took.");
  rest.Value(static_cast<double>(store.thinned));
  rest.Family("store_thinned_events_total", "counter", "Events that a full disk took, when no sample was left.");
  rest.Value(static_cast<double>(store.thinned_events));
  rest.Family("store_left_out_total", "counter", "What hosts told beyond what is kept of one host.");
  rest.Value(static_cast<double>(store.losses.events), "what", "event");
  rest.Value(static_cast<double>(store.losses.samples), "what", "sample");
  rest.Value(static_cast<double>(store.losses.hop_lists), "what", "hop_list");
  rest.Family("store_failures_total", "counter", "Commits that the store did not take: hosts send them again.");
  rest.Value(static_cast<double>(store.failures));
  const auto each = [&](const char* name, const char* type, const char* help, uint64_t AlertCounts::*value) {
    if (alerts.empty()) return;
    rest.Family(name, type, help);
    for (const AlertCounts& of : alerts) rest.Value(static_cast<double>(of.*value), "receiver", of.receiver);
  };
  each("alerts_sent_total", "counter", "Alerts that the receiver took.", &AlertCounts::sent);
  each("alert_requests_failed_total", "counter", "Requests to it without success.", &AlertCounts::failed);
  each("alerts_refused_total", "counter", "Alerts that it will never take.", &AlertCounts::refused);
  each("alerts_no_room_total", "counter", "Alerts that there was no room for.", &AlertCounts::no_room);
  each("alerts_waiting", "gauge", "Alerts that are due now.", &AlertCounts::waiting);
  return text + rest.Take();
}

}  // namespace cw::fleet
