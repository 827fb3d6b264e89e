// SPDX-License-Identifier: Apache-2.0
// The loader against the real kernel: load, attach, crash, adopt, replace, remove.
#include <signal.h>
#include <sys/wait.h>

#include <thread>

#include "gmock/gmock.h"
#include "tests/bpf/dataplane_fixture.h"
#include "userspace/rights/rights.h"

namespace cw::test {
namespace {

using dataplane::Dataplane;
using dataplane::XdpMode;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr uint32_t kLifecycleQpn = 0x1a2b;

uint64_t Received(const Dataplane& plane, uint32_t qpn) {
  const auto flow = plane.flows().Lookup(FlowKey(VethRig::kFar, VethRig::kNear, qpn));
  return flow.ok() ? flow->packets : 0;
}

// The receiving side runs in the background, late on a slow machine.
bool ReceivesInTime(const Dataplane& plane, uint32_t qpn, uint64_t packets) {
  for (int i = 0; i < 500 && Received(plane, qpn) < packets; ++i) usleep(10000);
  return Received(plane, qpn) == packets;
}

// The kernel frees a replaced program after a grace period.
bool IsFreed(uint32_t program_id) {
  for (int i = 0; i < 500; ++i) {
    if (!dataplane::GetProgramInfoById(program_id).ok()) return true;
    usleep(10000);
  }
  return false;
}

TEST_F(DataplaneTest, AttachesNativelyAndSeesRoceBothWays) {
  Open();
  EXPECT_FALSE(plane_->adopted());
  const auto info = Attach();
  EXPECT_EQ(info.mode, XdpMode::kNative);
  EXPECT_TRUE(info.frags);
  EXPECT_FALSE(info.adopted);
  EXPECT_EQ(info.warning, "");
  rig_.SendRoce(true, kLifecycleQpn, 100, 50);
  rig_.SendRoce(false, kLifecycleQpn + 1, 7, 20);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 50)) << Received(*plane_, kLifecycleQpn);
  const auto sent = plane_->flows().Lookup(FlowKey(VethRig::kNear, VethRig::kFar, kLifecycleQpn + 1));
  ASSERT_TRUE(sent.ok()) << "a flow to an unknown peer is recorded at egress";
  EXPECT_EQ(sent->packets, 20u);
  const auto counters = plane_->counters().Sum();
  ASSERT_TRUE(counters.ok());
  EXPECT_EQ(counters->peer_unknown, 1u);
}

// What the agent's main loop keeps of root's rights is enough for that.
TEST_F(DataplaneTest, ANicThatComesBackIsAttachedWithTheRightsThatAreKept) {
  Open();
  Attach();
  rig_.NearShell("ip link del nic0");
  Shell(absl::StrFormat("ip -n %s link add nic0 index 77 type veth peer name nic0 netns %s", rig_.near(), rig_.far()));
  for (const auto& [netns, address] : {std::pair{rig_.near(), VethRig::kNear}, {rig_.far(), VethRig::kFar}})
    Shell(absl::StrFormat("ip -n %s addr add %s/24 dev nic0 && ip -n %s link set nic0 up", netns, address, netns));
  absl::Status attached;
  rig_.InNear([&] {
    std::thread([&] {
      attached = rights::KeepOnly(rights::kSteady);
      if (attached.ok()) attached = plane_->Attach(VethRig::kDevice).status();
    }).join();
  });
  ASSERT_TRUE(attached.ok()) << attached.message();
  rig_.SendRoce(true, kLifecycleQpn, 100, 50);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 50)) << Received(*plane_, kLifecycleQpn);
}

TEST_F(DataplaneTest, FreshControlIsObserveAndCurrentAbi) {
  Open();
  const auto ctl = plane_->ctl().Snapshot(0);
  EXPECT_EQ(ctl.abi_version, static_cast<uint32_t>(CW_ABI_VERSION));
  EXPECT_EQ(ctl.mode, static_cast<uint32_t>(CW_MODE_OBSERVE));
  EXPECT_EQ(ctl.miss_limit, 3u);
  EXPECT_EQ(plane_->flows().capacity(), options_.max_flows);
  EXPECT_EQ(plane_->tx_flows().capacity(), options_.max_tx_flows);
  EXPECT_EQ(plane_->pairs().size(), options_.max_pairs);
}

