// SPDX-License-Identifier: Apache-2.0
// What befalls hosts while queue pairs send: their interfaces, their kernel's tables and news, their disk, all agents
// at once. No queue pair ends, no path of a whole fabric is told dead, and the agents answer afterwards.
#include <arpa/inet.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lab/agent_rig.h"
#include "tests/lab/memory_limit.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"
#include "userspace/lab/roce_packet.h"

namespace cw::lab {
namespace {

class HostFaults : public AgentOnFabric {
 protected:
  void UpWithTraffic() {
    TestbedSpec spec = SmallSpec();
    spec.fabric.lab = "hostfaults";
    spec.adjust = adjust;
    if (!agent_binary.empty()) spec.agent_binary = agent_binary;
    Up(spec);
    ASSERT_NE(testbed, nullptr);
    ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
  }

  // A shell's line in a host's namespace.
  int InHost(int host, const std::string& line) {
    int code = -1;
    EXPECT_TRUE(RunInNetns(testbed->fabric().HostNetns(host), [&] {
                  code = std::system(absl::StrCat("{ ", line, "; } >/dev/null 2>&1").c_str());
                  return absl::OkStatus();
                }).ok());
    return code;
  }

  uint64_t SentAgain() {
    uint64_t sum = 0;
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) sum += flow.requester.retransmissions;
    return sum;
  }

  // No path died since then.
  void ExpectAllGoesOn() { ExpectAllGoesOn(testbed->origin_ns()); }
  void ExpectAllGoesOn(int64_t whole_since_ns) {
    const absl::Status up = testbed->WaitPathsUp(absl::Seconds(30));
    EXPECT_TRUE(up.ok()) << up;
    const int64_t since_ns = MonotonicNs();
    EXPECT_TRUE(Eventually([&] {
      const Snapshot now = emulator->TakeSnapshot();
      return std::all_of(now.flows.begin(), now.flows.end(), [&](const FlowReport& flow) {
        return emulator->FirstDeliveryAfter(flow.id, since_ns).in_order_ns.has_value();
      });
    }));
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead) << "flow " << flow.id;
    for (const Testbed::PathDeath& death : testbed->PathDeaths(whole_since_ns)) ADD_FAILURE() << death.text;
    for (const int host : {0, 1}) EXPECT_TRUE(testbed->agent(host).Status().ok()) << "h" << host;
  }

  std::function<void(int, config::Config&)> adjust;
  std::string agent_binary;  // empty: the lab's
};

TEST_F(HostFaults, AnMtuThatChanges) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  for (const int mtu : {3000, 2000, 4500}) {
    for (const int host : {0, 1}) EXPECT_EQ(InHost(host, absl::StrCat("ip link set eth0 mtu ", mtu)), 0) << mtu;
    absl::SleepFor(absl::Milliseconds(300));
  }
  ExpectAllGoesOn();
}

// Routes, neighbours and interfaces of somebody else that come and go by the thousand: each is news to who listens.
TEST_F(HostFaults, AStormOfNetlinkNews) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  const std::string storm =
      "for r in 1 2 3; do for a in $(seq 1000); do "
      "echo route add 198.18.$((a / 250)).$((a % 250)) dev eth0; "
      "echo neigh replace 10.99.$((a / 250)).$((a % 250)) lladdr 02:00:00:00:00:01 dev eth0; "
      "echo route del 198.18.$((a / 250)).$((a % 250)) dev eth0; "
      "echo neigh del 10.99.$((a / 250)).$((a % 250)) dev eth0; done; "
      "for v in 1 2 3 4 5; do echo link add storm$v type veth peer name peer$v; echo link del storm$v; done; "
      "done | ip -force -batch -";
  for (const int host : {0, 1}) EXPECT_EQ(InHost(host, storm), 0);
  ExpectAllGoesOn();
}

