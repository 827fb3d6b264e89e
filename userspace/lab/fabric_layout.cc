// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fabric_layout.h"

#include <arpa/inet.h>

#include <algorithm>
#include <regex>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "bpf/lab/switch_abi.h"

namespace cw::lab {
namespace {

constexpr char kPrefix[] = "cwlab-";
constexpr double kBurstSeconds = 40e-6;  // what a shaper may send at once: covers late timers without hurting delays
constexpr int64_t kMinBurst = 16'000;
constexpr int64_t kMinQueue = 256 * 1024;
constexpr double kQueueSeconds = 10e-3;

absl::Status InRange(const char* field, double value, double low, double high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrFormat("%s is %g: choose from %g to %g", field, value, low, high));
}

int64_t QueueBytes(const FabricSpec& spec, double mbps) {
  if (spec.queue_bytes > 0) return spec.queue_bytes;
  return std::max(kMinQueue, static_cast<int64_t>(mbps * 1e6 / 8 * kQueueSeconds));
}

}  // namespace

absl::Status ValidateLabName(const std::string& lab) {
  static const std::regex pattern("[a-z0-9]{1,16}");
  if (std::regex_match(lab, pattern)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("lab name \"", lab, "\": use 1 to 16 of the characters a-z and 0-9"));
}

