// SPDX-License-Identifier: Apache-2.0
//
// Faults of the lab's fabric: each does what it says, where it says, and nothing else.
#include <atomic>
#include <cmath>
#include <ctime>
#include <map>
#include <set>
#include <thread>

#include "absl/time/clock.h"
#include "tests/lab/fabric_rig.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/pause_gate.h"

namespace cw::lab {
namespace {

int64_t NowNs() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * 1'000'000'000ll + now.tv_nsec;
}

TEST(FabricFault, ASilentDropHitsOneDirectionOfOneLink) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver at1(*fabric, 1), at0(*fabric, 0);
  const int64_t before = NowNs();
  auto cut = fabric->SetFault(LinkDirection::LeafToSpine(0, 2), Fault::Drop());
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_GE(*cut, before);
  EXPECT_LE(*cut, NowNs());
  constexpr int kPackets = 20;
  for (int spine = 0; spine < 4; ++spine) {
    Sender forward(*fabric, 0, 1, PortOver(*fabric, 0, 1, spine));
    Sender reverse(*fabric, 1, 0, PortOver(*fabric, 1, 0, spine));
    for (int i = 0; i < kPackets; ++i) {
      ASSERT_TRUE(forward.Send({.dest_qpn = 10u + spine}));
      ASSERT_TRUE(reverse.Send({.dest_qpn = 20u + spine}));
    }
    EXPECT_EQ(at0.Take(kPackets).size(), size_t{kPackets}) << "reverse, spine " << spine;
    EXPECT_EQ(at1.Take(kPackets).size(), spine == 2 ? 0u : size_t{kPackets}) << "forward, spine " << spine;
  }
  for (const LinkCounters& link : fabric->Links()) {
    const bool cut_link = link.link == LinkDirection::LeafToSpine(0, 2);
    EXPECT_EQ(link.fault_drops, cut_link ? uint64_t{kPackets} : 0u) << link.link.Name();
  }
  ASSERT_TRUE(fabric->ClearFault(LinkDirection::LeafToSpine(0, 2)).ok());
  Sender forward(*fabric, 0, 1, PortOver(*fabric, 0, 1, 2));
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(forward.Send({}));
  EXPECT_EQ(at1.Take(kPackets).size(), size_t{kPackets}) << "after the fault was cleared";
}

TEST(FabricFault, DropsOnHostLinks) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  Sender sender(*fabric, 0, 1, 50000);
  for (const LinkDirection& link : {LinkDirection::HostToLeaf(0), LinkDirection::LeafToHost(1)}) {
    ASSERT_TRUE(fabric->SetFault(link, Fault::Drop()).ok());
    ASSERT_TRUE(sender.Send({}));
    EXPECT_FALSE(receiver.Next(absl::Milliseconds(200)).has_value()) << link.Name();
    EXPECT_EQ(Counters(*fabric, link).fault_drops, 1u);
    ASSERT_TRUE(fabric->ClearFault(link).ok());
  }
  ASSERT_TRUE(sender.Send({}));
  EXPECT_EQ(receiver.Take(1).size(), 1u);
}

TEST(FabricFault, AShareIsLostAtRandom) {
  FabricSpec spec = TestSpec();
  spec.link_mbps = 0;
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  Receiver receiver(*fabric, 1);
  constexpr int kPackets = 20'000;
  constexpr double kShare = 0.1;
  const LinkDirection link = LinkDirection::SpineToLeaf(0, 1);
  ASSERT_TRUE(fabric->SetFault(link, Fault::Share(kShare)).ok());
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 0));
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.psn = uint32_t(i)}));
  const std::vector<Received> got = receiver.Take(kPackets);
  const LinkCounters counters = Counters(*fabric, link);
  EXPECT_EQ(counters.carried_packets, uint64_t{kPackets});
  EXPECT_EQ(counters.fault_drops, kPackets - got.size());
  // Six standard deviations of a binomial: wrong once in 10^9 runs.
  const double margin = 6 * std::sqrt(kPackets * kShare * (1 - kShare));
  EXPECT_NEAR(static_cast<double>(counters.fault_drops), kPackets * kShare, margin);
  // Independent losses: of the pairs of neighbours, share² are lost together.
  int pairs = 0;
  for (size_t i = 1; i < got.size(); ++i) pairs += std::max(0, static_cast<int>(got[i].psn - got[i - 1].psn) - 2);
  EXPECT_NEAR(pairs, kPackets * kShare * kShare, 0.5 * kPackets * kShare * kShare);
}

