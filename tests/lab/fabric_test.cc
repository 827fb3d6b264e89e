// SPDX-License-Identifier: Apache-2.0
//
// The lab's fabric: forwarding, ground truth, life and death of a lab. Faults: fabric_fault_test.cc.
#include "userspace/lab/fabric.h"

#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <linux/if_link.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sys/ioctl.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lab/fabric_rig.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/fabric_state.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr int kEct0 = 2;

// ---- Forwarding ----

TEST(FabricPaths, SixtyFourPortsSpreadOverAllSpinesEachOnOnePath) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  constexpr int kPorts = 64, kPackets = 5;
  std::vector<std::unique_ptr<Sender>> senders;
  for (int i = 0; i < kPorts; ++i) senders.push_back(std::make_unique<Sender>(*fabric, 0, 1, 49152 + i));
  for (int n = 0; n < kPackets; ++n) {
    for (int i = 0; i < kPorts; ++i) ASSERT_TRUE(senders[i]->Send({.dest_qpn = 100u + i, .psn = uint32_t(n)}));
  }
  ASSERT_EQ(receiver.Take(kPorts * kPackets).size(), size_t{kPorts * kPackets});

  std::map<uint32_t, std::set<int>> up, down;
  auto flows = fabric->Flows();
  ASSERT_TRUE(flows.ok()) << flows.status();
  for (const FlowCounters& flow : *flows) {
    if (flow.link.tier != LinkDirection::Tier::kSpine) continue;
    EXPECT_EQ(flow.packets, uint64_t{kPackets}) << flow.link.Name();
    EXPECT_EQ(flow.last_udp_sport, 49152 + flow.dest_qpn - 100);
    (flow.link.toward == LinkDirection::Toward::kUp ? up : down)[flow.dest_qpn].insert(flow.link.spine);
  }
  std::set<int> used;
  for (int i = 0; i < kPorts; ++i) {
    auto path = fabric->PathOf(0, 1, 49152 + i);
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(up[100 + i], std::set<int>{*path}) << "port " << 49152 + i;
    EXPECT_EQ(down[100 + i], std::set<int>{*path}) << "port " << 49152 + i;
    used.insert(*path);
  }
  EXPECT_EQ(used.size(), 4u);
}

// The trap of veth: each new socket has another hash, and without the switch's care each would take another path.
TEST(FabricPaths, TheSocketsOwnHashDoesNotReachTheSwitch) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  constexpr int kSockets = 24;
  for (int i = 0; i < kSockets; ++i) {
    ASSERT_TRUE(Sender(*fabric, 0, 1, 50123).Send({.dest_qpn = 7}));
  }
  ASSERT_EQ(receiver.Take(kSockets).size(), size_t{kSockets});
  auto path = fabric->PathOf(0, 1, 50123);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(Counters(*fabric, LinkDirection::LeafToSpine(0, *path)).carried_packets, uint64_t{kSockets});
}

TEST(FabricPaths, ExpiredTtlNamesSwitchAndLink) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  for (int spine = 0; spine < 4; ++spine) {
    const uint16_t port = PortOver(*fabric, 0, 1, spine);
    auto hop = [&](int ttl) {
      Sender sender(*fabric, 0, 1, port, 0, ttl);
      EXPECT_TRUE(sender.Send({}));
      return sender.IcmpErrorFrom();
    };
    EXPECT_EQ(hop(1), "10.0.0.1");
    EXPECT_EQ(hop(2), absl::StrCat("10.1.", spine, ".0"));
    EXPECT_EQ(hop(3), absl::StrCat("10.1.", spine, ".3"));
  }
}

