// SPDX-License-Identifier: Apache-2.0
// The emulator over real sockets: two network namespaces and a veth pair, with packets lost or damaged on the way.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/pkt_cls.h>
#include <net/if.h>
#include <sched.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "nlohmann/json.hpp"
#include "tests/lab/eventually.h"
#include "userspace/lab/emulator.h"

namespace cw::lab {
namespace {

void Run(const std::string& command) { ASSERT_EQ(std::system(command.c_str()), 0) << command; }

// Two namespaces with one veth pair, MTU 4500, addresses 10.77.0.1 and .2, neighbours known.
class VethRig {
 public:
  VethRig() {
    for (int i = 0; i < 2; ++i) Run("ip netns add " + Name(i));
    Run(
        absl::StrFormat("ip -n %s link add eth0 mtu 4500 address 02:77:00:00:00:01 type veth peer name eth0 mtu 4500 "
                        "address 02:77:00:00:00:02 netns %s",
                        Name(0), Name(1)));
    for (int i = 0; i < 2; ++i) {
      Run(
          absl::StrFormat("ip -n %s addr add 10.77.0.%d/24 dev eth0 && ip -n %s link set eth0 up && ip -n %s neigh add "
                          "10.77.0.%d lladdr 02:77:00:00:00:0%d dev eth0",
                          Name(i), i + 1, Name(i), Name(i), 2 - i, 2 - i));
    }
  }
  ~VethRig() {
    for (int i = 0; i < 2; ++i) {
      if (std::system(("ip netns del " + Name(i)).c_str()) != 0) ADD_FAILURE() << "left behind: " << Name(i);
    }
  }

  static std::string Name(int i) { return absl::StrFormat("cwemu-%d-%d", getpid(), i); }

  static EmulatorConfig Config() {
    EmulatorConfig c;
    for (int i = 0; i < 2; ++i) {
      HostSpec h;
      h.name = Name(i);
      h.netns_path = "/run/netns/" + Name(i);
      h.address = absl::StrFormat("10.77.0.%d", i + 1);
      c.hosts.push_back(h);
    }
    return c;
  }

  // What f does, it does inside the namespace.
  static void Inside(int i, const std::function<void()>& f) {
    std::thread([&] {
      const int ns = open(("/run/netns/" + Name(i)).c_str(), O_RDONLY | O_CLOEXEC);
      ASSERT_GE(ns, 0);
      ASSERT_EQ(setns(ns, CLONE_NEWNET), 0);
      close(ns);
      f();
    }).join();
  }
};

// A classifier on a host's tc ingress: it acts on a share of the packets. Detached with the object.
class IngressFault {
 public:
  enum Kind { kDrop, kDamage };
  IngressFault(int host, double share, Kind kind) : host_(host) {
    std::vector<bpf_insn> code = Program(share, kind);
    fd_ = bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "emulator_fault", "Dual BSD/GPL", code.data(), code.size(), nullptr);
    EXPECT_GE(fd_, 0);
    VethRig::Inside(host, [&] {
      hook_.sz = sizeof(hook_);
      hook_.attach_point = BPF_TC_INGRESS;
      options_.sz = sizeof(options_);
      hook_.ifindex = static_cast<int>(if_nametoindex("eth0"));
      const int made = bpf_tc_hook_create(&hook_);
      EXPECT_TRUE(made == 0 || made == -EEXIST) << made;
      options_.prog_fd = fd_;
      EXPECT_EQ(bpf_tc_attach(&hook_, &options_), 0);
    });
  }
  ~IngressFault() {
    VethRig::Inside(host_, [&] {
      hook_.attach_point = static_cast<bpf_tc_attach_point>(BPF_TC_INGRESS | BPF_TC_EGRESS);
      EXPECT_EQ(bpf_tc_hook_destroy(&hook_), 0);
    });
    close(fd_);
  }

