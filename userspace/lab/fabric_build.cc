// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/fabric_build.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <numeric>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "maps/names.h"
#include "userspace/lab/fabric_layout.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

using Lines = std::vector<std::string>;

absl::Status Batch(const char* tool, const Lines& lines) {
  if (lines.empty()) return absl::OkStatus();
  return RunTool({tool, "-batch", "-"}, absl::StrJoin(lines, "\n") + "\n").status();
}

constexpr char kAgentRun[] = "/run/cwfabric";  // where agents lock, whatever their own run folder is

int Hosts(const FabricSpec& spec) { return spec.leaves * spec.hosts_per_leaf; }

// ---- Settings. They come before the links, because a new device copies its namespace's "default". ----

// Addresses are given by hand, and nothing is asked or announced that can be done without.
absl::Status Ipv6Settings(const std::string& scope) {
  absl::Status status;
  const std::string conf = absl::StrCat("net/ipv6/conf/", scope);
  status.Update(WriteSysctl(conf + "/disable_ipv6", "0"));
  status.Update(WriteSysctl(conf + "/accept_ra", "0"));
  status.Update(WriteSysctl(conf + "/accept_dad", "0"));
  status.Update(WriteSysctl(conf + "/router_solicitations", "0"));
  if (scope == "default") status.Update(WriteSysctl(conf + "/addr_gen_mode", "1"));
  return status;
}

absl::Status CommonSettings(bool ipv6) {
  absl::Status status;
  for (const char* scope : {"all", "default"}) {
    status.Update(WriteSysctl(absl::StrCat("net/ipv4/conf/", scope, "/rp_filter"), "0"));
    if (ipv6) {
      status.Update(Ipv6Settings(scope));
      continue;
    }
    // No neighbour discovery or multicast listener reports among the packets that tests count.
    if (absl::Status v6 = WriteSysctl(absl::StrCat("net/ipv6/conf/", scope, "/disable_ipv6"), "1");
        !absl::IsNotFound(v6)) {
      status.Update(v6);
    }
  }
  return status;
}

absl::Status SwitchSettings(bool ipv6) {
  absl::Status status = CommonSettings(ipv6);
  status.Update(WriteSysctl("net/ipv4/ip_forward", "1"));
  status.Update(WriteSysctl("net/ipv4/fib_multipath_hash_policy", "1"));
  status.Update(WriteSysctl("net/ipv4/icmp_ratemask", "0"));  // neither per target nor in all
  status.Update(WriteSysctl("net/ipv4/icmp_errors_use_inbound_ifaddr", "1"));
  for (const char* scope : {"all", "default"}) {
    const std::string conf = absl::StrCat("net/ipv4/conf/", scope);
    status.Update(WriteSysctl(conf + "/send_redirects", "0"));
    status.Update(WriteSysctl(conf + "/ignore_routes_with_linkdown", "1"));
  }
  if (!ipv6) return status;
  status.Update(WriteSysctl("net/ipv6/fib_multipath_hash_policy", "3"));   // by the fields named next:
  status.Update(WriteSysctl("net/ipv6/fib_multipath_hash_fields", "63"));  // all, the flow label too
  status.Update(WriteSysctl("net/ipv6/icmp/ratelimit", "0"));
  for (const char* scope : {"all", "default"}) {
    const std::string conf = absl::StrCat("net/ipv6/conf/", scope);
    status.Update(WriteSysctl(conf + "/forwarding", "1"));
    status.Update(WriteSysctl(conf + "/ignore_routes_with_linkdown", "1"));
  }
  return status;
}

