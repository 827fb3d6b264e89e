// SPDX-License-Identifier: Apache-2.0
// The typed views on real maps: what the kernel writes is what they read, and bpftool shows it with names.
#include <fstream>
#include <map>

#include "gmock/gmock.h"
#include "tests/bpf/dataplane_fixture.h"

namespace cw::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr uint32_t kViewQpn = 0x1a2b;

class ViewsTest : public DataplaneTest {
 protected:
  void SetUp() override {
    Open();
    Attach();
  }
  // Makes the far address a peer, with one live path.
  void AddPair(uint32_t index) {
    cw_pair pair = {};
    const auto key = FlowKey(VethRig::kNear, VethRig::kFar, 0);
    std::copy(key.saddr, key.saddr + 16, pair.key.local);
    std::copy(key.daddr, key.daddr + 16, pair.key.remote);
    pair.slot[0].port = 49152;
    pair.slot[0].state = CW_SLOT_UP;
    pair.live_mask = 1;
    pair.interval_ns = 1000000;
    plane_->pairs().Write(index, pair);
    ASSERT_TRUE(plane_->pair_index().Insert(pair.key, index).ok());
  }
  cw_flow_key TxKey(uint32_t qpn) { return FlowKey(VethRig::kNear, VethRig::kFar, qpn); }
};

TEST_F(ViewsTest, IterationSeesEveryFlowOnce) {
  constexpr int kFlows = 900;  // several batches
  for (uint32_t q = 0; q < kFlows; ++q) rig_.SendRoce(true, 0x1000 + q, 0, 1);
  std::map<uint32_t, int> seen;
  uint64_t packets = 0;
  ASSERT_TRUE(plane_->flows()
                  .ForEach([&](const cw_flow_key& key, const cw_flow& flow) {
                    ++seen[key.dqpn];
                    packets += flow.packets;
                  })
                  .ok());
  EXPECT_EQ(seen.size(), static_cast<size_t>(kFlows));
  EXPECT_EQ(packets, static_cast<uint64_t>(kFlows));
  for (const auto& [qpn, times] : seen) EXPECT_EQ(times, 1) << qpn;
}

TEST_F(ViewsTest, IterationOfAnEmptyMapVisitsNothing) {
  int visits = 0;
  EXPECT_TRUE(plane_->tx_flows().ForEach([&](const auto&, const auto&) { ++visits; }).ok());
  EXPECT_EQ(visits, 0);
}

