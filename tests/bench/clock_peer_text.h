// SPDX-License-Identifier: Apache-2.0
//
// What chronyd and ptp4l are told, and how what they tell is read; the same in the lab and in virtual machines. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace cw::bench {

// Lines of chrony.conf without those that name files. chronyd runs with -x, so that it measures and never steers.
// hwts: with hwtimestamp on all interfaces.
std::string ChronyServerConfig(int port, bool hwts);
std::string ChronyClientConfig(const std::string& server, int port, bool hwts);

// `chronyc -c tracking` of a client that follows a server of stratum 1.
struct Tracking {
  double offset_ns = 0;  // local clock − server's is minus this, as far as chronyd knows, when it answered
  double bound_ns = 0;   // what it says that it is wrong by at most
};
std::optional<Tracking> ParseTracking(absl::string_view line);

// ptp4l.conf without uds_address; free running, on eth0. Empty server: the master's.
std::string Ptp4lConfig(const std::string& server);

// `pmc GET TIME_STATUS_NP`, one per fresh Sync message of a master that is there.
struct PtpOffset {
  double offset_ns = 0;    // local clock − master's
  int64_t ingress_ns = 0;  // local clock when the Sync message came
};
std::vector<PtpOffset> ParsePtpOffsets(absl::string_view text);

}  // namespace cw::bench