absl::Status MakeNamespaces(FabricState& state) {
  const FabricSpec& spec = state.spec;
  for (const std::string& name : NamespacesOf(spec)) {
    if (absl::Status status = CreateNetns(name); !status.ok()) return status;
  }
  absl::Status status;
  state.ecmp_seeded = spec.ecmp_seed != 0;
  for (int l = 0; l < spec.leaves; ++l) {
    status.Update(RunInNetns(NetnsPath(LeafName(spec.lab, l)), [&] {
      if (spec.ecmp_seed && !WriteSysctl("net/ipv4/fib_multipath_hash_seed", absl::StrCat(spec.ecmp_seed + l)).ok()) {
        state.ecmp_seeded = false;  // the kernel is older than that setting
      }
      return SwitchSettings(spec.ipv6);
    }));
  }
  for (int s = 0; s < spec.spines; ++s) {
    status.Update(RunInNetns(NetnsPath(SpineName(spec.lab, s)), [&] { return SwitchSettings(spec.ipv6); }));
  }
  for (int h = 0; h < Hosts(spec); ++h) {
    status.Update(RunInNetns(NetnsPath(HostName(spec.lab, h)), [&] { return CommonSettings(spec.ipv6); }));
  }
  status.Update(RunInNetns(NetnsPath(MgmtName(spec.lab)), [] { return CommonSettings(false); }));
  return status;
}

// ---- Links: one batch creates every veth pair with its ends in place. ----

std::string VethEnd(const std::string& device, const std::string& netns, int ifindex, bool far, int mtu) {
  // Only our own ends of the links have chosen indexes: they are how the switch programs know a port.
  return absl::StrCat(device, " netns ", netns, far ? "" : absl::StrCat(" index ", ifindex), " address ",
                      Mac(ifindex, far), " mtu ", mtu);
}

absl::Status MakeLinks(const FabricSpec& spec) {
  Lines lines;
  auto veth = [&](const std::string& a, const std::string& b) {
    lines.push_back(absl::StrCat("link add name ", a, " type veth peer name ", b));
  };
  for (int l = 0; l < spec.leaves; ++l) {
    for (int s = 0; s < spec.spines; ++s) {
      veth(VethEnd(absl::StrCat("spine", s), LeafName(spec.lab, l), LeafPortIfindex(l, s), false, spec.mtu),
           VethEnd(absl::StrCat("leaf", l), SpineName(spec.lab, s), SpinePortIfindex(l, s), false, spec.mtu));
    }
  }
  for (int h = 0; h < Hosts(spec); ++h) {
    veth(VethEnd(absl::StrCat("host", h), LeafName(spec.lab, h / spec.hosts_per_leaf), HostPortIfindex(h), false,
                 spec.mtu),
         VethEnd("eth0", HostName(spec.lab, h), HostPortIfindex(h), true, spec.mtu));
    veth(absl::StrCat("h", h, " netns ", MgmtName(spec.lab)), absl::StrCat("mgmt0 netns ", HostName(spec.lab, h)));
  }
  return Batch("ip", lines);
}

// ---- Addresses and routes. Neighbours are static: what a fault does must not depend on ARP's timers. ----

Lines LeafLines(const FabricSpec& spec, int leaf) {
  Lines lines;
  for (int k = 0; k < spec.hosts_per_leaf; ++k) {
    const int h = leaf * spec.hosts_per_leaf + k;
    const std::string device = absl::StrCat("host", h);
    lines.push_back(absl::StrCat("link set ", device, " up"));
    lines.push_back(absl::StrCat("addr add ", Gateway(leaf), "/32 dev ", device));
    lines.push_back(absl::StrCat("route add ", HostAddress(spec, h), "/32 dev ", device));
    lines.push_back(absl::StrCat("neigh add ", HostAddress(spec, h), " dev ", device, " lladdr ",
                                 Mac(HostPortIfindex(h), true), " nud permanent"));
  }
  for (int s = 0; s < spec.spines; ++s) {
    lines.push_back(absl::StrCat("link set spine", s, " up"));
    lines.push_back(absl::StrCat("addr add ", LeafAddr(leaf, s), "/31 dev spine", s));
    lines.push_back(UplinkNeighbour(leaf, s));
  }
  std::vector<int> spines(spec.spines);
  std::iota(spines.begin(), spines.end(), 0);
  for (int remote = 0; remote < spec.leaves; ++remote) {
    if (remote != leaf) lines.push_back(absl::StrCat("route add ", EcmpRoute(leaf, remote, spines)));
  }
  return lines;
}

