// SPDX-License-Identifier: Apache-2.0
// What others do to our programs under a living agent: detach them, remove their qdisc or their pins, come before them.
#include <linux/pkt_cls.h>

#include <cstdint>
#include <cstdio>
#include <ctime>

#include "gmock/gmock.h"
#include "tests/bpf/dataplane_fixture.h"
#include "userspace/agent/host_net.h"
#include "userspace/dataplane/pins.h"
#include "userspace/dataplane/tcx_query.h"
#include "userspace/metrics/link_flaps.h"

namespace cw::test {
namespace {

using dataplane::Dataplane;
using dataplane::HookLook;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr uint32_t kQpn = 0x3c4d;

class HooksTest : public DataplaneTest {
 protected:
  HookLook Look() {
    HookLook look;
    rig_.InNear([&] {
      const auto got = plane_->Look(if_nametoindex(VethRig::kDevice));
      ASSERT_TRUE(got.ok()) << got.status().message();
      look = *got;
    });
    return look;
  }
  // As bpftool link detach does.
  void DetachPinned(const char* format) {
    const std::string pin = PinFolder() + "/" + absl::StrFormat(absl::ParsedFormat<'u'>(format), NearIfindex());
    const maps::UniqueFd link(bpf_obj_get(pin.c_str()));
    ASSERT_TRUE(link.ok()) << pin << ": " << strerror(errno);
    ASSERT_EQ(bpf_link_detach(link.get()), 0) << strerror(errno);
  }
  // A program of somebody else.
  static maps::UniqueFd Returns(bpf_prog_type type, const char* name, int verdict) {
    const bpf_insn code[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = verdict},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
    maps::UniqueFd program(bpf_prog_load(type, name, "GPL", code, 2, nullptr));
    EXPECT_TRUE(program.ok()) << strerror(errno);
    return program;
  }
  bool HasTcx() {
    bool has = false;
    rig_.InNear([&] {
      std::vector<dataplane::TcxProgram> programs;
      has = dataplane::QueryTcx(if_nametoindex(VethRig::kDevice), true, &programs) == 0;
    });
    return has;
  }
  // What an agent on a kernel without tcx leaves: our program as a filter of clsact.
  void AttachAsFilter(int program) {
    rig_.InNear([&] {
      bpf_tc_hook hook = {};
      hook.sz = sizeof(hook);
      hook.ifindex = static_cast<int>(if_nametoindex("nic0"));
      hook.attach_point = BPF_TC_EGRESS;
      bpf_tc_opts options = {};
      options.sz = sizeof(options);
      options.handle = CW_TC_HANDLE;
      options.priority = CW_TC_PRIORITY;
      options.prog_fd = program;
      const int made = bpf_tc_hook_create(&hook);
      ASSERT_TRUE(made == 0 || made == -EEXIST) << made;
      ASSERT_EQ(bpf_tc_attach(&hook, &options), 0);
    });
  }
  void RemoveAllPins() {
    for (const std::string& name : dataplane::PinFolder(options_.pin_root, options_.instance).Names())
      ASSERT_EQ(unlink((PinFolder() + "/" + name).c_str()), 0);
    ASSERT_EQ(rmdir(PinFolder().c_str()), 0);
  }
};

TEST_F(HooksTest, WhatIsAttachedIsSeenAndWhatIsDetachedIsMissedAndMended) {
  options_.nic_failover = true;
  Open();
  Attach();
  EXPECT_TRUE(Look().all());
  DetachPinned(CW_PIN_XDP_LINK_FMT);
  EXPECT_FALSE(Look().xdp);
  EXPECT_TRUE(Look().tc_egress);
  EXPECT_EQ(Look().other_xdp, 0u);
  Attach();
  EXPECT_TRUE(Look().all());
  if (!HasTcx()) {
    rig_.NearShell("tc qdisc del dev nic0 clsact");
  } else {
    DetachPinned(CW_PIN_TCX_EGRESS_FMT);
    DetachPinned(CW_PIN_TCX_INGRESS_FMT);
  }
  const HookLook look = Look();
  EXPECT_TRUE(look.xdp);
  EXPECT_FALSE(look.tc_egress);
  EXPECT_FALSE(look.tc_ingress);
  Attach();
  EXPECT_TRUE(Look().all());
  // A queueing discipline that was just made anew may drop the first packets (before tcx).
  bool seen = false;
  for (int tries = 0; tries < 200 && !seen; ++tries) {
    rig_.SendRoce(false, kQpn, 5 * tries, 5);
    seen = plane_->flows().Lookup(FlowKey(VethRig::kNear, VethRig::kFar, kQpn)).ok();
  }
  EXPECT_TRUE(seen) << "and it works";
}

// What an agent asks each second of one NIC: a thousandth of a processor at most, so 1 ms.
TEST_F(HooksTest, TheLookOfEachSecondCostsLittle) {
  Open();
  Attach();
  constexpr int kLooks = 100;
  const auto cpu_ns = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
  };
  double look_us = 0;
  rig_.InNear([&] {
    const auto ifindex = if_nametoindex(VethRig::kDevice);
    const int64_t begin_ns = cpu_ns();
    for (int i = 0; i < kLooks; ++i) {
      ASSERT_TRUE(plane_->Look(ifindex).ok());
      ASSERT_TRUE(plane_->RestorePins().ok());
      ASSERT_TRUE(metrics::ReadLink(ifindex).ok());
      ASSERT_TRUE(agent::ReadHostAddresses().ok());
    }
    look_us = static_cast<double>(cpu_ns() - begin_ns) / 1e3 / kLooks;
  });
  std::printf("each look: %.0f us of a processor, %.3f %% of it each second\n", look_us, look_us / 1e4);
  EXPECT_LT(look_us, 10'000);
}

TEST_F(HooksTest, AnotherXdpProgramInOurPlaceIsNamedAndLeft) {
  Open();
  Attach();
  DetachPinned(CW_PIN_XDP_LINK_FMT);
  const maps::UniqueFd theirs = Returns(BPF_PROG_TYPE_XDP, "firewall_xdp", XDP_PASS);
  maps::UniqueFd link;
  rig_.InNear(
      [&] { link.reset(bpf_link_create(theirs.get(), static_cast<int>(if_nametoindex("nic0")), BPF_XDP, nullptr)); });
  ASSERT_TRUE(link.ok()) << strerror(errno);
  EXPECT_EQ(Look().other_xdp, dataplane::GetProgramInfo(theirs.get())->id);
  EXPECT_EQ(TryAttach().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(Programs(), AllOf(HasSubstr("firewall_xdp"), Not(HasSubstr("cw_xdp_ingress"))));
  link.reset();
  Attach();
  EXPECT_TRUE(Look().all());
}

// A first start may not make packets wait: docs/operating.md.
TEST_F(HooksTest, WhereTheKernelHasTcxNoQdiscIsMadeAndNoneIsEverRemoved) {
  const std::string attached = HasTcx() ? "tcx egress cw_tc_egress" : "tc egress cw_tc_egress";
  std::string before = rig_.NearShell("tc qdisc show dev nic0");
  Open();
  Attach();
  EXPECT_THAT(Programs(), HasSubstr(attached));
  if (HasTcx()) {
    EXPECT_EQ(rig_.NearShell("tc qdisc show dev nic0"), before);
  }
  before = rig_.NearShell("tc qdisc show dev nic0");
  plane_.reset();  // its programs go on
  EXPECT_THAT(Programs(), HasSubstr(attached));
  Open();
  ASSERT_EQ(plane_->Attached().size(), 1u);
  EXPECT_TRUE(Look().all()) << "adopted";
  rig_.InNear([&] { EXPECT_TRUE(plane_->DetachAllAndUnpin().ok()); });
  EXPECT_EQ(Programs(), "");
  EXPECT_EQ(rig_.NearShell("tc qdisc show dev nic0"), before);
}

TEST_F(HooksTest, OthersSeeWhatPassedOurProgram) {
  if (!HasTcx()) return;  // a filter of clsact, which others' see before it or after it by their priorities
  Open();
  Attach();
  rig_.SendRoce(false, kQpn, 0, 1);  // finds the neighbour
  AttachAsFilter(Returns(BPF_PROG_TYPE_SCHED_CLS, "shoots", TC_ACT_SHOT).get());
  EXPECT_THAT(Programs(), AllOf(HasSubstr("tcx egress cw_tc_egress"), HasSubstr("tc egress shoots")));
  rig_.SendRoce(false, kQpn, 1, 7);
  const auto flow = plane_->flows().Lookup(FlowKey(VethRig::kNear, VethRig::kFar, kQpn));
  ASSERT_TRUE(flow.ok());
  EXPECT_EQ(flow->packets, 8u);
  EXPECT_THAT(rig_.NearShell("tc -s qdisc show dev nic0 clsact"), Not(HasSubstr("dropped 0")));
}

TEST_F(HooksTest, PinsThatSomebodyRemovedAreMadeAgain) {
  options_.nic_failover = true;
  Open();
  Attach();
  const std::vector<std::string> names = dataplane::PinFolder(options_.pin_root, options_.instance).Names();
  EXPECT_THAT(*plane_->RestorePins(), IsEmpty()) << "nothing was gone";
  RemoveAllPins();
  const auto restored = plane_->RestorePins();
  ASSERT_TRUE(restored.ok()) << restored.status().message();
  EXPECT_THAT(*restored, Contains(CW_MAP_CTL));
  EXPECT_EQ(dataplane::PinFolder(options_.pin_root, options_.instance).Names(), names);
  const uint32_t program = plane_->TcInfo()->id;
  Open();
  EXPECT_TRUE(plane_->adopted());
  EXPECT_FALSE(plane_->replaced()) << "the same programs on the same maps";
  EXPECT_EQ(plane_->TcInfo()->id, program);
  EXPECT_TRUE(Look().all());
}

// Pins gone, then the agent killed: links go with it, a filter stays.
TEST_F(HooksTest, AFilterWithoutPinsIsOursByItsName) {
  Open();
  Attach();
  if (HasTcx()) AttachAsFilter(plane_->tc_fd());
  RemoveAllPins();
  plane_.reset();
  ASSERT_THAT(Programs(), HasSubstr("tc egress cw_tc_egress"));
  Open();
  Attach();
  EXPECT_TRUE(Look().all()) << "not refused as somebody else's";
  RemoveAllPins();
  plane_.reset();
  rig_.InNear([&] { EXPECT_TRUE(Dataplane::Remove(options_).ok()); });
  EXPECT_THAT(Programs(), Not(HasSubstr("cw_"))) << "nothing of ours is left";
}

TEST_F(HooksTest, AnotherInstancesFilterIsNoOrphan) {
  const auto other_options = TestOptions("-b");
  std::unique_ptr<Dataplane> other;
  rig_.InNear([&] {
    auto opened = Dataplane::Open(other_options);
    ASSERT_TRUE(opened.ok()) << opened.status().message();
    other = *std::move(opened);
  });
  AttachAsFilter(other->tc_fd());
  rig_.InNear([&] { EXPECT_TRUE(Dataplane::Remove(options_).ok()); });
  EXPECT_THAT(Programs(), HasSubstr("tc egress cw_tc_egress"));
  rig_.InNear([&] { EXPECT_TRUE(other->DetachAllAndUnpin().ok()); });
  rig_.NearShell("tc qdisc del dev nic0 clsact");
}

// As a release before tcx left it: the same packet must not pass two programs.
TEST_F(HooksTest, AFilterOfAnEarlierReleaseStaysAFilter) {
  Open();
  AttachAsFilter(plane_->tc_fd());
  Attach();
  EXPECT_THAT(Programs(), AllOf(HasSubstr("tc egress cw_tc_egress"), Not(HasSubstr("tcx"))));
  EXPECT_TRUE(Look().all());
  if (!HasTcx()) return;
  rig_.NearShell("tc qdisc del dev nic0 clsact");
  EXPECT_FALSE(Look().tc_egress);
  Attach();
  EXPECT_THAT(Programs(), HasSubstr("tcx egress cw_tc_egress"));
}

}  // namespace
}  // namespace cw::test