// A real crash: another process opens and attaches, and is killed.
TEST_F(DataplaneTest, KillLosesNoFlowNoSteeringNoCounter) {
  const auto key = FlowKey(VethRig::kNear, VethRig::kFar, kLifecycleQpn);
  const pid_t child = fork();
  if (child == 0) {
    rig_.InNear([&] {
      auto plane = Dataplane::Open(options_);
      if (!plane.ok() || !(*plane)->Attach(VethRig::kDevice).ok()) _exit(1);
      cw_tx_flow steered = {};
      steered.slot = 3;
      steered.port = 49155;
      steered.flags = CW_STEER_MANUAL;
      if (!(*plane)->tx_flows().Insert(key, steered).ok()) _exit(2);
      maps::CtlView::Store((*plane)->ctl()[0].session, 4711u);
      rig_.SendRoce(true, kLifecycleQpn, 0, 30);
      raise(SIGKILL);
    });
    _exit(3);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << "child ended with " << status;
  rig_.SendRoce(true, kLifecycleQpn, 30, 12);  // while no agent lives
  Open();
  EXPECT_TRUE(plane_->adopted());
  EXPECT_FALSE(plane_->replaced());
  ASSERT_EQ(plane_->Attached().size(), 1u) << "the interface is adopted by Open";
  EXPECT_TRUE(plane_->Attached()[0].adopted);
  const auto again = Attach();
  EXPECT_EQ(again.mode, XdpMode::kNative);
  EXPECT_TRUE(again.frags);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 42)) << Received(*plane_, kLifecycleQpn);
  const auto steered = plane_->tx_flows().Lookup(key);
  ASSERT_TRUE(steered.ok());
  EXPECT_EQ(steered->slot, 3);
  EXPECT_EQ(steered->port, 49155);
  EXPECT_EQ(steered->flags, CW_STEER_MANUAL);
  EXPECT_EQ(maps::CtlView::Load(plane_->ctl()[0].session), 4711u);
  rig_.SendRoce(true, kLifecycleQpn, 42, 8);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 50)) << Received(*plane_, kLifecycleQpn);
  const auto flow = plane_->flows().Lookup(FlowKey(VethRig::kFar, VethRig::kNear, kLifecycleQpn));
  ASSERT_TRUE(flow.ok());
  EXPECT_EQ(flow->req.gaps, 0u) << "one unbroken sequence over the crash";
}

TEST_F(DataplaneTest, AdoptedMapsKeepTheirSizeAndSaySo) {
  Open();
  auto bigger = options_;
  bigger.max_flows *= 2;
  Open(bigger);
  EXPECT_EQ(plane_->flows().capacity(), options_.max_flows);
  EXPECT_THAT(plane_->notes(), ::testing::ElementsAre(HasSubstr("cw_flows keeps its size of 4096")));
}

TEST_F(DataplaneTest, AnotherReleasesProgramsAreExchangedOnTheirMaps) {
  auto earlier = options_;
  earlier.elf = EarlierRelease();
  Open(earlier);
  Attach();
  rig_.SendRoce(true, kLifecycleQpn, 0, 10);
  rig_.SendRoce(false, kLifecycleQpn, 0, 10);
  const auto before = plane_->counters().Sum();
  ASSERT_TRUE(before.ok());
  EXPECT_GE(before->trace_arrived, 10u);
  EXPECT_GE(before->probe_sent, 10u);
  const uint32_t old_xdp = plane_->XdpInfo()->id, old_tc = plane_->TcInfo()->id;
  Open();
  EXPECT_TRUE(plane_->adopted());
  EXPECT_TRUE(plane_->replaced());
  EXPECT_NE(plane_->XdpInfo()->id, old_xdp);
  ASSERT_EQ(plane_->Attached().size(), 1u);
  rig_.SendRoce(true, kLifecycleQpn, 0, 25);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 25)) << Received(*plane_, kLifecycleQpn) << " by the new program";
  rig_.SendRoce(false, kLifecycleQpn, 0, 5);
  EXPECT_TRUE(plane_->flows().Lookup(FlowKey(VethRig::kNear, VethRig::kFar, kLifecycleQpn)).ok())
      << "and so is the new tc one";
  const auto after = plane_->counters().Sum();
  ASSERT_TRUE(after.ok());
  EXPECT_GE(after->trace_arrived, before->trace_arrived) << "counters are kept";
  EXPECT_TRUE(IsFreed(old_xdp)) << "nothing holds the old program";
  EXPECT_TRUE(IsFreed(old_tc));
}

// As when the release before had no cw_local_clock.
TEST_F(DataplaneTest, AMapThatIsNewIsAddedToWhatIsAdopted) {
  Open();
  Attach();
  rig_.SendRoce(true, kLifecycleQpn, 0, 3);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 3));
  const std::string pin = PinFolder() + "/" CW_MAP_LOCAL_CLOCK;
  ASSERT_EQ(unlink(pin.c_str()), 0);
  Open();
  EXPECT_TRUE(plane_->adopted());
  EXPECT_TRUE(plane_->replaced());
  EXPECT_TRUE(std::filesystem::exists(pin));
  EXPECT_EQ(plane_->local_clock()[0].generation, 0u);
  rig_.SendRoce(true, kLifecycleQpn, 3, 3);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 6)) << "flows are kept, and counted on";
}

