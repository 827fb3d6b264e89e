// SPDX-License-Identifier: Apache-2.0
// What the loader refuses, and that it leaves everything as it was.
#include <linux/bpf.h>

#include <fstream>

#include "gmock/gmock.h"
#include "tests/bpf/dataplane_fixture.h"
#include "userspace/dataplane/features.h"

namespace cw::test {
namespace {

using dataplane::Dataplane;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// A program of another owner: passes everything.
maps::UniqueFd ForeignProgram(bpf_prog_type type, const char* name) {
  const bpf_insn code[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K,
       .dst_reg = BPF_REG_0,
       .src_reg = 0,
       .off = 0,
       .imm = type == BPF_PROG_TYPE_XDP ? 2 : 0},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0},
  };
  maps::UniqueFd fd(bpf_prog_load(type, name, "GPL", code, 2, nullptr));
  EXPECT_TRUE(fd.ok()) << strerror(errno);
  return fd;
}

class ForeignTest : public DataplaneTest {
 protected:
  void ExpectUntouched(const std::string& before) { EXPECT_EQ(State(), before); }
  std::string State() {
    return Programs() + Qdiscs() + rig_.NearShell("tc filter show dev nic0 egress", /*may_fail=*/true);
  }
};

TEST_F(ForeignTest, XdpProgramIsRefusedAndNamed) {
  const auto foreign = ForeignProgram(BPF_PROG_TYPE_XDP, "firewall_xdp");
  maps::UniqueFd link;
  rig_.InNear(
      [&] { link.reset(bpf_link_create(foreign.get(), static_cast<int>(if_nametoindex("nic0")), BPF_XDP, nullptr)); });
  ASSERT_TRUE(link.ok()) << strerror(errno);
  const std::string before = State();
  Open();
  const auto status = TryAttach();
  EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("nic0"), HasSubstr("firewall_xdp"),
                    HasSubstr(absl::StrFormat("id %u", dataplane::GetProgramInfo(foreign.get())->id))));
  ExpectUntouched(before);
  EXPECT_TRUE(plane_->Attached().empty());
  link.reset();
  Attach();
}

TEST_F(ForeignTest, XdpProgramAttachedWithoutLinkIsRefusedToo) {
  const auto foreign = ForeignProgram(BPF_PROG_TYPE_XDP, "legacy_xdp");
  rig_.InNear([&] { ASSERT_EQ(bpf_xdp_attach(static_cast<int>(NearIfindex()), foreign.get(), 0, nullptr), 0); });
  const std::string before = State();
  Open();
  EXPECT_THAT(std::string(TryAttach().message()), HasSubstr("legacy_xdp"));
  ExpectUntouched(before);
}

// Where there is no tcx it is in our place.
TEST_F(ForeignTest, TcProgramWithOurHandleIsLeftAlone) {
  const auto foreign = ForeignProgram(BPF_PROG_TYPE_SCHED_CLS, "billing_tc");
  rig_.InNear([&] {
    bpf_tc_hook hook = {};
    hook.sz = sizeof(hook);
    hook.ifindex = static_cast<int>(if_nametoindex("nic0"));
    hook.attach_point = BPF_TC_EGRESS;
    bpf_tc_opts options = {};
    options.sz = sizeof(options);
    options.handle = CW_TC_HANDLE;
    options.priority = CW_TC_PRIORITY;
    options.prog_fd = foreign.get();
    ASSERT_EQ(bpf_tc_hook_create(&hook), 0);
    ASSERT_EQ(bpf_tc_attach(&hook, &options), 0);
  });
  const std::string before = State();
  Open();
  const auto status = TryAttach();
  if (status.ok()) {
    EXPECT_THAT(State(), AllOf(HasSubstr("tcx egress cw_tc_egress"), HasSubstr("billing_tc")));
    rig_.InNear([&] { EXPECT_TRUE(plane_->DetachAllAndUnpin().ok()); });
  } else {
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()), HasSubstr("billing_tc")) << "named, and XDP is taken back";
  }
  ExpectUntouched(before);
}

