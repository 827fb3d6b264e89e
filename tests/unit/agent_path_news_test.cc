// SPDX-License-Identifier: Apache-2.0
//
// What befalls paths, as it is told and published: silent ones, dead or paused, and those that lose packets or data.
#include "userspace/agent/paths/path_news.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/paths/losses.h"

namespace cw::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PathNewsPart : public ::testing::Test {
 protected:
  PathNewsPart() {
    host_.AddPaths({100, 101, 102, 103});
    for (int subscriber : {1, 2}) {
      lost_.push_back([this, subscriber](const PathLost& lost) {
        heard_.push_back(
            absl::StrCat(subscriber, ": ", lost.slot, " ", static_cast<int>(lost.cause), lost.act ? "" : " observed"));
      });
    }
  }
  cw_ev_slot Verdict(uint8_t slot, uint8_t from, uint8_t to) {
    cw_ev_slot verdict{.type = CW_EV_SLOT, .slot = slot, .from = from, .to = to, .witness = 0};
    verdict.pair = static_cast<uint16_t>(host_.index);
    verdict.ns = static_cast<uint64_t>(clock_.NowNs());
    verdict.silence_ns = 10 * kMs;
    verdict.limit = 3;
    if (to == CW_SLOT_DEAD) host_.shared().slot[slot].progress_round = host_.shared().cur_round - 4;
    verdict.progress_round = host_.shared().slot[slot].progress_round;
    verdict.round = host_.shared().cur_round - 1;  // three were missed
    host_.shared().slot[slot].state = to;
    return verdict;
  }
  void Die(uint8_t slot) { news_.OnSlot(Verdict(slot, CW_SLOT_SUSPECT, CW_SLOT_DEAD)); }
  void Revive(uint8_t slot) { news_.OnSlot(Verdict(slot, CW_SLOT_DEAD, CW_SLOT_UP)); }
  // Ticks of two milliseconds. answers: the other class passes.
  void Run(int ticks, bool answers) {
    for (int i = 0; i < ticks; ++i) {
      clock_.Advance(2 * kMs);
      host_.shared().cur_round += 2;
      timers_.Run();
      for (const probe::ClassQuestion& question : std::exchange(asked_, {})) {
        if (answers)
          news_.OnClassQuestion(host_.pair(), {.slot = question.slot, .answer = true, .token = question.token});
      }
    }
  }
  // The answer to the probe of this round, sent so long after the verdict (before it: < 0).
  void Arrives(uint8_t slot, uint32_t round, int64_t sent_ns, int64_t took_ns) {
    cw_ev_probe probe{.type = CW_EV_PROBE, .slot = slot, .round = round};
    SlotState& state = host_.pair().slot[slot];
    probe.t1 = state.silence->verdict.ns + static_cast<uint64_t>(sent_ns);
    probe.t4 = probe.t1 + static_cast<uint64_t>(took_ns);
    host_.shared().slot[slot].progress_round = std::max(host_.shared().slot[slot].progress_round, round);
    news_.OnProbeOfSilent(host_.pair(), state, probe);
  }
  std::string Told() {
    std::string all;
    for (const telemetry::Event& event : host_.events.Take()) all += event.text + "\n";
    return all;
  }