TEST_F(ViewsTest, ErrorsSayWhatHappened) {
  const auto key = TxKey(kViewQpn);
  EXPECT_EQ(plane_->tx_flows().Lookup(key).status().code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(plane_->tx_flows().Delete(key).code(), absl::StatusCode::kNotFound);
  ASSERT_TRUE(plane_->tx_flows().Insert(key, {}).ok());
  EXPECT_EQ(plane_->tx_flows().Insert(key, {}).code(), absl::StatusCode::kAlreadyExists);
  absl::Status status;
  for (uint32_t q = 1; q <= options_.max_tx_flows && status.ok(); ++q) {
    status = plane_->tx_flows().Insert(TxKey(kViewQpn + q), {});
  }
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("cw_tx_flows"));
  auto wrong = maps::PairIndexView::Create(*maps::BpfMap::Duplicate(plane_->flows().map().fd()));
  EXPECT_EQ(wrong.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(ViewsTest, MemoryMappedRecordsAreTheKernelsOwn) {
  AddPair(5);
  // Written through memory, read by system call, and the other way round.
  auto by_call = maps::ArrayView<cw_pair>::Create(*maps::BpfMap::Duplicate(plane_->pairs().map().fd()));
  ASSERT_TRUE(by_call.ok());
  EXPECT_EQ(by_call->Lookup(5)->slot[0].port, 49152);
  maps::PairsView::SetBits(plane_->pairs()[5].live_mask, 6u);
  maps::PairsView::ClearBits(plane_->pairs()[5].live_mask, 2u);
  EXPECT_EQ(by_call->Lookup(5)->live_mask, 5u);
  cw_pair changed = plane_->pairs().Snapshot(5);
  changed.slot[15].state = CW_SLOT_DEAD;
  ASSERT_TRUE(by_call->Put(5, changed).ok());
  EXPECT_EQ(maps::PairsView::Load(plane_->pairs()[5].slot[15].state), CW_SLOT_DEAD);
  EXPECT_EQ(plane_->pairs().Snapshot(5).slot[15].state, CW_SLOT_DEAD);
}

TEST_F(ViewsTest, CountersHaveNamesAndTexts) {
  rig_.SendRoce(false, kViewQpn, 0, 3);
  const auto sums = plane_->counters().Sum();
  ASSERT_TRUE(sums.ok());
  std::map<std::string, uint64_t> nonzero;
  for (const auto& c : maps::Counters()) {
    EXPECT_GT(std::string(c.text).size(), 5u);
    if (sums.value().*c.field != 0) nonzero[c.name] = sums.value().*c.field;
  }
  EXPECT_EQ(maps::Counters().size() * 8, sizeof(cw_counters));
  EXPECT_EQ(nonzero, (std::map<std::string, uint64_t>{{"peer_unknown", 1}}));
}

TEST_F(ViewsTest, AReaderThatWritersOutrunComesBack) {
  AddPair(1);
  constexpr uint32_t kEnough = 20'000;  // of a reader that never comes back
  uint32_t read = 0;
  auto ring = maps::RingReader::Create(plane_->event_ring(), [&](absl::Span<const uint8_t>) {
    (void)plane_->tx_flows().Delete(TxKey(kViewQpn + read));  // the map has room for few
    if (++read < kEnough) rig_.SendRoce(false, kViewQpn + read, 77, 4);
  });
  ASSERT_TRUE(ring.ok()) << ring.status().message();
  rig_.SendRoce(false, kViewQpn, 77, 4);
  ASSERT_GT(*(*ring)->Consume(), 0);
  const uint32_t before = read;
  EXPECT_LT(before, kEnough);
  EXPECT_GT(*(*ring)->Consume(), 0) << "what it left waits";
  EXPECT_GT(read, before);
}

TEST_F(ViewsTest, ANewFlowToAPeerIsAnEvent) {
  AddPair(1);
  std::vector<cw_ev_move> flows;
  auto ring = maps::RingReader::Create(plane_->event_ring(), [&](absl::Span<const uint8_t> record) {
    EXPECT_EQ(maps::RecordType(record), static_cast<uint32_t>(CW_EV_FLOW));
    flows.push_back(*maps::RecordAs<cw_ev_move>(record));
  });
  ASSERT_TRUE(ring.ok()) << ring.status().message();
  EXPECT_EQ(*(*ring)->Consume(), 0);
  rig_.SendRoce(false, kViewQpn, 77, 4);
  EXPECT_EQ(*(*ring)->Consume(), 1);
  ASSERT_EQ(flows.size(), 1u);
  EXPECT_EQ(flows[0].key.dqpn, kViewQpn);
  EXPECT_EQ(flows[0].pair, 1);
  EXPECT_EQ(flows[0].psn, 77u);
  EXPECT_FALSE(maps::RecordAs<cw_ev_msg>(absl::Span<const uint8_t>()).has_value());
}

TEST_F(ViewsTest, FieldsOfALiveFlowAreEditedInPlace) {
  AddPair(1);
  rig_.SendRoce(false, kViewQpn, 0, 10);
  const auto& editor = plane_->flow_editor();
  const auto key = TxKey(kViewQpn);
  ASSERT_TRUE(editor.Want(key, 0, 49152, true).ok());
  ASSERT_TRUE(editor.SetFlags(key, CW_STEER_LOCKED | CW_STEER_MANUAL, 0).ok());
  ASSERT_TRUE(editor.SetFlags(key, 0, CW_STEER_MANUAL).ok());
  ASSERT_TRUE(editor.SetPeerQpn(key, false, 0x77).ok());
  ASSERT_TRUE(editor.Withhold(key, 0x3f).ok());
  ASSERT_TRUE(editor.Withhold(key, 0x05).ok());
  auto flow = plane_->tx_flows().Lookup(key);
  ASSERT_TRUE(flow.ok());
  EXPECT_EQ(flow->flow.packets, 10u) << "counters are not touched";
  EXPECT_EQ(flow->want_slot, 0);
  EXPECT_EQ(flow->want_port, 49152);
  EXPECT_EQ(flow->want_force, 1);
  EXPECT_EQ(flow->flags & CW_STEER_LOCKED, CW_STEER_LOCKED);
  EXPECT_EQ(flow->flags & CW_STEER_MANUAL, 0);
  EXPECT_EQ(flow->flow.peer_qpn, 0x77u);
  EXPECT_EQ(flow->withheld, 0x05);
  // Its native port gets a slot of its own: the flow, which is there, has that slot now.
  ASSERT_TRUE(editor.SetNativeSlot(key, 9).ok());
  flow = plane_->tx_flows().Lookup(key);
  EXPECT_EQ(flow->native_slot, 9);
  EXPECT_EQ(flow->slot, 9);
  EXPECT_EQ(flow->flags & CW_STEER_NATIVE_NEW, 0);
  ASSERT_TRUE(editor.Place(key, 0, 49152).ok());
  flow = plane_->tx_flows().Lookup(key);
  EXPECT_EQ(flow->slot, 0);
  EXPECT_EQ(flow->port, 49152);
  EXPECT_EQ(flow->want_slot, CW_SLOT_NONE);
  // A received flow's record has a peer QPN too.
  rig_.SendRoce(true, kViewQpn, 0, 1);
  const auto received = FlowKey(VethRig::kFar, VethRig::kNear, kViewQpn);
  ASSERT_TRUE(editor.SetPeerQpn(received, true, 0x99).ok());
  EXPECT_EQ(plane_->flows().Lookup(received)->peer_qpn, 0x99u);
  EXPECT_EQ(editor.Want(TxKey(kViewQpn + 1), 0, 1, false).code(), absl::StatusCode::kNotFound);
}

TEST_F(ViewsTest, ASteeredFlowLeavesWithItsNewPort) {
  AddPair(1);
  maps::CtlView::Store(plane_->ctl()[0].mode, CW_MODE_PROTECT);
  rig_.SendRoce(false, kViewQpn, 0, 1);
  ASSERT_TRUE(plane_->flow_editor().Place(TxKey(kViewQpn), 0, 49152).ok());
  // A second instance's view of the wire: the far side's own dataplane records the port that it receives.
  auto far_options = TestOptions("-far");
  rig_.InFar([&] {
    auto far = dataplane::Dataplane::Open(far_options);
    ASSERT_TRUE(far.ok()) << far.status().message();
    ASSERT_TRUE((*far)->Attach(VethRig::kDevice).ok());
    rig_.SendRoce(false, kViewQpn, 1, 5);
    const auto flow = (*far)->flows().Lookup(TxKey(kViewQpn));
    EXPECT_TRUE(flow.ok()) << flow.status();
    if (flow.ok()) {
      EXPECT_EQ(flow->packets, 5u);
      EXPECT_EQ(flow->sport, 49152);
    }
    EXPECT_TRUE((*far)->DetachAllAndUnpin().ok());
  });
}

TEST_F(ViewsTest, BpftoolDumpsFieldNames) {
  AddPair(1);
  rig_.SendRoce(true, kViewQpn, 0, 2);
  rig_.SendRoce(false, kViewQpn, 0, 2);
  const auto dump = [&](const char* map) { return Shell("bpftool map dump pinned " + PinFolder() + "/" + map); };
  EXPECT_THAT(dump(CW_MAP_FLOWS), AllOf(HasSubstr("\"dqpn\": 6699"), HasSubstr("\"gaps\": 0"),
                                        HasSubstr("\"packets\": 2"), HasSubstr("\"last_seen_jiffies\"")));
  EXPECT_THAT(dump(CW_MAP_TX_FLOWS), AllOf(HasSubstr("\"native_slot\""), HasSubstr("\"acked_psn\"")));
  EXPECT_THAT(dump(CW_MAP_CTL), AllOf(HasSubstr(absl::StrCat("\"abi_version\": ", CW_ABI_VERSION)),
                                      HasSubstr("\"sample_level_tx\": 32")));
  EXPECT_THAT(dump(CW_MAP_PAIRS), AllOf(HasSubstr("\"progress_round\""), HasSubstr("\"port\": 49152")));
  EXPECT_THAT(dump(CW_MAP_PAIR_INDEX), AllOf(HasSubstr("\"remote\""), HasSubstr("\"value\": 1")));
  EXPECT_THAT(dump(CW_MAP_COUNTERS), AllOf(HasSubstr("\"peer_unknown\""), HasSubstr("\"probe_bad_mac\"")));
  EXPECT_THAT(dump(CW_MAP_KEYS), HasSubstr("\"tx_id\""));
  EXPECT_THAT(dump(CW_MAP_PROBE_TX), HasSubstr("\"t1\""));
}

// The verifier walks every path of a program at each load. Its work is held to a checked-in number, so that a change
// which brings a program near the kernel's limit of a million shows in review.
TEST_F(ViewsTest, VerifierBudgetHolds) {
  std::ifstream file(CW_VERIFIER_BUDGET);
  std::map<std::string, uint32_t> budget;
  for (std::string line; std::getline(file, line);) {
    char name[32];
    unsigned limit;
    if (sscanf(line.c_str(), "%31[a-z_] %u", name, &limit) == 2) budget[name] = limit;
  }
  for (const auto& info : {plane_->XdpInfo(), plane_->TcInfo(), plane_->TcIngressInfo()}) {
    ASSERT_TRUE(info.ok());
    ASSERT_EQ(budget.count(info->name), 1u) << info->name << " is not in " << CW_VERIFIER_BUDGET;
    RecordProperty(info->name, static_cast<int>(info->verified_insns));
    printf("%s: %u instructions verified, budget %u\n", info->name.c_str(), info->verified_insns, budget[info->name]);
    EXPECT_LE(info->verified_insns, budget[info->name])
        << info->name << ": ask less, or raise its number in " << CW_VERIFIER_BUDGET << " and say why";
    EXPECT_GT(info->verified_insns, 0u);
  }
}

// The lab's hidden clock: a constant of the programs and a map that is not the instance's own.
TEST_F(ViewsTest, LabClockIsSwitchedOnByItsMapOnly) {
  maps::UniqueFd clock(bpf_map_create(BPF_MAP_TYPE_ARRAY, CW_MAP_LAB_CLOCK, 4, sizeof(cw_lab_clock), 1, nullptr));
  ASSERT_TRUE(clock.ok());
  const std::string pin = PinFolder() + "_clock";
  ASSERT_EQ(bpf_obj_pin(clock.get(), pin.c_str()), 0) << strerror(errno);
  const uint32_t clock_id = maps::BpfMap::OpenPinned(pin)->id();
  const auto uses_clock = [&] {
    const auto info = plane_->XdpInfo();
    return std::count(info->map_ids.begin(), info->map_ids.end(), clock_id);
  };
  EXPECT_EQ(uses_clock(), 0);
  auto options = options_;
  options.lab_clock = pin;
  Open(options);
  EXPECT_TRUE(plane_->replaced()) << "other constants are another program";
  EXPECT_EQ(uses_clock(), 1);
  EXPECT_FALSE(std::filesystem::exists(PinFolder() + "/" CW_MAP_LAB_CLOCK));
  Open();
  EXPECT_EQ(uses_clock(), 0);
  unlink(pin.c_str());
}

}  // namespace
}  // namespace cw::test