TEST(FabricPaths, HostsOnOneLeafAndManagementNetwork) {
  FabricSpec spec = TestSpec();
  spec.hosts_per_leaf = 2;
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  ASSERT_EQ(fabric->hosts(), 4);
  EXPECT_EQ(fabric->HostAddr(3), "10.0.1.11");
  Receiver receiver(*fabric, 1);
  ASSERT_TRUE(Sender(*fabric, 0, 1, 50000).Send({}));
  EXPECT_EQ(receiver.Take(1).size(), 1u);
  auto path = fabric->PathOf(0, 1, 50000);
  ASSERT_TRUE(path.ok());
  EXPECT_EQ(*path, -1);

  auto listener = SocketInNetns(fabric->HostNetns(3), AF_INET, SOCK_DGRAM, 0);
  auto talker = SocketInNetns(fabric->HostNetns(0), AF_INET, SOCK_DGRAM, 0);
  ASSERT_TRUE(listener.ok() && talker.ok());
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(5000);
  ASSERT_EQ(inet_pton(AF_INET, fabric->HostMgmtAddr(3).c_str(), &address.sin_addr), 1);
  ASSERT_EQ(bind(*listener, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  char byte = 'x';
  ASSERT_EQ(sendto(*talker, &byte, 1, 0, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 1);
  timeval wait = {20, 0};
  setsockopt(*listener, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  EXPECT_EQ(recv(*listener, &byte, 1, 0), 1);
  close(*listener);
  close(*talker);
}

// A host's XDP_TX leaves over a veth pair only if there is native XDP at the switch's end.
TEST(FabricPaths, HostsCanTransmitFromXdp) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  const bpf_insn send_back[] = {{.code = 0xb7, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_TX},
                                {.code = 0x95, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  LIBBPF_OPTS(bpf_prog_load_opts, options, .prog_flags = BPF_F_XDP_HAS_FRAGS);
  int program = bpf_prog_load(BPF_PROG_TYPE_XDP, "send_back", "GPL", send_back, 2, &options);
  ASSERT_GE(program, 0) << strerror(errno);
  ASSERT_TRUE(RunInNetns(fabric->HostNetns(1), [&] {
                return absl::ErrnoToStatus(
                    -bpf_xdp_attach(if_nametoindex("eth0"), program, XDP_FLAGS_DRV_MODE, nullptr), "attach XDP");
              }).ok());
  close(program);
  constexpr uint64_t kPackets = 20;
  Sender sender(*fabric, 0, 1, 50000);
  for (uint64_t i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.payload = i % 2 ? 64 : 4096}));
  // They come back with our own address as destination, so the leaf ignores them, but the wire has carried them.
  EXPECT_TRUE(Eventually([&] { return Counters(*fabric, LinkDirection::HostToLeaf(1)).carried_packets == kPackets; }))
      << Counters(*fabric, LinkDirection::HostToLeaf(1)).carried_packets;
}

// ---- Ground truth ----

TEST(FabricCounters, EveryByteOnEveryHop) {
  FabricSpec spec = TestSpec();
  spec.link_mbps = 0;  // no queue that could overflow
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  Receiver receiver(*fabric, 1);
  constexpr int kPackets = 500;
  const uint16_t port = PortOver(*fabric, 0, 1, 2);
  Sender sender(*fabric, 0, 1, port);
  uint64_t data_bytes = 0, probe_bytes = 0;
  for (int i = 0; i < kPackets; ++i) {
    const Datagram data = {.dest_qpn = 0x123456, .psn = uint32_t(i), .payload = (i * 37) % 4097};
    const Datagram probe = {.opcode = kProbeOpcode, .dest_qpn = 0x123456, .payload = 80};
    ASSERT_TRUE(sender.Send(data) && sender.Send(probe));
    data_bytes += FrameBytes(data);
    probe_bytes += FrameBytes(probe);
  }
  ASSERT_EQ(receiver.Take(2 * kPackets).size(), size_t{2 * kPackets});
  const std::vector<LinkDirection> hops = {LinkDirection::HostToLeaf(0), LinkDirection::LeafToSpine(0, 2),
                                           LinkDirection::SpineToLeaf(2, 1), LinkDirection::LeafToHost(1)};
  auto flows = fabric->Flows();
  ASSERT_TRUE(flows.ok());
  for (const LinkCounters& link : fabric->Links()) {
    const bool on_path = std::find(hops.begin(), hops.end(), link.link) != hops.end();
    EXPECT_EQ(link.offered_packets, on_path ? 2u * kPackets : 0u) << link.link.Name();
    EXPECT_EQ(link.carried_packets, link.offered_packets) << link.link.Name();
    EXPECT_EQ(link.carried_bytes, on_path ? data_bytes + probe_bytes : 0u) << link.link.Name();
    EXPECT_EQ(link.offered_bytes, link.carried_bytes) << link.link.Name();
    EXPECT_EQ(link.probe_packets, on_path ? uint64_t{kPackets} : 0u) << link.link.Name();
    EXPECT_EQ(link.fault_drops, 0u) << link.link.Name();
    if (!on_path) continue;
    for (bool probe : {false, true}) {
      auto flow = std::find_if(flows->begin(), flows->end(),
                               [&](const FlowCounters& f) { return f.link == link.link && f.probe == probe; });
      ASSERT_NE(flow, flows->end()) << link.link.Name();
      EXPECT_EQ(flow->bytes, probe ? probe_bytes : data_bytes);
      EXPECT_EQ(flow->source, "10.0.0.10");
      EXPECT_EQ(flow->destination, "10.0.1.10");
      EXPECT_EQ(flow->dest_qpn, 0x123456u);
      EXPECT_EQ(flow->last_udp_sport, port);
    }
  }
  EXPECT_EQ(flows->size(), 2 * hops.size());
  EXPECT_EQ(fabric->UncountedFlowPackets(), 0u);
}

TEST(FabricCounters, OverloadMarksEctPacketsAndOnlyThose) {
  FabricSpec spec = TestSpec();
  // Slow enough that the burst is a burst even on a busy machine: a packet is 4.5 ms of this link.
  spec.link_mbps = 2;
  spec.queue_bytes = 8 << 20;  // holds the whole burst: marks, no loss
  spec.ecn_min_bytes = 5'000;
  spec.ecn_max_bytes = 10'000;
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  Receiver receiver(*fabric, 1);
  constexpr int kPackets = 100;
  auto marks = [&] {
    uint64_t sum = 0;
    for (const LinkCounters& link : fabric->Links()) sum += link.ce_marks;
    return sum;
  };
  const uint16_t port = PortOver(*fabric, 0, 1, 1);
  Sender ect(*fabric, 0, 1, port, kEct0);
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(ect.Send({.payload = 1024}));
  std::vector<Received> got = receiver.Take(kPackets);  // the IP checksum was right, or they would not be here
  ASSERT_EQ(got.size(), size_t{kPackets});
  const auto marked = std::count_if(got.begin(), got.end(), [](const Received& r) { return (r.tos & 3) == 3; });
  // Certain from nine packets on.
  EXPECT_GE(marked, kPackets / 2);
  EXPECT_LT(marked, kPackets);
  // The second hop marks a few more: what arrives at the link's rate overloads its virtual queue, too.
  EXPECT_EQ(marks(), static_cast<uint64_t>(marked));
  EXPECT_GE(Counters(*fabric, LinkDirection::LeafToSpine(0, 1)).ce_marks, kPackets / 2u);
  EXPECT_EQ(Counters(*fabric, LinkDirection::LeafToSpine(0, 0)).ce_marks, 0u);

  Sender not_ect(*fabric, 0, 1, PortOver(*fabric, 0, 1, 1, port + 1), 0);
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(not_ect.Send({.payload = 1024}));
  got = receiver.Take(kPackets);
  ASSERT_EQ(got.size(), size_t{kPackets});
  for (const Received& r : got) EXPECT_EQ(r.tos, 0);
  EXPECT_EQ(marks(), static_cast<uint64_t>(marked));
}

TEST(FabricCounters, AFullQueueShowsAsOfferedButNotCarried) {
  FabricSpec spec = TestSpec();
  spec.link_mbps = 2;
  spec.queue_bytes = 64 << 10;
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  Receiver receiver(*fabric, 1);
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 3));
  constexpr uint64_t kPackets = 100;
  for (uint64_t i = 0; i < kPackets; ++i) sender.Send({.payload = 4096});
  const uint64_t got = receiver.Take(kPackets).size();
  const LinkCounters link = Counters(*fabric, LinkDirection::LeafToSpine(0, 3));
  EXPECT_EQ(link.offered_packets, kPackets);
  EXPECT_EQ(link.carried_packets, got);
  EXPECT_LT(got, kPackets);
  EXPECT_GE(got, 64u * 1024 / 4200);
}

TEST(FabricCounters, ACaptureHoldsEveryPacketOfTheLink) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  const std::string file = fabric->RunDir() + "/test.pcap";
  const LinkDirection link = LinkDirection::SpineToLeaf(2, 1);
  auto capture = fabric->StartCapture(link, file);
  ASSERT_TRUE(capture.ok()) << capture.status();
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 2));
  for (int i = 0; i < 50; ++i) ASSERT_TRUE(sender.Send({.payload = 1024}));
  ASSERT_EQ(receiver.Take(50).size(), 50u);
  auto result = fabric->StopCapture(*capture);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->captured, 50u);
  EXPECT_EQ(result->kernel_drops, 0u);
  EXPECT_EQ(std::filesystem::file_size(file), 24u + 50u * (16 + FrameBytes({.payload = 1024})));  // pcap(5)
}