  OnePair host_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  ManualTimers timers_;
  DryRun dry_run_{host_.pairs, host_.flows, qps_, host_.mesh, host_.names, clock_, host_.events, {}};
  LinkFlaps links_{testing::TempDir() + "/path_news_no_outages.json",
                   "boot",
                   host_.pairs,
                   host_.mesh,
                   clock_,
                   clock_,
                   host_.events,
                   {.hops = [](uint32_t, uint8_t) { return nullptr; },
                    .interval_ns = [](uint32_t) { return kMs; },
                    .read_probes = [] {},
                    .damp_anew = [] {},
                    .after = [](absl::Duration, std::function<void()>) {}}};
  uint16_t blocked_ = 0;
  Damping damping_{host_.pairs, host_.mesh, links_, clock_, [this](uint32_t, uint16_t slots) { blocked_ = slots; }};
  PathLostSubscribers lost_;
  std::vector<std::string> heard_;
  std::vector<probe::ClassQuestion> asked_;
  std::vector<uint8_t> asked_in_;  // classes
  bool own_link_lost_ = false;
  int doubts_ = 0;
  PathNews news_{host_.pairs,
                 host_.mesh,
                 links_,
                 damping_,
                 lost_,
                 clock_,
                 timers_,
                 host_.mail,
                 dry_run_,
                 host_.events,
                 {.read_probes = [] {},
                  .send_in_class =
                      [this](uint32_t, const probe::Body& body, uint16_t, uint8_t dscp) {
                        asked_.push_back(std::get<probe::ClassQuestion>(body));
                        asked_in_.push_back(dscp);
                      },
                  .pause_dscp = [] { return 40; },
                  .own_link_lost = [this](const PairState&, const cw_ev_slot&) { return own_link_lost_; },
                  .doubt = [this](const PairState&) { ++doubts_; }}};
  Allowed allowed_ = Mode::kProtect;
  Losses losses_{host_.pairs, host_.flows, qps_,     host_.mesh,   damping_,
                 lost_,       clock_,      dry_run_, host_.events, [this] { return allowed_; }};
};

TEST_F(PathNewsPart, ASilentPathIsPublishedAtOnceInTheOrderOfTheSubscribersAndToldWhenItIsKnownToBeDead) {
  Die(2);
  EXPECT_THAT(heard_, ElementsAre("1: 2 0", "2: 2 0"));
  EXPECT_EQ(Told(), "") << "it may be paused";
  Run(8, false);
  EXPECT_THAT(Told(), HasSubstr("path 2 to h2 is dead"));
  EXPECT_THAT(asked_in_, testing::Each(40));
  EXPECT_EQ(doubts_, 1);
  EXPECT_THAT(heard_, SizeIs(2)) << "once";
  Revive(2);
  EXPECT_THAT(Told(), HasSubstr("path 2 to h2 is up again"));
  EXPECT_THAT(heard_, SizeIs(2));
}

TEST_F(PathNewsPart, AFirstSignOfLifeIsNoNews) {
  news_.OnSlot(Verdict(2, CW_SLOT_NEW, CW_SLOT_UP));
  EXPECT_EQ(Told(), "");
  EXPECT_THAT(heard_, IsEmpty());
}

TEST_F(PathNewsPart, APausedPathIsNoFailureAndDampsNothing) {
  for (int i = 0; i < 5; ++i) {
    Die(2);
    Run(12, true);
    EXPECT_THAT(Told(), HasSubstr("path 2 to h2 is paused, not dead: DSCP 40 passes"));
    Revive(2);
    EXPECT_THAT(Told(), HasSubstr("goes on: it was paused"));
  }
  EXPECT_EQ(blocked_, 0);
}

// A cut that heals after 40 ms, under traffic: what was sent since then waits behind it for longer than the silence
// was.
TEST_F(PathNewsPart, AHealedCutWasNoPauseAndItsFlapCounts) {
  for (int i = 0; i < 5; ++i) {
    Die(2);
    const uint32_t verdict = host_.shared().cur_round - 1;
    Run(20, false);
    EXPECT_THAT(Told(), HasSubstr("path 2 to h2 is dead"));
    for (uint32_t k = 0; k < 8; ++k) Arrives(2, verdict + 41 + k, (40 + k) * kMs, 25 * kMs);
    Run(1, true);
    Revive(2);
    const std::string told = Told();
    EXPECT_THAT(told, testing::Not(HasSubstr("paused")));
    EXPECT_THAT(told, HasSubstr("path 2 to h2 is up again"));
  }
  EXPECT_EQ(blocked_, 1 << 2);
}

