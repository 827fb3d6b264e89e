// SPDX-License-Identifier: Apache-2.0
// Upgrades and downgrades between two releases whose records differ: this one, and one whose ABI header has more and
// wider fields (other_layout.cmake). What flows, steering and counters were stays; packets pass meanwhile.
#include "absl/time/clock.h"
#include "cwfabric.skel.h"
#include "gmock/gmock.h"
#include "other_layout.skel.h"
#include "tests/bpf/dataplane_fixture.h"
#include "userspace/dataplane/bpf_object_file.h"
#include "userspace/dataplane/map_record.h"
#include "userspace/dataplane/migration.h"
#include "userspace/dataplane/program_set.h"
#include "userspace/dataplane/tc_hook.h"
#include "userspace/dataplane/xdp_hook.h"
#include "userspace/off/control.h"

namespace cw::test {
namespace {

using dataplane::Dataplane;
using dataplane::ProgramSet;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr uint32_t kQpn = 0x2b3c;

absl::string_view OtherRelease() {
  size_t size = 0;
  const void* bytes = other_layout__elf_bytes(&size);
  return absl::string_view(static_cast<const char*>(bytes), size);
}

class MigrationTest : public DataplaneTest {
 protected:
  MigrationTest() : pins_(options_.pin_root, options_.instance) {}

  // The other release's start, as far as the loader goes; attach: to the NIC that is attached, and the end of it.
  void StartOther(bool attach) {
    plane_.reset();
    rig_.InNear([&] {
      absl::StatusOr<ProgramSet> set = ProgramSet::Load(
          {.elf = OtherRelease(), .bound_elf = {}, .map_sizes = {{CW_MAP_PAIRS, options_.max_pairs}}}, pins_);
      ASSERT_TRUE(set.ok()) << set.status().message();
      EXPECT_TRUE(set->adopted());
      EXPECT_TRUE(set->migrated());
      if (attach) {
        ASSERT_TRUE(dataplane::AttachXdp(*set, pins_, NearIfindex(), false).ok());
        ASSERT_TRUE(dataplane::AttachTc(*set, pins_, dataplane::TcSide::kEgress, NearIfindex()).ok());
        const absl::Status ended = set->EndExchange(true);
        EXPECT_TRUE(ended.ok()) << ended.message();
      }
    });
  }
  uint32_t NearIfindex() { return if_nametoindex(VethRig::kDevice); }