// ---- Virtual machines ----

TEST(FabricTap, ATapIsOneMoreHost) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  auto port = fabric->AddTapPort(0, "vm0", "10.0.0.100");
  ASSERT_TRUE(port.ok()) << port.status();
  EXPECT_EQ(*port, 2);
  EXPECT_FALSE(fabric->AddTapPort(0, "vm1", "10.0.0.100").ok()) << "the address is taken";
  EXPECT_TRUE(fabric->AddMgmtTap("vmm0").ok());

  int tap = -1;
  ASSERT_TRUE(RunInNetns(fabric->LeafNetns(0), [&] {
                tap = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
                ifreq request = {};
                request.ifr_flags = IFF_TAP | IFF_NO_PI;
                std::strcpy(request.ifr_name, "vm0");
                return ioctl(tap, TUNSETIFF, &request) ? absl::ErrnoToStatus(errno, "open tap") : absl::OkStatus();
              }).ok());
  // A frame as the machine would send it: to the leaf's address on that port, for host 1.
  std::string mac;
  ASSERT_TRUE(RunInNetns(fabric->LeafNetns(0), [&] {
                ifreq request = {};
                std::strcpy(request.ifr_name, "vm0");
                int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
                const int error = ioctl(fd, SIOCGIFHWADDR, &request);
                close(fd);
                mac.assign(request.ifr_hwaddr.sa_data, 6);
                return error ? absl::ErrnoToStatus(errno, "address of tap") : absl::OkStatus();
              }).ok());
  std::string frame = mac + std::string("\x02\x00\x00\x00\x00\x01", 6) + std::string("\x08\x00", 2);
  const unsigned char ip_udp_bth[] = {0x45, 0,    0,    40,   0, 1,  0x40, 0,    64,   17,   0, 0,  10, 0,
                                      0,    100,  10,   0,    1, 10, 0xc3, 0x50, 0x12, 0xb7, 0, 20, 0,  0,
                                      0x0a, 0x40, 0xff, 0xff, 0, 0,  0,    9,    0,    0,    0, 1};
  frame.append(reinterpret_cast<const char*>(ip_udp_bth), sizeof(ip_udp_bth));
  uint32_t sum = 0;
  for (int i = 0; i < 20; i += 2) sum += ip_udp_bth[i] << 8 | ip_udp_bth[i + 1];
  sum = ~((sum & 0xffff) + (sum >> 16)) & 0xffff;
  frame[14 + 10] = static_cast<char>(sum >> 8);
  frame[14 + 11] = static_cast<char>(sum & 0xff);

  Receiver receiver(*fabric, 1);
  ASSERT_EQ(write(tap, frame.data(), frame.size()), static_cast<ssize_t>(frame.size())) << strerror(errno);
  auto got = receiver.Take(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].dest_qpn, 9u);
  EXPECT_EQ(Counters(*fabric, LinkDirection::HostToLeaf(*port)).carried_bytes, frame.size());
  auto path = fabric->PathOf("10.0.0.100", "10.0.1.10", 0xc350);
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(Counters(*fabric, LinkDirection::LeafToSpine(0, *path)).carried_packets, 1u);
  close(tap);
}

