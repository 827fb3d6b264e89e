// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/nic_failover.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

struct FakeCarryKernel final : CarryKernel {
  absl::StatusOr<cw_carry_out> Out(uint32_t pair) const override {
    const auto at = outs.find(pair);
    if (at == outs.end()) return absl::NotFoundError("");
    return at->second;
  }
  absl::Status PutOut(uint32_t pair, const cw_carry_out& out) override {
    outs[pair] = out;
    return absl::OkStatus();
  }
  absl::Status ForEachIn(absl::FunctionRef<void(const cw_carry_key&, const cw_carry_in&)> visit) const override {
    for (const auto& [tag, entry] : ins) visit(entry.first, entry.second);
    return absl::OkStatus();
  }
  absl::Status PutIn(const cw_carry_key& key, const cw_carry_in& in) override {
    ins[key.tag] = {key, in};
    return absl::OkStatus();
  }
  void EraseIn(const cw_carry_key& key) override { ins.erase(key.tag); }
  absl::StatusOr<bool> LinkUp(const std::string&) const override { return absl::UnavailableError(""); }
  absl::StatusOr<std::array<uint8_t, 6>> MacOf(uint32_t) const override {
    return std::array<uint8_t, 6>{2, 0, 0, 0, 0, 7};
  }
  absl::StatusOr<dataplane::Neighbour> NextHop(uint32_t, const Addr&, const Addr&) const override {
    return dataplane::Neighbour{.address = gateway, .mac = {2, 0, 0, 0, 0, 9}, .known = true};
  }
  absl::Status Pin(uint32_t ifindex, const dataplane::Neighbour&) override {
    pinned.insert(ifindex);
    return absl::OkStatus();
  }
  void Unpin(uint32_t ifindex, const dataplane::Neighbour&) override { pinned.erase(ifindex); }

  const Addr gateway = probe::TestAddr("10.0.0.254");
  std::map<uint32_t, cw_carry_out> outs;                         // by pair
  std::map<uint32_t, std::pair<cw_carry_key, cw_carry_in>> ins;  // by tag
  std::set<uint32_t> pinned;                                     // by interface
};

// h1, whose name is the smaller one, with two NICs and two pairs to h2.
class NicFailoverPart : public ::testing::Test {
 protected:
  NicFailoverPart() {
    const Addr local = probe::TestAddr("10.0.0.2"), remote = probe::TestAddr("10.0.1.2");
    (void)host_.mesh.Configure(
        {{.local = host_.local, .local_ifindex = OnePair::kIfindex, .remote = host_.remote, .peer = "h2"},
         {.local = local, .local_ifindex = OnePair::kIfindex + 1, .remote = remote, .peer = "h2"}});
    other_ = host_.mesh.Find({local, remote}).value();
    auto pair = std::make_unique<PairState>();
    pair->index = other_;
    pair->key = {local, remote};
    pair->ifindex = OnePair::kIfindex + 1;
    pair->peer = "h2";
    host_.pairs[other_] = std::move(pair);
    host_.nics.push_back(
        {.config = {.name = "eth1"}, .device = "eth1", .ifindex = OnePair::kIfindex + 1, .address = local});
    for (NicState& nic : host_.nics) nic.attached = true;
  }
  // Looks every 10 ms; the pairs of NICs whose links are up answer.
  void Run(int64_t ms) {
    for (const int64_t end_ns = clock_.NowNs() + ms * kMs; clock_.NowNs() < end_ns;) {
      clock_.Advance(10 * kMs);
      for (const auto& [index, pair] : host_.pairs) {
        if (NicOf(host_.nics, pair->ifindex)->link_up) pair->last_reply_ns = clock_.NowNs();
      }
      part_.Watch();
      if (peer_agrees_) Agree();
    }
  }
  // The peer does as it was told.
  void Agree() {
    for (const probe::NicReports& sent : host_.mail.Take<probe::NicReports>()) {
      NicReport back = sent.reports[0];
      std::swap(back.pair.local, back.pair.remote);
      std::swap(back.carrier.local, back.carrier.remote);
      back.restores = back.tag != 0;
      part_.OnReports(*host_.pairs.at(other_), {.reports = {back}});
    }
  }
  bool IsCarried() { return host_.mesh.shared(host_.index)->carried != 0; }