Lines SpineLines(const FabricSpec& spec, int spine) {
  Lines lines;
  for (int l = 0; l < spec.leaves; ++l) {
    lines.push_back(absl::StrCat("link set leaf", l, " up"));
    lines.push_back(absl::StrCat("addr add ", SpineAddr(l, spine), "/31 dev leaf", l));
    lines.push_back(absl::StrCat("neigh add ", LeafAddr(l, spine), " dev leaf", l, " lladdr ",
                                 Mac(LeafPortIfindex(l, spine)), " nud permanent"));
    lines.push_back(absl::StrCat("route add 10.0.", l, ".0/24 via ", LeafAddr(l, spine), " dev leaf", l));
  }
  return lines;
}

// Everything goes through the gateway, hosts on the same leaf included: leaf ports are routed.
Lines HostLines(const FabricSpec& spec, int host) {
  const std::string gateway = Gateway(host / spec.hosts_per_leaf);
  return {"link set eth0 up",
          absl::StrCat("addr add ", HostAddress(spec, host), "/24 dev eth0 noprefixroute"),
          absl::StrCat("neigh add ", gateway, " dev eth0 lladdr ", Mac(HostPortIfindex(host)), " nud permanent"),
          absl::StrCat("route add ", gateway, "/32 dev eth0 scope link src ", HostAddress(spec, host)),
          absl::StrCat("route add 10.0.0.0/15 via ", gateway, " dev eth0 src ", HostAddress(spec, host)),
          "link set mgmt0 up",
          absl::StrCat("addr add ", HostMgmtAddress(host), "/24 dev mgmt0")};
}

// ---- The same for IPv6: only hosts and lo have global addresses. ----

constexpr char kGateway6[] = "fe80::1";  // on each host port

Lines SwitchLines6(const std::string& lo) {
  return {"link set lo up", absl::StrCat("addr add ", Address6(lo), "/128 dev lo nodad")};
}

Lines LeafLines6(const FabricSpec& spec, int leaf) {
  Lines lines = SwitchLines6(absl::StrCat("10.1.255.", leaf));
  for (int k = 0; k < spec.hosts_per_leaf; ++k) {
    const int h = leaf * spec.hosts_per_leaf + k;
    const std::string dev = absl::StrCat(" dev host", h), address = Address6(HostAddress(spec, h));
    lines.push_back(absl::StrCat("addr add ", kGateway6, "/64", dev, " nodad"));
    lines.push_back(absl::StrCat("route add ", address, "/128", dev));
    lines.push_back(
        absl::StrCat("neigh add ", address, dev, " lladdr ", Mac(HostPortIfindex(h), true), " nud permanent"));
  }
  std::vector<int> spines(spec.spines);
  std::iota(spines.begin(), spines.end(), 0);
  for (int s : spines) {
    for (const std::string& line : UplinkLines6(leaf, s)) lines.push_back(line);
  }
  for (int remote = 0; remote < spec.leaves; ++remote) {
    if (remote != leaf) lines.push_back(absl::StrCat("route add ", EcmpRoute6(leaf, remote, spines)));
  }
  return lines;
}

Lines SpineLines6(const FabricSpec& spec, int spine) {
  Lines lines = SwitchLines6(absl::StrCat("10.1.", spine, ".0"));
  for (int l = 0; l < spec.leaves; ++l) {
    const std::string dev = absl::StrCat(" dev leaf", l), leaf = LinkLocal(LeafPortIfindex(l, spine));
    lines.push_back(absl::StrCat("addr add ", LinkLocal(SpinePortIfindex(l, spine)), "/64", dev, " nodad"));
    lines.push_back(
        absl::StrCat("neigh add ", leaf, dev, " lladdr ", Mac(LeafPortIfindex(l, spine)), " nud permanent"));
    lines.push_back(absl::StrCat("route add ", Address6(absl::StrCat("10.0.", l, ".0")), "/120 via ", leaf, dev));
  }
  return lines;
}

