// SPDX-License-Identifier: Apache-2.0
// Others remove or replace an agent's programs while queue pairs send: it reports that, mends it where it can, and
// blames no peer.
#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/if_link.h>
#include <linux/pkt_cls.h>
#include <net/if.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/verdict.h"
#include "maps/names.h"
#include "maps/unique_fd.h"
#include "tests/lab/agent_matrix.h"
#include "tests/lab/agent_rig.h"
#include "userspace/dataplane/tcx_query.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/host_fault.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

class HostHooks : public AgentOnFabric {
 protected:
  void UpWithTraffic() {
    TestbedSpec spec = SmallSpec();
    spec.fabric.lab = "hosthooks";
    spec.mode = ModeAsked();
    Up(spec);
    ASSERT_NE(testbed, nullptr);
    ASSERT_NO_FATAL_FAILURE(StartKnownTraffic());
    ASSERT_NO_FATAL_FAILURE(TakeOverAsAsked(*testbed, 0));
    began_ns_ = MonotonicNs();
  }
  void InHost(int host, const std::string& line) {
    EXPECT_TRUE(RunInNetns(testbed->fabric().HostNetns(host),
                           [&] {
                             const int code = std::system(absl::StrCat("{ ", line, "; } >/dev/null").c_str());
                             return code == 0 ? absl::OkStatus() : absl::InternalError(line);
                           })
                    .ok())
        << line;
  }
  std::string Pins(int host) const {
    return absl::StrCat(CW_PIN_ROOT "/", DescribeAgentHost(testbed->fabric(), host).instance);
  }
  bool HasPin(int host, const std::string& prefix) const {
    for (const auto& pin : std::filesystem::directory_iterator(Pins(host))) {
      if (absl::StartsWith(pin.path().filename().string(), prefix)) return true;
    }
    return false;
  }
  // A tc program that drops everything, in front of all others; false: takes it away.
  void DropBeforeAll(int host, bool drop) {
    const bpf_insn code[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = TC_ACT_SHOT},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
    const maps::UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_SCHED_CLS, "firewall", "GPL", code, 2, nullptr));
    ASSERT_TRUE(program.ok()) << strerror(errno);
    const auto by_tcx = [&](int ifindex) {
      LIBBPF_OPTS(bpf_link_create_opts, options, .flags = 1u << 3 /* BPF_F_BEFORE */);
      drop_.reset(!drop ? -1
                        : bpf_link_create(program.get(), ifindex, static_cast<bpf_attach_type>(dataplane::kTcxEgress),
                                          &options));
      return drop == drop_.ok();
    };
    const auto by_filter = [&](int ifindex) {  // before Linux 6.6
      LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = BPF_TC_EGRESS);
      LIBBPF_OPTS(bpf_tc_opts, options, .handle = 1, .priority = 1);
      if (!drop) return bpf_tc_detach(&hook, &options) == 0;
      options.prog_fd = program.get();
      return bpf_tc_attach(&hook, &options) == 0;
    };
    EXPECT_TRUE(RunInNetns(testbed->fabric().HostNetns(host), [&] {
                  const auto ifindex = static_cast<int>(if_nametoindex("eth0"));
                  const bool done = HasPin(host, "tcx_") ? by_tcx(ifindex) : by_filter(ifindex);
                  return done ? absl::OkStatus() : absl::ErrnoToStatus(errno, "attach or detach a tc program");
                }).ok());
  }
  // An XDP program that passes everything, in place of the agent's; false: takes it away.
  void ReplaceXdp(int host, bool replace) {
    const bpf_insn code[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
    const maps::UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_XDP, "other", "GPL", code, 2, nullptr));
    ASSERT_TRUE(program.ok()) << strerror(errno);
    const std::string detach = absl::StrCat("bpftool link detach pinned ", Pins(host), "/xdp_* >/dev/null");
    EXPECT_TRUE(
        RunInNetns(testbed->fabric().HostNetns(host), [&] {
          const auto ifindex = static_cast<int>(if_nametoindex("eth0"));
          // The agent looks each second, and may be quicker for once.
          for (int tries = 0; tries < 10; ++tries) {
            if (!replace && bpf_xdp_detach(ifindex, XDP_FLAGS_SKB_MODE, nullptr) == 0) return absl::OkStatus();
            if (replace && std::system(detach.c_str()) == 0 &&
                bpf_xdp_attach(ifindex, program.get(), XDP_FLAGS_UPDATE_IF_NOEXIST | XDP_FLAGS_SKB_MODE, nullptr) == 0)
              return absl::OkStatus();
          }
          return absl::InternalError("replace XDP");
        }).ok());
  }
  std::string BlindText(int host) {
    const auto status = testbed->agent(host).Status();
    EXPECT_TRUE(status.ok()) << status.status();
    if (!status.ok()) return "";
    for (const auto& peer : status->peers()) {
      if (!peer.blind_text().empty()) return peer.blind_text();
    }
    return "";
  }
  bool Said(const std::string& text) {
    for (const Mark& event : testbed->Events(began_ns_, "nic")) {
      if (absl::StrContains(event.text, text)) return true;
    }
    return false;
  }
  std::string Trouble(int host) {
    const auto status = testbed->agent(host).Status();
    EXPECT_TRUE(status.ok()) << status.status();
    return status.ok() ? status->nics(0).trouble() : "";
  }
  // Nobody's peer, NIC or path.
  void ExpectNobodyElseIsBlamed() {
    for (const Mark& event : testbed->Events(began_ns_, "path"))
      EXPECT_FALSE(absl::StrContains(event.text, "silent:")) << event.text;
  }
  void ExpectAllGoesOn() {
    EXPECT_TRUE(Eventually([&] { return Trouble(0).empty(); })) << Trouble(0);
    const absl::Status up = testbed->WaitPathsUp(absl::Seconds(30));
    EXPECT_TRUE(up.ok()) << up;
    for (const FlowReport& flow : emulator->TakeSnapshot().flows) EXPECT_FALSE(flow.dead) << "flow " << flow.id;
  }

  int64_t began_ns_ = 0;
  maps::UniqueFd drop_;  // the link of a program that drops
};