// The same times, but what arrives are the probes that the verdict missed.
TEST_F(PathNewsPart, ProbesThatWereSentBeforeTheSilenceAndArriveAfterItWerePausedAndFlapNothing) {
  for (int i = 0; i < 5; ++i) {
    Die(2);
    const uint32_t verdict = host_.shared().cur_round - 1;
    Run(20, false);
    EXPECT_THAT(Told(), HasSubstr("path 2 to h2 is dead"));
    for (uint32_t k = 0; k < 3; ++k) Arrives(2, verdict - 2 + k, -(3 - int64_t{k}) * kMs, 43 * kMs);
    Run(1, false);
    EXPECT_THAT(Told(), HasSubstr("path 2 to h2 was paused, not dead: what was missing arrives late"));
    Revive(2);
  }
  EXPECT_EQ(blocked_, 0);
}

TEST_F(PathNewsPart, AnswersInAnotherClassThatComeAfterTheHealAreNoPause) {
  for (int i = 0; i < 5; ++i) {
    Die(2);
    Run(20, false);
    Run(35, true);  // the path is back; its own class has its first probe 70 ms later
    EXPECT_THAT(Told(), HasSubstr("path 2 to h2 is dead"));
    Arrives(2, host_.shared().cur_round, 109 * kMs, kMs);
    Run(1, true);
    Revive(2);
    EXPECT_THAT(Told(), testing::Not(HasSubstr("paused")));
  }
  EXPECT_EQ(blocked_, 1 << 2);
}

TEST_F(PathNewsPart, APathThatFlapsIsKeptFreeUnlessOurOwnLinkWasGone) {
  const auto flap = [this] {
    for (int i = 0; i < 5; ++i) {
      Die(2);
      Run(8, false);
      Revive(2);
    }
  };
  own_link_lost_ = true;
  flap();
  EXPECT_THAT(Told(), HasSubstr("our own NIC had no carrier, so no path is to blame"));
  EXPECT_EQ(blocked_, 0);
  own_link_lost_ = false;
  flap();
  EXPECT_EQ(blocked_, 1 << 2);
}

TEST_F(PathNewsPart, APeersQuestionIsAnswered) {
  news_.OnClassQuestion(host_.pair(), {.slot = 3, .answer = false, .token = 17});
  const auto answers = host_.mail.Take<probe::ClassQuestion>();
  ASSERT_THAT(answers, SizeIs(1));
  EXPECT_TRUE(answers[0].answer);
  EXPECT_EQ(answers[0].token, 17u);
}

// Every second probe on slot 2 is lost.
class LossesPart : public PathNewsPart {
 protected:
  LossesPart() { host_.pair().loss = std::make_unique<control::PairLoss>(control::LossRules{}); }
  void Lose() {
    control::ProbeFates fates;
    control::ProbeFates::Arrived arrived{};  // of this round and those before it
    for (uint32_t round = 1; round <= 512; ++round) {
      std::shift_right(arrived.begin(), arrived.end(), 1);
      arrived[0] = static_cast<uint16_t>(round % 2 == 0 ? 0b1111 : 0b1011);
      for (uint8_t s = 0; s < 4; ++s) {
        if ((arrived[0] >> s & 1) == 0) continue;
        fates.Answered(round, s, arrived, JudgedSlots(host_.shared()),
                       [&](const auto& settled) { host_.pair().loss->Take(settled); });
      }
      losses_.Judge();
    }
  }
};

TEST_F(LossesPart, ALossyPathIsToldPublishedAndBlocked) {
  Lose();
  EXPECT_THAT(Told(), HasSubstr("path 2 to h2 loses packets"));
  ASSERT_THAT(heard_, testing::Not(IsEmpty()));
  EXPECT_EQ(heard_[0], "1: 2 1");
  EXPECT_EQ(blocked_ & 1 << 2, 1 << 2);
}

TEST_F(LossesPart, WhereTheModeOnlyObservesThoseWhoHearOfItAreToldSo) {
  allowed_ = Mode::kObserve;
  Lose();
  ASSERT_THAT(heard_, testing::Not(IsEmpty()));
  EXPECT_EQ(heard_[0], "1: 2 1 observed");
  ASSERT_THAT(host_.events.all, testing::Not(IsEmpty()));
  EXPECT_TRUE(host_.events.all[0].dry);
}

}  // namespace
}  // namespace cw::agent