// Queue pairs by the ten thousand, each of one packet: more than the table holds (2048 here). Those that were there
// keep their steering, and there is room for new ones soon after.
TEST_F(HostFaults, TenThousandNewFlowsASecond) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  const absl::StatusOr<int> raw = SocketInNetns(testbed->fabric().HostNetns(0), AF_INET, SOCK_RAW, IPPROTO_RAW);
  ASSERT_TRUE(raw.ok()) << raw.status();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  ASSERT_EQ(inet_pton(AF_INET, testbed->fabric().HostAddr(1).c_str(), &to.sin_addr), 1);
  in_addr from{};
  ASSERT_EQ(inet_pton(AF_INET, testbed->fabric().HostAddr(0).c_str(), &from), 1);
  RocePacket packet{.source = ntohl(from.s_addr), .destination = ntohl(to.sin_addr.s_addr), .opcode = kWriteMiddle};
  constexpr uint32_t kFlows = 30'000;
  int failed = 0;
  const int64_t began_ns = MonotonicNs();
  for (uint32_t i = 0; i < kFlows; ++i) {
    packet.dest_qpn = 0x800000 + i;
    packet.source_port = static_cast<uint16_t>(0xc000 + i % 0x4000);
    uint8_t bytes[kMaxRoceHeader];
    const size_t headers = EncodeHeaders(packet, bytes);
    const uint32_t icrc = Icrc({bytes, headers});
    memcpy(bytes + headers, &icrc, sizeof(icrc));
    failed += sendto(*raw, bytes, headers + sizeof(icrc), 0, reinterpret_cast<sockaddr*>(&to), sizeof(to)) < 0;
    if (i % 100 == 0) {
      const int64_t ahead_ns = static_cast<int64_t>(i) * 100'000 - (MonotonicNs() - began_ns);
      if (ahead_ns > 0) Hold(absl::Nanoseconds(ahead_ns));
    }
  }
  close(*raw);
  std::printf("%u flows in %.1f s\n", kFlows, static_cast<double>(MonotonicNs() - began_ns) / 1e9);
  EXPECT_LT(failed, 100);
  EXPECT_GT(testbed->CounterSum("steer_full"), 0u) << "the table was to overflow";
  ExpectAllGoesOn();
  int known = 0;
  for (const v1::Flow& flow : FlowsOf(0)) known += !flow.received() && flow.slot() >= 0 && flow.packets() > 100;
  EXPECT_EQ(known, 8) << "those that were there before";
  EXPECT_TRUE(Eventually([&] { return QpsOf(0).flows_size() < 2048 * 9 / 10; })) << "the idle ones make room";
  EXPECT_TRUE(Eventually([&] {
    for (const auto& event : testbed->Events(testbed->origin_ns(), "flow")) {
      if (absl::StrContains(event.text, "is full")) return true;
    }
    return false;
  }));
}

// The events' file is on a disk without room.
TEST_F(HostFaults, AFullDisk) {
  const std::string disk = absl::StrCat("/tmp/cw-hostfaults-", getpid());
  std::filesystem::create_directory(disk);
  ASSERT_EQ(mount("cw-hostfaults", disk.c_str(), "tmpfs", 0, "size=65536"), 0);
  std::ofstream(disk + "/ballast") << std::string(1 << 20, 'x');
  adjust = [&](int host, config::Config& config) {
    if (host == 0) config.log.events_file = disk + "/events";
  };
  UpWithTraffic();
  const auto told = [&](const char* text) {
    for (const auto& event : testbed->Events(testbed->origin_ns() - 10'000'000'000, "agent")) {
      if (absl::StrContains(event.text, text)) return true;
    }
    return false;
  };
  const auto new_event = [&] {  // each change of the mode is one
    v1::SetModeRequest request;
    for (const v1::Mode mode : {v1::MODE_OBSERVE, v1::MODE_PROTECT}) {
      request.set_mode(mode);
      if (!testbed->agent(0).SetMode(request).ok()) return false;
    }
    return true;
  };
  if (testbed != nullptr && emulator != nullptr) {
    EXPECT_TRUE(new_event());
    EXPECT_TRUE(Eventually([&] { return told("events cannot be written"); }));
    std::filesystem::remove(disk + "/ballast");
    EXPECT_TRUE(new_event());
    EXPECT_TRUE(Eventually([&] { return told("are written to"); }));
    ExpectAllGoesOn();
  }
  emulator.reset();
  testbed.reset();
  EXPECT_EQ(umount2(disk.c_str(), MNT_DETACH), 0);
  std::filesystem::remove(disk);
}

// As with a driver that is loaded anew, or a device that a container had meanwhile: its programs for sent packets,
// addresses and routes are gone.
TEST_F(HostFaults, AnInterfaceThatGoesAndComesBack) {
  TestbedSpec spec = SmallSpec();
  spec.fabric.lab = "hostfaults";
  Up(spec);
  ASSERT_NE(testbed, nullptr);
  const std::string mgmt = testbed->fabric().MgmtNetns(), host = testbed->fabric().HostNetns(0);
  const auto name = [](const std::string& netns) { return netns.substr(netns.rfind('/') + 1); };
  const std::string kept = absl::StrCat(testbed->fabric().RunDir(), "/kept");
  ASSERT_EQ(
      InHost(0, absl::StrCat("ip -4 -o addr show dev eth0 | awk '{print $4}' > ", kept,
                             ".addr; ip route show dev eth0 | sort -r > ", kept, ".route; ip neigh show dev eth0 > ",
                             kept, ".neigh; ip link set eth0 netns ", name(mgmt))),
      0);
  EXPECT_TRUE(Eventually([&] {
    for (const Mark& event : testbed->Events(testbed->origin_ns(), "nic")) {
      if (absl::StrContains(event.text, "is down")) return true;
    }
    return false;
  }));
  siginfo_t ended{};
  ASSERT_EQ(waitid(P_PID, static_cast<id_t>(testbed->agent_pid(0)), &ended, WEXITED | WNOHANG | WNOWAIT), 0);
  EXPECT_EQ(ended.si_pid, 0) << "without it the agent goes on, for the others";
  ASSERT_TRUE(RunInNetns(mgmt, [&] {
                const std::string back = absl::StrCat("ip link set eth0 netns ", name(host));
                return std::system(back.c_str()) == 0 ? absl::OkStatus() : absl::InternalError(back);
              }).ok());
  ASSERT_EQ(
      InHost(0, absl::StrCat("ip link set eth0 up && ip addr add $(cat ", kept,
                             ".addr) dev eth0 noprefixroute; "
                             "while read to what mac rest; do ip neigh add $to dev eth0 lladdr $mac nud permanent; "
                             "done < ",
                             kept, ".neigh; grep link ", kept, ".route | while read r; do ip route add $r dev eth0; ",
                             "done; grep via ", kept, ".route | while read r; do ip route add $r dev eth0; done")),
      0);
  EXPECT_TRUE(Eventually([&] {
    ended = {};
    return waitid(P_PID, static_cast<id_t>(testbed->agent_pid(0)), &ended, WEXITED | WNOHANG) == 0 && ended.si_pid != 0;
  })) << "it ends by itself, to be started on the new device";
  EXPECT_EQ(ended.si_code, CLD_EXITED);
  EXPECT_EQ(ended.si_status, 75);
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  const absl::Status up = testbed->WaitPathsUp(absl::Seconds(30));
  EXPECT_TRUE(up.ok()) << up;
  const int64_t returned_ns = MonotonicNs();
  ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
  ExpectAllGoesOn(returned_ns);
}

// From some moment on a running agent gets no more memory, and is asked for all that it knows: whether it lives or
// ends, packets flow on, and the next one takes over.
TEST_F(HostFaults, MemoryThatGetsShortUnderAnAgent) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  const uint64_t sent_again = SentAgain();
  const pid_t agent = testbed->agent_pid(0);
  const rlimit less_than_it_has{.rlim_cur = 1 << 20, .rlim_max = RLIM_INFINITY};
  ASSERT_EQ(prlimit(agent, RLIMIT_DATA, &less_than_it_has, nullptr), 0) << strerror(errno);
  siginfo_t end{};
  for (int i = 0; i < 50 && end.si_pid == 0; ++i) {
    (void)testbed->agent(0).Status();
    (void)testbed->agent(0).Qps({});
    absl::SleepFor(absl::Milliseconds(100));
    ASSERT_EQ(waitid(P_PID, static_cast<id_t>(agent), &end, WEXITED | WNOHANG | WNOWAIT), 0) << strerror(errno);
  }
  std::printf("the agent %s; ", end.si_pid == 0 ? "lives without more memory" : "ended for want of memory");
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  ExpectAllGoesOn();
  std::printf("%d packets were sent again\n", static_cast<int>(SentAgain() - sent_again));
}