TEST_F(DataplaneTest, DetachLeavesNothing) {
  const std::string before = Programs() + Qdiscs();
  Open();
  Attach();
  EXPECT_THAT(Programs(), HasSubstr("cw_tc_egress"));
  EXPECT_THAT(rig_.NearShell("ip link show nic0"), HasSubstr("xdp"));
  absl::Status status;
  rig_.InNear([&] { status = plane_->Detach(NearIfindex()); });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Programs() + Qdiscs(), before);
  EXPECT_THAT(rig_.NearShell("ip link show nic0"), Not(HasSubstr("xdp")));
  EXPECT_TRUE(plane_->Attached().empty());
  Attach();  // and again
  rig_.InNear([&] { status = plane_->DetachAllAndUnpin(); });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_FALSE(std::filesystem::exists(PinFolder()));
  EXPECT_EQ(Programs() + Qdiscs(), before);
}

TEST_F(DataplaneTest, NicFailoverHasAnIngressProgramAndAnAgentWithoutItTakesItOff) {
  const std::string before = Programs() + Qdiscs();
  options_.nic_failover = true;
  for (int start = 0; start < 2; ++start) {  // attached, then adopted
    Open();
    Attach();
    EXPECT_THAT(Programs(), AllOf(HasSubstr("cw_tc_egress"), HasSubstr("cw_tc_ingress")));
  }
  options_.nic_failover = false;
  Open();
  Attach();
  EXPECT_THAT(Programs(), AllOf(HasSubstr("cw_tc_egress"), Not(HasSubstr("cw_tc_ingress"))));
  options_.nic_failover = true;
  Open();
  Attach();
  absl::Status status;
  rig_.InNear([&] { status = plane_->Detach(NearIfindex()); });
  ASSERT_TRUE(status.ok()) << status.message();
  EXPECT_EQ(Programs() + Qdiscs(), before);
}

TEST_F(DataplaneTest, RemoveWorksWithoutLoadingAnything) {
  Open();
  Attach();
  rig_.InNear([&] {
    const auto refused = Dataplane::Remove(options_);
    EXPECT_EQ(refused.code(), absl::StatusCode::kAlreadyExists) << "its agent lives";
  });
  plane_.reset();
  rig_.InNear([&] { EXPECT_TRUE(Dataplane::Remove(options_).ok()); });
  EXPECT_THAT(Programs(), Not(HasSubstr("cw_")));
  EXPECT_FALSE(std::filesystem::exists(PinFolder()));
}

TEST_F(DataplaneTest, AnInterfaceThatIsGoneIsForgotten) {
  Open();
  Attach();
  plane_.reset();
  rig_.NearShell("ip link del nic0");
  Open();
  EXPECT_TRUE(plane_->Attached().empty());
  for (const auto& pin : std::filesystem::directory_iterator(PinFolder())) {
    EXPECT_THAT(pin.path().filename().string(), Not(::testing::StartsWith("xdp_")));
  }
}

TEST_F(DataplaneTest, LargeMtuIsNativeWithFrags) {
  rig_.NearShell("ip link set nic0 mtu 9000");
  rig_.InFar([] { Shell("ip link set nic0 mtu 9000"); });
  Open();
  const auto info = Attach();
  EXPECT_EQ(info.mode, XdpMode::kNative);
  EXPECT_TRUE(info.frags);
  rig_.SendRoce(true, kLifecycleQpn, 0, 10, 4096);
  rig_.SendRoce(true, kLifecycleQpn, 10, 10, 8192);
  EXPECT_TRUE(ReceivesInTime(*plane_, kLifecycleQpn, 20)) << Received(*plane_, kLifecycleQpn);
}

TEST_F(DataplaneTest, FallsBackToGenericXdpWithAWarning) {
  // A bridge has no XDP of its own.
  rig_.NearShell("ip link add nic1 type bridge && ip addr add 10.99.1.1/24 dev nic1 && ip link set nic1 up");
  Open();
  rig_.InNear([&] {
    const auto info = plane_->Attach("nic1");
    ASSERT_TRUE(info.ok()) << info.status().message();
    EXPECT_EQ(info->mode, XdpMode::kGeneric);
    EXPECT_THAT(info->warning, HasSubstr("generic XDP"));
    EXPECT_THAT(info->warning, HasSubstr("native with frags: "));
  });
  EXPECT_THAT(rig_.NearShell("ip link show nic1"), HasSubstr("xdpgeneric"));
  plane_.reset();
  Open();
  ASSERT_EQ(plane_->Attached().size(), 1u);
  EXPECT_EQ(plane_->Attached()[0].mode, XdpMode::kGeneric);
  EXPECT_THAT(plane_->Attached()[0].warning, HasSubstr("generic XDP"));
}

}  // namespace
}  // namespace cw::test