 private:
  static std::vector<bpf_insn> Program(double share, Kind kind) {
    auto insn = [](int op, int dst, int src, int off, int imm) {
      return bpf_insn{static_cast<__u8>(op), static_cast<__u8>(dst & 15), static_cast<__u8>(src & 15),
                      static_cast<__s16>(off), imm};
    };
    const auto threshold = static_cast<int>(static_cast<uint32_t>(share * 4294967295.0));
    const int mov = BPF_ALU64 | BPF_MOV;
    std::vector<bpf_insn> code = {
        insn(mov | BPF_X, 6, 1, 0, 0),  // r6 = skb
        insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_get_prandom_u32),
        insn(mov | BPF_X, 7, 0, 0, 0),
        insn(mov | BPF_K, 0, 0, 0, TC_ACT_OK),
        insn(BPF_JMP32 | BPF_JLE | BPF_K, 7, 0, 1, threshold),
        insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0),
    };
    if (kind == kDrop) {
      code.push_back(insn(mov | BPF_K, 0, 0, 0, TC_ACT_SHOT));
    } else {  // some byte of the payload, or of an ACK's AETH, becomes 0xa5
      code.push_back(insn(BPF_ST | BPF_MEM | BPF_B, 10, 0, -1, 0xa5));
      code.push_back(insn(mov | BPF_X, 1, 6, 0, 0));
      code.push_back(insn(mov | BPF_K, 2, 0, 0, 14 + 20 + 8 + 12 + 1));
      code.push_back(insn(mov | BPF_X, 3, 10, 0, 0));
      code.push_back(insn(BPF_ALU64 | BPF_ADD | BPF_K, 3, 0, 0, -1));
      code.push_back(insn(mov | BPF_K, 4, 0, 0, 1));
      code.push_back(insn(mov | BPF_K, 5, 0, 0, 0));
      code.push_back(insn(BPF_JMP | BPF_CALL, 0, 0, 0, BPF_FUNC_skb_store_bytes));
      code.push_back(insn(mov | BPF_K, 0, 0, 0, TC_ACT_OK));
    }
    code.push_back(insn(BPF_JMP | BPF_EXIT, 0, 0, 0, 0));
    return code;
  }

  int host_;
  int fd_ = -1;
  bpf_tc_hook hook_{};
  bpf_tc_opts options_{};
};

uint64_t PortUnreachablesSent(int host) {
  uint64_t count = 0;
  VethRig::Inside(host, [&] {
    std::ifstream in("/proc/thread-self/net/snmp");
    std::string names, values;
    while (std::getline(in, names) && std::getline(in, values)) {
      if (names.rfind("Icmp:", 0) != 0) continue;
      std::istringstream n(names), v(values);
      std::string name, value;
      while (n >> name && v >> value) {
        if (name == "OutDestUnreachs") count = std::stoull(value);
      }
    }
  });
  return count;
}

JobSpec FourFlows(double line_bps) {
  JobSpec job;
  job.name = "four";
  job.pairs = {{0, 1}, {0, 1}, {1, 0}, {1, 0}};
  job.rate = RateConfig::ForLine(line_bps);
  return job;
}

void ExpectAllDelivered(const Snapshot& s, const JobSpec& job) {
  EXPECT_EQ(s.FlowsDied(), 0);
  for (const FlowReport& f : s.flows) {
    EXPECT_TRUE(f.finished);
    EXPECT_EQ(f.send.messages_done, f.send.messages_posted);
    EXPECT_EQ(f.receive.messages(), f.send.messages_posted);
    EXPECT_EQ(f.receive.bytes(), f.send.messages_posted * job.message_bytes);
    EXPECT_EQ(f.receive.message_bytes(), f.receive.bytes());
    EXPECT_EQ(f.responder.invalid, 0u);
    uint64_t in_bins = 0;
    for (uint64_t b : f.receive.bins()) in_bins += b;
    EXPECT_EQ(in_bins, f.receive.bytes());
  }
}

class EmulatorTest : public ::testing::Test {
 protected:
  void Open(const EmulatorConfig& config) {
    auto made = Emulator::Create(config);
    ASSERT_TRUE(made.ok()) << made.status();
    emulator_ = *std::move(made);
  }
  void RunJob(const JobSpec& job, absl::Duration limit) {
    auto id = emulator_->AddJob(job);
    ASSERT_TRUE(id.ok()) << id.status();
    ASSERT_TRUE(emulator_->Start().ok());
    EXPECT_TRUE(emulator_->WaitDone(limit));
    emulator_->Stop();
  }

  VethRig rig_;
  std::unique_ptr<Emulator> emulator_;
};