// ---- Life and death ----

std::vector<std::string> NamespacesOfLab(const std::string& lab) {
  std::vector<std::string> names;
  for (const std::string& name : ListNetns()) {
    if (absl::StartsWith(name, absl::StrCat("cwlab-", lab, "-"))) names.push_back(name);
  }
  return names;
}

bool MapIsGone(uint32_t id) {
  int fd = bpf_map_get_fd_by_id(id);
  if (fd >= 0) close(fd);
  return fd < 0;
}

TEST(FabricLife, SpecsAreChecked) {
  FabricSpec spec = TestSpec();
  spec.spines = 9;
  EXPECT_TRUE(absl::IsInvalidArgument(Fabric::Up(spec).status()));
  spec = TestSpec();
  spec.lab = "a-b";  // would make another lab's names out of ours
  EXPECT_TRUE(absl::IsInvalidArgument(Fabric::Up(spec).status()));
  EXPECT_TRUE(absl::IsNotFound(Fabric::Attach(TestLab("none")).status()));
}

TEST(FabricLife, DownLeavesNothing) {
  FabricSpec spec = TestSpec();
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  ProcessId process;
  ASSERT_TRUE(RunInNetns(fabric->HostNetns(0), [&] {
                auto started = StartProcess({"sleep", "1000"}, fabric->RunDir() + "/sleep.log");
                if (started.ok()) process = *started;
                return started.status();
              }).ok());
  ASSERT_TRUE(fabric->RecordProcess(process.pid, "test").ok());
  auto state = LoadState(spec.lab);
  ASSERT_TRUE(state.ok()) << state.status();
  ASSERT_EQ(NamespacesOfLab(spec.lab).size(), 2u + 4 + 2 + 1);
  ASSERT_FALSE(MapIsGone(state->maps.flows));

  fabric.reset();
  EXPECT_TRUE(NamespacesOfLab(spec.lab).empty());
  EXPECT_FALSE(std::filesystem::exists("/run/cwlab/" + spec.lab));
  EXPECT_FALSE(std::filesystem::exists("/run/cwlab/." + spec.lab + ".lock"));
  EXPECT_FALSE(IsAlive(process));
  // The kernel takes namespaces apart in the background; programs and maps go with their ports.
  for (uint32_t id : {state->maps.config, state->maps.links, state->maps.sums, state->maps.flows}) {
    EXPECT_TRUE(Eventually([&] { return MapIsGone(id); })) << id;
  }
  EXPECT_TRUE(Fabric::Down(spec.lab).ok()) << "down of nothing is fine";
  EXPECT_TRUE(absl::IsNotFound(Fabric::Attach(spec.lab).status()));
}