Lines HostLines6(const FabricSpec& spec, int host) {
  return {absl::StrCat("addr add ", Address6(HostAddress(spec, host)), "/128 dev eth0 nodad"),
          "addr add fe80::2/64 dev eth0 nodad",
          absl::StrCat("neigh add ", kGateway6, " dev eth0 lladdr ", Mac(HostPortIfindex(host)), " nud permanent"),
          absl::StrCat("route add fd00::/16 via ", kGateway6, " dev eth0 src ", Address6(HostAddress(spec, host)))};
}

Lines Joined(Lines lines, const Lines& more) {
  lines.insert(lines.end(), more.begin(), more.end());
  return lines;
}

Lines MgmtLines(const FabricSpec& spec) {
  Lines lines = {"link add br0 type bridge", "link set br0 up"};
  for (int h = 0; h < Hosts(spec); ++h) lines.push_back(absl::StrCat("link set h", h, " master br0 up"));
  return lines;
}

std::string Shape(const std::string& device, const FabricSpec& spec, double mbps) {
  return absl::StrCat("qdisc replace dev ", device, " root ", Shaper(spec, mbps));
}

// ---- One namespace after the other: addresses, then queues, then programs. ----

absl::Status FurnishLeaf(const FabricSpec& spec, int leaf, const SwitchPrograms& programs) {
  return RunInNetns(NetnsPath(LeafName(spec.lab, leaf)), [&] {
    absl::Status status =
        Batch("ip", spec.ipv6 ? Joined(LeafLines(spec, leaf), LeafLines6(spec, leaf)) : LeafLines(spec, leaf));
    Lines queues;
    for (int s = 0; s < spec.spines && spec.link_mbps > 0; ++s) {
      queues.push_back(Shape(absl::StrCat("spine", s), spec, spec.link_mbps));
    }
    for (int k = 0; k < spec.hosts_per_leaf && spec.host_link_mbps > 0; ++k) {
      queues.push_back(Shape(absl::StrCat("host", leaf * spec.hosts_per_leaf + k), spec, spec.host_link_mbps));
    }
    if (status.ok()) status = Batch("tc", queues);
    for (int s = 0; s < spec.spines && status.ok(); ++s) {
      status = programs.AttachPort(LeafPortIfindex(leaf, s), /*xdp=*/false);
    }
    for (int k = 0; k < spec.hosts_per_leaf && status.ok(); ++k) {
      status = programs.AttachPort(HostPortIfindex(leaf * spec.hosts_per_leaf + k), /*xdp=*/true);
    }
    return status;
  });
}

absl::Status FurnishSpine(const FabricSpec& spec, int spine, const SwitchPrograms& programs) {
  return RunInNetns(NetnsPath(SpineName(spec.lab, spine)), [&] {
    absl::Status status =
        Batch("ip", spec.ipv6 ? Joined(SpineLines(spec, spine), SpineLines6(spec, spine)) : SpineLines(spec, spine));
    Lines queues;
    for (int l = 0; l < spec.leaves && spec.link_mbps > 0; ++l) {
      queues.push_back(Shape(absl::StrCat("leaf", l), spec, spec.link_mbps));
    }
    if (status.ok()) status = Batch("tc", queues);
    for (int l = 0; l < spec.leaves && status.ok(); ++l) {
      status = programs.AttachPort(SpinePortIfindex(l, spine), /*xdp=*/false);
    }
    return status;
  });
}