TEST_F(EmulatorTest, FourFlowsAtFullSpeedWithoutAnIcrcError) {
  EmulatorConfig config = VethRig::Config();
  config.realtime = true;
  Open(config);
  JobSpec job = FourFlows(10e9);
  job.duration = absl::Seconds(2);
  RunJob(job, absl::Seconds(20));
  const Snapshot s = emulator_->TakeSnapshot();
  ExpectAllDelivered(s, job);
  double total = 0;
  for (const FlowReport& f : s.flows) total += f.GoodputBps();
  printf("goodput in all: %.0f Mbit/s; retransmissions %lu\n", total / 1e6, s.flows[0].requester.retransmissions);
  RecordProperty("goodput_mbps", static_cast<int>(total / 1e6));
  EXPECT_GT(total, 150e6);
  EXPECT_EQ(s.Total().icrc_errors, 0u);
  EXPECT_EQ(s.Total().unknown, 0u);
  EXPECT_EQ(s.Total().send_errors, 0u);
  EXPECT_EQ(PortUnreachablesSent(0) + PortUnreachablesSent(1), 0u);
}

TEST_F(EmulatorTest, LossIsNakedAndNothingIsMissing) {
  Open(VethRig::Config());
  IngressFault loss_a(0, 0.01, IngressFault::kDrop), loss_b(1, 0.01, IngressFault::kDrop);
  JobSpec job = FourFlows(400e6);
  job.message_bytes = 200001;
  job.messages = 50;
  RunJob(job, absl::Seconds(50));
  const Snapshot s = emulator_->TakeSnapshot();
  ExpectAllDelivered(s, job);
  uint64_t naks = 0, out_of_order = 0, retransmissions = 0;
  for (const FlowReport& f : s.flows) {
    naks += f.requester.naks_received;
    out_of_order += f.responder.out_of_order;
    retransmissions += f.requester.retransmissions;
  }
  EXPECT_GT(naks, 0u);
  EXPECT_GT(out_of_order, 0u);
  EXPECT_GT(retransmissions, 0u);
  EXPECT_EQ(s.Total().icrc_errors, 0u);
}

TEST_F(EmulatorTest, DamagedPacketsAreDroppedAndSentAgain) {
  Open(VethRig::Config());
  IngressFault damage(1, 0.02, IngressFault::kDamage);
  JobSpec job = FourFlows(400e6);
  job.messages = 5;
  RunJob(job, absl::Seconds(50));
  const Snapshot s = emulator_->TakeSnapshot();
  ExpectAllDelivered(s, job);
  EXPECT_EQ(s.ports[0].icrc_errors, 0u);
  EXPECT_GT(s.ports[1].icrc_errors, 0u);
}

TEST_F(EmulatorTest, ACutIsLeftByRetriesOrKillsTheFlow) {
  Open(VethRig::Config());
  JobSpec job = FourFlows(400e6);
  job.pairs = {{0, 1}};
  job.duration = absl::Milliseconds(1200);
  job.message_bytes = 8192;
  job.packet_interval = absl::Microseconds(500);
  job.timeout = 16;  // 268 ms, seven retries
  ASSERT_TRUE(emulator_->AddJob(job).ok());
  JobSpec weak = job;
  weak.timeout = 14;  // 67 ms, and dead after the second
  weak.retry_cnt = 1;
  ASSERT_TRUE(emulator_->AddJob(weak).ok());
  ASSERT_TRUE(emulator_->Start().ok());
  absl::SleepFor(absl::Milliseconds(300));
  int64_t cut_ns, healed_ns;
  {
    IngressFault cut(1, 1.0, IngressFault::kDrop);
    cut_ns = MonotonicNs();
    Hold(absl::Milliseconds(400));
    healed_ns = MonotonicNs();
  }
  ASSERT_TRUE(emulator_->WaitDone(absl::Seconds(20)));
  emulator_->Stop();
  const Snapshot s = emulator_->TakeSnapshot();
  EXPECT_FALSE(s.flows[0].dead);
  EXPECT_GE(s.flows[0].requester.timeouts, 1u);
  EXPECT_EQ(s.flows[0].receive.messages(), s.flows[0].send.messages_posted);
  EXPECT_GE(s.flows[0].receive.longest_gap().Length(), healed_ns - cut_ns);
  EXPECT_GE(s.flows[0].send.longest_stall.Length(), healed_ns - cut_ns);
  // Packets already received when the cut came may still be handed over, but not for long.
  const auto after = emulator_->FirstDeliveryAfter(0, cut_ns + 200'000'000);
  ASSERT_TRUE(after.any_ns && after.in_order_ns);
  EXPECT_TRUE(after.complete);
  EXPECT_GE(*after.any_ns, healed_ns);
  EXPECT_GE(*after.in_order_ns, *after.any_ns);
  EXPECT_TRUE(s.flows[1].dead);
  EXPECT_EQ(s.FlowsDied(), 1);
  EXPECT_GE(s.flows[1].requester.timeouts, 2u);
  EXPECT_GE(s.flows[1].send.dead_ns, cut_ns);
  EXPECT_LT(s.flows[1].receive.messages(), s.flows[0].receive.messages());
}