TEST(FabricLife, AReusedPidIsNotKilled) {
  FabricSpec spec = TestSpec();
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  auto process = StartProcess({"sleep", "1000"}, fabric->RunDir() + "/sleep.log");
  ASSERT_TRUE(process.ok());
  ProcessId other = *process;
  other.start_ticks -= 1;  // as if the recorded process had ended and its pid gone to this one
  ASSERT_TRUE(SaveProcess(spec.lab, other, "test").ok());
  fabric.reset();
  EXPECT_TRUE(IsAlive(*process));
  EXPECT_TRUE(EndProcess(*process).ok());
}

TEST(FabricLife, TwoLabsSideBySide) {
  FabricSpec first = TestSpec("a"), second = TestSpec("b");
  second.spines = 2;
  std::unique_ptr<Fabric> a = UpOrDie(first), b = UpOrDie(second);
  Receiver receiver_a(*a, 1), receiver_b(*b, 1);
  ASSERT_TRUE(a->SetFault(LinkDirection::HostToLeaf(0), Fault::Drop()).ok());
  ASSERT_TRUE(Sender(*a, 0, 1, 50000).Send({.dest_qpn = 1}));
  ASSERT_TRUE(Sender(*b, 0, 1, 50000).Send({.dest_qpn = 2}));
  auto got = receiver_b.Take(1);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].dest_qpn, 2u);
  EXPECT_FALSE(receiver_a.Next(absl::Milliseconds(200)).has_value());
  EXPECT_EQ(Counters(*a, LinkDirection::HostToLeaf(0)).carried_packets, 1u);
  EXPECT_EQ(Counters(*b, LinkDirection::HostToLeaf(0)).carried_packets, 1u);
  a.reset();
  EXPECT_EQ(NamespacesOfLab(second.lab).size(), 2u + 2 + 2 + 1);
  ASSERT_TRUE(Sender(*b, 0, 1, 50000).Send({}));
  EXPECT_EQ(receiver_b.Take(1).size(), 1u);
}

