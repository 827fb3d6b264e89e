// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/mesh.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <random>
#include <set>

#include "tests/unit/probe_fakes.h"
#include "userspace/probe/slots.h"

namespace cw::probe {
namespace {

// Ports of the same remainder modulo 4 share their path; the path's port is the one in `paths`.
FoldFn FoldMod4(std::vector<uint16_t> paths) {
  return [paths](uint16_t port) -> std::optional<uint16_t> {
    for (uint16_t p : paths) {
      if (p % 4 == port % 4) return p;
    }
    return std::nullopt;
  };
}

// What must hold after any sequence of calls.
void CheckInvariants(const SlotTable& t, const cw_pair& pair) {
  std::set<uint16_t> ports;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    EXPECT_EQ(t.port(s), pair.slot[s].port);
    if (t.port(s) == 0) {
      EXPECT_EQ(CW_SLOT_UNUSED, pair.slot[s].state);
      EXPECT_EQ(0u, pair.live_mask >> s & 1);
      EXPECT_EQ(0u, pair.assign_mask >> s & 1);
      continue;
    }
    EXPECT_NE(CW_SLOT_UNUSED, pair.slot[s].state);
    EXPECT_TRUE(ports.insert(t.port(s)).second) << "two slots with one port";
    EXPECT_TRUE(t.is_path(s) || (pair.slot[s].flags & CW_SLOT_NATIVE) != 0) << "a slot without a purpose";
    EXPECT_LE(pair.assign_mask >> s & 1, t.is_path(s) ? 1u : 0u);
  }
  for (uint16_t p : t.NativePorts()) {
    const uint8_t slot = *t.NativeSlot(p);
    EXPECT_TRUE(slot == CW_SLOT_NONE || t.port(slot) != 0);
  }
}

TEST(SlotTable, PathsGetSlotsAndAreAssignable) {
  cw_pair pair{};
  SlotTable t(&pair);
  const SlotUpdate u = t.SetPaths({50000, 50001, 50002, 50003}, nullptr, 5);
  EXPECT_EQ(4u, u.slots.size());
  EXPECT_EQ(0b1111u, pair.assign_mask);
  EXPECT_EQ(CW_SLOT_NEW, pair.slot[2].state);
  EXPECT_EQ(50002, pair.slot[2].port);
  EXPECT_EQ(CW_SLOT_ASSIGNABLE, pair.slot[2].flags);
  EXPECT_EQ(5u, pair.slot[2].changed_ns);
  t.SetBlocked(0b0100);
  EXPECT_EQ(0b1011u, pair.assign_mask);
  CheckInvariants(t, pair);
}

TEST(SlotTable, PortsThatStayKeepSlotAndState) {
  cw_pair pair{};
  SlotTable t(&pair);
  t.SetPaths({50000, 50001, 50002}, nullptr, 0);
  for (int s : {0, 1, 2}) pair.slot[s].state = CW_SLOT_UP;
  pair.live_mask = 0b111;
  pair.slot[1].state = CW_SLOT_DEAD;
  pair.slot[1].deaths = 3;
  const SlotUpdate u = t.SetPaths({50002, 50001, 50009}, nullptr, 0);
  EXPECT_EQ((std::vector<SlotChange>{{0, 50000, 0}, {3, 0, 50009}}), u.slots) << "the slot free for longest is taken";
  EXPECT_EQ(CW_SLOT_DEAD, pair.slot[1].state);
  EXPECT_EQ(3u, pair.slot[1].deaths);
  EXPECT_EQ(CW_SLOT_UP, pair.slot[2].state);
  EXPECT_EQ(0b110u, pair.live_mask);
  EXPECT_EQ(0b1110u, pair.assign_mask);
  CheckInvariants(t, pair);
}

TEST(SlotTable, NativePortsFoldOntoPathsWithEqualHops) {
  cw_pair pair{};
  SlotTable t(&pair);
  const std::vector<uint16_t> paths = {50000, 50001, 50002, 50003};
  t.SetPaths(paths, nullptr, 0);
  SlotUpdate u;
  const uint8_t own = t.EnsureNative(60001, nullptr, 0, &u);
  EXPECT_EQ(4, own) << "hops unknown: a slot of its own";
  EXPECT_EQ(CW_SLOT_NATIVE, pair.slot[4].flags);
  EXPECT_EQ(0b1111u, pair.assign_mask) << "nothing is put on it";
  u = t.RefoldNative(60001, FoldMod4(paths), 0);
  EXPECT_EQ((std::vector<NativeChange>{{60001, 1}}), u.natives);
  EXPECT_EQ((std::vector<SlotChange>{{4, 60001, 0}}), u.slots);
  SlotUpdate v;
  EXPECT_EQ(2, t.EnsureNative(50002, nullptr, 0, &v)) << "the very port of a path";
  EXPECT_EQ(CW_SLOT_ASSIGNABLE | CW_SLOT_NATIVE, pair.slot[2].flags);
  EXPECT_TRUE(v.slots.empty());
  CheckInvariants(t, pair);
}

TEST(SlotTable, NativePortsAreProbedThemselvesWhileNobodyKnowsWhatTheyShare) {
  cw_pair pair{};
  SlotTable t(&pair);
  const FoldFn fold = FoldMod4({50000, 50001, 50002, 50003});
  t.SetPaths({50000, 50001, 50002, 50003}, fold, 0);
  SlotUpdate u;
  const uint8_t folded = t.EnsureNative(60001, fold, 0, &u);
  EXPECT_EQ(50001, t.port(folded));
  u = t.RefoldNatives(nullptr, 7);
  ASSERT_EQ(1u, u.natives.size());
  EXPECT_EQ(60001, t.port(u.natives[0].slot));
  EXPECT_EQ(CW_SLOT_NEW, pair.slot[u.natives[0].slot].state);
  CheckInvariants(t, pair);
  u = t.RefoldNatives(fold, 9);
  EXPECT_EQ((std::vector<NativeChange>{{60001, folded}}), u.natives);
  EXPECT_FALSE(t.SlotOfPort(60001).has_value());
  CheckInvariants(t, pair);
}

TEST(SlotTable, ASlotThatBecomesFreeIsGivenToAPortThatWaits) {
  cw_pair pair{};
  SlotTable t(&pair);
  std::vector<uint16_t> paths;
  for (uint16_t p = 0; p < 12; ++p) paths.push_back(50000 + p);
  t.SetPaths(paths, nullptr, 0);
  SlotUpdate u;
  for (uint16_t p = 60000; p < 60004; ++p) EXPECT_NE(CW_SLOT_NONE, t.EnsureNative(p, nullptr, 0, &u));
  EXPECT_EQ(CW_SLOT_NONE, t.EnsureNative(60004, nullptr, 0, &u));
  EXPECT_EQ(0xffff, t.used_mask());
  EXPECT_EQ(CW_SLOT_NONE, t.EnsureNative(60005, nullptr, 0, &u));
  u = t.ReleaseNative(60001, nullptr, 7);
  EXPECT_EQ((std::vector<SlotChange>{{13, 60001, 0}, {13, 0, 60004}}), u.slots);
  EXPECT_EQ((std::vector<NativeChange>{{60004, 13}}), u.natives);
  EXPECT_EQ(CW_SLOT_NEW, pair.slot[13].state);
  EXPECT_EQ(60004, pair.slot[13].port);
  // A port that turns out to take a known path leaves its slot to the next.
  const FoldFn fold = [](uint16_t port) { return port == 60002 ? std::optional<uint16_t>(50003) : std::nullopt; };
  u = t.RefoldNative(60002, fold, 8);
  EXPECT_EQ((std::vector<NativeChange>{{60002, 3}, {60005, 14}}), u.natives);
  EXPECT_EQ(60005, pair.slot[14].port);
  u = t.ReleaseNative(60000, fold, 9);
  EXPECT_EQ(0xffff & ~(1 << 12), t.used_mask()) << "nobody waits any more";
  CheckInvariants(t, pair);
}

TEST(SlotTable, BeforeDiscoveryNativePortsLeaveRoomForPaths) {
  cw_pair pair{};
  SlotTable t(&pair);
  SlotUpdate u;
  int got = 0;
  for (uint16_t p = 60000; p < 60010; ++p) got += t.EnsureNative(p, nullptr, 0, &u) != CW_SLOT_NONE;
  EXPECT_EQ(4, got);
  const std::vector<uint16_t> paths = {50000, 50001, 50002, 50003};
  const SlotUpdate v = t.SetPaths(paths, FoldMod4(paths), 0);
  for (uint16_t p : t.NativePorts()) EXPECT_EQ(50000 + p % 4, t.port(*t.NativeSlot(p)));
  EXPECT_EQ(4, std::popcount(t.used_mask()));
  EXPECT_EQ(10u, v.natives.size());
  CheckInvariants(t, pair);
}

TEST(SlotTable, InvariantsHoldUnderRandomCalls) {
  std::mt19937 random(17);
  for (int run = 0; run < 50; ++run) {
    cw_pair pair{};
    SlotTable t(&pair);
    for (int step = 0; step < 200; ++step) {
      const auto port = static_cast<uint16_t>(60000 + random() % 30);
      std::vector<uint16_t> paths;
      while (paths.size() < random() % 13) {
        const auto p = static_cast<uint16_t>(59990 + random() % 40);
        if (std::find(paths.begin(), paths.end(), p) == paths.end()) paths.push_back(p);
      }
      const FoldFn fold = random() % 2 == 0 ? FoldFn() : FoldMod4(paths);
      SlotUpdate u;
      switch (random() % 5) {
        case 0:
          t.SetPaths(paths, fold, step);
          for (uint16_t p : paths) EXPECT_TRUE(t.SlotOfPort(p).has_value());
          break;
        case 1:
        case 2:
          t.EnsureNative(port, fold, step, &u);
          break;
        case 3:
          t.ReleaseNative(port, fold, step);
          break;
        default:
          t.RefoldNative(port, fold, step);
      }
      if (random() % 3 == 0) pair.live_mask = t.used_mask();
      CheckInvariants(t, pair);
    }
    SlotTable adopted(&pair);
    EXPECT_EQ(t.used_mask(), adopted.used_mask());
    CheckInvariants(adopted, pair);
  }
}

PairSpec MeshSpec(const char* remote) { return {TestAddr("10.0.0.10"), 2, TestAddr(remote), remote, 26}; }

TEST(Mesh, PairsThatStayKeepWhatWasLearnedOfThem) {
  MemoryPairStore store(8);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {.session = 42});
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10")}).ok());
  const uint32_t index = mesh.Pairs().at(0);
  mesh.SetDscp(index, 34);
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.11")}).ok());
  EXPECT_EQ(mesh.dscp(index), 34) << "the class of its flows";
  PairSpec fixed = MeshSpec("10.0.1.10");
  fixed.dscp = 10;
  ASSERT_TRUE(mesh.Configure({fixed}).ok());
  EXPECT_EQ(mesh.dscp(index), 10) << "which the configuration names now";
}