TEST_F(EmulatorTest, AllToAllRoundsAndReads) {
  Open(VethRig::Config());
  JobSpec all = FourFlows(400e6);
  all.name = "alltoall";
  all.kind = JobKind::kAllToAll;
  all.pairs.clear();
  all.hosts = {0, 1};
  all.qps_per_pair = 2;
  all.rounds = 5;
  all.messages = 2;
  all.message_bytes = 50000;
  ASSERT_TRUE(emulator_->AddJob(all).ok());
  JobSpec read = FourFlows(400e6);
  read.name = "read";
  read.operation = Operation::kRead;
  read.messages = 3;
  ASSERT_TRUE(emulator_->Start().ok());
  ASSERT_TRUE(emulator_->AddJob(read).ok());  // while running
  ASSERT_TRUE(emulator_->WaitDone(absl::Seconds(30)));
  emulator_->Stop();
  const Snapshot s = emulator_->TakeSnapshot();
  ASSERT_EQ(s.flows.size(), 8u);
  EXPECT_EQ(s.jobs[0].rounds_done, 5);
  for (const FlowReport& f : s.flows) {
    const JobSpec& job = f.job == 0 ? all : read;
    const uint64_t messages = f.job == 0 ? 10 : 3;
    EXPECT_TRUE(f.finished && !f.dead);
    EXPECT_EQ(f.receive.messages(), messages);
    EXPECT_EQ(f.receive.bytes(), messages * job.message_bytes);
    EXPECT_GT(f.send.latency.QuantileNs(0.5), 0);
  }
  const nlohmann::json json = ToJson(s);
  EXPECT_EQ(json["flows"].size(), 8u);
  EXPECT_EQ(json["jobs"][1]["name"], "read");
  EXPECT_EQ(json["flows"][7]["messages"]["delivered"], 3);
}

TEST_F(EmulatorTest, DataGoesFromThePortsThatAreChosen) {
  EmulatorConfig config = VethRig::Config();
  std::vector<uint16_t> natives;
  config.choose_port = [&](int source, int destination, uint16_t native) {
    EXPECT_EQ(destination, 1 - source);
    natives.push_back(native);
    return static_cast<uint16_t>(50000 + source);
  };
  Open(config);
  JobSpec job = FourFlows(400e6);
  job.messages = 1;
  ASSERT_TRUE(emulator_->AddJob(job).ok());
  EXPECT_EQ(natives.size(), 4u) << "of acknowledgements nobody is asked";
  for (const FlowReport& flow : emulator_->TakeSnapshot().flows) EXPECT_EQ(flow.source_port, 50000 + flow.source);
}

TEST_F(EmulatorTest, KernelStampsPairUp) {
  EmulatorConfig config = VethRig::Config();
  config.stamp_every = 8;
  Open(config);
  JobSpec job = FourFlows(200e6);
  job.messages = 4;
  job.timeout = 20;  // a retransmission would void its stamps
  RunJob(job, absl::Seconds(20));
  const Snapshot s = emulator_->TakeSnapshot();
  ExpectAllDelivered(s, job);
  for (const FlowReport& f : s.flows) {
    EXPECT_EQ(f.delays.size(), 4u * 256 / 8);  // 256 packets a message, from PSN 0 on, nothing lost
    for (const OneWayDelay& d : f.delays) {
      EXPECT_EQ(d.psn % 8, 0u);
      EXPECT_GT(d.received_realtime_ns, d.sent_realtime_ns);
      EXPECT_LT(d.received_realtime_ns - d.sent_realtime_ns, 1'000'000'000);
    }
  }
}

TEST(EmulatorConfigTest, ErrorsNameTheHost) {
  EmulatorConfig config = VethRig::Config();
  config.hosts[1].netns_path = "/run/netns/cwemu-does-not-exist";
  config.hosts[0].netns_path.clear();
  config.hosts[0].device = "lo";
  const auto made = Emulator::Create(config);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(std::string(made.status().message()).find(config.hosts[1].name), std::string::npos) << made.status();
}

}  // namespace
}  // namespace cw::lab
