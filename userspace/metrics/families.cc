// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/families.h"

#include <prometheus/text_serializer.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "userspace/metrics/family_builder.h"

namespace cw::metrics {
namespace {

void AddAgent(const v1::StatusReply& status, FamilyBuilder& out) {
  out.Gauge("build_info", "The agent's version and instance; always 1.", 1,
            {{"version", status.version()}, {"agent_instance", status.instance()}});
  out.Gauge("config_info", "The fingerprint of the configuration in force; always 1.", 1,
            {{"fingerprint", status.config().fingerprint()}});
  out.Gauge("config_waiting_keys", "Keys that the file has changed and that take effect with the agent's next start.",
            status.config().waiting_size());
  out.Gauge("agent_uptime_seconds", "Since the agent's start.", status.uptime_s());
  // Nothing measured yet is as old as the agent.
  out.Gauge("agent_data_age_seconds", "Age of the newest measurement; grows where the agent is blind.",
            status.data_age_s() < 0 ? status.uptime_s() : status.data_age_s());
  const std::string cpu = "Share of one core that the agent takes, last ten seconds.";
  out.Gauge("agent_cpu_ratio", cpu, status.cpu_process_percent() / 100, {{"part", "process"}});
  out.Gauge("agent_cpu_ratio", cpu, (status.cpu_percent() - status.cpu_process_percent()) / 100, {{"part", "bpf"}});
  out.Gauge("agent_resident_memory_bytes", "Memory of the agent's process.", static_cast<double>(status.rss_bytes()));
  out.Gauge("agent_slowed_ratio", "So many times more seldom the main loop wakes, to keep to its share of processors.",
            status.prober().slowed());
}

void AddMode(const v1::StatusReply& status, FamilyBuilder& out) {
  const v1::Mode mode = status.mode();
  out.StateSet("mode", "The agent's mode: 1 for the one that holds.", "mode",
               {{"off", mode == v1::MODE_OFF},
                {"observe", mode == v1::MODE_OBSERVE},
                {"protect", mode == v1::MODE_PROTECT},
                {"optimize", mode == v1::MODE_OPTIMIZE}});
  for (const v1::CapabilityAllow& allowed : status.allowed()) {
    out.Gauge("capability_allowed", "What a capability may do: 0 nothing, 1 decide and log, 2 act.",
              allowed.allow() == v1::ALLOW_ACT       ? 2
              : allowed.allow() == v1::ALLOW_OBSERVE ? 1
                                                     : 0,
              {{"capability", allowed.capability()}});
  }
  for (const v1::ModeScope& scope : status.scopes()) {
    out.Gauge("scope_mode", "The most that is done for a NIC, a rail or a job: 1 observe, 2 protect, 3 optimize.",
              scope.mode() == v1::MODE_OPTIMIZE  ? 3
              : scope.mode() == v1::MODE_PROTECT ? 2
                                                 : 1,
              {{"scope", scope.text()}, {"from", scope.by_operator() ? "operator" : "file"}});
  }
  out.Gauge("moves_frozen", "1 while no flow moves for balance because paths are not known well enough.",
            status.moves_frozen() ? 1 : 0);
  out.Gauge("lease_seconds", "Flows go back to their native ports this long after the agent's end; 0: never.",
            status.lease_s());
  if (status.breaker().enabled()) {
    out.Gauge("breaker_tripped", "1 while balance only observes because its moves did harm.",
              status.breaker().tripped() ? 1 : 0);
    out.Counter("breaker_trips_total", "Times that the breaker tripped.", status.breaker().trips());
  }
  const v1::FabricHashing hashing = status.hashing();
  out.StateSet("fabric_hashing", "What switches choose paths by, the worst of all peers; steering needs ports.",
               "hashing",
               {{"unknown", hashing == v1::FABRIC_HASHING_UNKNOWN},
                {"single_path", hashing == v1::FABRIC_HASHING_SINGLE},
                {"ports", hashing == v1::FABRIC_HASHING_PORTS},
                {"qpn", hashing == v1::FABRIC_HASHING_QPN},
                {"ttl", hashing == v1::FABRIC_HASHING_TTL},
                {"sprayed", hashing == v1::FABRIC_HASHING_SPRAYED}});
}

void AddPeersAndFlows(const v1::StatusReply& status, FamilyBuilder& out) {
  uint64_t reachable = 0;
  for (const v1::PeerStatus& peer : status.peers()) reachable += peer.paths_live() > 0 ? 1 : 0;
  const std::string peers = "Configured peers with and without a living path.";
  out.Gauge("peers", peers, static_cast<double>(reachable), {{"state", "reachable"}});
  out.Gauge("peers", peers, static_cast<double>(status.peers_size()) - static_cast<double>(reachable),
            {{"state", "unreachable"}});
  const std::string flows = "Directions of queue pairs seen of late.";
  out.Gauge("flows", flows, status.flows().transmitted(), {{"direction", "sent"}});
  out.Gauge("flows", flows, status.flows().received(), {{"direction", "received"}});
  out.Gauge("flows_steered", "Flows that are not on their native port.", status.flows().steered());
  out.Gauge("flows_locked", "Flows that an operator locked.", status.flows().locked());
  out.Gauge("flows_pending", "Flows with a move that waits for its moment.", status.flows().pending());
}

void AddProber(const v1::ProberStatus& prober, FamilyBuilder& out) {
  out.Gauge("prober_rate_hertz", "Probe requests per second, last ten seconds.", prober.rate_pps());
  out.Gauge("prober_budget_hertz", "Probe requests per second that the host may send.", prober.budget_pps());
  out.Gauge("prober_afforded_hertz", "Of the budget, what the prober's share of the processors leaves.",
            prober.afforded_pps());
  out.Gauge("prober_lateness_p50_seconds", "Median lateness of the prober's ticks within the last second.",
            prober.lateness_p50_ns() / 1e9);
  out.Gauge("prober_lateness_p99_seconds", "99th percentile of the lateness of the prober's ticks, last second.",
            prober.lateness_p99_ns() / 1e9);
  out.Counter("prober_rounds_total", "Rounds of probes sent.", static_cast<double>(prober.rounds()));
  out.Counter("prober_rounds_skipped_total", "Rounds left out because the prober stood still.",
              static_cast<double>(prober.skipped()));
  out.Gauge("prober_realtime", "1 when the prober runs under SCHED_FIFO.", prober.realtime() ? 1 : 0);
}

void AddLosses(const Snapshot& snapshot, FamilyBuilder& out) {
  const std::string records = "Records that a full ring buffer lost: measurements suffer, verdicts do not.";
  const v1::EventLoss& lost = snapshot.status.lost();
  out.Counter("records_lost_total", records, static_cast<double>(lost.probe_ring()), {{"ring", "probe"}});
  out.Counter("records_lost_total", records, static_cast<double>(lost.event_ring()), {{"ring", "event"}});
  out.Counter("records_lost_total", records, static_cast<double>(lost.message_ring()), {{"ring", "message"}});
  for (const v1::MapFill& map : snapshot.status.maps()) {
    out.Gauge("map_entries", "Entries of a BPF map in use.", static_cast<double>(map.used()), {{"map", map.name()}});
    out.Gauge("map_max_entries", "Entries that a BPF map has room for.", static_cast<double>(map.capacity()),
              {{"map", map.name()}});
  }
  for (const auto& [kind, count] : snapshot.events.by_kind) {
    out.Counter("events_total", "Events by type and severity, as cwctl events shows them.", static_cast<double>(count),
                {{"type", kind.first}, {"severity", kind.second}});
  }
  for (const auto& [type, count] : snapshot.events.suppressed) {
    out.Counter("actions_suppressed_total", "What was decided and, by the mode, not done, by type of event.",
                static_cast<double>(count), {{"type", type}});
  }
  out.Counter("events_lost_total", "Events overwritten before they were counted.",
              static_cast<double>(snapshot.events.lost));
}

// Each counter of cwctl counters under its own name: their texts say what they count.
void AddCounters(const v1::CountersReply& counters, FamilyBuilder& out) {
  for (const v1::Counter& counter : counters.counters())
    out.Counter(counter.name() + "_total", counter.text() + ".", static_cast<double>(counter.value()));
}

void AddSelf(const Snapshot& snapshot, FamilyBuilder& out) {
  out.Counter("metrics_scrapes_total", "Times that these metrics were made.",
              static_cast<double>(snapshot.self.scrapes));
  const std::string cpu = "Processor time that making these metrics took.";
  out.Counter("metrics_cpu_seconds_total", cpu, snapshot.self.server_cpu_s, {{"part", "server"}});
  out.Counter("metrics_cpu_seconds_total", cpu, snapshot.self.loop_cpu_s, {{"part", "path_totals"}});
  out.Gauge("communicators", "NCCL communicators of this host's processes that carry the profiler plug-in.",
            snapshot.communicators);
}

const char* TypeName(prometheus::MetricType type) {
  switch (type) {
    case prometheus::MetricType::Counter:
      return "counter";
    case prometheus::MetricType::Histogram:
      return "histogram";
    default:
      return "gauge";
  }
}

}  // namespace

std::vector<prometheus::MetricFamily> Families(const Snapshot& snapshot) {
  FamilyBuilder out;
  AddAgent(snapshot.status, out);
  AddMode(snapshot.status, out);
  AddPeersAndFlows(snapshot.status, out);
  AddProber(snapshot.status.prober(), out);
  AddLosses(snapshot, out);
  AddCounters(snapshot.counters, out);
  AddNics(snapshot, out);
  AddPathTotals(snapshot.paths, out);
  if (snapshot.clock) AddClock(*snapshot.clock, out);
  AddHwCounters(snapshot.rdma, out);
  AddWorst(snapshot, out);
  AddSelf(snapshot, out);
  return out.Take();
}

std::string Exposition(const std::vector<prometheus::MetricFamily>& families) {
  return prometheus::TextSerializer().Serialize(families);
}

std::string ReferenceMarkdown(const std::vector<prometheus::MetricFamily>& families) {
  std::string out;
  for (const prometheus::MetricFamily& family : families) {
    std::vector<std::string> labels;
    for (const auto& label : family.metric.front().label) labels.push_back(absl::StrCat("`", label.name, "`"));
    absl::StrAppend(&out, "| `", family.name, "` | ", TypeName(family.type), " | ", absl::StrJoin(labels, ", "), " | ",
                    family.help, " |\n");
  }
  return out;
}

}  // namespace cw::metrics