TEST(FabricLife, AttachSharesFaultsAndCounters) {
  FabricSpec spec = TestSpec();
  spec.ecn_min_bytes = 12'345;
  {
    std::unique_ptr<Fabric> creator = UpOrDie(spec);
    EXPECT_TRUE(absl::IsAlreadyExists(Fabric::Up(spec).status())) << "it has a living owner";
    creator->Release();
  }
  EXPECT_TRUE(absl::IsAlreadyExists(Fabric::Up(spec).status())) << "it is up";
  auto one = Fabric::Attach(spec.lab), two = Fabric::Attach(spec.lab);
  ASSERT_TRUE(one.ok() && two.ok()) << one.status();
  EXPECT_EQ((*one)->spec().ecn_min_bytes, spec.ecn_min_bytes);
  ASSERT_TRUE((*one)->SetFault(LinkDirection::LeafToSpine(1, 3), Fault::Share(0.25, Fault::Match::kProbes)).ok());
  auto fault = (*two)->GetFault(LinkDirection::LeafToSpine(1, 3));
  ASSERT_TRUE(fault.ok());
  EXPECT_EQ(fault->kind, Fault::Kind::kShare);
  EXPECT_DOUBLE_EQ(fault->drop_share, 0.25);
  EXPECT_EQ(fault->match, Fault::Match::kProbes);
  EXPECT_TRUE(Fabric::Down(spec.lab).ok());
  EXPECT_TRUE(absl::IsNotFound(Fabric::Attach(spec.lab).status()));
}

// Runs fn in a child that is killed with no chance to clean up.
void DieIn(const std::function<void()>& fn) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    fn();
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
}

TEST(FabricLife, UpAfterACrashOfTheCreator) {
  FabricSpec spec = TestSpec();
  DieIn([&] { (void)Fabric::Up(spec).value().release(); });
  ASSERT_FALSE(NamespacesOfLab(spec.lab).empty());
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  Receiver receiver(*fabric, 1);
  ASSERT_TRUE(Sender(*fabric, 0, 1, 50000).Send({}));
  EXPECT_EQ(receiver.Take(1).size(), 1u);
}

TEST(FabricLife, UpAfterACrashInTheMiddleOfUp) {
  FabricSpec spec = TestSpec();
  for (int milliseconds : {5, 15, 30, 60}) {  // wherever that is on this machine: Up must cope
    DieIn([&] {
      itimerval timer = {{0, 0}, {0, milliseconds * 1000}};
      setitimer(ITIMER_REAL, &timer, nullptr);  // SIGALRM kills
      (void)Fabric::Up(spec).value().release();
    });
    std::unique_ptr<Fabric> fabric = UpOrDie(spec);
    Receiver receiver(*fabric, 1);
    ASSERT_TRUE(Sender(*fabric, 0, 1, 50000).Send({}));
    EXPECT_EQ(receiver.Take(1).size(), 1u);
  }
  EXPECT_TRUE(NamespacesOfLab(spec.lab).empty());
}

TEST(FabricLife, DownAfterACrash) {
  FabricSpec spec = TestSpec();
  DieIn([&] { (void)Fabric::Up(spec).value().release(); });
  // The worst case: the state file is damaged as well.
  std::ofstream("/run/cwlab/" + spec.lab + "/fabric.json") << "{";
  EXPECT_TRUE(Fabric::Down(spec.lab).ok());
  EXPECT_TRUE(NamespacesOfLab(spec.lab).empty());
  EXPECT_FALSE(std::filesystem::exists("/run/cwlab/" + spec.lab));
}

}  // namespace
}  // namespace cw::lab