TEST(FabricFault, MatchesTellDataFromProbes) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  const LinkDirection link = LinkDirection::LeafToSpine(0, 1);
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 1));
  constexpr uint8_t kAck = 0x11, kCnp = 0x81, kFirstProbe = 0xE0, kLastProbe = 0xFF;
  for (auto match : {Fault::Match::kRoceData, Fault::Match::kProbes}) {
    ASSERT_TRUE(fabric->SetFault(link, Fault::Drop(match)).ok());
    for (uint8_t opcode : {kRcWriteOnly, kAck, kCnp, kFirstProbe, kLastProbe}) {
      ASSERT_TRUE(sender.Send({.opcode = opcode}));
      const bool probe = opcode >= kFirstProbe;
      const bool lost = probe == (match == Fault::Match::kProbes);
      const auto got = receiver.Next(lost ? absl::Milliseconds(100) : absl::Seconds(20));
      EXPECT_EQ(got.has_value(), !lost) << int{opcode};
    }
  }
  EXPECT_EQ(Counters(*fabric, link).fault_drops, 5u);
  EXPECT_EQ(Counters(*fabric, link).probe_packets, 4u);
}

TEST(FabricFault, APausedPortHoldsItsPacketsAndLosesNone) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  const LinkDirection link = LinkDirection::LeafToSpine(0, 3);
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 3));
  ASSERT_TRUE(fabric->SetFault(link, Fault::Pause()).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(fabric->SetLinkRate(link, 100).status()));
  constexpr size_t kPackets = 40;
  for (size_t i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.psn = uint32_t(i), .payload = 64}));
  size_t early = 0;
  while (receiver.Next(absl::Milliseconds(300))) ++early;
  EXPECT_LE(early, 1u) << "at most what was on the wire";
  EXPECT_EQ(Counters(*fabric, link).fault_drops, 0u);
  ASSERT_TRUE(fabric->ClearFault(link).ok());
  const std::vector<Received> rest = receiver.Take(kPackets - early);
  ASSERT_EQ(rest.size(), kPackets - early);
  for (size_t i = 0; i < rest.size(); ++i) EXPECT_EQ(rest[i].psn, early + i);
  EXPECT_TRUE(absl::IsUnimplemented(fabric->SetFault(LinkDirection::LeafToHost(0), Fault::Pause()).status()));
}

// Sends a packet of the class at once and then one every half millisecond, and tells when the last came out at the far
// end of the link by the switch's own count.
class SteadyFlow {
 public:
  SteadyFlow(const Fabric& fabric, uint32_t qpn, int dscp)
      : qpn_(qpn), sender_(fabric, 0, 1, PortOver(fabric, 0, 1, 1), dscp << 2), thread_([this] { Loop(); }) {}
  ~SteadyFlow() {
    stop_ = true;
    thread_.join();
  }
  static int64_t LastNs(const Fabric& fabric, const LinkDirection& link, uint32_t qpn) {
    const auto flows = fabric.Flows();
    int64_t last = 0;
    for (const FlowCounters& flow : *flows) {
      if (flow.link == link && flow.dest_qpn == qpn) last = flow.last_ns;
    }
    return last;
  }

