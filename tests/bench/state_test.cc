// SPDX-License-Identifier: Apache-2.0
// What restarts and soaks are judged by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/bench/growth.h"
#include "tests/bench/losses.h"
#include "tests/bench/pinned_state.h"
#include "tests/bench/process_sample.h"
#include "tests/bench/soak_run.h"

namespace cw::bench {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

PinnedState State() {
  PinnedState state;
  state.counters = {{"probe_sent", 100}, {"slots_died", 0}};
  state.sent = {{"a>b/qp0x1", {.slot = 2, .port = 49154, .packets = 10}}, {"a>b/qp0x2", {.slot = 0, .packets = 5}}};
  state.received = {{"b>a/qp0x3", 7}};
  return state;
}

TEST(Compare, WhatGoesOnIsNoDamage) {
  PinnedState later = State();
  later.counters["probe_sent"] = 200;
  later.counters["a_new_counter"] = 1;
  later.sent["a>b/qp0x1"].packets = 20;
  later.sent["a>b/qp0x9"] = {.slot = 1, .port = 49153};
  later.received.clear();  // it forgets by itself
  const Damage damage = Compare(State(), later);
  EXPECT_EQ(damage.steering_changed, 0);
  EXPECT_EQ(damage.counters_back, 0);
  EXPECT_THAT(damage.what, IsEmpty());
}

TEST(Compare, AnotherPathAnotherPortAndAFlowThatIsGoneAreChanges) {
  PinnedState later = State();
  later.sent["a>b/qp0x1"].slot = 3;
  EXPECT_EQ(Compare(State(), later).steering_changed, 1);
  later = State();
  later.sent["a>b/qp0x1"].port = 0;
  EXPECT_THAT(Compare(State(), later).what,
              ElementsAre("a>b/qp0x1 went from path 2 (port 49154) to path 2 (port 0), reason 0"));
  later = State();
  later.sent.erase("a>b/qp0x2");
  EXPECT_EQ(Compare(State(), later).steering_changed, 1);
}

TEST(Compare, NothingMayGoBack) {
  PinnedState later = State();
  later.counters["probe_sent"] = 99;
  later.sent["a>b/qp0x1"].packets = 0;
  later.received["b>a/qp0x3"] = 6;
  const Damage damage = Compare(State(), later);
  EXPECT_EQ(damage.counters_back, 3);
  EXPECT_EQ(damage.steering_changed, 0);
  EXPECT_THAT(damage.what[0], HasSubstr("probe_sent went back from 100 to 99"));
  later = State();
  later.counters.erase("probe_sent");
  EXPECT_EQ(Compare(State(), later).counters_back, 1);
}

TEST(Losses, DifferencesAndWords) {
  Losses earlier{.naks = 1, .retransmissions = 10};
  Losses now{.naks = 3, .timeouts = 1, .retransmissions = 40, .interface_drops = 2};
  EXPECT_TRUE((now - earlier).Any());
  EXPECT_FALSE((now - now).Any());
  EXPECT_EQ((now - earlier).Text(), "2 NAKs, 1 timeouts, 30 packets sent again, 2 packets dropped by interfaces");
  EXPECT_EQ((now - now).Text(), "nothing");
  EXPECT_EQ((now + earlier).naks, 4u);
  EXPECT_EQ((now - earlier).Lost(), 30u);
  now.duplicates = 10;  // these had arrived
  now.out_of_order = 19;
  EXPECT_EQ((now - earlier).Lost(), 1u);
  now.out_of_order = 40;
  EXPECT_EQ((now - earlier).Lost(), 0u);
}

TEST(Losses, DropsAreThoseOfTheFabricsInterfaces) {
  const std::string text =
      "Inter-|   Receive                                                |  Transmit\n"
      " face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier "
      "compressed\n"
      "    lo:    0       0    0    9    0     0          0         0        0       0    0    9    0     0       0    "
      "  "
      "    0\n"
      "  eth0: 1234      10    1    3    1     1          1         1     5678      20    1    4    1     1       1    "
      "  "
      "    1\n"
      " mgmt0: 1234      10    0    8    0     0          0         0     5678      20    0    8    0     0       0    "
      "  "
      "    0\n"
      "spine1:99999999  10    0    0    0     0          0         0     5678      20    0    1    0     0       0     "
      " "
      "    0\n";
  EXPECT_EQ(DropsIn(text), 8u);
  EXPECT_EQ(DropsIn(""), 0u);
}

TEST(Growth, ComparesTheLastThirdWithTheOneBefore) {
  EXPECT_FALSE(GrowthOf({1, 2, 3, 4, 5, 6, 7, 8}).has_value());
  const auto warm_up = GrowthOf({1, 5, 9, 10, 10, 10, 10, 99, 10});  // grows at first, and peaks once
  ASSERT_TRUE(warm_up.has_value());
  EXPECT_EQ(warm_up->before, 10);
  EXPECT_EQ(warm_up->Amount(), 0);
  const auto leak = GrowthOf({10, 11, 12, 13, 14, 15, 16, 17, 18});
  EXPECT_EQ(leak->before, 14);
  EXPECT_EQ(leak->Amount(), 3);
  EXPECT_NEAR(leak->Percent(), 21.4, 0.1);
}

TEST(Growth, IsAboveBothLimits) {
  const Growth leak{.before = 100, .last = 104};
  EXPECT_TRUE(Grows(leak, {}));
  EXPECT_TRUE(Grows(leak, {.percent = 3, .amount = 0.5}));
  EXPECT_FALSE(Grows(leak, {.percent = 5, .amount = 0.5}));
  EXPECT_FALSE(Grows(leak, {.percent = 3, .amount = 4}));
  EXPECT_FALSE(Grows({.before = 100, .last = 90}, {}));
  EXPECT_TRUE(Grows({.before = 0, .last = 1}, {}));
}

TEST(ProcessSample, ReadsProc) {
  const std::string rollup =
      "5581-7fff ---p 00000000 00:00 0    [rollup]\nRss:   14336 kB\nPss:    9216 kB\nPss_Anon: 1 kB\n";
  EXPECT_EQ(NumberOf(rollup, "Rss"), 14336u);
  EXPECT_EQ(NumberOf(rollup, "Pss"), 9216u);
  EXPECT_EQ(NumberOf("Name:\tx\nThreads:\t12\n", "Threads"), 12u);
  EXPECT_FALSE(NumberOf(rollup, "Swap").has_value());
  const auto before = ReadProcess(getpid());
  ASSERT_TRUE(before.ok()) << before.status();
  EXPECT_GT(before->pss_mib, 0);
  EXPECT_GE(before->rss_mib, before->pss_mib);
  EXPECT_EQ(before->threads, 1);
  const int more = dup(0);
  EXPECT_EQ(ReadProcess(getpid())->descriptors, before->descriptors + 1);
  close(more);
  EXPECT_FALSE(ReadProcess(-1).ok());
}

TEST(SoakLength, IsANumberOfMinutes) {
  EXPECT_EQ(*SoakLength(nullptr), absl::Minutes(30));
  EXPECT_EQ(*SoakLength("0.5"), absl::Seconds(30));
  for (const char* wrong : {"", "0", "-1", "soon", "1441"}) EXPECT_FALSE(SoakLength(wrong).ok()) << wrong;
}

}  // namespace
}  // namespace cw::bench