// An agent that is killed for want of memory at several points of its start, over the programs of the one before.
TEST_F(HostFaults, TooLittleMemory) {
  MemoryLimit memory("cw-hostfaults");
  const std::string command = absl::StrCat(::testing::TempDir(), "/cw-hostfaults-agent.", getpid());
  const auto start_with = [&](const std::string& lines) {
    std::ofstream(command) << "#!/bin/sh\n" << lines << "exec " << CWLAB_AGENTD_BINARY << " \"$@\"\n";
    std::filesystem::permissions(command, std::filesystem::perms::owner_all);
  };
  start_with("");
  agent_binary = command;
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  const uint64_t sent_again = SentAgain();
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  int killed = 0;
  for (const uint64_t mib : {2, 8, 14, 20, 26, 32}) {
    start_with(memory.Lines(mib << 20));
    if (testbed->StartAgent(0).ok()) {
      ASSERT_TRUE(KillAgent(*testbed, 0).ok());
    } else {
      ++killed;
      memory.EndAll();
    }
  }
  EXPECT_GT(killed, 0);
  start_with("");
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  ExpectAllGoesOn();
  std::printf("%d of 6 starts ended by %s; %d packets were sent again\n", killed, memory.kind(),
              static_cast<int>(SentAgain() - sent_again));
  std::filesystem::remove(command);
}

TEST_F(HostFaults, AllAgentsAtOnce) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  const uint64_t sent_again = SentAgain();
  for (int round = 0; round < 3; ++round) {
    for (const int host : {0, 1}) ASSERT_TRUE(KillAgent(*testbed, host).ok());
    for (const int host : {0, 1}) ASSERT_TRUE(testbed->StartAgent(host).ok());
    ExpectAllGoesOn();
  }
  std::printf("%d packets were sent again\n", static_cast<int>(SentAgain() - sent_again));
}

}  // namespace
}  // namespace cw::lab