TEST_F(HostHooks, ProgramsThatSomebodyDetachesAreAttachedAgain) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  InHost(0, HasPin(0, "tcx_") ? absl::StrCat("bpftool link detach pinned ", Pins(0), "/tcx_egress_*")
                              : "tc qdisc del dev eth0 clsact");
  EXPECT_TRUE(Eventually([&] { return Said("detached the agent's tc egress program; it is attached again"); }));
  InHost(0, absl::StrCat("bpftool link detach pinned ", Pins(0), "/xdp_*"));
  EXPECT_TRUE(Eventually([&] { return Said("detached the agent's XDP program; it is attached again"); }));
  ExpectAllGoesOn();
  ExpectNobodyElseIsBlamed();
}

TEST_F(HostHooks, PinsThatSomebodyRemovesAreMadeAgainForTheNextAgent) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  InHost(0, absl::StrCat("rm -r ", Pins(0)));
  EXPECT_TRUE(Eventually([&] { return Said("pins of the agent's programs and maps; they are made again"); }));
  ASSERT_TRUE(KillAgent(*testbed, 0).ok());
  ASSERT_TRUE(testbed->StartAgent(0).ok());
  const auto status = testbed->agent(0).Status();
  ASSERT_TRUE(status.ok()) << status.status();
  EXPECT_EQ(status->nics(0).ingress(), "native");
  ExpectAllGoesOn();
}

// As a firewall's, or a shaper's: what ends a packet's path before our program is named, and peers are not blamed.
TEST_F(HostHooks, AProgramBeforeOursThatDropsIsNamed) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  emulator.reset();  // its queue pairs would give up
  ASSERT_NO_FATAL_FAILURE(DropBeforeAll(0, true));
  // Its name is not the service's to read.
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(Trouble(0), " egress program"); })) << Trouble(0);
  EXPECT_TRUE(Said("its own probes do not reach the agent's tc egress program"));
  const auto doctor = testbed->agent(0).Doctor({});
  ASSERT_TRUE(doctor.ok());
  EXPECT_TRUE(std::any_of(doctor->checks().begin(), doctor->checks().end(), [](const v1::Check& check) {
    return check.result() == v1::Check::RESULT_FAIL && absl::StrContains(check.seen(), "do not reach");
  }));
  ASSERT_NO_FATAL_FAILURE(DropBeforeAll(0, false));
  EXPECT_TRUE(Eventually([&] { return Trouble(0).empty(); })) << Trouble(0);
  ExpectNobodyElseIsBlamed();
}

// Nothing answers there, and its peers know why.
TEST_F(HostHooks, PeersOfAHostWithoutItsProgramsCallItNotSilent) {
  ASSERT_NO_FATAL_FAILURE(UpWithTraffic());
  ASSERT_NO_FATAL_FAILURE(ReplaceXdp(0, true));
  EXPECT_TRUE(Eventually([&] { return absl::StrContains(Trouble(0), "another XDP program"); })) << Trouble(0);
  EXPECT_TRUE(Eventually([&] { return !BlindText(1).empty(); }));
  // Longer than peers wait until they call one silent.
  Hold(absl::Seconds(6));
  EXPECT_FALSE(BlindText(1).empty());
  EXPECT_EQ(cli::VerdictOf(*testbed->agent(1).Status()).text.find("silent"), std::string::npos);
  ExpectNobodyElseIsBlamed();
  ASSERT_NO_FATAL_FAILURE(ReplaceXdp(0, false));
  EXPECT_TRUE(Eventually([&] { return BlindText(1).empty(); }));
  ExpectAllGoesOn();
  ExpectNobodyElseIsBlamed();
}

}  // namespace
}  // namespace cw::lab
