// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/clock_peer_text.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace cw::bench {
namespace {

constexpr char kPtpCommon[] =
    "[global]\n"
    "free_running 1\n"
    "time_stamping software\n"
    "network_transport UDPv4\n"
    "delay_mechanism E2E\n"
    "inhibit_multicast_service 1\n"
    "logAnnounceInterval 0\n"
    "logSyncInterval -7\n"
    "logMinDelayReqInterval -7\n"
    "tx_timestamp_timeout 100\n"
    "use_syslog 0\n"
    "verbose 1\n";

std::string HwTimestamp(bool hwts) { return hwts ? "hwtimestamp *\n" : ""; }

}  // namespace

std::string ChronyServerConfig(int port, bool hwts) {
  return absl::StrCat("port ", port, "\nallow\nlocal stratum 1\n", HwTimestamp(hwts));
}

// Advice of the man page, chrony.conf(5): short polls in interleaved mode, a median filter, a quantile of the delays;
// with time stamps of the hardware 64 polls per second at most.
std::string ChronyClientConfig(const std::string& server, int port, bool hwts) {
  const int poll = hwts ? -6 : -7;
  return absl::StrFormat("port 0\nserver %s port %d minpoll %d maxpoll %d filter 31 maxdelayquant 0.3 xleave\n%s",
                         server, port, poll, poll, HwTimestamp(hwts));
}

// Reference, address, stratum, reference time, offset to NTP time, last and RMS offset, three frequencies, root delay,
// root dispersion, interval, leap. Seconds. The offset is what chronyd believes that this clock is wrong by, now; under
// -x it stands where the correction of the clock would.
std::optional<Tracking> ParseTracking(absl::string_view line) {
  const std::vector<std::string> field = absl::StrSplit(line, ',');
  double offset_s = 0, delay_s = 0, dispersion_s = 0;
  if (field.size() < 14 || field[2] != "2" || !absl::SimpleAtod(field[4], &offset_s) ||
      !absl::SimpleAtod(field[10], &delay_s) || !absl::SimpleAtod(field[11], &dispersion_s))
    return std::nullopt;
  return Tracking{.offset_ns = offset_s * 1e9, .bound_ns = (dispersion_s + delay_s / 2) * 1e9};
}

std::string Ptp4lConfig(const std::string& server) {
  if (server.empty()) return absl::StrCat(kPtpCommon, "masterOnly 1\nunicast_listen 1\n[eth0]\n");
  return absl::StrCat(
      kPtpCommon,
      "slaveOnly 1\noperLogSyncInterval -7\ndelay_filter moving_median\ndelay_filter_length 100\ntsproc_mode filter\n"
      "[unicast_master_table]\ntable_id 1\nlogQueryInterval 0\nUDPv4 ",
      server, "\n[eth0]\nunicast_master_table 1\n");
}

// An answer with the ingress time of the one before says nothing new.
std::vector<PtpOffset> ParsePtpOffsets(absl::string_view text) {
  std::vector<PtpOffset> offsets;
  PtpOffset offset;
  int64_t last_ingress_ns = 0;
  bool present = false;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::vector<std::string> word = absl::StrSplit(absl::StripAsciiWhitespace(line), ' ', absl::SkipEmpty());
    if (word.size() != 2) continue;
    if (word[0] == "master_offset") (void)absl::SimpleAtod(word[1], &offset.offset_ns);
    if (word[0] == "ingress_time") (void)absl::SimpleAtoi(word[1], &offset.ingress_ns);
    if (word[0] == "gmPresent") present = word[1] == "true";
    if (word[0] != "gmIdentity") continue;  // the last line of an answer
    if (present && offset.ingress_ns != 0 && offset.ingress_ns != last_ingress_ns) offsets.push_back(offset);
    last_ingress_ns = offset.ingress_ns;
  }
  return offsets;
}

}  // namespace cw::bench