absl::Status FurnishHost(const FabricSpec& spec, int host) {
  return RunInNetns(NetnsPath(HostName(spec.lab, host)), [&] {
    absl::Status status =
        Batch("ip", spec.ipv6 ? Joined(HostLines(spec, host), HostLines6(spec, host)) : HostLines(spec, host));
    if (status.ok() && spec.host_link_mbps > 0) status = Batch("tc", {Shape("eth0", spec, spec.host_link_mbps)});
    return status;
  });
}

std::vector<std::string> Numbered(const char* prefix, int first, int count) {
  std::vector<std::string> names;
  for (int i = first; i < first + count; ++i) names.push_back(absl::StrCat(prefix, i));
  return names;
}

absl::Status WaitForPorts(const FabricSpec& spec) {
  auto wait = [](const std::string& netns, const std::vector<std::string>& devices) {
    return RunInNetns(NetnsPath(netns), [&] { return WaitUntilRunning(devices); });
  };
  absl::Status status = wait(MgmtName(spec.lab), Numbered("h", 0, Hosts(spec)));
  for (int l = 0; l < spec.leaves; ++l) {
    status.Update(wait(LeafName(spec.lab, l), Numbered("spine", 0, spec.spines)));
    status.Update(wait(LeafName(spec.lab, l), Numbered("host", l * spec.hosts_per_leaf, spec.hosts_per_leaf)));
  }
  for (int s = 0; s < spec.spines; ++s) status.Update(wait(SpineName(spec.lab, s), Numbered("leaf", 0, spec.leaves)));
  for (int h = 0; h < Hosts(spec); ++h) status.Update(wait(HostName(spec.lab, h), {"eth0", "mgmt0"}));
  return status;
}

// Opens /dev/net/tun in the calling thread's namespace; ifindex 0 lets the kernel choose.
absl::Status MakeTap(const std::string& device, int ifindex) {
  if (device.empty() || device.size() >= IFNAMSIZ) {
    return absl::InvalidArgumentError(absl::StrCat("tap name \"", device, "\": use 1 to 15 characters"));
  }
  int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "open /dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strcpy(request.ifr_name, device.c_str());
  unsigned index = ifindex;
  absl::Status status;
  if ((ifindex && ioctl(fd, TUNSETIFINDEX, &index)) || ioctl(fd, TUNSETIFF, &request) || ioctl(fd, TUNSETPERSIST, 1)) {
    status = absl::ErrnoToStatus(errno, absl::StrCat("make tap ", device));
  }
  close(fd);
  return status;
}

// Pins and marks of this lab's agents: an agent's instance has its host's namespace's name.
void RemoveAgentRemains(const std::string& lab) {
  for (const char* folder : {CW_PIN_ROOT, kAgentRun}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      if (!IsNamespaceOf(lab, entry.path().filename())) continue;
      std::error_code ignored;
      std::filesystem::remove_all(entry.path(), ignored);
    }
  }
}

// What agents that were killed leave of their locks on a namespace's NICs. The number may be another namespace's later.
void RemoveNicLocks(const std::string& netns) {
  struct stat inode;
  if (stat(NetnsPath(netns).c_str(), &inode) != 0) return;
  const std::string prefix = absl::StrCat("nic-", inode.st_ino, "-");
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(kAgentRun, error)) {
    std::error_code ignored;
    if (absl::StartsWith(entry.path().filename().string(), prefix)) std::filesystem::remove(entry.path(), ignored);
  }
}

}  // namespace

