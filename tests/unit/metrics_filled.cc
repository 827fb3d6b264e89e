// SPDX-License-Identifier: Apache-2.0
#include "metrics_filled.h"

#include <gtest/gtest.h>

#include <sstream>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "maps/counters.h"

namespace cw::metrics {
namespace {

void AddNic(const std::string& name, int peers, Snapshot& out) {
  v1::NicStatus& nic = *out.status.add_nics();
  nic.set_name(name);
  nic.set_address("10.0.0.10");
  nic.set_ingress("native");
  nic.set_egress("tc");
  nic.set_mtu(4500);
  nic.add_rdma_devices("mlx5_0");
  out.links.push_back({.nic = name, .up = true, .downs = 3, .flaps_1h = 2});
  NicPaths paths{.nic = name, .up = static_cast<uint64_t>(4 * peers), .dead = 1, .lossy = 1};
  out.paths.nics.push_back(paths);
  out.paths.flows[name] = {
      .sent_packets = 10, .sent_bytes = 40960, .received = {.packets = 9, .bytes = 900, .cnps = 2}};
  for (const bool own : {true, false}) {
    out.paths.delays.Of(name, own).forward.Add(5'310);
    out.paths.delays.Of(name, own).reverse.Add(50'000'000);
  }
  v1::ClockNic& clock = *out.clock->add_nics();
  clock.set_name(name);
  clock.set_source("/dev/ptp0");
  clock.set_reads(100);
}

void AddClock(Snapshot& out) {
  out.clock.emplace();
  v1::ClockTracking& t = *out.clock->mutable_tracking();
  t.set_state(v1::ClockTracking::STATE_SYNCHRONISED);
  t.set_error_est_ns(35);
  t.set_bound_ns(5660);
  t.set_rate_ppb(-12345.678);
  t.set_updated_ago_s(0.05);
  t.mutable_tai()->set_bound_ns(1'200'000);
  out.clock->mutable_sources()->add_sources()->set_reason(v1::ClockSource::REASON_FALSE_TICKER);
  out.clock->mutable_mesh()->add_links()->set_suspect("slower one way");
}

void AddStatus(const FilledSpec& spec, Snapshot& out) {
  v1::StatusReply& status = out.status;
  status.set_version("0.1.0");
  status.set_instance("default");
  status.set_uptime_s(3700);
  status.set_mode(v1::MODE_PROTECT);
  status.set_data_age_s(0.02);
  for (const char* name : {"failover", "loss", "tails", "balance", "place", "nic"}) {
    v1::CapabilityAllow& allowed = *status.add_allowed();
    allowed.set_capability(name);
    allowed.set_allow(v1::ALLOW_ACT);
  }
  v1::ModeScope& scope = *status.add_scopes();
  scope.set_text("NIC eth0");
  scope.set_mode(v1::MODE_OBSERVE);
  scope.set_by_operator(true);
  status.mutable_breaker()->set_enabled(true);
  for (int p = 0; p < spec.peers; ++p) {
    v1::PeerStatus& peer = *status.add_peers();
    peer.set_name(absl::StrCat("node", p));
    peer.set_paths_live(p == 0 ? 0 : 4);
    for (int a = 0; a < spec.addresses; ++a) peer.add_addresses(absl::StrCat("10.", a, ".", p / 250, ".", p % 250));
  }
  status.mutable_prober()->set_lateness_p99_ns(40'000);
  status.mutable_lost()->set_probe_ring(7);
  for (const char* name : {"cw_tx_flows", "cw_flows", "cw_pairs"}) {
    v1::MapFill& map = *status.add_maps();
    map.set_name(name);
    map.set_used(16);
    map.set_capacity(1024);
  }
}

void AddCounters(Snapshot& out) {
  const auto add = [&](const std::string& name, const std::string& text) {
    v1::Counter& counter = *out.counters.add_counters();
    counter.set_name(name);
    counter.set_value(1);
    counter.set_text(text);
  };
  for (const maps::CounterInfo& counter : maps::Counters()) add(counter.name, counter.text);
  for (const char* name : {"messages_sent", "tails_repaired", "qps_placed"}) add(name, "what the agent adds to them");
}

// name{label="value",...} number
bool Parse(const std::string& line, Sample& out) {
  size_t at = line.find_first_of("{ ");
  if (at == std::string::npos) return false;
  out.name = line.substr(0, at);
  while (line[at] == '{' || line[at] == ',') {
    const size_t equals = line.find("=\"", at), end = line.find('"', equals + 2);
    if (equals == std::string::npos || end == std::string::npos || end + 1 >= line.size()) return false;
    out.labels[line.substr(at + 1, equals - at - 1)] = line.substr(equals + 2, end - equals - 2);
    at = end + 1;
  }
  if (line[at] == '}') ++at;
  return at < line.size() && absl::SimpleAtod(line.substr(at + 1), &out.value);
}

}  // namespace

const std::vector<std::string>& Mlx5Counters() {
  static const auto& names = *new std::vector<std::string>{"duplicate_request",
                                                           "implied_nak_seq_err",
                                                           "lifespan",
                                                           "local_ack_timeout_err",
                                                           "np_cnp_sent",
                                                           "np_ecn_marked_roce_packets",
                                                           "out_of_buffer",
                                                           "out_of_sequence",
                                                           "packet_seq_err",
                                                           "req_cqe_error",
                                                           "req_cqe_flush_error",
                                                           "req_remote_access_errors",
                                                           "req_remote_invalid_request",
                                                           "resp_cqe_error",
                                                           "resp_cqe_flush_error",
                                                           "resp_local_length_error",
                                                           "resp_remote_access_errors",
                                                           "rnr_nak_retry_err",
                                                           "roce_adp_retrans",
                                                           "roce_adp_retrans_to",
                                                           "roce_slow_restart",
                                                           "roce_slow_restart_cnps",
                                                           "roce_slow_restart_trans",
                                                           "rp_cnp_handled",
                                                           "rp_cnp_ignored",
                                                           "rx_atomic_requests",
                                                           "rx_dct_connect",
                                                           "rx_icrc_encapsulated",
                                                           "rx_read_requests",
                                                           "rx_write_requests"};
  return names;
}

const std::vector<std::string>& BnxtReCounters() {
  static const auto& names = *new std::vector<std::string>{
      "active_pds",         "active_qps",    "watermark_qps", "recoverable_errors", "rx_pkts",
      "rx_bytes",           "tx_pkts",       "tx_bytes",      "to_retransmits",     "seq_err_naks_rcvd",
      "max_retry_exceeded", "rnr_naks_rcvd", "missing_resp",  "oos_drop_count",     "rx_ecn_marked_pkts",
      "tx_cnp_pkts",        "rx_cnp_pkts",   "lifespan"};
  return names;
}

const std::vector<std::string>& RxeCounters() {
  static const auto& names = *new std::vector<std::string>{
      "ack_deferred",       "completer_retry_err", "duplicate_request",      "lifespan",     "link_downed",
      "out_of_seq_request", "rcvd_pkts",           "rcvd_rnr_err",           "rcvd_seq_err", "rdma_recvs",
      "rdma_sends",         "retry_exceeded_err",  "retry_rnr_exceeded_err", "send_err",     "send_rnr_err",
      "sent_pkts"};
  return names;
}

Snapshot Filled(const FilledSpec& spec) {
  Snapshot out;
  AddStatus(spec, out);
  AddCounters(out);
  AddClock(out);
  EventTally tally;
  v1::Event event;
  event.set_seq(1);
  event.set_type("path");
  event.set_severity(v1::SEVERITY_ALERT);
  tally.Add({event});
  out.events = tally.Counts();
  for (int i = 0; i < spec.nics; ++i) {
    AddNic(absl::StrCat("eth", i), spec.peers, out);
    for (const std::string& name : Mlx5Counters()) {
      if (name != "lifespan") out.rdma.counters.push_back({absl::StrCat("mlx5_", i), "1", name, 12});
    }
  }
  if (spec.chosen) {
    out.worst_paths.push_back({.nic = "eth0", .peer = "node1/10.0.0.1", .path = 2, .queueing_p99_s = 1e-3});
    out.top_flows.push_back(
        {.nic = "mlx5_0", .peer = "node1/10.0.0.1", .qp = "0x11", .bytes_per_second = 1e9, .owd_p99_s = 1e-5});
  }
  return out;
}

Reading::Reading(const std::string& text) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("# ", 0) != 0) {
      samples.emplace_back();
      EXPECT_TRUE(Parse(line, samples.back())) << line;
      continue;
    }
    std::istringstream words(line);
    std::string hash, kind, family, rest;
    words >> hash >> kind >> family;
    std::getline(words >> std::ws, rest);
    (kind == "TYPE" ? types : helps)[family] = rest;
  }
}

std::string Reading::FamilyOf(const std::string& name) const {
  if (types.count(name) != 0) return name;
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    const std::string family = name.size() > suffix.size() ? name.substr(0, name.size() - suffix.size()) : "";
    const auto type = types.find(family);
    if (name != family + suffix || type == types.end()) continue;
    if (type->second == "histogram" || (type->second == "summary" && suffix != "_bucket")) return family;
  }
  return "";
}

double Reading::Value(const std::string& name, const std::map<std::string, std::string>& labels) const {
  std::vector<double> found;
  for (const Sample& sample : samples) {
    bool alike = sample.name == name;
    for (const auto& [label, value] : labels) {
      const auto own = sample.labels.find(label);
      alike = alike && own != sample.labels.end() && own->second == value;
    }
    if (alike) found.push_back(sample.value);
  }
  EXPECT_EQ(found.size(), 1u) << name;
  return found.empty() ? -1 : found[0];
}

}  // namespace cw::metrics