TEST_F(ForeignTest, OtherTcFiltersAreLeftAlone) {
  rig_.NearShell(
      "tc qdisc add dev nic0 clsact && tc filter add dev nic0 egress prio 5 protocol ip u32 match u32 0 0 classid 1:1");
  const std::string before = State();
  Open();
  Attach();
  EXPECT_THAT(State(), AllOf(HasSubstr("u32"), HasSubstr("cw_tc_egress")));
  rig_.InNear([&] { EXPECT_TRUE(plane_->DetachAllAndUnpin().ok()); });
  ExpectUntouched(before);
}

TEST_F(ForeignTest, FilterOfAnotherKindWithOurPriorityIsLeftAlone) {
  rig_.NearShell(absl::StrFormat(
      "tc qdisc add dev nic0 clsact && tc filter add dev nic0 egress prio %d protocol ip u32 match u32 0 0 classid 1:1",
      CW_TC_PRIORITY));
  const std::string before = State();
  Open();
  if (const auto status = TryAttach(); status.ok()) {
    EXPECT_THAT(State(), AllOf(HasSubstr("tcx egress cw_tc_egress"), HasSubstr("u32")));
    rig_.InNear([&] { EXPECT_TRUE(plane_->DetachAllAndUnpin().ok()); });
  } else {
    EXPECT_THAT(std::string(status.message()), HasSubstr("another kind"));
  }
  ExpectUntouched(before);
}

TEST_F(DataplaneTest, SecondAgentOfAnInstanceIsRefused) {
  Open();
  rig_.InNear([&] {
    const auto second = Dataplane::Open(options_);
    ASSERT_FALSE(second.ok());
    EXPECT_EQ(second.status().code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(second.status().message()), HasSubstr(absl::StrFormat("process %d", getpid())));
  });
}

TEST_F(DataplaneTest, SecondInstanceOnANicIsRefusedWhileTheFirstLives) {
  Open();
  Attach();
  const auto other_options = TestOptions("-b");
  rig_.InNear([&] {
    auto other = Dataplane::Open(other_options);
    ASSERT_TRUE(other.ok()) << other.status().message();
    const auto status = (*other)->Attach(VethRig::kDevice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()), HasSubstr(options_.instance));
    EXPECT_TRUE((*other)->DetachAllAndUnpin().ok());
  });
  EXPECT_EQ(plane_->Attached().size(), 1u);
  EXPECT_THAT(Programs(), HasSubstr("cw_tc_egress"));
}

TEST_F(DataplaneTest, SecondInstanceOnANicIsRefusedAfterTheFirstDied) {
  Open();
  Attach();
  plane_.reset();  // no agent, but its programs work on
  const auto other_options = TestOptions("-b");
  rig_.InNear([&] {
    auto other = Dataplane::Open(other_options);
    ASSERT_TRUE(other.ok()) << other.status().message();
    const auto status = (*other)->Attach(VethRig::kDevice).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kAlreadyExists);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("another instance"), HasSubstr(options_.instance)));
    EXPECT_TRUE((*other)->DetachAllAndUnpin().ok());
  });
}

// As releases did that recorded no layout beside their maps. Else: dataplane_migration_test.cc.
TEST_F(DataplaneTest, AnotherAbiVersionIsRefusedWithAdvice) {
  Open();
  maps::CtlView::Store(plane_->ctl()[0].abi_version, CW_ABI_VERSION + 1u);
  ASSERT_EQ(unlink((PinFolder() + "/" CW_MAP_RECORD).c_str()), 0);
  plane_.reset();
  rig_.InNear([&] {
    const auto opened = Dataplane::Open(options_);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(opened.status().message()),
                AllOf(HasSubstr(absl::StrFormat("layout %d", CW_ABI_VERSION + 1)), HasSubstr("remove the instance")));
  });
}