 private:
  void Loop() {
    for (; !stop_; absl::SleepFor(absl::Microseconds(500))) (void)sender_.Send({.dest_qpn = qpn_});
  }
  const uint32_t qpn_;
  Sender sender_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

// Priority flow control of so many milliseconds holds the class of queue pairs (DSCP 26) for all of that time, and
// other classes not at all.
TEST(FabricFault, AGateHoldsItsClassForAsLongAsItIsAskedTo) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  const LinkDirection link = LinkDirection::SpineToLeaf(1, 1);
  constexpr uint32_t kData = 1, kBest = 2, kOther = 3;
  SteadyFlow data(*fabric, kData, 26), best(*fabric, kBest, 0), other(*fabric, kOther, 8);
  auto gate = PauseGate::Open(*fabric, link);
  ASSERT_TRUE(gate.ok()) << gate.status();
  const auto last = [&](uint32_t qpn) { return SteadyFlow::LastNs(*fabric, link, qpn); };
  const auto behind = [&] {
    const LinkCounters now = Counters(*fabric, link);
    return now.offered_packets - now.carried_packets;
  };
  ASSERT_TRUE(Eventually([&] { return NowNs() - last(kData) < 3'000'000; }));
  const uint64_t dropped = behind();  // while the queues were put in place
  for (const int ms : {5, 50, 300}) {
    ASSERT_TRUE(Eventually([&] { return NowNs() - last(kData) < 3'000'000 && NowNs() - last(kBest) < 3'000'000; }));
    const auto paused = (*gate)->Pause();
    ASSERT_TRUE(paused.ok()) << paused.status();
    Hold(absl::Milliseconds(ms));
    EXPECT_TRUE(Eventually([&] { return behind() > dropped; })) << "nothing is held after " << ms << " ms";
    const int64_t data_ns = last(kData), best_ns = last(kBest), other_ns = last(kOther);
    const auto resumed = (*gate)->Resume();
    ASSERT_TRUE(resumed.ok()) << resumed.status();
    // What left the queue before may cross the wire a little later: a processor may have been taken away in between.
    if (ms >= 50) {
      EXPECT_LT(data_ns - *paused, ms * 500'000) << ms << " ms";
      EXPECT_GT(best_ns, *paused) << "best effort goes on";
      EXPECT_GT(other_ns, *paused) << "the other class goes on";
    }
    EXPECT_TRUE(Eventually([&] { return last(kData) > *resumed; }));
  }
  EXPECT_TRUE(Eventually([&] { return behind() < dropped + 10; })) << "what was held was lost";
}

TEST(FabricFault, AShareIsDamagedBehindItsHeadersAndNoneIsLost) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  const LinkDirection link = LinkDirection::LeafToSpine(0, 1);
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 1));
  ASSERT_TRUE(fabric->SetFault(link, Fault::Corrupt(1)).ok());
  EXPECT_EQ(fabric->GetFault(link)->kind, Fault::Kind::kCorrupt);
  constexpr size_t kPackets = 40;
  for (size_t i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.psn = uint32_t(i), .payload = 64}));
  const std::vector<Received> got = receiver.Take(kPackets);
  ASSERT_EQ(got.size(), kPackets);
  for (size_t i = 0; i < kPackets; ++i) {
    EXPECT_EQ(got[i].psn, i);
    EXPECT_EQ(got[i].flipped_bits, 1);
  }
  EXPECT_EQ(Counters(*fabric, link).fault_drops, kPackets);
  ASSERT_TRUE(fabric->ClearFault(link).ok());
  ASSERT_TRUE(sender.Send({}));
  EXPECT_EQ(receiver.Take(1).at(0).flipped_bits, 0);
}

// How many of a flow's packets took each spine.
std::map<int, uint64_t> PacketsBySpine(const Fabric& fabric, uint32_t qpn) {
  std::map<int, uint64_t> packets;
  const auto flows = fabric.Flows();
  for (const FlowCounters& flow : *flows) {
    if (flow.dest_qpn == qpn && flow.link.tier == LinkDirection::Tier::kSpine &&
        flow.link.toward == LinkDirection::Toward::kUp) {
      packets[flow.link.spine] += flow.packets;
    }
  }
  return packets;
}

TEST(FabricFault, AFlowletKeepsItsUplinkAndANewOneTakesTheLeastLoaded) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  ASSERT_TRUE(fabric->SpreadFlowlets(absl::Milliseconds(500)).ok());
  Sender sender(*fabric, 0, 1, 50000);
  constexpr int kPackets = 50;
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.dest_qpn = 7}));
  ASSERT_EQ(receiver.Take(kPackets).size(), size_t{kPackets});
  EXPECT_EQ(PacketsBySpine(*fabric, 7).size(), 1u) << "one burst is one flowlet";

  // Flows that begin one after the other, each while those before still weigh, find four different uplinks. A flow
  // weighs for 5 ms: where this machine stood still meanwhile, the next may follow it. By chance it would be one of
  // ten.
  constexpr int kAttempts = 20;
  int all_four = 0;
  for (uint32_t first = 100; first < 100 + 4 * kAttempts; first += 4) {
    for (uint32_t qpn = first; qpn < first + 4; ++qpn)
      for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.dest_qpn = qpn, .payload = 4000}));
    ASSERT_EQ(receiver.Take(4 * kPackets).size(), size_t{4 * kPackets});
    std::set<int> used;
    for (uint32_t qpn = first; qpn < first + 4; ++qpn) {
      const auto packets = PacketsBySpine(*fabric, qpn);
      ASSERT_EQ(packets.size(), 1u) << qpn;
      used.insert(packets.begin()->first);
    }
    all_four += used.size() == 4;
  }
  EXPECT_GE(all_four, kAttempts / 2);

  // With a gap that every pause is longer than, packets of one flow take several.
  ASSERT_TRUE(fabric->SpreadFlowlets(absl::Microseconds(1)).ok());
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.dest_qpn = 20, .payload = 4000}));
  ASSERT_EQ(receiver.Take(kPackets).size(), size_t{kPackets});
  EXPECT_EQ(PacketsBySpine(*fabric, 20).size(), 4u);
  EXPECT_TRUE(absl::IsInvalidArgument(fabric->SpreadFlowlets(absl::Seconds(5))));
  fabric->SetHash(SwitchHash::kPorts);
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send({.dest_qpn = 21}));
  ASSERT_EQ(receiver.Take(kPackets).size(), size_t{kPackets});
  EXPECT_EQ(PacketsBySpine(*fabric, 21), (std::map<int, uint64_t>{{*fabric->PathOf(0, 1, 50000), kPackets}}));
}