TEST(Mesh, AnotherLimitOfMissesHoldsForAllPairs) {
  MemoryPairStore store(8);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {.session = 42});
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.11")}).ok());
  const uint32_t before = mesh.shared(1)->half_dead_rounds;
  mesh.SetMissLimit(6);
  EXPECT_EQ(mesh.shared(0)->half_dead_rounds, 2 * before) << "three misses is the default";
  EXPECT_EQ(mesh.shared(1)->half_dead_rounds, 2 * before);
}

TEST(Mesh, ConfiguresAddsAndRemoves) {
  MemoryPairStore store(8);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {.session = 42});
  auto r = mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.11"), MeshSpec("10.0.1.12")});
  ASSERT_TRUE(r.ok()) << r.status();
  EXPECT_EQ((std::vector<uint32_t>{0, 1, 2}), r->added);
  EXPECT_EQ(1u, mesh.Find(MeshSpec("10.0.1.11").key()));
  EXPECT_EQ(15u, store.pairs[1].half_dead_rounds);
  EXPECT_EQ(100'000'000u, store.pairs[1].interval_ns);
  EXPECT_EQ(1u, store.keys[1].valid);
  r = mesh.Configure({MeshSpec("10.0.1.12"), MeshSpec("10.0.1.13"), MeshSpec("10.0.1.10")});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ((std::vector<uint32_t>{1}), r->removed);
  EXPECT_EQ((std::vector<uint32_t>{1}), r->added) << "the free index is used again";
  EXPECT_TRUE(r->adopted.empty());
  EXPECT_EQ(3u, store.index.size());
  EXPECT_EQ(2u, mesh.Find(MeshSpec("10.0.1.12").key()));
  ASSERT_TRUE(mesh.Configure({}).ok());
  EXPECT_TRUE(store.index.empty());
  EXPECT_EQ(0u, store.keys[2].valid);
  for (const cw_pair& p : store.pairs) EXPECT_EQ(Addr{}, Addr::FromBytes(p.key.remote));
}

