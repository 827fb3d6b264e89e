// SPDX-License-Identifier: Apache-2.0
//
// The lab's fabric: leaves, spines and hosts as network namespaces of this machine, joined by veth pairs. Forwarding is
// the kernel's own: IPv4 routes, ECMP on the leaves over UDP ports (fib_multipath_hash_policy 1), TBF queues on the
// leaf-spine links. Small tc programs (bpf/lab/switch.bpf.c) on every switch port break links on command, mark CE and
// count what really crossed each link: the ground truth that the product under test is compared with.
//
//      h0 ── leaf0 ══ spine0..S-1 ══ leaf1 ── h1        (and a management network beside it, never broken)
//
// Names      namespace  cwlab-<lab>-leaf0, -spine0, -h0, -mgmt; hosts are numbered flat: leaf * hosts_per_leaf + k
// Host       eth0       10.0.<leaf>.<10+k>/24, gateway 10.0.<leaf>.1;  mgmt0  192.168.77.<10+h>/24
// Leaf       host<h>    10.0.<leaf>.1 on each host port;  spine<s>  10.1.<spine>.<2*leaf+1>/31
// Spine      leaf<l>    10.1.<spine>.<2*leaf>/31
// A TTL that ends on a switch is answered from the address of the port where the packet came in, so the address names
// both the switch and the link. ICMP is not rate-limited in the switches.
//
// With spec.ipv6 all that has a 10.x address has fd00:: and that address too: hosts on eth0, switches on lo (a leaf
// fd00::10.1.255.<leaf>, a spine fd00::10.1.<spine>.0), from which they answer; links are fe80:: only. Leaves hash
// addresses, ports and flow label (fib_multipath_hash_policy 3). HostAddr is then the IPv6 one, and so are the
// addresses of Flows. PathOf then answers for flow label 0, which is that of flows that nobody steers. Taps are IPv4
// only.
//
// Files      /run/cwlab/<lab>/fabric.json (state), /run/cwlab/<lab>/pids/<pid> (processes that belong to the lab)
//
// Threads: calls on one Fabric come from one thread at a time, except SetFault, ClearFault, Links and PathOf, which any
// thread may call at any time. Several processes may Attach to one lab. Needs root (CAP_NET_ADMIN, CAP_SYS_ADMIN,
// CAP_BPF).
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace cw::lab {

struct FabricSpec {
  std::string lab = "lab0";   // [a-z0-9], at most 16 characters: names namespaces and folders
  int leaves = 2;             // 1–4
  int spines = 4;             // 1–8
  int hosts_per_leaf = 1;     // 1–4
  double link_mbps = 400;     // leaf–spine links, each direction; 0 leaves them unshaped
  double host_link_mbps = 0;  // host links, each direction; 0 leaves them unshaped
  int mtu = 4500;             // every port; 4500 carries a RoCE MTU of 4096
  int64_t queue_bytes = 0;    // limit of a leaf–spine queue; 0: 10 ms at the link rate, at least 256 KiB
  bool ecn = true;            // mark CE on leaf–spine links, from a virtual queue (below)
  double ecn_drain = 0.97;    // the virtual queue's drain rate, as a share of the link rate
  // Of the virtual queue, in bytes as switches have them: marking begins at ecn_min (three packets of 4 KiB, so that
  // two senders' packets that meet are no congestion), grows linearly to ecn_p_max at ecn_max, and is certain above.
  int64_t ecn_min_bytes = 12'500;
  int64_t ecn_max_bytes = 50'000;
  double ecn_p_max = 0.2;
  bool ipv6 = false;       // hosts have fd00:: addresses as well, and are known by them (below)
  uint32_t ecmp_seed = 0;  // net.ipv4.fib_multipath_hash_seed (+ leaf number); 0: the kernel's own random seed.
                           // Ignored where the kernel has no such setting (before 6.11): see ecmp_seeded().
};

// One direction of one link. Up is away from the hosts: host → leaf, leaf → spine.
struct LinkDirection {
  enum class Tier { kSpine, kHost };
  enum class Toward { kUp, kDown };

  static LinkDirection LeafToSpine(int leaf, int spine) { return {Tier::kSpine, Toward::kUp, leaf, spine, 0}; }
  static LinkDirection SpineToLeaf(int spine, int leaf) { return {Tier::kSpine, Toward::kDown, leaf, spine, 0}; }
  // port: a host's number, or what AddTapPort returned.
  static LinkDirection HostToLeaf(int port) { return {Tier::kHost, Toward::kUp, 0, 0, port}; }
  static LinkDirection LeafToHost(int port) { return {Tier::kHost, Toward::kDown, 0, 0, port}; }

  Tier tier = Tier::kSpine;
  Toward toward = Toward::kUp;
  int leaf = 0;   // tier kSpine
  int spine = 0;  // tier kSpine
  int port = 0;   // tier kHost

  bool operator==(const LinkDirection&) const = default;
  std::string Name() const;  // "leaf0->spine2", "host1->leaf", ...
};

// A fault acts on the wire, behind the sender's queue: what is still queued when a link is cut is lost as well.
// (Leaf → host is the exception: no program of ours runs in a host, so it acts before that port's queue.)
struct Fault {
  enum class Kind {
    kNone,
    kDrop,     // every matching packet, silently
    kShare,    // each matching packet with probability drop_share
    kCorrupt,  // each matching RoCE packet, with probability drop_share, has one bit behind its BTH flipped
    kPause,    // the port's queue stands still (all classes; match must be kAll; leaf–spine links with link_mbps > 0)
  };
  enum class Match {
    kAll,       // everything, ARP and ICMP included
    kRoceData,  // UDP 4791 with a BTH opcode below 0xE0 (acknowledgements and CNPs included)
    kProbes,    // UDP 4791 with a BTH opcode of 0xE0 or more
  };
  static Fault None() { return {}; }
  static Fault Drop(Match match = Match::kAll) { return {Kind::kDrop, 1.0, match}; }
  static Fault Share(double share, Match match = Match::kAll) { return {Kind::kShare, share, match}; }
  static Fault Corrupt(double share, Match match = Match::kAll) { return {Kind::kCorrupt, share, match}; }
  static Fault Pause() { return {Kind::kPause, 0, Match::kAll}; }

  Kind kind = Kind::kNone;
  double drop_share = 0;  // 0–1, resolution 1e-6
  Match match = Match::kAll;
};

// What leaves choose the spine of RoCE packets (data, probes) by. All but kPorts stand for fabrics in which ports
// choose no path; PathOf knows of kPorts only.
enum class SwitchHash {
  kPorts,      // addresses and UDP ports: the kernel's own
  kAddresses,  // ports do not count
  kTtl,        // ports and the TTL that the host sent
  kSpray,      // each packet by chance
  kQpn,        // ports and the destination QPN
};

// Counts of one link direction since Up. Bytes include the Ethernet header, not the FCS.
struct LinkCounters {
  LinkDirection link;
  uint64_t offered_packets = 0;  // given to the sender's queue (host → leaf: not known, equal to carried)
  uint64_t offered_bytes = 0;
  uint64_t carried_packets =
      0;  // came out of the queue and onto the wire; offered − carried = queued now + lost to a full queue
  uint64_t carried_bytes = 0;
  uint64_t fault_drops = 0;  // of the carried: lost to a fault, or damaged by kCorrupt
  uint64_t fault_drop_bytes = 0;
  uint64_t ce_marks = 0;       // packets that this port turned from ECT to CE
  uint64_t probe_packets = 0;  // of the carried: BTH opcode 0xE0 or more
};

// What one flow sent over one link direction (before any fault's drop).
struct FlowCounters {
  LinkDirection link;
  std::string source, destination;  // IPv4, dotted
  uint32_t dest_qpn = 0;
  bool probe = false;  // BTH opcode 0xE0 or more
  uint64_t packets = 0;
  uint64_t bytes = 0;
  uint64_t fault_drops = 0;
  uint16_t last_udp_sport = 0;  // of the flow's latest packet on this link
  uint8_t last_dscp = 0;
  int64_t last_ns = 0;  // CLOCK_MONOTONIC of that packet
};

struct CaptureResult {
  uint64_t captured = 0;
  uint64_t kernel_drops =
      0;  // and what tcpdump had not read in time: a capture with drops proves nothing about packets that it lacks
};

class Fabric {
 public:
  // Builds the lab. Remains of a crashed lab of the same name are removed first.
  // AlreadyExists: a lab of this name is up, or in the hands of a living process. InvalidArgument: the spec, with the
  // field's name. FailedPrecondition: what the machine lacks. On an error nothing is left behind.
  // The lab goes down with the returned object, unless Release() was called.
  static absl::StatusOr<std::unique_ptr<Fabric>> Up(const FabricSpec& spec);
  // Opens a lab that is up, made by this or another process. The lab stays when the object goes. NotFound: none.
  static absl::StatusOr<std::unique_ptr<Fabric>> Attach(const std::string& lab);
  // Ends the lab's recorded processes and removes its namespaces and files; also what a crash left. Ok when there is
  // nothing. Only names of this lab are touched. AlreadyExists is not checked: down means down.
  static absl::Status Down(const std::string& lab);
  // Names of labs that are up or have left remains.
  static std::vector<std::string> List();

  ~Fabric();
  Fabric(const Fabric&) = delete;
  Fabric& operator=(const Fabric&) = delete;

  void Release();  // the lab stays up when this object goes, until Down

  const FabricSpec& spec() const;
  int hosts() const;                       // leaves * hosts_per_leaf
  bool ecmp_seeded() const;                // the kernel took spec.ecmp_seed
  std::string RunDir() const;              // /run/cwlab/<lab>
  std::string HostRunDir(int host) const;  // /run/cwlab/<lab>/h<host>, exists

  std::string HostNetns(int host) const;  // a path, /run/netns/cwlab-<lab>-h<host>, for netns.h, nsenter or setns
  std::string LeafNetns(int leaf) const;
  std::string SpineNetns(int spine) const;
  std::string MgmtNetns() const;
  std::string HostAddr(int host) const;      // 10.0.<leaf>.<10+k>; with spec.ipv6 fd00:: and that
  std::string HostGateway(int host) const;   // 10.0.<leaf>.1
  std::string HostMgmtAddr(int host) const;  // 192.168.77.<10+host>
  int HostLeaf(int host) const;

  // A tap device for a virtual machine, in the leaf's namespace (start QEMU there), as one more host port with the
  // gateway 10.0.<leaf>.1 and a route to `address` (10.0.<leaf>.100–250, no prefix). The machine uses address/24.
  // Returns the port's number for LinkDirection::HostToLeaf and LeafToHost.
  absl::StatusOr<int> AddTapPort(int leaf, const std::string& device, const std::string& address);
  // A further NIC of a host, `device` ("eth1"), on any leaf: 10.0.<leaf>.<100+port>, with routes to the whole fabric
  // behind those of eth0. Before an agent starts. Returns the port's number.
  absl::StatusOr<int> AddHostNic(int host, int leaf, const std::string& device);
  std::string PortAddress(int port) const;  // of a host's first NIC (its own number), a further one, or a tap
  // Takes the leaf's end of a host port down: the host sees its carrier go.
  absl::Status SetHostLinkUp(int port, bool up);
  // A tap on the management network's bridge, in MgmtNetns(); choose addresses from 192.168.77.100 on.
  absl::Status AddMgmtTap(const std::string& device);

  // Each returns CLOCK_MONOTONIC ns, read right after the change took effect. Drops take effect within a microsecond
  // (one store into memory that the switch programs read); kPause and rates need a netlink change, about 2 ms.
  absl::StatusOr<int64_t> SetFault(const LinkDirection& link, const Fault& fault);
  absl::StatusOr<int64_t> ClearFault(const LinkDirection& link) { return SetFault(link, Fault::None()); }
  absl::StatusOr<Fault> GetFault(const LinkDirection& link) const;
  // Clears all faults, and brings every leaf–spine link back up and to the spec's rate.
  absl::Status ClearFaults();
  // Of every leaf, for the host ports that are there now. Stays until it is set again.
  void SetHash(SwitchHash hash);
  // Leaves do not hash RoCE packets but spread flowlets: a flow that has paused for `gap` (1 us to 4 s) goes on over
  // the uplink with the least queued and sent lately, as switches with dynamic load balancing do. Needs marks
  // (spec().ecn) and all uplinks. SetHash ends it.
  absl::Status SpreadFlowlets(absl::Duration gap);
  // The wire of one direction is longer by up to 100 µs for RoCE packets, probes included; 0: as it was. The processor
  // waits for each packet, so only where there are few.
  absl::Status SetLonger(const LinkDirection& link, int64_t longer_ns);
  // Takes the leaf's port down administratively: both ends see the carrier go, and the leaf's ECMP leaves that spine.
  absl::StatusOr<int64_t> SetLinkUp(int leaf, int spine, bool up);
  absl::StatusOr<bool> IsLinkUp(int leaf, int spine) const;
  // The cables of a leaf to these two spines are plugged into each other's port of the leaf, or back where they belong.
  // The leaf routes as unnumbered routing does, so all goes on as before: only traces show which port packets enter by.
  // FailedPrecondition: they are so already. Unimplemented: labs with IPv6, where ports have no address of their own.
  absl::Status SetCablesSwapped(int leaf, int one_spine, int other_spine, bool swapped);
  // Shapes one direction of a leaf–spine link anew; the virtual queue follows.
  absl::StatusOr<int64_t> SetLinkRate(const LinkDirection& link, double mbps);
  absl::StatusOr<double> LinkRateMbps(const LinkDirection& link) const;

  std::vector<LinkDirection> LinkDirections() const;  // leaf–spine links first, then host and tap ports
  std::vector<LinkCounters> Links() const;            // in that order; no system call
  absl::StatusOr<LinkCounters> Link(const LinkDirection& link) const;
  absl::StatusOr<std::vector<FlowCounters>> Flows() const;
  uint64_t UncountedFlowPackets() const;  // packets of flows that found the flow table full

  // The spine that the kernel's ECMP takes for UDP to port 4791. −1: both hosts are on one leaf.
  // Unavailable: the leaf has no route (all its uplinks are down).
  absl::StatusOr<int> PathOf(int source_host, int destination_host, uint16_t udp_sport) const;
  absl::StatusOr<int> PathOf(const std::string& source, const std::string& destination, uint16_t udp_sport) const;

  // tcpdump at the receiving end of a link direction, in front of any fault (leaf → host: at the leaf, sending).
  // Returns when the capture is running. pcap_filter "" means everything.
  absl::StatusOr<int> StartCapture(const LinkDirection& link, const std::string& file,
                                   const std::string& pcap_filter = "udp port 4791");
  absl::StatusOr<CaptureResult> StopCapture(int capture);

  // Makes Down end this process (SIGTERM, then SIGKILL), recognised by pid and start time.
  absl::Status RecordProcess(pid_t pid, const std::string& role);
  void ForgetProcess(pid_t pid);

 private:
  struct Impl;
  explicit Fabric(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::lab