absl::Status BuildLab(FabricState& state) {
  const FabricSpec& spec = state.spec;
  absl::StatusOr<std::unique_ptr<SwitchPrograms>> programs = SwitchPrograms::Load();
  if (!programs.ok()) return programs.status();
  state.maps = (*programs)->map_ids();
  absl::Status status = MakeNamespaces(state);
  if (status.ok()) status = MakeLinks(spec);
  for (int l = 0; l < spec.leaves && status.ok(); ++l) status = FurnishLeaf(spec, l, **programs);
  for (int s = 0; s < spec.spines && status.ok(); ++s) status = FurnishSpine(spec, s, **programs);
  for (int h = 0; h < Hosts(spec) && status.ok(); ++h) {
    status = FurnishHost(spec, h);
    std::filesystem::create_directories(absl::StrCat(LabRunDir(spec.lab), "/h", h));
  }
  if (!status.ok()) return status;
  status = RunInNetns(NetnsPath(MgmtName(spec.lab)), [&] { return Batch("ip", MgmtLines(spec)); });
  return status.ok() ? WaitForPorts(spec) : status;
}

absl::Status RemoveLab(const std::string& lab) {
  absl::Status status;
  for (const ProcessId& process : LoadProcesses(lab)) status.Update(EndProcess(process));
  for (const std::string& name : ListNetns()) {
    if (!IsNamespaceOf(lab, name)) continue;
    RemoveNicLocks(name);
    status.Update(DeleteNetns(name));
  }
  RemoveAgentRemains(lab);
  status.Update(RemoveStateFiles(lab));
  return status;
}

namespace {

// Who is behind it is asked for: a machine chooses its own MAC.
Lines TapLines6(const TapPort& tap) {
  const std::string dev = absl::StrCat(" dev ", tap.device);
  return {absl::StrCat("addr add ", kGateway6, "/64", dev, " nodad"),
          absl::StrCat("route add ", Address6(tap.address), "/128", dev)};
}

}  // namespace

absl::Status BuildTapPort(const FabricSpec& spec, const TapPort& tap) {
  const int ifindex = HostPortIfindex(tap.port);
  return RunInNetns(NetnsPath(LeafName(spec.lab, tap.leaf)), [&] {
    absl::Status status = MakeTap(tap.device, ifindex);
    if (!status.ok()) return status;
    status = Batch("ip", {absl::StrCat("link set ", tap.device, " mtu ", spec.mtu, " address ", Mac(ifindex), " up"),
                          absl::StrCat("addr add ", Gateway(tap.leaf), "/32 dev ", tap.device),
                          absl::StrCat("route add ", tap.address, "/32 dev ", tap.device)});
    if (status.ok() && spec.ipv6) status = Batch("ip", TapLines6(tap));
    // The machine believes that its whole /24 is one Ethernet; the leaf answers for the others on it.
    status.Update(WriteSysctl(absl::StrCat("net/ipv4/conf/", tap.device, "/proxy_arp"), "1"));
    status.Update(WriteSysctl(absl::StrCat("net/ipv4/neigh/", tap.device, "/proxy_delay"), "0"));
    if (status.ok() && spec.host_link_mbps > 0) status = Batch("tc", {Shape(tap.device, spec, spec.host_link_mbps)});
    if (status.ok()) status = AttachPortLike(LeafPortIfindex(tap.leaf, 0), ifindex);
    if (!status.ok()) Batch("ip", {absl::StrCat("link del ", tap.device)}).IgnoreError();
    return status;
  });
}

