// SPDX-License-Identifier: Apache-2.0
//
// Parts about paths: links that flap, and what metrics add up.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/totals.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class LinkFlapsPart : public ::testing::Test {
 protected:
  LinkFlapsPart() { std::filesystem::remove(kFile); }
  ~LinkFlapsPart() override { std::filesystem::remove(kFile); }

  LinkFlaps Make() {
    return {kFile,
            "boot",
            host_.pairs,
            host_.mesh,
            clock_,
            clock_,
            host_.events,
            {.hops = [this](uint32_t, uint8_t slot) { return hops_.contains(slot) ? &hops_[slot] : nullptr; },
             .interval_ns = [](uint32_t) { return kSecond / 1000; },
             .read_probes = [] {},
             .damp_anew = [this] { ++damped_; },
             .after = [this](absl::Duration, std::function<void()> then) { then_ = std::move(then); }}};
  }
  // The path of a slot dies, silent since 10 ms.
  void Die(LinkFlaps& flaps, uint8_t slot) {
    cw_ev_slot verdict{};
    verdict.slot = slot;
    verdict.witness = CW_SLOT_NONE;
    verdict.ns = static_cast<uint64_t>(clock_.NowNs());
    verdict.silence_ns = kSecond / 100;
    host_.pair().slot[slot].silence = SilentPath{
        .watch = {clock_.NowNs(), control::SilenceFound{}}, .verdict = verdict, .damping = control::PathDamping()};
    flaps.Blame(host_.pair(), verdict);
  }
  // Ticks until no death is open any more.
  void Settle() {
    for (int i = 0; i < 1000 && then_; ++i) {
      clock_.Advance(20 * kSecond / 1000);
      std::exchange(then_, nullptr)();
    }
    EXPECT_FALSE(then_) << "it never ends";
  }

  const std::string kFile = testing::TempDir() + "/part_link_outages.json";
  OnePair host_;
  ManualClock clock_{1000 * kSecond};
  std::map<uint8_t, probe::Hops> hops_;
  std::function<void()> then_;
  int damped_ = 0;
};

TEST_F(LinkFlapsPart, KnowsTheLinksOfAPathFromItsHopsAndKeepsThemWhileItIsTracedAnew) {
  LinkFlaps flaps = Make();
  const Addr leaf = probe::TestAddr("10.9.0.1"), spine = probe::TestAddr("10.9.0.2");
  hops_[1] = {leaf, spine};
  flaps.Remember(host_.pair());
  EXPECT_THAT(host_.pair().slot[1].links, ElementsAre(leaf, spine, host_.remote));
  hops_[1] = {leaf, Addr{}};
  flaps.Remember(host_.pair());
  EXPECT_THAT(host_.pair().slot[1].links, ElementsAre(leaf, spine, host_.remote))
      << "not known in full: what was known before holds";
  flaps.Leave(host_.pair(), 1);
  EXPECT_THAT(host_.pair().slot[1].links, IsEmpty());
  EXPECT_THAT(flaps.gone().All(clock_.NowNs()), testing::Not(IsEmpty()));
}

TEST_F(LinkFlapsPart, ALinkThatTakesItsPathDownAgainAndAgainIsToldAndKeptFree) {
  LinkFlaps flaps = Make();
  hops_[1] = {probe::TestAddr("10.9.0.1"), probe::TestAddr("10.9.0.2")};
  flaps.Remember(host_.pair());
  for (int outage = 0; outage < 12 && host_.events.all.empty(); ++outage) {
    Die(flaps, 1);
    Settle();
    flaps.Answered(host_.pair(), 1, clock_.NowNs());
    host_.pair().slot[1].silence.reset();
    host_.pair().slot[1].answered_ns = clock_.NowNs();
    clock_.Advance(kSecond);
  }
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_EQ(host_.events.all[0].type, "link");
  EXPECT_EQ(host_.events.all[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("from 10.0.0.1 to 10.9.0.1"));
  EXPECT_GT(damped_, 0);
  EXPECT_TRUE(flaps.Damps(host_.pair(), 1, clock_.NowNs()));
  EXPECT_FALSE(flaps.Damps(host_.pair(), 2, clock_.NowNs())) << "nothing is known of its links";
}

TEST_F(LinkFlapsPart, ARestartForgetsNoOutage) {
  {
    LinkFlaps flaps = Make();
    flaps.OwnLinkDown("eth0", clock_.NowNs());
    flaps.Keep();
  }
  const LinkFlaps next = Make();
  EXPECT_THAT(next.book().Counts(clock_.NowNs()), SizeIs(1));
  EXPECT_THAT(host_.events.all, IsEmpty());
}

TEST_F(LinkFlapsPart, AFileThatCannotBeReadIsToldAndForgotten) {
  std::ofstream(kFile) << "{";
  const LinkFlaps flaps = Make();
  ASSERT_THAT(host_.events.all, SizeIs(1));
  EXPECT_THAT(host_.events.all[0].text, HasSubstr("are forgotten"));
}

class TotalsPart : public ::testing::Test {
 protected:
  OnePair host_;
  Totals totals_{host_.nics, host_.names, host_.pairs, host_.mesh, host_.store};
};

TEST_F(TotalsPart, ReceivedFlowsCountFromWhatWasThereAtTheStart) {
  const FlowKey key{.src = host_.remote, .dst = host_.local, .dqpn = 9};
  FlowEntry flow;
  cw_flow now{};
  now.packets = 100;
  totals_.CountReceived(key, flow, now, /*added=*/true);
  totals_.ReceivedWereRead();
  flow.tx.flow = now;
  now.packets = 130;
  totals_.CountReceived(key, flow, now, /*added=*/false);
  now.packets = 7;
  totals_.CountReceived({.src = host_.remote, .dst = host_.local, .dqpn = 10}, {}, now, /*added=*/true);
  const metrics::PathTotals totals = totals_.Make();
  ASSERT_TRUE(totals.flows.contains("eth0"));
  EXPECT_EQ(totals.flows.at("eth0").received.packets, 37u);
}

TEST_F(TotalsPart, EachPathCountsByItsStateAndASlotWithoutAPortIsNone) {
  const std::vector<uint16_t> ports = {50'000, 50'001};
  host_.mesh.slots(host_.index)
      .SetPaths(
          ports, [](uint16_t) { return std::nullopt; }, 0);
  cw_pair& shared = *host_.store.At(host_.index);
  for (cw_slot& slot : shared.slot) slot.state = CW_SLOT_UP;
  shared.slot[1].state = CW_SLOT_DEAD;
  host_.pair().damped = 0b11;
  const metrics::PathTotals totals = totals_.Make();
  ASSERT_THAT(totals.nics, SizeIs(1));
  EXPECT_EQ(totals.nics[0].nic, "eth0");
  EXPECT_EQ(totals.nics[0].up, 1u);
  EXPECT_EQ(totals.nics[0].dead, 1u);
  EXPECT_EQ(totals.nics[0].damped, 1u) << "of those that live";
}

TEST_F(TotalsPart, DelaysAreTheNicsAndNobodysWhereThePairIsOfNone) {
  EXPECT_NE(totals_.DelaysOf(host_.pair()), nullptr);
  host_.pair().ifindex = 77;
  EXPECT_EQ(totals_.DelaysOf(host_.pair()), nullptr);
}

}  // namespace
}  // namespace cw::agent
