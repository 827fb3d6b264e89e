// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/hw_counter_names.h"

#include <map>

namespace cw::host {

std::string HwCounterMeaning(const std::string& name) {
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
  const auto known = meanings.find(name);
  return known == meanings.end() ? "" : known->second;
}

}  // namespace cw::host