// Its peer remembers the rounds of this session.
TEST(Mesh, APairThatComesBackGoesOnWithItsRounds) {
  MemoryPairStore store(2);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {});
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10")}).ok());
  store.At(0)->cur_round = 4711;
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.11")}).ok());
  EXPECT_EQ(store.At(0)->cur_round, 0u);
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.11"), MeshSpec("10.0.1.10")}).ok());
  EXPECT_EQ(mesh.shared(*mesh.Find(MeshSpec("10.0.1.10").key()))->cur_round, 4711u);
}

TEST(Mesh, AnotherAgentAdoptsIndexesSlotsAndStates) {
  MemoryPairStore store(8);
  const KeyRing keys = TestKeys();
  {
    Mesh mesh(&store, &keys, {});
    ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.11"), MeshSpec("10.0.1.12")}).ok());
    mesh.slots(1).SetPaths({50000, 50001}, nullptr, 0);
    SlotUpdate u;
    mesh.slots(1).EnsureNative(60000, nullptr, 0, &u);
  }
  store.pairs[1].slot[0].state = CW_SLOT_UP;
  store.pairs[1].live_mask = 1;
  store.pairs[1].cur_round = 777;
  store.index[PairKey{TestAddr("10.9.9.9"), TestAddr("10.8.8.8")}] = 6;  // a crash in between left it

  Mesh mesh(&store, &keys, {});
  auto r = mesh.Configure({MeshSpec("10.0.1.11"), MeshSpec("10.0.1.14")});
  ASSERT_TRUE(r.ok());
  EXPECT_EQ((std::vector<uint32_t>{1}), r->adopted);
  EXPECT_EQ((std::vector<uint32_t>{0}), r->added);
  EXPECT_EQ(2u, r->removed.size());
  EXPECT_EQ(2u, store.index.size()) << "the stray entry is gone";
  EXPECT_EQ(50001, mesh.slots(1).port(1));
  EXPECT_TRUE(mesh.slots(1).is_path(1));
  EXPECT_EQ(2, mesh.slots(1).NativeSlot(60000));
  EXPECT_EQ(CW_SLOT_UP, store.pairs[1].slot[0].state);
  EXPECT_EQ(1u, store.pairs[1].live_mask);
  EXPECT_EQ(777u, store.pairs[1].cur_round);
}