TEST(FabricFault, AChangedRateShapesOneDirection) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  const LinkDirection link = LinkDirection::SpineToLeaf(1, 1);
  ASSERT_TRUE(fabric->SetLinkRate(link, 8).ok());  // 1 byte per µs
  EXPECT_DOUBLE_EQ(*fabric->LinkRateMbps(link), 8);
  EXPECT_DOUBLE_EQ(*fabric->LinkRateMbps(LinkDirection::LeafToSpine(0, 1)), 400);
  Sender sender(*fabric, 0, 1, PortOver(*fabric, 0, 1, 1));
  const Datagram datagram = {.payload = 4096};
  constexpr int kPackets = 50, kBurst = 16'000;
  const absl::Time start = absl::Now();
  for (int i = 0; i < kPackets; ++i) ASSERT_TRUE(sender.Send(datagram));
  ASSERT_EQ(receiver.Take(kPackets).size(), size_t{kPackets});
  // A lower bound is what a shaper promises; slower is the machine's business.
  EXPECT_GE(absl::Now() - start, absl::Microseconds(kPackets * FrameBytes(datagram) - 2 * kBurst));
  ASSERT_TRUE(fabric->ClearFaults().ok());
  EXPECT_DOUBLE_EQ(*fabric->LinkRateMbps(link), 400);
}

TEST(FabricFault, ALinkThatIsDownIsLeftAndComesBack) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  Receiver receiver(*fabric, 1);
  const uint16_t port = PortOver(*fabric, 0, 1, 2);
  ASSERT_TRUE(fabric->SetLinkUp(0, 2, false).ok());
  EXPECT_FALSE(*fabric->IsLinkUp(0, 2));
  for (int p = 50000; p < 50064; ++p) EXPECT_NE(*fabric->PathOf(0, 1, p), 2);
  Sender sender(*fabric, 0, 1, port);
  ASSERT_TRUE(sender.Send({}));
  EXPECT_EQ(receiver.Take(1).size(), 1u);
  EXPECT_EQ(Counters(*fabric, LinkDirection::LeafToSpine(0, 2)).offered_packets, 0u);

  for (int s : {0, 1, 3}) ASSERT_TRUE(fabric->SetLinkUp(0, s, false).ok());
  EXPECT_TRUE(absl::IsUnavailable(fabric->PathOf(0, 1, port).status()));
  ASSERT_TRUE(fabric->ClearFaults().ok());
  for (int s = 0; s < 4; ++s) {
    EXPECT_TRUE(*fabric->IsLinkUp(0, s));
    const uint64_t before = Counters(*fabric, LinkDirection::LeafToSpine(0, s)).carried_packets;
    Sender again(*fabric, 0, 1, PortOver(*fabric, 0, 1, s));
    ASSERT_TRUE(again.Send({}));
    EXPECT_EQ(receiver.Take(1).size(), 1u) << "spine " << s;
    EXPECT_EQ(Counters(*fabric, LinkDirection::LeafToSpine(0, s)).carried_packets, before + 1);
  }
  EXPECT_EQ(*fabric->PathOf(0, 1, port), 2) << "the same hash buckets as before";
}

TEST(FabricFault, LinksThatDoNotExist) {
  std::unique_ptr<Fabric> fabric = UpOrDie(TestSpec());
  EXPECT_TRUE(absl::IsNotFound(fabric->SetFault(LinkDirection::LeafToSpine(2, 0), Fault::Drop()).status()));
  EXPECT_TRUE(absl::IsNotFound(fabric->SetFault(LinkDirection::LeafToSpine(0, 4), Fault::Drop()).status()));
  EXPECT_TRUE(absl::IsNotFound(fabric->SetLinkUp(0, -1, false).status()));
  EXPECT_TRUE(absl::IsNotFound(fabric->Link(LinkDirection::HostToLeaf(2)).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(fabric->SetFault(LinkDirection::LeafToSpine(0, 0), Fault::Share(1.5)).status()));
}

}  // namespace
}  // namespace cw::lab
