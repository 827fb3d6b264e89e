// SPDX-License-Identifier: Apache-2.0
//
// What the agent itself needs of time, rings and files: its pace, ticks of the engine, records that come in, greetings,
// the control record, the file of events.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <cstring>
#include <filesystem>
#include <limits>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/engine_ticks.h"
#include "userspace/agent/events_file.h"
#include "userspace/agent/greeting.h"
#include "userspace/agent/intake.h"
#include "userspace/agent/pace.h"

namespace cw::agent {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class PacePart : public ::testing::Test {
 protected:
  PacePart() {
    pace_.Begin(0, {.most_cpu = 0.1,
                    .cpu_ns = [this] { return cpu_ns_; },
                    .set = [this](int stretch) { told_.push_back(stretch); }});
  }
  // A second in which a flow sends and the thread uses so much of a processor.
  void Work(double used) {
    now_ns_ += kSecond;
    cpu_ns_ += static_cast<int64_t>(used * kSecond);
    pace_.Look(host_.flows, now_ns_);
  }
  OnePair host_;
  Pace pace_;
  std::vector<int> told_;
  int64_t now_ns_ = 0, cpu_ns_ = 0;
};

TEST_F(PacePart, WithoutFlowsItIsQuietAfterTenSeconds) {
  pace_.Look(host_.flows, 9 * kSecond);
  EXPECT_EQ(pace_.stretch(), 1);
  pace_.Look(host_.flows, 10 * kSecond);
  pace_.Look(host_.flows, 11 * kSecond);
  EXPECT_THAT(told_, ElementsAre(Pace::kMostStretch));
}

TEST_F(PacePart, FlowsThatSendKeepItBusyThoseThatDoNotAreNoWork) {
  host_.AddSent(17).window_packets = 1;
  pace_.Look(host_.flows, 20 * kSecond);
  EXPECT_THAT(told_, IsEmpty());
  host_.flows.sent.begin()->second.window_packets = 0;
  pace_.Look(host_.flows, 40 * kSecond);
  EXPECT_THAT(told_, ElementsAre(Pace::kMostStretch));
}

TEST_F(PacePart, ANewFlowHurriesItAndWhoNeedsProbesKeepsItGoing) {
  pace_.Look(host_.flows, 20 * kSecond);
  pace_.NeedsProbes(21 * kSecond);
  EXPECT_EQ(pace_.stretch(), Pace::kMostStretch) << "that has time until the next window";
  pace_.Hurry(22 * kSecond);
  EXPECT_THAT(told_, ElementsAre(Pace::kMostStretch, 1));
}

TEST_F(PacePart, AThreadAboveItsShareWakesMoreSeldomUntilItIsWellBelow) {
  host_.AddSent(17).window_packets = 1;
  for (int i = 0; i < 3; ++i) Work(0.09);
  EXPECT_THAT(told_, IsEmpty());
  Work(0.3);
  EXPECT_EQ(pace_.stretch(), 5) << "three times its share, and few stretches are used";
  Work(0.5);
  EXPECT_EQ(pace_.stretch(), Pace::kMostStretch) << "and no more, however slow the host is";
  for (int i = 0; i < 60; ++i) Work(0.01);
  EXPECT_EQ(pace_.stretch(), 1);
  EXPECT_THAT(told_, ElementsAre(5, 10, 5, 2, 1));
}

TEST_F(PacePart, AShareIsNotAnExcuseToLookOftenWithoutFlows) {
  for (int i = 0; i < 11; ++i) Work(0.01);
  EXPECT_EQ(pace_.stretch(), Pace::kMostStretch);
  EXPECT_EQ(pace_.slowed(), 1);
}

TEST_F(PacePart, APeriodIsStretchedToATenthOfASecondAtMost) {
  EXPECT_EQ(Pace::Stretched(absl::Milliseconds(10), 5), absl::Milliseconds(50));
  EXPECT_EQ(Pace::Stretched(absl::Milliseconds(20), 10), Pace::kSeldom);
  EXPECT_EQ(Pace::Stretched(absl::Milliseconds(250), 10), absl::Milliseconds(250)) << "seldom by itself";
}

class EngineTicksPart : public ::testing::Test {
 protected:
  int64_t next_ns_ = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> ticked_;
  ManualTimers timers_;
  ManualClock clock_{100};
  EngineTicks ticks_{{.next = [this](int64_t) { return next_ns_; },
                      .tick =
                          [this](int64_t now_ns) {
                            ticked_.push_back(now_ns);
                            next_ns_ = std::numeric_limits<int64_t>::max();
                          }},
                     timers_,
                     clock_};
};

TEST_F(EngineTicksPart, NothingToDoIsNoTimer) {
  ticks_.Schedule();
  EXPECT_THAT(timers_.waiting, IsEmpty());
}

TEST_F(EngineTicksPart, WhatIsBroughtForwardTakesOver) {
  next_ns_ = 500;
  ticks_.Schedule();
  ticks_.Schedule();
  EXPECT_THAT(timers_.waiting, SizeIs(1)) << "it is waited for already";
  next_ns_ = 300;
  ticks_.Schedule();
  clock_.Set(300);
  timers_.Run();
  EXPECT_THAT(ticked_, ElementsAre(300)) << "the later one has nothing left to do";
}

TEST_F(EngineTicksPart, AfterATickTheNextIsWaitedFor) {
  next_ns_ = 200;
  ticks_.Schedule();
  timers_.Run();
  next_ns_ = 400;
  ticks_.Schedule();
  timers_.Run();
  EXPECT_THAT(ticked_, SizeIs(2));
}

class IntakePart : public ::testing::Test {
 protected:
  template <typename Record>
  static std::vector<uint8_t> Bytes(const Record& record) {
    std::vector<uint8_t> bytes(sizeof(record));
    std::memcpy(bytes.data(), &record, sizeof(record));
    return bytes;
  }
  std::vector<uint8_t> Message(uint32_t pair) {
    cw_ev_msg message{};
    message.type = CW_EV_MSG;
    message.pair = static_cast<uint16_t>(pair);
    return Bytes(message);
  }
  OnePair host_;
  absl::StatusOr<probe::Body> body_ = probe::Hello{.host = "h2", .version = "9"};
  std::vector<std::string> heard_;
  Intake intake_{host_.pairs, [this](const cw_ev_msg&) { return body_; }};
};

TEST_F(IntakePart, EachRecordGoesToWhoListensForItsKind) {
  intake_.On<cw_ev_slot>(CW_EV_SLOT, [this](const auto&) { heard_.push_back("slot"); });
  intake_.On<cw_ev_move>(CW_EV_MOVE, [this](const auto&) { heard_.push_back("move"); });
  cw_ev_move move{};
  move.type = CW_EV_MOVE;
  intake_.Take(Bytes(move));
  cw_ev_probe probe{};
  probe.type = CW_EV_PROBE;
  intake_.Take(Bytes(probe));
  EXPECT_THAT(heard_, ElementsAre("move")) << "nobody listens for probes";
}

TEST_F(IntakePart, ARecordThatIsTooShortIsPassedOver) {
  intake_.On<cw_ev_slot>(CW_EV_SLOT, [this](const auto&) { heard_.push_back("slot"); });
  cw_ev_slot verdict{};
  verdict.type = CW_EV_SLOT;
  std::vector<uint8_t> bytes = Bytes(verdict);
  intake_.Take(absl::MakeSpan(bytes).subspan(0, sizeof(verdict) - 1));
  intake_.Take(absl::MakeSpan(bytes).subspan(0, 2));
  EXPECT_THAT(heard_, IsEmpty());
  intake_.Take(bytes);
  EXPECT_THAT(heard_, SizeIs(1));
}

TEST_F(IntakePart, AMessageGoesWithItsPairAndOnlyWhereItIsBelieved) {
  intake_.OnMessage<probe::Hello>(
      [this](PairState& pair, const auto& hello) { heard_.push_back(pair.peer + " runs " + hello.version); });
  intake_.OnMessage<probe::GapReport>([this](PairState&, const auto&) { heard_.push_back("gaps"); });
  intake_.Take(Message(host_.index));
  EXPECT_THAT(heard_, ElementsAre("h2 runs 9"));
  intake_.Take(Message(host_.index + 1));
  body_ = absl::PermissionDeniedError("a wrong MAC");
  intake_.Take(Message(host_.index));
  EXPECT_THAT(heard_, SizeIs(1)) << "of a pair that is gone, and forged";
}

TEST(GreetingPart, PeersThatAnswerAreGreetedAndAgainAfterHalfAMinute) {
  OnePair host;
  Vitals vitals;
  vitals.host_name = "h1";
  Greeting greeting(host.pairs, vitals, "1.2", host.mail);
  greeting.Send(kSecond);
  EXPECT_THAT(host.mail.all, IsEmpty()) << "it never answered";
  host.pair().last_reply_ns = kSecond;
  greeting.Send(2 * kSecond);
  greeting.Send(3 * kSecond);
  const std::vector<probe::Hello> sent = host.mail.Take<probe::Hello>();
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_EQ(sent[0].host, "h1");
  EXPECT_EQ(sent[0].version, "1.2");
  greeting.Send(2 * kSecond + Greeting::kAgainNs + 1);
  EXPECT_THAT(host.mail.all, SizeIs(1));
}

class ControlRecordPart : public ::testing::Test {
 protected:
  static constexpr int64_t kWallNs = 1'800'000'000 * kSecond;
  ControlRecordPart() { config_.steering.assign_new_flows = true; }
  ~ControlRecordPart() override { fs::remove_all(folder_); }
  static std::string Folder() {
    char name[] = "/tmp/cw-control-XXXXXX";
    return mkdtemp(name);
  }
  const std::string folder_ = Folder();
  config::Config config_;
  cw_ctl ctl_{};
  OnePair host_;
  ManualClock clock_;
  ControlRecord control_{ctl_, folder_ + "/session", [](int64_t ns) { return static_cast<uint64_t>(ns / kMs); }, clock_,
                         host_.events};
};

TEST_F(ControlRecordPart, FlowsThatRanBeforeTheFirstStartStayWhereTheyAre) {
  clock_.Set(10 * kSecond);
  control_.Begin(config_, /*adopted=*/false, kWallNs);
  EXPECT_EQ(ctl_.assign_jiffies, 12'000u);
  EXPECT_EQ(ctl_.session, 1'800'000'000u);
  EXPECT_EQ(ctl_.abi_version, static_cast<uint32_t>(CW_ABI_VERSION));
  clock_.Set(20 * kSecond);
  control_.Begin(config_, /*adopted=*/true, kWallNs);
  EXPECT_EQ(ctl_.assign_jiffies, 20'000u) << "those of an agent before us are known";
  EXPECT_EQ(ctl_.session, 1'800'000'001u) << "later than the one in the record";
}

TEST_F(ControlRecordPart, KnobsFollowTheConfigurationWhileItRuns) {
  control_.Begin(config_, false, kWallNs);
  config_.liveness.misses = 7;
  config_.steering.assign_new_flows = false;
  control_.WriteKnobs(config_);
  EXPECT_EQ(ctl_.miss_limit, 7u);
  EXPECT_EQ(ctl_.assign_jiffies, 0u) << "no flow is given a path";
  config_.steering.assign_new_flows = true;
  clock_.Set(5 * kSecond);
  control_.WriteKnobs(config_);
  clock_.Set(9 * kSecond);
  control_.WriteKnobs(config_);
  EXPECT_EQ(ctl_.assign_jiffies, 5'000u) << "those from then on";
}

TEST_F(ControlRecordPart, AClockThatIsSetForwardIsANewSessionWhereNobodyAnswers) {
  control_.Begin(config_, false, kWallNs);
  std::vector<uint32_t> taken;
  const auto take = [&taken](uint32_t session) {
    taken.push_back(session);
    return absl::OkStatus();
  };
  clock_.Set(kSecond);
  control_.RenewSession(host_.pairs, kWallNs + kSecond, take);
  EXPECT_THAT(taken, IsEmpty()) << "nobody set it";
  const int64_t later = kWallNs + 3600 * kSecond;
  host_.pair().last_reply_ns = kSecond;
  control_.RenewSession(host_.pairs, later, take);
  EXPECT_THAT(taken, IsEmpty()) << "a peer believes the session that there is";
  host_.pair().last_reply_ns = 0;
  control_.RenewSession(host_.pairs, later, take);
  EXPECT_THAT(taken, ElementsAre(1'800'003'600u));
  EXPECT_EQ(ctl_.session, 1'800'003'600u);
  EXPECT_THAT(host_.events.Take().at(0).text, HasSubstr("a new session begins"));
}

TEST(EventsFilePart, ThatItCannotBeWrittenIsToldOnce) {
  Journal journal({});
  EventsFile file("/dev/full", journal);
  ASSERT_TRUE(file.Open().ok());
  file.Look();
  EXPECT_EQ(journal.log().newest(), 0u) << "nothing was written yet";
  journal.Log({.type = "agent", .text = "one"});
  file.Look();
  file.Look();
  const std::vector<telemetry::Event> told = journal.log().After(1);
  ASSERT_THAT(told, SizeIs(1));
  EXPECT_EQ(told[0].severity, telemetry::Severity::kAlert);
  EXPECT_THAT(told[0].text, HasSubstr("events cannot be written to /dev/full ("));
}

TEST(EventsFilePart, NoFileIsNoFault) {
  Journal journal({});
  EventsFile file("", journal);
  EXPECT_TRUE(file.Open().ok());
  journal.Log({.type = "agent", .text = "one"});
  file.Look();
  EXPECT_EQ(journal.log().newest(), 1u);
}

}  // namespace
}  // namespace cw::agent