  OnePair host_;
  uint32_t other_ = 0;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  FakeCarryKernel kernel_;
  DryRun dry_run_{host_.pairs, host_.flows, qps_, host_.mesh, host_.names, clock_, host_.events, {}};
  Allowed allowed_ = Mode::kProtect;
  bool drained_ = false, peer_agrees_ = true;
  std::vector<uint32_t> carried_;
  NicFailover part_{"h1",
                    host_.pairs,
                    host_.nics,
                    qps_,
                    host_.mesh,
                    kernel_,
                    host_.names,
                    clock_,
                    host_.mail,
                    dry_run_,
                    host_.events,
                    {.allowed = [this] { return allowed_; },
                     .drained = [this](const NicState& nic) { return drained_ && nic.config.name == "eth0"; },
                     .interval_ns = [](uint32_t) { return kMs; },
                     .read_probes = [] {},
                     .look_at_carrier = [](NicState&) {},
                     .carried = [this](uint32_t pair) { carried_.push_back(pair); }}};
};

TEST_F(NicFailoverPart, PacketsOfALostNicLeaveByTheOtherOneAndWhatWasUnderWayIsLookedAfter) {
  ASSERT_TRUE(part_.Open(true).ok());
  Run(200);
  EXPECT_FALSE(IsCarried());
  host_.pair().flows = 1;
  Run(1200);
  host_.nics[0].link_up = false;
  Run(500);
  ASSERT_TRUE(IsCarried());
  EXPECT_TRUE(part_.Carried(host_.pair().key));
  EXPECT_EQ(kernel_.outs.at(host_.index).ifindex, OnePair::kIfindex + 1);
  EXPECT_THAT(kernel_.ins, SizeIs(1));
  EXPECT_THAT(carried_, testing::ElementsAre(host_.index));
  EXPECT_THAT(kernel_.pinned, testing::ElementsAre(OnePair::kIfindex)) << "the next hop that went with the link";
  std::string told;
  for (const telemetry::Event& event : host_.events.Take()) told += event.text + "\n";
  EXPECT_THAT(told, HasSubstr("NIC 10.0.0.1 to NIC 10.0.1.1 of h2"));
  EXPECT_THAT(told, HasSubstr("now leave as from 10.0.0.2 to 10.0.1.2"));
}

TEST_F(NicFailoverPart, WhenTheNicIsBackItsPacketsLeaveByItAndLateOnesArePutBackForAWhile) {
  ASSERT_TRUE(part_.Open(true).ok());
  Run(200);
  host_.nics[0].link_up = false;
  Run(500);
  host_.nics[0].link_up = true;
  Run(3000);
  EXPECT_FALSE(IsCarried());
  EXPECT_THAT(kernel_.ins, SizeIs(1));
  EXPECT_THAT(kernel_.pinned, IsEmpty());
  Run(6000);
  EXPECT_THAT(kernel_.ins, IsEmpty());
}

TEST_F(NicFailoverPart, WhatIsOnlyObservedIsToldAndNotDone) {
  allowed_ = Mode::kObserve;
  ASSERT_TRUE(part_.Open(true).ok());
  Run(200);
  host_.nics[0].link_up = false;
  Run(500);
  EXPECT_FALSE(IsCarried());
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_TRUE(host_.events.all[0].dry);
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("(another NIC would carry its packets)"));
}

TEST_F(NicFailoverPart, ANicThatIsDrainedHasLostNothing) {
  ASSERT_TRUE(part_.Open(true).ok());
  Run(200);
  drained_ = true;
  Run(500);
  EXPECT_TRUE(IsCarried());
  EXPECT_THAT(carried_, IsEmpty());
}

TEST_F(NicFailoverPart, WhatAnEarlierAgentLeftGoesOnOrEnds) {
  ASSERT_TRUE(part_.Open(true).ok());
  Run(200);
  host_.nics[0].link_up = false;
  Run(500);
  const cw_carry_key stale{.pair = {}, .tag = 3};
  ASSERT_TRUE(kernel_.PutIn(stale, {}).ok());
  const auto again = [&] {
    return NicFailover("h1", host_.pairs, host_.nics, qps_, host_.mesh, kernel_, host_.names, clock_, host_.mail,
                       dry_run_, host_.events, {.allowed = [] { return Allowed(Mode::kOptimize); }});
  };
  NicFailover next = again();
  ASSERT_TRUE(next.Open(true).ok());
  EXPECT_TRUE(next.Carried(host_.pair().key));
  EXPECT_THAT(kernel_.ins, SizeIs(1)) << "but for what nothing leaves by";
  NicFailover off = again();
  ASSERT_TRUE(off.Open(false).ok());
  EXPECT_FALSE(IsCarried());
  EXPECT_THAT(kernel_.ins, IsEmpty());
}

}  // namespace
}  // namespace cw::agent