TEST(Mesh, RefusesWhatCannotBe) {
  MemoryPairStore store(2);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {});
  EXPECT_TRUE(absl::IsInvalidArgument(mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.10")}).status()));
  EXPECT_TRUE(absl::IsResourceExhausted(
      mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.11"), MeshSpec("10.0.1.12")}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(mesh.Configure({MeshSpec("fd00::1")}).status())) << "the NIC's is IPv4";
  EXPECT_TRUE(store.index.empty());
}

TEST(Mesh, LabelsOverIpv6AreThePortsOfPathsAndWhatNativeFlowsHave) {
  MemoryPairStore store(2);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {});
  PairSpec spec = MeshSpec("fd00::2");
  spec.local = TestAddr("fd00::1");
  ASSERT_TRUE(mesh.Configure({spec}).ok());
  mesh.slots(0).SetPaths({50000}, nullptr, 0);
  mesh.SetNativeLabel(0, 60000, 0x12345);
  mesh.SetNativeLabel(0, 50000, 0x54321);
  EXPECT_EQ(mesh.Packet(0, 0, 50000).label, 50000u) << "what is put there gets the port";
  EXPECT_EQ(mesh.Packet(0, 1, 60000).label, 0x12345u);
  EXPECT_EQ(mesh.Packet(0, 0, 50001).label, 50001u);
  mesh.ForgetNativeLabel(0, 60000);
  EXPECT_EQ(mesh.Packet(0, 1, 60000).label, 60000u);
  auto plan = mesh.Plan(0);
  ASSERT_TRUE(plan.ok()) << plan.status();
  ASSERT_EQ(plan->size(), 1u);
  EXPECT_EQ(plan->at(0).probe.bytes().size(), 40u + CW_PROBE_UDP_LEN);
}

TEST(Mesh, PlanSendsEachSlotFromItsPortWithThePairsKey) {
  MemoryPairStore store(2);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {.session = 0x55667788});
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10")}).ok());
  mesh.slots(0).SetPaths({50000, 50001}, nullptr, 0);
  auto plan = mesh.Plan(0);
  ASSERT_TRUE(plan.ok());
  ASSERT_EQ(2u, plan->size());
  PacketSpec expected;
  expected.local = TestAddr("10.0.0.10");
  expected.remote = TestAddr("10.0.1.10");
  expected.port = 50001;
  expected.slot = 1;
  expected.dscp = 26;
  expected.session = 0x55667788;
  expected.cookie = 0;
  expected.key = {{store.keys[0].tx[0][0], store.keys[0].tx[0][1]}};
  expected.slots = 0b11;
  auto probe = ProbeTemplate::Make(CW_PROBE_REQUEST, expected);
  ASSERT_TRUE(probe.ok());
  (*plan)[1].probe.SetRound(4);
  probe->SetRound(4);
  EXPECT_EQ(probe->bytes(), (*plan)[1].probe.bytes());
}

TEST(Mesh, ANewSessionIsInAllThatIsSentFromThenOn) {
  MemoryPairStore store(2);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {.session = 7});
  ASSERT_TRUE(mesh.Configure({{TestAddr("10.0.0.10"), 1, TestAddr("10.0.1.10"), "peer", 0}}).ok());
  mesh.slots(0).SetPaths({50000}, nullptr, 0);
  const auto session = [&] { return mesh.Plan(0)->at(0).probe.bytes()[HdrOffset(true) + 11]; };
  EXPECT_EQ(session(), 7);
  mesh.SetSession(8);
  EXPECT_EQ(session(), 8);
  EXPECT_EQ(mesh.Packet(0, 0, 50000).session, 8u);
}

