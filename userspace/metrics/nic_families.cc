// SPDX-License-Identifier: Apache-2.0
// What belongs to one NIC: its state, its link, its paths, its RDMA device's counters.
#include "absl/strings/str_join.h"
#include "userspace/metrics/family_builder.h"

namespace cw::metrics {
namespace {

void AddLinks(const std::vector<LinkState>& links, FamilyBuilder& out) {
  for (const LinkState& link : links) {
    out.Gauge("link_up", "1 while the NIC has a carrier.", link.up ? 1 : 0, {{"nic", link.nic}});
    out.Counter("link_down_total", "Times that the NIC lost its carrier, since the device exists.",
                static_cast<double>(link.downs), {{"nic", link.nic}});
    out.Gauge("link_flaps_1h",
              "Times within the past hour that the NIC lost its carrier and got it back, restarts of the agent "
              "included.",
              static_cast<double>(link.flaps_1h), {{"nic", link.nic}});
  }
}

void AddNicClocks(const v1::ClockReply& clock, FamilyBuilder& out) {
  for (const v1::ClockNic& nic : clock.nics()) {
    if (nic.source().empty()) continue;
    out.Counter("nic_clock_reads_total", "Readings of the NIC's own clock.", static_cast<double>(nic.reads()),
                {{"nic", nic.name()}});
    out.Counter("nic_clock_reads_failed_total", "Readings that the NIC's own clock did not answer.",
                static_cast<double>(nic.failed()), {{"nic", nic.name()}});
  }
}

void AddFlows(const std::map<std::string, NicFlows>& flows, FamilyBuilder& out) {
  for (const auto& [nic, sums] : flows) {
    const auto count = [&out, nic = nic](const char* name, const char* help, uint64_t value) {
      out.Counter(name, help, static_cast<double>(value), {{"nic", nic}});
    };
    const FlowCounts& received = sums.received;
    count("roce_sent_packets_total", "RoCE packets of queue pairs to peers that left by the NIC.", sums.sent_packets);
    count("roce_sent_bytes_total", "IP bytes of them.", sums.sent_bytes);
    count("roce_received_packets_total", "RoCE packets of queue pairs that arrived at the NIC.", received.packets);
    count("roce_received_bytes_total", "IP bytes of them.", received.bytes);
    count("roce_received_ce_packets_total", "Packets of them that switches marked CE.", received.ce);
    count("roce_received_cnps_total", "Congestion notifications that arrived for own queue pairs.", received.cnps);
    count("roce_received_psns_missing_total", "PSNs that were skipped in what arrived.", received.missing);
    count("roce_received_psns_repeated_total", "PSNs that arrived again.", received.duplicates);
    const std::string naks = "NAKs that arrived for own queue pairs.";
    const auto nak = [&out, &naks, nic = nic](const char* syndrome, uint64_t value) {
      out.Counter("roce_received_naks_total", naks, static_cast<double>(value), {{"nic", nic}, {"syndrome", syndrome}});
    };
    nak("sequence", received.seq_naks);
    nak("rnr", received.rnr_naks);
    nak("other", received.other_naks);
  }
}

}  // namespace

void AddNics(const Snapshot& snapshot, FamilyBuilder& out) {
  for (const v1::NicStatus& nic : snapshot.status.nics()) {
    out.Gauge("nic_info", "How the agent is attached to a NIC, and its RDMA devices; always 1.", 1,
              {{"nic", nic.name()},
               {"address", nic.address()},
               {"ingress", nic.ingress()},
               {"egress", nic.egress()},
               {"rdma_devices", absl::StrJoin(nic.rdma_devices(), ",")}});
    out.Gauge("nic_attached", "1 when the agent's programs see the NIC's packets.",
              nic.ingress() != "none" && nic.trouble().empty() ? 1 : 0, {{"nic", nic.name()}});
    out.Gauge("nic_mtu_bytes", "MTU of the NIC.", nic.mtu(), {{"nic", nic.name()}});
    out.Gauge("nic_pairs_silent", "Peers' NICs that do not answer this one while others do (NIC failover).",
              nic.pairs_silent(), {{"nic", nic.name()}});
    out.Gauge("nic_pairs_carried", "Peers' NICs that this one's packets reach by another NIC (NIC failover).",
              nic.pairs_carried(), {{"nic", nic.name()}});
  }
  AddLinks(snapshot.links, out);
  if (snapshot.clock) AddNicClocks(*snapshot.clock, out);
}

void AddPathTotals(const PathTotals& totals, FamilyBuilder& out) {
  const std::string paths = "Paths to peers by state.", kept = "Paths that answer and are kept free of flows.";
  for (const NicPaths& nic : totals.nics) {
    const auto state = [&](const char* name, uint64_t count) {
      out.Gauge("paths", paths, static_cast<double>(count), {{"nic", nic.nic}, {"state", name}});
    };
    state("up", nic.up);
    state("suspect", nic.suspect);
    state("dead", nic.dead);
    state("paused", nic.paused);
    state("new", nic.fresh);
    const auto free = [&](const char* reason, uint64_t count) {
      out.Gauge("paths_kept_free", kept, static_cast<double>(count), {{"nic", nic.nic}, {"reason", reason}});
    };
    free("damped", nic.damped);
    free("lossy", nic.lossy);
    free("drained", nic.drained);
  }
  AddFlows(totals.flows, out);
  const std::string delay =
      "One-way delay of probes over all paths of a NIC, to peers' NICs of its own rail or others.";
  for (const auto& [key, delays] : totals.delays.all()) {
    const std::string rail = key.second ? "own" : "other";
    out.Histogram("path_owd_seconds", delay, delays.forward,
                  {{"nic", key.first}, {"rail", rail}, {"direction", "forward"}});
    out.Histogram("path_owd_seconds", delay, delays.reverse,
                  {{"nic", key.first}, {"rail", rail}, {"direction", "reverse"}});
  }
}

void AddHwCounters(const HwCounters& rdma, FamilyBuilder& out) {
  for (const HwCounter& counter : rdma.counters) {
    const std::string name = "rdma_" + HwMetricName(counter.name), help = HwMetricHelp(counter.name);
    FamilyBuilder::Labels labels = {{"device", counter.device}, {"port", counter.port}};
    if (IsHwGauge(counter.name)) {
      out.Gauge(name, help, static_cast<double>(counter.value), std::move(labels));
    } else {
      out.Counter(name, help, static_cast<double>(counter.value), std::move(labels));
    }
  }
  out.Gauge("rdma_counters_left_out", "hw_counters that are not shown because the host has too many.",
            static_cast<double>(rdma.left_out));
}

}  // namespace cw::metrics
