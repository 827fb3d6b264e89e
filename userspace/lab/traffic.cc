// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/traffic.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace cw::lab {
namespace {

// In front of the payload, with IPv6, an immediate and the ICRC.
constexpr int kTrafficHeaders = 40 + 8 + 12 + 16 + 4 + 4;

std::string KnownHosts(int hosts) { return hosts > 1 ? absl::StrCat("h0 to h", hosts - 1) : std::string("h0"); }

absl::StatusOr<int> ParseHost(absl::string_view text, int hosts) {
  int number = 0;
  if (!text.empty() && text[0] == 'h' && absl::SimpleAtoi(text.substr(1), &number) && number >= 0 && number < hosts &&
      text == absl::StrCat("h", number)) {
    return number;
  }
  return absl::InvalidArgumentError(absl::StrCat("no host \"", text, "\": the lab has ", KnownHosts(hosts)));
}

// The largest RoCE MTU that the fabric's ports carry.
uint32_t PathMtu(int port_mtu) {
  uint32_t mtu = 4096;
  while (mtu > 256 && static_cast<int>(mtu) + kTrafficHeaders > port_mtu) mtu /= 2;
  return mtu;
}

struct TrafficSum {
  uint64_t packets = 0, resent = 0, bytes = 0;
};

TrafficSum SumOf(const Snapshot& snapshot) {
  TrafficSum sum;
  for (const FlowReport& flow : snapshot.flows) {
    sum.packets += flow.requester.data_packets;
    sum.resent += flow.requester.retransmissions;
    sum.bytes += flow.receive.bytes();
  }
  return sum;
}

double Mbps(uint64_t bytes, absl::Duration length) {
  return length > absl::ZeroDuration() ? 8e-6 * static_cast<double>(bytes) / absl::ToDoubleSeconds(length) : 0;
}

absl::StatusOr<std::vector<JobPair>> PairsOf(const TrafficOptions& options, const FabricSpec& fabric) {
  const int hosts = fabric.leaves * fabric.hosts_per_leaf;
  if (hosts < 2)
    return absl::InvalidArgumentError("the lab has one host; traffic takes two (cwlab up --hosts-per-leaf)");
  if (!options.pairs.empty()) return ParsePairs(options.pairs, hosts);
  if (!options.all_to_all) return AcrossLeaves(fabric.leaves, fabric.hosts_per_leaf);
  std::vector<JobPair> pairs;
  for (int from = 0; from < hosts; ++from) {
    for (int to = 0; to < hosts; ++to) {
      if (from != to) pairs.push_back({from, to});
    }
  }
  return pairs;
}

}  // namespace

absl::StatusOr<std::vector<JobPair>> ParsePairs(const std::string& text, int hosts) {
  std::vector<JobPair> pairs;
  for (const absl::string_view part : absl::StrSplit(text, ',')) {
    const std::vector<absl::string_view> ends = absl::StrSplit(part, '-');
    if (ends.size() != 2) {
      return absl::InvalidArgumentError(
          absl::StrCat("\"", part, "\" is no pair of hosts: write h0-h1, and commas between pairs"));
    }
    absl::StatusOr<int> from = ParseHost(ends[0], hosts), to = ParseHost(ends[1], hosts);
    if (!from.ok()) return from.status();
    if (!to.ok()) return to.status();
    if (*from == *to) return absl::InvalidArgumentError(absl::StrCat("\"", part, "\": a host cannot send to itself"));
    pairs.push_back({*from, *to});
  }
  return pairs;
}

std::vector<JobPair> AcrossLeaves(int leaves, int hosts_per_leaf) {
  const int hosts = leaves * hosts_per_leaf;
  std::vector<JobPair> pairs;
  for (int host = 0; host < hosts; ++host) pairs.push_back({host, (host + (leaves > 1 ? hosts_per_leaf : 1)) % hosts});
  return pairs;
}

absl::StatusOr<absl::Duration> ParseTrafficTime(const std::string& text) {
  if (text.empty()) return absl::InfiniteDuration();
  absl::Duration time;
  if (absl::ParseDuration(text, &time) && time >= absl::Seconds(1)) return time;
  return absl::InvalidArgumentError(
      absl::StrCat("--for: \"", text, "\" is no time of at least a second: write 30s, 5m or 1h"));
}

absl::StatusOr<JobSpec> TrafficJob(const TrafficOptions& options, const FabricSpec& fabric) {
  absl::StatusOr<std::vector<JobPair>> pairs = PairsOf(options, fabric);
  if (!pairs.ok()) return pairs.status();
  JobSpec job;
  job.name = "cwlab traffic";
  job.pairs = *std::move(pairs);
  job.qps_per_pair = options.qps;
  job.message_bytes = 64 << 10;
  job.duration = absl::Hours(24 * 365);  // whoever runs it ends it
  job.path_mtu = PathMtu(fabric.mtu);
  job.packet_interval = absl::Seconds(8e-6 * job.path_mtu / options.mbps);
  const double link_mbps = fabric.link_mbps > 0 ? fabric.link_mbps : 1000;
  job.rate = RateConfig::ForLine(std::max(link_mbps, options.mbps) * 1e6);
  job.timeout = 18;  // a second, eight times: who breaks a link has time to look before queue pairs give up
  if (absl::Status status = CheckJob(job, fabric.leaves * fabric.hosts_per_leaf); !status.ok()) return status;
  return job;
}

std::string TrafficLine(const Snapshot& before, const Snapshot& now, absl::Duration at) {
  const TrafficSum a = SumOf(before), b = SumOf(now);
  const int died = now.FlowsDied();
  std::string line = absl::StrFormat("%4.0f s  %6d packets sent, %d again  goodput %.1f Mbit/s  %d queue pairs",
                                     absl::ToDoubleSeconds(at), b.packets - a.packets, b.resent - a.resent,
                                     Mbps(b.bytes - a.bytes, absl::Nanoseconds(now.taken_ns - before.taken_ns)),
                                     static_cast<int>(now.flows.size()) - died);
  if (died > 0) absl::StrAppend(&line, ", ", died, " gave up");
  return line;
}

nlohmann::json TrafficTotals(const Snapshot& last, absl::Duration length) {
  const TrafficSum sum = SumOf(last);
  nlohmann::json flows = nlohmann::json::array();
  for (const FlowReport& flow : last.flows) {
    flows.push_back({{"source", absl::StrCat("h", flow.source)},
                     {"destination", absl::StrCat("h", flow.destination)},
                     {"source_qpn", flow.source_qpn},
                     {"destination_qpn", flow.destination_qpn},
                     {"packets", flow.requester.data_packets},
                     {"resent", flow.requester.retransmissions},
                     {"bytes", flow.receive.bytes()},
                     {"goodput_mbps", Mbps(flow.receive.bytes(), length)},
                     {"gave_up", flow.dead}});
  }
  return {{"seconds", absl::ToDoubleSeconds(length)},
          {"packets", sum.packets},
          {"resent", sum.resent},
          {"bytes", sum.bytes},
          {"goodput_mbps", Mbps(sum.bytes, length)},
          {"gave_up", last.FlowsDied()},
          {"queue_pairs", std::move(flows)}};
}

}  // namespace cw::lab