namespace {

// A further NIC's own, at both ends of its link.
Lines NicLeafLines6(const TapPort& nic) {
  const std::string dev = absl::StrCat(" dev ", nic.device), address = Address6(nic.address);
  return {absl::StrCat("addr add ", kGateway6, "/64", dev, " nodad"), absl::StrCat("route add ", address, "/128", dev),
          absl::StrCat("neigh add ", address, dev, " lladdr ", Mac(HostPortIfindex(nic.port), true), " nud permanent")};
}

Lines NicHostLines6(const TapPort& nic, const std::string& device) {
  const std::string dev = absl::StrCat(" dev ", device), table = absl::StrCat(" table ", 100 + nic.port);
  const std::string address = Address6(nic.address);
  return {absl::StrCat("addr add ", address, "/128", dev, " nodad"), absl::StrCat("addr add fe80::2/64", dev, " nodad"),
          absl::StrCat("neigh add ", kGateway6, dev, " lladdr ", Mac(HostPortIfindex(nic.port)), " nud permanent"),
          absl::StrCat("route add fd00::/16 via ", kGateway6, dev, " metric 2048"),
          absl::StrCat("route add fd00::/16 via ", kGateway6, dev, table)};
}

absl::Status BuildHostEnd6(const TapPort& nic, const std::string& device) {
  absl::Status status = Batch("ip", NicHostLines6(nic, device));
  if (!status.ok()) return status;
  // In a batch, "rule" believes that all addresses are IPv4.
  return RunTool(
             {"ip", "-6", "rule", "add", "from", Address6(nic.address) + "/128", "table", absl::StrCat(100 + nic.port)})
      .status();
}

}  // namespace

absl::Status BuildHostNic(const FabricSpec& spec, const TapPort& nic, const std::string& device) {
  const int ifindex = HostPortIfindex(nic.port);
  const std::string leaf = LeafName(spec.lab, nic.leaf), host = HostName(spec.lab, nic.host);
  absl::Status status =
      Batch("ip", {absl::StrCat("link add name ", VethEnd(nic.device, leaf, ifindex, false, spec.mtu),
                                " type veth peer name ", VethEnd(device, host, ifindex, true, spec.mtu))});
  if (!status.ok()) return status;
  const std::string gateway = Gateway(nic.leaf), far_mac = Mac(ifindex, true);
  status = RunInNetns(NetnsPath(leaf), [&] {
    absl::Status s = Batch(
        "ip", {absl::StrCat("link set ", nic.device, " up"), absl::StrCat("addr add ", gateway, "/32 dev ", nic.device),
               absl::StrCat("route add ", nic.address, "/32 dev ", nic.device),
               absl::StrCat("neigh add ", nic.address, " dev ", nic.device, " lladdr ", far_mac, " nud permanent")});
    if (s.ok() && spec.ipv6) s = Batch("ip", NicLeafLines6(nic));
    const int like = HostPortIfindex(nic.leaf * spec.hosts_per_leaf);
    if (s.ok()) s = AttachPortLike(like, ifindex);
    if (s.ok()) s = AttachXdpLike(like, ifindex);
    if (s.ok() && spec.host_link_mbps > 0) s = Batch("tc", {Shape(nic.device, spec, spec.host_link_mbps)});
    return s;
  });
  if (!status.ok()) return status;
  const std::string dev = absl::StrCat(" dev ", device), table = absl::StrCat(" table ", 100 + nic.port);
  return RunInNetns(NetnsPath(host), [&] {
    absl::Status s = Batch("ip", {absl::StrCat("link set ", device, " up"),
                                  absl::StrCat("addr add ", nic.address, "/24", dev, " noprefixroute"),
                                  absl::StrCat("neigh add ", gateway, dev, " lladdr ", Mac(ifindex), " nud permanent"),
                                  absl::StrCat("route add ", gateway, "/32", dev, " scope link metric 100"),
                                  absl::StrCat("route add 10.0.0.0/15 via ", gateway, dev, " onlink metric 100"),
                                  // What is sent from its address leaves by it.
                                  absl::StrCat("route add 10.0.0.0/15 via ", gateway, dev, " onlink", table),
                                  absl::StrCat("rule add from ", nic.address, "/32", table)});
    return s.ok() && spec.ipv6 ? BuildHostEnd6(nic, device) : s;
  });
}

absl::Status BuildMgmtTap(const FabricSpec& spec, const std::string& device) {
  return RunInNetns(NetnsPath(MgmtName(spec.lab)), [&] {
    absl::Status status = MakeTap(device, 0);
    if (status.ok()) status = Batch("ip", {absl::StrCat("link set ", device, " master br0 up")});
    return status;
  });
}

}  // namespace cw::lab
