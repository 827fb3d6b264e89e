// SPDX-License-Identifier: Apache-2.0
#include "userspace/metrics/hw_counters.h"

#include <map>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/host/roots.h"

namespace cw::metrics {
namespace {

// A setting beside the counters, in milliseconds: how old their values may be.
constexpr char kLifespan[] = "lifespan";

void ReadPort(const std::string& folder, const std::string& device, const std::string& port, HwCounters& out) {
  for (const std::string& name : host::ListFolder(folder)) {
    uint64_t value = 0;
    if (name == kLifespan) continue;
    if (out.counters.size() >= kMaxHwCounters) {
      ++out.left_out;
      continue;
    }
    const std::optional<std::string> text = host::ReadTrimmed(folder + "/" + name);
    if (text && absl::SimpleAtoi(*text, &value)) out.counters.push_back({device, port, name, value});
  }
}

// What the ones that matter on RoCE mean, in the words of the drivers' documentation put short. One name, one meaning:
// drivers share these.
const std::map<std::string, std::string>& Meanings() {
  static const auto& meanings = *new std::map<std::string, std::string>{
      {"out_of_sequence", "packets that arrived out of sequence"},
      {"packet_seq_err", "NAKs received for PSN sequence errors"},
      {"local_ack_timeout_err", "acknowledgement timers that expired here"},
      {"rnr_nak_retry_err", "RNR NAKs received"},
      {"duplicate_request", "requests received again"},
      {"implied_nak_seq_err", "acknowledgements with a PSN beyond the one expected for a READ or atomic"},
      {"np_cnp_sent", "congestion notifications sent because packets came marked CE"},
      {"np_ecn_marked_roce_packets", "RoCE packets received marked CE"},
      {"rp_cnp_handled", "congestion notifications received that slowed a sender"},
      {"rp_cnp_ignored", "congestion notifications received and ignored"},
      {"roce_adp_retrans", "adaptive retransmissions"},
      {"roce_adp_retrans_to", "adaptive retransmissions after a timeout"},
      {"roce_slow_restart", "slow restarts after retransmissions"},
      {"rx_icrc_encapsulated", "RoCE packets with a wrong ICRC"},
      {"rx_read_requests", "READ requests received"},
      {"rx_write_requests", "WRITE requests received"},
      {"out_of_buffer", "packets dropped for want of a receive request"},
      {"seq_err_naks_rcvd", "NAKs received for PSN sequence errors"},
      {"max_retry_exceeded", "requests whose retries ran out"},
      {"rnr_naks_rcvd", "RNR NAKs received"},
      {"oos_drop_count", "packets dropped because they arrived out of sequence"},
      {"to_retransmits", "retransmissions after a timeout"},
      {"sent_pkts", "packets sent"},
      {"rcvd_pkts", "packets received"},
      {"out_of_seq_request", "requests that arrived out of sequence"},
      {"rcvd_seq_err", "sequence errors told by NAKs received"},
      {"retry_exceeded_err", "requests whose retries ran out"},
      {"retry_rnr_exceeded_err", "requests whose RNR retries ran out"},
      {"completer_retry_err", "retransmissions that the completer asked for"},
      {"rcvd_rnr_err", "RNR NAKs received"},
      {"send_rnr_err", "RNR NAKs sent"},
      {"send_err", "packets that could not be sent"},
  };
  return meanings;
}

}  // namespace

HwCounters ReadHwCounters(const std::string& sys_root) {
  HwCounters out;
  const std::string devices = sys_root + "/class/infiniband";
  for (const std::string& device : host::ListFolder(devices)) {
    const std::string ports = absl::StrCat(devices, "/", device, "/ports");
    for (const std::string& port : host::ListFolder(ports))
      ReadPort(absl::StrCat(ports, "/", port, "/hw_counters"), device, port, out);
  }
  return out;
}

bool IsHwGauge(const std::string& name) {
  return absl::StartsWith(name, "active_") || absl::StartsWith(name, "watermark_");
}

std::string HwMetricName(const std::string& name) {
  std::string out;
  for (const char c : name) out += absl::ascii_isalnum(c) ? absl::ascii_tolower(c) : '_';
  return IsHwGauge(name) || absl::EndsWith(out, "_total") ? out : out + "_total";
}

std::string HwMetricHelp(const std::string& name) {
  const auto known = Meanings().find(name);
  const std::string what = absl::StrCat("hw_counter ", name, " of an RDMA port, as its driver tells it");
  return known == Meanings().end() ? absl::StrCat(what, ".") : absl::StrCat(what, ": ", known->second, ".");
}

}  // namespace cw::metrics