  // Ours is detached, as by bpftool, and another owner's comes.
  maps::UniqueFd OtherXdpOn(const std::string& nic) {
    const bpf_insn pass[] = {
        {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = XDP_PASS},
        {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
    const maps::UniqueFd program(bpf_prog_load(BPF_PROG_TYPE_XDP, "firewall", "GPL", pass, 2, nullptr));
    maps::UniqueFd link;
    rig_.InNear([&] {
      const uint32_t ifindex = if_nametoindex(nic.c_str());
      const maps::UniqueFd ours(bpf_obj_get(pins_.XdpLink(ifindex).c_str()));
      if (ours.ok() && bpf_link_detach(ours.get()) == 0)
        link.reset(bpf_link_create(program.get(), static_cast<int>(ifindex), BPF_XDP, nullptr));
    });
    return link;
  }

  // A number of the other release's record; −1: there is none.
  int64_t Other(const char* map_name, const void* key, const std::string& field) {
    const auto file = dataplane::BpfObjectFile::Open(OtherRelease());
    const auto layouts = dataplane::LayoutsOf(file->Btf());
    const auto map = maps::BpfMap::OpenPinned(pins_.File(map_name));
    if (!layouts.ok() || !map.ok()) return -1;
    std::vector<uint8_t> record(map->shape().value_size);
    if (!map->Lookup(key, record.data()).ok()) return -1;
    for (const dataplane::RecordField& each : layouts->at(map_name).value.fields) {
      if (each.name != field) continue;
      int64_t value = 0;
      std::memcpy(&value, record.data() + each.offset, each.size);
      return value;
    }
    return -1;
  }
  int64_t OtherReceived(const std::string& field) {
    const cw_flow_key key = FlowKey(VethRig::kFar, VethRig::kNear, kQpn);
    return Other(CW_MAP_FLOWS, &key, field);
  }
  uint64_t Received() {
    const auto flow = plane_->flows().Lookup(FlowKey(VethRig::kFar, VethRig::kNear, kQpn));
    return flow.ok() ? flow->packets : 0;
  }
  // The receiving side runs in the background, late on a slow machine.
  static bool InTime(const std::function<bool()>& is) {
    for (int i = 0; i < 500 && !is(); ++i) usleep(10000);
    return is();
  }
  void SteerAFlow() {
    cw_tx_flow steered = {};
    steered.slot = 3;
    steered.port = 49155;
    steered.flags = CW_STEER_MANUAL;
    steered.moves = 17;
    steered.flow.bytes = 1'000'000;
    ASSERT_TRUE(plane_->tx_flows().Insert(sent_, steered).ok());
  }

  dataplane::PinFolder pins_;
  const cw_flow_key sent_ = FlowKey(VethRig::kNear, VethRig::kFar, kQpn);
};

TEST_F(MigrationTest, FlowsSteeringAndCountersGoToOtherRecordsAndBack) {
  Open();
  Attach();
  SteerAFlow();
  maps::CtlView::Store(plane_->ctl()[0].mode, static_cast<uint32_t>(CW_MODE_PROTECT));
  maps::CtlView::Store(plane_->ctl()[0].session, 4711u);
  plane_->pairs()[5].slot[9].deaths = 3;
  rig_.SendRoce(true, kQpn, 0, 30);
  ASSERT_TRUE(InTime([&] { return Received() == 30; })) << Received();
  const auto roce = plane_->counters().Sum();
  ASSERT_TRUE(roce.ok());

  StartOther(/*attach=*/true);
  EXPECT_EQ(OtherReceived("packets"), 30);
  EXPECT_EQ(OtherReceived("of_a_later_release"), 0);
  EXPECT_EQ(Other(CW_MAP_TX_FLOWS, &sent_, "port"), 49155);
  EXPECT_EQ(Other(CW_MAP_TX_FLOWS, &sent_, "moves"), 17) << "which is wider there";
  EXPECT_EQ(Other(CW_MAP_TX_FLOWS, &sent_, "flow.bytes"), 1'000'000);
  const uint32_t first = 0, fifth = 5;
  EXPECT_EQ(Other(CW_MAP_CTL, &first, "session"), 4711);
  EXPECT_EQ(Other(CW_MAP_CTL, &first, "mode"), CW_MODE_PROTECT);
  EXPECT_EQ(Other(CW_MAP_PAIRS, &fifth, "slot[9].deaths"), 3);
  rig_.SendRoce(true, kQpn, 30, 12);
  EXPECT_TRUE(InTime([&] { return OtherReceived("packets") == 42; })) << "the other release's program counts on";
  EXPECT_THAT(pins_.Names(), Not(Contains(StartsWith(CW_PIN_FORMER))));

  Open();  // and back
  EXPECT_TRUE(plane_->adopted());
  EXPECT_TRUE(plane_->replaced());
  ASSERT_EQ(plane_->Attached().size(), 1u);
  EXPECT_THAT(plane_->notes(), Contains(HasSubstr("what they hold is carried over")));
  EXPECT_EQ(Received(), 42u);
  rig_.SendRoce(true, kQpn, 42, 8);
  EXPECT_TRUE(InTime([&] { return Received() == 50; })) << Received();
  EXPECT_EQ(plane_->flows().Lookup(FlowKey(VethRig::kFar, VethRig::kNear, kQpn))->req.gaps, 0u)
      << "one unbroken sequence";
  const auto steered = plane_->tx_flows().Lookup(sent_);
  ASSERT_TRUE(steered.ok());
  EXPECT_EQ(steered->slot, 3);
  EXPECT_EQ(steered->port, 49155);
  EXPECT_EQ(steered->flags, CW_STEER_MANUAL);
  EXPECT_EQ(steered->moves, 17u);
  EXPECT_EQ(maps::CtlView::Load(plane_->ctl()[0].mode), static_cast<uint32_t>(CW_MODE_PROTECT));
  EXPECT_EQ(maps::CtlView::Load(plane_->ctl()[0].abi_version), static_cast<uint32_t>(CW_ABI_VERSION));
  EXPECT_EQ(plane_->pairs()[5].slot[9].deaths, 3u);
  EXPECT_THAT(pins_.Names(), Not(Contains(StartsWith(CW_PIN_FORMER))));
}

// The other release's maps are pinned, and this one's programs still work on their own.
TEST_F(MigrationTest, AnUpgradeThatIsCutShortCanBeGoneOnWithAndTakenBack) {
  Open();
  Attach();
  SteerAFlow();
  StartOther(/*attach=*/false);
  EXPECT_EQ(pins_.Former(CW_MAP_TX_FLOWS).size(), 1u);
  EXPECT_EQ(pins_.Former(CW_PROG_TC).size(), 1u);
  Open();
  ASSERT_EQ(plane_->Attached().size(), 1u) << "the programs that were never exchanged are known to be ours";
  EXPECT_EQ(plane_->tx_flows().Lookup(sent_)->port, 49155);
  EXPECT_THAT(pins_.Names(), Not(Contains(StartsWith(CW_PIN_FORMER))));
  rig_.SendRoce(true, kQpn, 0, 5);
  EXPECT_TRUE(InTime([&] { return Received() == 5; })) << "the programs work on the maps that are pinned";
}

// Each start that is cut short leaves programs that nobody exchanged yet, and maps that the next one needs.
TEST_F(MigrationTest, SeveralStartsThatAreCutShortLoseNothing) {
  Open();
  Attach();
  SteerAFlow();
  StartOther(/*attach=*/false);
  size_t bytes = 0;
  const void* ours = cwfabric__elf_bytes(&bytes);
  rig_.InNear([&] {
    const auto set =
        ProgramSet::Load({.elf = absl::string_view(static_cast<const char*>(ours), bytes), .bound_elf = {}}, pins_);
    ASSERT_TRUE(set.ok()) << set.status().message();
  });
  EXPECT_EQ(pins_.Former(CW_MAP_TX_FLOWS).size(), 2u);
  Open();
  ASSERT_EQ(plane_->Attached().size(), 1u);
  EXPECT_EQ(plane_->tx_flows().Lookup(sent_)->port, 49155);
  EXPECT_THAT(pins_.Names(), Not(Contains(StartsWith(CW_PIN_FORMER))));
  rig_.SendRoce(true, kQpn, 0, 5);
  EXPECT_TRUE(InTime([&] { return Received() == 5; }));
}

// Where the agent that upgrades does not come up: the programs still read the record that was replaced.
TEST_F(MigrationTest, OffReachesProgramsThatWereNotExchangedYet) {
  Open();
  Attach();
  maps::CtlView::Store(plane_->ctl()[0].mode, static_cast<uint32_t>(CW_MODE_PROTECT));
  StartOther(/*attach=*/false);
  const off::Switched switched = off::SwitchOff(pins_.File(CW_MAP_CTL), /*dry=*/false);
  EXPECT_EQ(switched.outcome, off::Switched::Outcome::kDone) << switched.message;
  auto former = maps::CtlView::Create(*maps::BpfMap::OpenPinned(pins_.File(pins_.Former(CW_MAP_CTL).at(0))));
  ASSERT_TRUE(former.ok());
  EXPECT_EQ(maps::CtlView::Load((*former)[0].mode), static_cast<uint32_t>(CW_MODE_OFF));
  Open();
  EXPECT_EQ(maps::CtlView::Load(plane_->ctl()[0].mode), static_cast<uint32_t>(CW_MODE_OFF)) << "and stays";
}

// A flow that the former programs moved meanwhile stays where its last packets went.
TEST_F(MigrationTest, AFlowThatMovedMeanwhileStaysWhereItWent) {
  Open();
  SteerAFlow();
  plane_.reset();
  rig_.InNear([&] {
    absl::StatusOr<ProgramSet> set = ProgramSet::Load({.elf = OtherRelease(), .bound_elf = {}}, pins_);
    ASSERT_TRUE(set.ok()) << set.status().message();
    auto former = maps::TxFlowsView::Create(*maps::BpfMap::OpenPinned(pins_.File(pins_.Former(CW_MAP_TX_FLOWS).at(0))));
    cw_tx_flow moved = *former->Lookup(sent_);
    moved.port = 49170;
    ++moved.moves;
    ASSERT_TRUE(former->Replace(sent_, moved).ok());
    EXPECT_TRUE(set->EndExchange(true).ok());
  });
  EXPECT_EQ(Other(CW_MAP_TX_FLOWS, &sent_, "port"), 49170);
}

// Somebody put another XDP program in our place on one of two NICs: the other is exchanged and counts on, that one is
// without us.
TEST_F(MigrationTest, OneOfTwoNicsThatCannotBeExchangedIsWithoutUs) {
  rig_.NearShell("ip link add nic1 type veth peer name nic1peer && ip link set nic1 up && ip link set nic1peer up");
  Open();
  Attach();
  SteerAFlow();
  rig_.InNear([&] { ASSERT_TRUE(plane_->Attach("nic1").ok()); });
  StartOther(/*attach=*/false);
  maps::UniqueFd theirs = OtherXdpOn("nic1");
  ASSERT_TRUE(theirs.ok()) << strerror(errno);

  Open();
  ASSERT_EQ(plane_->Attached().size(), 1u);
  EXPECT_EQ(plane_->Attached()[0].ifname, VethRig::kDevice);
  EXPECT_EQ(plane_->tx_flows().Lookup(sent_)->port, 49155);
  rig_.SendRoce(true, kQpn, 0, 5);
  EXPECT_TRUE(InTime([&] { return Received() == 5; })) << Received();
  EXPECT_THAT(Programs("nic1"), AllOf(HasSubstr("firewall"), Not(HasSubstr("cw_xdp_ingress"))));
  absl::Status refused;
  rig_.InNear([&] { refused = plane_->Attach("nic1").status(); });
  EXPECT_THAT(std::string(refused.message()), HasSubstr("nic1")) << "which is what doctor says";
  theirs.reset();
  rig_.InNear([&] { EXPECT_TRUE(plane_->Attach("nic1").ok()) << "once the place is free"; });
  Open();
  EXPECT_EQ(plane_->Attached().size(), 2u);
  EXPECT_THAT(pins_.Names(), Not(Contains(StartsWith(CW_PIN_FORMER))));
}

// What passes from the reading until the programs are exchanged is not counted: how long that is with full tables of
// the default size.
TEST_F(MigrationTest, FullTablesAreCarriedOver) {
  options_.max_flows = 65536;
  options_.max_tx_flows = 16384;
  Open();
  for (uint32_t qpn = 0; qpn < options_.max_tx_flows; ++qpn) {
    ASSERT_TRUE(plane_->tx_flows().Put(FlowKey(VethRig::kNear, VethRig::kFar, qpn), cw_tx_flow{}).ok());
  }
  for (uint32_t qpn = 0; qpn < options_.max_flows; ++qpn)
    ASSERT_TRUE(plane_->flows().Put(FlowKey(VethRig::kFar, VethRig::kNear, qpn), cw_flow{}).ok());
  plane_.reset();
  rig_.InNear([&] {
    absl::StatusOr<ProgramSet> set = ProgramSet::Load({.elf = OtherRelease(), .bound_elf = {}}, pins_);
    ASSERT_TRUE(set.ok()) << set.status().message();
    const auto layouts = *dataplane::LayoutsOf(dataplane::BpfObjectFile::Open(OtherRelease())->Btf());
    const auto ours = *dataplane::LayoutsOf(dataplane::BpfObjectFile::Open(EarlierRelease())->Btf());
    for (const auto& [what, word] : {std::pair{dataplane::Fill::kAll, "all"}, {dataplane::Fill::kNews, "news"}}) {
      const absl::Time begun = absl::Now();
      for (const char* name : {CW_MAP_FLOWS, CW_MAP_TX_FLOWS}) {
        const auto from = maps::BpfMap::OpenPinned(pins_.File(pins_.Former(name).at(0)));
        const auto filled = dataplane::FillMap(name, *from, ours.at(name), *set->Map(name), layouts.at(name), what);
        ASSERT_TRUE(filled.ok()) << filled.status();
        EXPECT_EQ(filled->no_room, 0u);
      }
      const double ms = absl::ToDoubleMilliseconds(absl::Now() - begun);
      printf("81,920 records, %s: %.0f ms\n", word, ms);
      EXPECT_LT(ms, 10'000);
    }
    EXPECT_TRUE(set->EndExchange(true).ok());
  });
  EXPECT_GE(Other(CW_MAP_TX_FLOWS, &sent_, "moves"), 0);
}

TEST_F(MigrationTest, ARecordThatCannotBeReadIsNoReasonNotToStart) {
  Open();
  SteerAFlow();
  plane_.reset();
  const maps::UniqueFd strange(bpf_map_create(BPF_MAP_TYPE_ARRAY, "strange", 4, 64, 1, nullptr));
  ASSERT_TRUE(pins_.Pin(strange.get(), CW_MAP_RECORD).ok());
  Open();
  EXPECT_EQ(plane_->tx_flows().Lookup(sent_)->port, 49155) << "the layout's number is ours";
  EXPECT_TRUE(dataplane::ReadMapRecord(pins_).ok()) << "it is written anew";
}

TEST_F(MigrationTest, AMapThatIsNotAsItsLayoutSaysIsNotRead) {
  const auto file = dataplane::BpfObjectFile::Open(OtherRelease());
  auto layouts = *dataplane::LayoutsOf(file->Btf());
  Open();
  const auto map = maps::BpfMap::OpenPinned(pins_.File(CW_MAP_FLOWS));
  const auto filled =
      dataplane::FillMap(CW_MAP_FLOWS, *map, layouts[CW_MAP_FLOWS], *map, layouts[CW_MAP_FLOWS], dataplane::Fill::kAll);
  EXPECT_EQ(filled.status().code(), absl::StatusCode::kFailedPrecondition) << "another release's layout, our map";
}

TEST_F(MigrationTest, OffIsOffAlsoWhereItCameBetween) {
  Open();
  Attach();
  maps::CtlView::Store(plane_->ctl()[0].mode, static_cast<uint32_t>(CW_MODE_PROTECT));
  plane_.reset();
  rig_.InNear([&] {
    absl::StatusOr<ProgramSet> set = ProgramSet::Load({.elf = OtherRelease(), .bound_elf = {}}, pins_);
    ASSERT_TRUE(set.ok()) << set.status().message();
    auto former = maps::CtlView::Create(*maps::BpfMap::OpenPinned(pins_.File(pins_.Former(CW_MAP_CTL).at(0))));
    ASSERT_TRUE(former.ok());
    maps::CtlView::Store((*former)[0].mode, static_cast<uint32_t>(CW_MODE_OFF));
    EXPECT_TRUE(set->EndExchange(true).ok());
  });
  const uint32_t first = 0;
  EXPECT_EQ(Other(CW_MAP_CTL, &first, "mode"), CW_MODE_OFF);
}

// A flow that began while the programs were exchanged.
TEST_F(MigrationTest, WhatBeganMeanwhileIsTakenOverToo) {
  Open();
  plane_.reset();
  rig_.InNear([&] {
    absl::StatusOr<ProgramSet> set = ProgramSet::Load({.elf = OtherRelease(), .bound_elf = {}}, pins_);
    ASSERT_TRUE(set.ok()) << set.status().message();
    auto former = maps::TxFlowsView::Create(*maps::BpfMap::OpenPinned(pins_.File(pins_.Former(CW_MAP_TX_FLOWS).at(0))));
    ASSERT_TRUE(former.ok());
    cw_tx_flow late = {};
    late.port = 49160;
    ASSERT_TRUE(former->Insert(sent_, late).ok());
    EXPECT_TRUE(set->EndExchange(true).ok());
  });
  EXPECT_EQ(Other(CW_MAP_TX_FLOWS, &sent_, "port"), 49160);
}

TEST_F(MigrationTest, AProgramThatTheKernelRefusesLeavesAllAsItWas) {
  Open();
  Attach();
  SteerAFlow();
  const std::vector<std::string> before = pins_.Names();
  plane_.reset();
  rig_.InNear([&] {
    std::string broken(OtherRelease());
    // The object's w0 = 2 (XDP_PASS) before an exit becomes an instruction that does not exist.
    const char load[] = "\xb4\x00\x00\x00\x02\x00\x00\x00\x95";
    const size_t at = broken.find(std::string(load, sizeof(load) - 1));
    ASSERT_NE(at, std::string::npos);
    broken[at] = '\xff';
    EXPECT_FALSE(ProgramSet::Load({.elf = broken, .bound_elf = {}}, pins_).ok());
  });
  EXPECT_EQ(pins_.Names(), before);
  Open();
  EXPECT_FALSE(plane_->replaced());
  EXPECT_EQ(plane_->tx_flows().Lookup(sent_)->port, 49155);
}

TEST_F(MigrationTest, FieldsOfTheSameNameKeepTheirNumbersWhateverTheirWidth) {
  dataplane::RecordLayout narrow{.size = 8, .fields = {{"a", 0, 4}, {"gone", 4, 4}}};
  dataplane::RecordLayout wide{.size = 17, .fields = {{"new", 0, 1}, {"a", 1, 8}, {"b", 9, 8}}};
  const uint8_t from[8] = {1, 2, 3, 0xff, 9, 9, 9, 9};
  uint8_t to[17] = {7, 0, 0, 0, 0, 0, 0, 0, 0, 5};
  dataplane::RecordCopy(narrow, wide).Copy(from, to);
  EXPECT_EQ(to[0], 7) << "what is new keeps what it had";
  uint64_t a = 0;
  std::memcpy(&a, to + 1, 8);
  EXPECT_EQ(a, 0xff030201u);
  EXPECT_EQ(to[9], 5);
  uint8_t back[8] = {};
  const uint64_t large = uint64_t{1} << 40;
  std::memcpy(to + 1, &large, 8);
  dataplane::RecordCopy(wide, narrow).Copy(to, back);
  EXPECT_EQ(back[0] & back[1] & back[2] & back[3], 0xff) << "too large for four bytes: the largest";
  EXPECT_EQ(back[4], 0);
}

}  // namespace
}  // namespace cw::test