absl::Status Validate(const FabricSpec& spec) {
  absl::Status status = ValidateLabName(spec.lab);
  status.Update(InRange("leaves", spec.leaves, 1, LAB_MAX_LEAVES));
  status.Update(InRange("spines", spec.spines, 1, LAB_MAX_SPINES));
  status.Update(InRange("hosts_per_leaf", spec.hosts_per_leaf, 1, 4));
  status.Update(InRange("mtu", spec.mtu, 1280, 9000));
  if (spec.link_mbps != 0) status.Update(InRange("link_mbps", spec.link_mbps, 0.1, 400'000));
  if (spec.host_link_mbps != 0) status.Update(InRange("host_link_mbps", spec.host_link_mbps, 0.1, 400'000));
  status.Update(InRange("queue_bytes", static_cast<double>(spec.queue_bytes), 0, 1 << 30));
  status.Update(InRange("ecn_drain", spec.ecn_drain, 0.1, 1.0));
  status.Update(InRange("ecn_p_max", spec.ecn_p_max, 0.0, 1.0));
  if (spec.ecn_min_bytes < 0 || spec.ecn_max_bytes < spec.ecn_min_bytes || spec.ecn_max_bytes > (int64_t{1} << 32)) {
    status.Update(absl::InvalidArgumentError("ecn_min_bytes and ecn_max_bytes: choose 0 <= min <= max <= 4 GiB"));
  }
  return status;
}

std::string LeafName(const std::string& lab, int leaf) { return absl::StrCat(kPrefix, lab, "-leaf", leaf); }
std::string SpineName(const std::string& lab, int spine) { return absl::StrCat(kPrefix, lab, "-spine", spine); }
std::string HostName(const std::string& lab, int host) { return absl::StrCat(kPrefix, lab, "-h", host); }
std::string MgmtName(const std::string& lab) { return absl::StrCat(kPrefix, lab, "-mgmt"); }

std::string LabOf(const std::string& netns) {
  static const std::regex pattern("cwlab-([a-z0-9]{1,16})-(leaf[0-9]+|spine[0-9]+|h[0-9]+|mgmt)");
  std::smatch match;
  return std::regex_match(netns, match, pattern) ? match[1].str() : "";
}

bool IsNamespaceOf(const std::string& lab, const std::string& netns) { return !lab.empty() && LabOf(netns) == lab; }

std::vector<std::string> NamespacesOf(const FabricSpec& spec) {
  std::vector<std::string> names;
  for (int l = 0; l < spec.leaves; ++l) names.push_back(LeafName(spec.lab, l));
  for (int s = 0; s < spec.spines; ++s) names.push_back(SpineName(spec.lab, s));
  for (int h = 0; h < spec.leaves * spec.hosts_per_leaf; ++h) names.push_back(HostName(spec.lab, h));
  names.push_back(MgmtName(spec.lab));
  return names;
}

std::string LabRunDir(const std::string& lab) { return absl::StrCat("/run/cwlab/", lab); }

int LinkNumber(int leaf, int spine) { return leaf * LAB_MAX_SPINES + spine; }

int DirectionNumber(const LinkDirection& link) {
  const int down = link.toward == LinkDirection::Toward::kDown ? 1 : 0;
  if (link.tier == LinkDirection::Tier::kSpine) return 2 * LinkNumber(link.leaf, link.spine) + down;
  return LAB_SPINE_DIRS + 2 * link.port + down;
}

int LeafPortIfindex(int leaf, int spine) { return LAB_IFINDEX_BASE + 2 * LinkNumber(leaf, spine); }
int SpinePortIfindex(int leaf, int spine) { return LeafPortIfindex(leaf, spine) + 1; }
int HostPortIfindex(int port) { return LAB_IFINDEX_BASE + LAB_SPINE_DIRS + port; }

std::string Mac(int ifindex, bool far) {
  return absl::StrFormat("02:1a:%02x:00:%02x:%02x", far, ifindex >> 8, ifindex & 255);
}

std::string LeafAddr(int leaf, int spine) { return absl::StrCat("10.1.", spine, ".", 2 * leaf + 1); }
std::string SpineAddr(int leaf, int spine) { return absl::StrCat("10.1.", spine, ".", 2 * leaf); }
std::string Gateway(int leaf) { return absl::StrCat("10.0.", leaf, ".1"); }

std::string HostAddress(const FabricSpec& spec, int host) {
  return absl::StrCat("10.0.", host / spec.hosts_per_leaf, ".", 10 + host % spec.hosts_per_leaf);
}

std::string HostMgmtAddress(int host) { return absl::StrCat("192.168.77.", 10 + host); }

std::string LinkDirection::Name() const {
  const std::string leaf_side = tier == Tier::kSpine ? absl::StrCat("leaf", leaf) : absl::StrCat("h", port);
  const std::string spine_side = tier == Tier::kSpine ? absl::StrCat("spine", spine) : std::string("leaf");
  return toward == Toward::kUp ? leaf_side + "->" + spine_side : spine_side + "->" + leaf_side;
}

SwitchPort SendingPort(const FabricSpec& spec, const LinkDirection& link) {
  LinkDirection reverse = link;
  reverse.toward =
      link.toward == LinkDirection::Toward::kUp ? LinkDirection::Toward::kDown : LinkDirection::Toward::kUp;
  return ReceivingPort(spec, reverse);
}

SwitchPort ReceivingPort(const FabricSpec& spec, const LinkDirection& link) {
  const bool up = link.toward == LinkDirection::Toward::kUp;
  if (link.tier == LinkDirection::Tier::kSpine) {
    if (up) return {SpineName(spec.lab, link.spine), absl::StrCat("leaf", link.leaf)};
    return {LeafName(spec.lab, link.leaf), absl::StrCat("spine", link.spine)};
  }
  if (up) return {LeafName(spec.lab, link.port / spec.hosts_per_leaf), absl::StrCat("host", link.port)};
  return {HostName(spec.lab, link.port), "eth0"};
}

std::string EcmpRoute(int leaf, int remote_leaf, const std::vector<int>& spines) {
  std::string route = absl::StrCat("10.0.", remote_leaf, ".0/24");
  for (int s : spines) absl::StrAppend(&route, " nexthop via ", SpineAddr(leaf, s), " dev spine", s);
  return route;
}

std::string UplinkNeighbour(int leaf, int spine) {
  return absl::StrCat("neigh replace ", SpineAddr(leaf, spine), " dev spine", spine, " lladdr ",
                      Mac(SpinePortIfindex(leaf, spine)), " nud permanent");
}

std::string Address6(const std::string& ipv4) {
  in6_addr address{};
  char text[INET6_ADDRSTRLEN] = "";
  if (inet_pton(AF_INET6, absl::StrCat("fd00::", ipv4).c_str(), &address) != 1) return "";
  return inet_ntop(AF_INET6, &address, text, sizeof(text));
}

std::string LinkLocal(int ifindex) { return absl::StrFormat("fe80::%x", ifindex); }

std::string EcmpRoute6(int leaf, int remote_leaf, const std::vector<int>& spines) {
  std::string route = absl::StrCat(Address6(absl::StrCat("10.0.", remote_leaf, ".0")), "/120");
  for (int s : spines) {
    absl::StrAppend(&route, " nexthop via ", LinkLocal(SpinePortIfindex(leaf, s)), " dev spine", s);
  }
  return route;
}

std::vector<std::string> UplinkLines6(int leaf, int spine) {
  const std::string dev = absl::StrCat(" dev spine", spine);
  return {absl::StrCat("addr replace ", LinkLocal(LeafPortIfindex(leaf, spine)), "/64", dev, " nodad"),
          absl::StrCat("neigh replace ", LinkLocal(SpinePortIfindex(leaf, spine)), dev, " lladdr ",
                       Mac(SpinePortIfindex(leaf, spine)), " nud permanent")};
}

std::string Shaper(const FabricSpec& spec, double mbps) {
  const int64_t burst = std::max(kMinBurst, static_cast<int64_t>(mbps * 1e6 / 8 * kBurstSeconds));
  return absl::StrFormat("tbf rate %dbit burst %d limit %d", static_cast<int64_t>(mbps * 1e6),
                         std::max<int64_t>(burst, 2 * spec.mtu), QueueBytes(spec, mbps));
}

// The overhead makes any packet cost more than the whole bucket holds after the first one: one packet, which may as
// well have been on the wire, still leaves, then the queue stands.
std::string PausedShaper(const FabricSpec& spec) {
  return absl::StrFormat("tbf rate 8kbit burst %d limit %d overhead 60000", spec.mtu + 64,
                         QueueBytes(spec, spec.link_mbps));
}

}  // namespace cw::lab