TEST(Mesh, APairsPacketsRideInTheClassThatItWasGiven) {
  MemoryPairStore store(2);
  const KeyRing keys = TestKeys();
  Mesh mesh(&store, &keys, {.session = 1});
  ASSERT_TRUE(mesh.Configure({MeshSpec("10.0.1.10"), MeshSpec("10.0.1.11")}).ok());
  mesh.slots(0).SetPaths({50000}, nullptr, 0);
  const auto tos = [&] { return mesh.Plan(0)->at(0).probe.bytes()[1]; };
  EXPECT_EQ(tos(), 26 << 2 | 2) << "ECT(0) besides";
  mesh.SetDscp(0, 34);
  EXPECT_EQ(tos(), 34 << 2 | 2);
  EXPECT_EQ(mesh.Packet(0, 0, 50000).dscp, 34) << "messages and traces, too";
  EXPECT_EQ(mesh.dscp(1), 26) << "another pair's does not change";
}

// The programs may read the record between any two writes, and what is in flight was sent before them.
class RecordingStore final : public PairStore {
 public:
  uint32_t capacity() const override { return inner_.capacity(); }
  cw_pair* At(uint32_t i) override { return inner_.At(i); }
  absl::StatusOr<std::vector<std::pair<PairKey, uint32_t>>> ReadIndex() override { return inner_.ReadIndex(); }
  absl::Status PutIndex(const PairKey& key, uint32_t i) override { return inner_.PutIndex(key, i); }
  absl::Status EraseIndex(const PairKey& key) override { return inner_.EraseIndex(key); }
  absl::Status PutKeys(uint32_t i, const cw_pair_keys& k) override {
    written.push_back(k);
    return inner_.PutKeys(i, k);
  }
  std::vector<cw_pair_keys> written;

 private:
  MemoryPairStore inner_{4};
};

TEST(MeshKeys, AreThereBeforeTheyAreSentWithAndGoAfterwards) {
  KeyRing ring = TestKeys();
  RecordingStore store;
  Mesh mesh(&store, &ring, {});
  ASSERT_TRUE(mesh.Configure({{.local = TestAddr("10.0.0.10"), .remote = TestAddr("10.0.1.10"), .peer = "b"}}).ok());
  ASSERT_TRUE(ring.Set(1, *GroupSecret::FromBytes("another secret of enough bytes")).ok());
  ASSERT_TRUE(ring.SendWith(1).ok());
  ASSERT_TRUE(mesh.RewriteKeys().ok());
  ASSERT_TRUE(ring.Drop(0).ok());
  ASSERT_TRUE(mesh.RewriteKeys().ok());
  for (size_t i = 1; i < store.written.size(); ++i) {
    const cw_pair_keys &before = store.written[i - 1], &now = store.written[i];
    EXPECT_TRUE(now.valid >> now.tx_id & 1) << i;
    EXPECT_TRUE(before.valid >> now.tx_id & 1) << i << ": it was there before it is sent with";
    EXPECT_TRUE(now.valid >> before.tx_id & 1) << i << ": what was sent with is still accepted";
    for (uint32_t id = 0; id < 2; ++id) {
      if (((before.valid & now.valid) >> id & 1) != 0) {
        EXPECT_EQ(before.rx[id][0], now.rx[id][0]) << i;
      }
    }
  }
  EXPECT_EQ(store.written.back().valid, 2u);
  EXPECT_EQ(store.written.back().tx[0][0], 0u);
}

}  // namespace
}  // namespace cw::probe