TEST_F(DataplaneTest, AnotherMapLayoutIsRefusedWithAdvice) {
  std::filesystem::create_directories(PinFolder());
  maps::UniqueFd older(
      bpf_map_create(BPF_MAP_TYPE_LRU_HASH, "cw_flows", sizeof(cw_flow_key), sizeof(cw_flow) + 8, 64, nullptr));
  ASSERT_EQ(bpf_obj_pin(older.get(), (PinFolder() + "/" CW_MAP_FLOWS).c_str()), 0);
  rig_.InNear([&] {
    const auto opened = Dataplane::Open(options_);
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.status().code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(opened.status().message()),
                AllOf(HasSubstr("cw_flows"), HasSubstr("184"), HasSubstr("176"), HasSubstr("remove the instance")));
  });
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(PinFolder()), {}), 1) << "nothing else was pinned";
}

TEST_F(DataplaneTest, ABadInstanceNameIsRefused) {
  for (const char* name : {"", "a.b", "../x", "a b", "a/b"}) {
    auto bad = options_;
    bad.instance = name;
    EXPECT_EQ(Dataplane::Open(bad).status().code(), absl::StatusCode::kInvalidArgument) << name;
  }
}

TEST_F(DataplaneTest, ARefusedProgramsErrorHasTheVerifiersWords) {
  std::string broken(EarlierRelease());
  // The object's w0 = 2 (XDP_PASS) before an exit becomes an instruction that does not exist.
  const char load[] = "\xb4\x00\x00\x00\x02\x00\x00\x00\x95";
  const size_t at = broken.find(std::string(load, sizeof(load) - 1));
  ASSERT_NE(at, std::string::npos);
  broken[at] = '\xff';
  auto options = options_;
  options.elf = broken;
  rig_.InNear([&] {
    const auto opened = Dataplane::Open(options);
    ASSERT_FALSE(opened.ok());
    EXPECT_THAT(std::string(opened.status().message()),
                AllOf(HasSubstr("verifier log"), HasSubstr("unknown opcode ff")));
  });
  EXPECT_FALSE(std::filesystem::exists(PinFolder())) << "nothing is pinned by a failed start";
}

TEST(Features, EachIsProbedAndMissingOnesAreNamedWithTheirUse) {
  for (const auto& f : dataplane::ProbeFeatures()) {
    EXPECT_TRUE(f.available) << f.name << ": the programs load here, so it must be there";
    EXPECT_FALSE(f.purpose.empty());
  }
  EXPECT_EQ(dataplane::MissingFeatures({{"a", "b", true}}), "");
  EXPECT_EQ(dataplane::MissingFeatures({{"XDP frags", "large packets", false}, {"a", "b", true}, {"c", "d", false}}),
            "; this kernel lacks: XDP frags (needed for large packets), c (needed for d)");
}

TEST_F(DataplaneTest, NothingIsAttachedWhereTheNicOffloadsRoce) {
  const std::filesystem::path sysfs = options_.run_root + "-sys";
  const auto device = sysfs / "class/infiniband/mlx5_0";
  std::filesystem::create_directories(device / "device/net/nic0");
  std::ofstream(device / "node_type") << "1: CA\n";
  auto options = options_;
  options.sysfs_root = sysfs;
  Open(options);
  const auto status = TryAttach();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("mlx5_0"));
  EXPECT_THAT(Programs(), Not(HasSubstr("cw_")));
  // Soft-RoCE goes through the kernel: attached.
  std::filesystem::remove_all(device);
  const auto soft = sysfs / "class/infiniband/rxe0";
  std::filesystem::create_directories(soft / "ports/1/gid_attrs/ndevs");
  std::ofstream(soft / "ports/1/gid_attrs/ndevs/0") << "nic0\n";
  std::ofstream(soft / "parent") << "nic0\n";
  Attach();
  std::filesystem::remove_all(sysfs);
}

}  // namespace
}  // namespace cw::test
