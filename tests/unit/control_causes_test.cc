// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/causes.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "absl/strings/numbers.h"
#include "tests/unit/control_cause_sim.h"

namespace cw::control {
namespace {

constexpr int kSimulated = static_cast<int>(Cause::kReordering) + 1;  // the others are of what is asked, not of times

using Matrix = std::array<std::array<int, kCauses>, kCauses>;  // [truth][found]

double Precision(const Matrix& m, int cause) {
  int all = 0;
  for (int t = 0; t < kCauses; ++t) all += m[t][cause];
  return all > 0 ? static_cast<double>(m[cause][cause]) / all : 0;
}

double Recall(const Matrix& m, int cause) {
  int all = 0;
  for (const int n : m[cause]) all += n;
  return all > 0 ? static_cast<double>(m[cause][cause]) / all : 0;
}

void Print(const Matrix& m) {
  std::printf("| truth \\ found |");
  for (int c = 0; c < kCauses; ++c) std::printf(" %s |", std::string(CauseName(static_cast<Cause>(c))).c_str());
  std::printf(" precision | recall |\n");
  for (int t = 0; t < kCauses; ++t) {
    std::printf("| %s |", std::string(CauseName(static_cast<Cause>(t))).c_str());
    for (const int n : m[t]) std::printf(" %d |", n);
    std::printf(" %.1f %% | %.1f %% |\n", 100 * Precision(m, t), 100 * Recall(m, t));
  }
}

int Environment(const char* name, int otherwise) {
  int value = otherwise;
  if (const char* text = std::getenv(name)) (void)absl::SimpleAtoi(text, &value);
  return value;
}

Matrix Confusion(int per_cause, uint64_t first_seed, bool tell) {
  Matrix m{};
  int redrawn = 0;
  for (int c = 0; c < kSimulated; ++c) {
    uint64_t seed = first_seed;
    for (int done = 0; done < per_cause; ++seed) {
      const CauseResult r = SimulateCause({static_cast<Cause>(c), seed}, CauseRules());
      redrawn += r.valid ? 0 : 1;
      if (!r.valid) continue;
      ++done;
      ++m[static_cast<int>(r.truth)][static_cast<int>(r.found)];
      if (tell && r.truth != r.found) {
        std::printf("seed %lu: %s taken for %s; %s\n", seed, std::string(CauseName(r.truth)).c_str(),
                    std::string(CauseName(r.found)).c_str(), r.detail.c_str());
      }
    }
  }
  std::printf("%d scenarios drawn anew: no clear effect\n", redrawn);
  return m;
}

// The figures of docs/causes.md: CAUSES_PER_CAUSE=250 CAUSES_SEED=900000 CAUSES_TELL=1.
TEST(Causes, AreToldApartOnGeneratedFabrics) {
  const Matrix m =
      Confusion(Environment("CAUSES_PER_CAUSE", 30), Environment("CAUSES_SEED", 1), Environment("CAUSES_TELL", 0) != 0);
  Print(m);
  for (int c = 0; c < kSimulated; ++c) {
    EXPECT_GE(Precision(m, c), 0.95) << CauseName(static_cast<Cause>(c));
    EXPECT_GE(Recall(m, c), 0.95) << CauseName(static_cast<Cause>(c));
  }
}

// Only what two windows in a row agree on is told, and only once.
TEST(Causes, TellAVerdictAfterTwoWindows) {
  const PairKey key{Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)};
  CauseWindow w{.seconds = 1, .line_rate_bps = 1e9};
  CausePair pair{.pair = key, .reverse_ns = 1e4};
  pair.paths = {{.slot = 0, .queue_samples = 100, .queue_ns = 500, .base_ns = 1e4}};
  pair.flows = {{.key = {key.local, key.remote, 7}, .slot = 0, .packets = 1000, .bytes = 4'000'000, .looks = 25}};
  w.pairs = {pair};
  CauseState state{CauseRules()};
  const auto of_flow = [&](const CauseWindow& window) {
    for (const CauseVerdict& v : state.Judge(window)) {
      if (v.flow.dqpn == 7) return v;
    }
    return CauseVerdict{};
  };
  EXPECT_EQ(of_flow(w).cause, Cause::kNone);
  const CauseVerdict told = of_flow(w);
  EXPECT_EQ(told.cause, Cause::kSlowSender);
  EXPECT_TRUE(told.changed);
  EXPECT_FALSE(of_flow(w).changed);
  w.pairs[0].flows[0].bytes = 120'000'000;
  EXPECT_EQ(of_flow(w).cause, Cause::kSlowSender) << "one window is not enough";
  EXPECT_EQ(of_flow(w).cause, Cause::kNone);
  w.line_rate_bps = 0;  // nothing to compare with
  w.pairs[0].flows[0].bytes = 1000;
  of_flow(w);
  EXPECT_EQ(of_flow(w).cause, Cause::kNone);
}

// A flow of which nothing is acknowledged: not the receiver's word, and where its packets are too large for its path,
// that is it. A queue pair that dies of it does not end it.
TEST(Causes, NobodyIsASlowReceiverWhileNothingIsAcknowledged) {
  const PairKey key{Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)};
  CauseWindow w{.seconds = 1, .line_rate_bps = 1e9};
  CausePair pair{.pair = key, .reverse_ns = 1e4};
  pair.paths = {{.slot = 0, .queue_samples = 100, .queue_ns = 500, .base_ns = 1e4}};
  pair.flows = {{.key = {key.local, key.remote, 7},
                 .slot = 0,
                 .packets = 1000,
                 .bytes = 4'000'000,
                 .acks = 1000,
                 .acks_known = true,
                 .largest = 4140,
                 .in_flight = 100,
                 .looks = 25}};
  w.pairs = {pair};
  CauseFlow& flow = w.pairs[0].flows[0];
  CauseState state{CauseRules()};
  const auto judge = [&] {
    CauseVerdict found;
    for (int i = 0; i < 2; ++i) {
      for (const CauseVerdict& v : state.Judge(w)) {
        if (v.flow.dqpn == 7) found = v;
      }
    }
    return found;
  };
  EXPECT_EQ(judge().cause, Cause::kSlowReceiver) << "acknowledgements come, and late";
  flow.acks = 0;
  EXPECT_EQ(judge().cause, Cause::kNoAcks);
  w.pairs[0].paths[0].largest_arrives = 4200;
  EXPECT_EQ(judge().cause, Cause::kNoAcks) << "its packets are smaller";
  w.pairs[0].paths[0].largest_arrives = 1500;
  EXPECT_EQ(judge().cause, Cause::kPacketSize);
  flow.packets = flow.bytes = 0;
  const CauseVerdict dead = judge();
  EXPECT_EQ(dead.cause, Cause::kPacketSize);
  EXPECT_TRUE(dead.stopped && dead.changed);
  EXPECT_EQ(dead.text, "packets above 1500 bytes do not arrive on path 0; it stopped with 100 packets unacknowledged");
  w.pairs[0].paths[0].largest_arrives = 0;
  EXPECT_EQ(judge().cause, Cause::kPacketSize);
  EXPECT_FALSE(judge().changed);
  flow.in_flight = 0;
  EXPECT_EQ(judge().cause, Cause::kNone) << "all was acknowledged in the end";
}

// Probes of another class do not stand for what the flow goes through: a queue that they do not meet is no receiver's.
TEST(Causes, ProbesOfAnotherClassSayNothingOfAFlow) {
  const PairKey key{Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)};
  CauseWindow w{.seconds = 1, .line_rate_bps = 200e6};
  CausePair pair{.pair = key, .reverse_ns = 1e4};
  pair.paths = {{.slot = 0, .queue_samples = 100, .queue_ns = 500, .base_ns = 1e4}};
  // 16 packets at 450 a second: acknowledged after 35 ms.
  pair.flows = {{.key = {key.local, key.remote, 7}, .slot = 0, .packets = 450, .bytes = 500'000, .acks = 450}};
  pair.flows[0].in_flight = 16;
  pair.flows[0].looks = 25;
  w.pairs = {pair};
  const auto judged = [&] {
    CauseState state{CauseRules()};
    state.Judge(w);
    for (const CauseVerdict& v : state.Judge(w)) {
      if (v.flow.dqpn == 7) return v.cause;
    }
    return Cause::kNone;
  };
  EXPECT_EQ(judged(), Cause::kSlowReceiver);
  w.pairs[0].flows[0].other_class = true;
  EXPECT_EQ(judged(), Cause::kNone);
  w.pairs[0].flows[0].rnr_naks = 100;
  EXPECT_EQ(judged(), Cause::kSlowReceiver) << "it says so itself";
}

// A full link drops, too, and so may a queue that no probe meets; and a few packets out of their order are no bad
// optic.
TEST(Causes, OnlyLossesOfAPathThatDoesNotQueueAreGrey) {
  const PairKey key{Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)};
  CauseWindow w{.seconds = 1};
  CausePair pair{.pair = key, .reverse_ns = 1e4};
  pair.paths = {{.slot = 0, .queue_samples = 100, .queue_ns = 500, .base_ns = 1e4}};
  pair.flows = {{.key = {key.local, key.remote, 7}, .slot = 0, .packets = 2000, .bytes = 8'000'000, .seq_naks = 4}};
  w.pairs = {pair};
  CausePath& path = w.pairs[0].paths[0];
  CauseFlow& flow = w.pairs[0].flows[0];
  const auto judged = [&](CauseState state = CauseState(CauseRules())) {
    state.Judge(w);
    for (const CauseVerdict& v : state.Judge(w)) {
      if (v.flow.dqpn == 7) return v.cause;
    }
    return Cause::kNone;
  };
  EXPECT_EQ(judged(), Cause::kGreyLoss);
  flow.gaps_pending = true;
  EXPECT_EQ(judged(), Cause::kNone) << "the peer is being asked";
  flow.gaps_pending = false;
  flow.gaps_known = true;
  EXPECT_EQ(judged(), Cause::kSlowReceiver) << "all had arrived: its host lost them";
  flow.gaps = 4;
  EXPECT_EQ(judged(), Cause::kReordering) << "all arrived, in another order";
  flow.missing = 4;
  EXPECT_EQ(judged(), Cause::kGreyLoss);
  flow.gaps_known = false;
  flow.gaps = flow.missing = 0;
  flow.other_class = true;
  EXPECT_EQ(judged(), Cause::kNone);
  flow.other_class = false;
  flow.slot = 3;  // of whose path nothing is known
  EXPECT_EQ(judged(), Cause::kNone);
  flow.slot = 0;
  flow.packets = 20'000;  // 4 of 20,000
  EXPECT_EQ(judged(), Cause::kNone);
  flow.packets = 2000;
  CauseState after_a_queue{CauseRules()};
  path.queue_ns = 5e6;
  after_a_queue.Judge(w);
  after_a_queue.Judge(w);
  path.queue_ns = 500;
  flow.seq_naks = 0;
  EXPECT_EQ(judged(std::move(after_a_queue)), Cause::kNone) << "what was lost was lost in the queue";
}

// Two NICs, and a flow to the first whose path queues.
class Queueing : public ::testing::Test {
 protected:
  Queueing() {
    for (uint32_t to : {2u, 3u}) {
      CausePair pair{.pair = {Addr::FromV4(1), Addr::FromV4(to)}, .reverse_ns = 1e4};
      for (uint8_t s = 0; s < 2; ++s) {
        pair.paths.push_back({.slot = s, .queue_samples = 100, .queue_ns = 2e5, .base_ns = 1e4, .ecn_samples = 400});
      }
      window_.pairs.push_back(pair);
    }
    window_.pairs[0].flows = {{.key = kKey, .slot = 0, .packets = 1000, .bytes = 4'000'000, .acks = 1000}};
    Flow().in_flight = 1;
    Flow().looks = 25;
  }
  CauseFlow& Flow() { return window_.pairs[0].flows[0]; }
  CausePath& Path(size_t pair, size_t slot) { return window_.pairs[pair].paths[slot]; }
  CauseVerdict Judged() {
    CauseState state{CauseRules()};
    state.Judge(window_);
    for (const CauseVerdict& v : state.Judge(window_)) {
      if (v.flow == kKey) return v;
    }
    return {};
  }

  static constexpr double kRate = 1e9;
  const FlowKey kKey{Addr::FromV4(1), Addr::FromV4(2), 7};
  CauseWindow window_{.seconds = 1, .line_rate_bps = 0, .pairs = {}};
};

TEST_F(Queueing, WithoutARateNothingIsCongestedUnlessPacketsAreMarkedOrLost) {
  window_.pairs.resize(1);
  EXPECT_EQ(Judged().cause, Cause::kNone);
  Path(0, 1).queue_ns = 0;
  EXPECT_EQ(Judged().cause, Cause::kNone);
  Flow().in_flight = 50;  // acknowledged late
  EXPECT_EQ(Judged().cause, Cause::kNone);
  Flow().in_flight = 1;
  Flow().cnps = 10;
  EXPECT_EQ(Judged().cause, Cause::kFabricContention);
  Flow().cnps = 0;
  Path(0, 0).marked = 20;
  EXPECT_EQ(Judged().cause, Cause::kFabricContention);
  Path(0, 0).marked = 0;
  Flow().seq_naks = 3;
  EXPECT_EQ(Judged().cause, Cause::kFabricContention);
  Path(0, 1).queue_ns = 2e5;
  EXPECT_EQ(Judged().cause, Cause::kIncast);
}

TEST_F(Queueing, WhatAllPathsOfAHostHaveIsItsOwnDelay) {
  window_.line_rate_bps = kRate;
  EXPECT_EQ(Judged().cause, Cause::kSlowSender) << "no link is full";
  Path(0, 0).queue_ns = 5e5;
  EXPECT_EQ(Judged().cause, Cause::kFabricContention) << "and what is above that is a queue";
  Path(0, 1).queue_ns = 5e5;
  EXPECT_EQ(Judged().cause, Cause::kIncast);
  for (size_t s : {0, 1}) Path(1, s).queue_ns = 5e5;
  EXPECT_EQ(Judged().cause, Cause::kSlowSender);
  Flow().cnps = 100;
  EXPECT_EQ(Judged().cause, Cause::kFabricContention) << "all uplinks are full: they mark";
}

TEST_F(Queueing, ASlowSenderIsAwaitedWhereACollectiveWaits) {
  window_.line_rate_bps = kRate;
  EXPECT_EQ(Judged().cause, Cause::kSlowSender);
  EXPECT_FALSE(Judged().awaited);
  Flow().awaited = true;
  EXPECT_TRUE(Judged().awaited);
  EXPECT_EQ(Judged().text.find("a collective waits for it"), 0u);
  CauseState state{CauseRules()};
  Flow().awaited = false;
  for (int i = 0; i < 3; ++i) state.Judge(window_);
  Flow().awaited = true;
  state.Judge(window_);
  bool changed = false;
  for (const CauseVerdict& v : state.Judge(window_)) changed |= v.flow == kKey && v.changed && v.awaited;
  EXPECT_TRUE(changed) << "that somebody waits now is news";
}

// Probes that stop are an inference; the kernels judge by more.
TEST_F(Queueing, OneDirectionIsBadByTheKernelsVerdictAlone) {
  window_.pairs.resize(1);
  CausePath& path = Path(0, 0);
  for (CausePath& p : window_.pairs[0].paths) p.sent = p.answered = p.peer_sent = p.peer_heard = 100;
  path.answered = 0;
  EXPECT_EQ(Judged().cause, Cause::kNone);
  path.dead = true;
  path.usable = false;
  EXPECT_EQ(Judged().cause, Cause::kOneDirection);
  path.answered = 100;
  path.dead = false;
  path.usable = true;
  path.peer_heard = 0;
  EXPECT_EQ(Judged().cause, Cause::kNone);
  CauseState state{CauseRules()};
  path.peer_dead = true;
  state.Judge(window_);
  Cause of_pair = Cause::kNone;
  for (const CauseVerdict& v : state.Judge(window_)) {
    if (v.flow == FlowKey{}) of_pair = v.cause;
  }
  EXPECT_EQ(of_pair, Cause::kOneDirection);
}

}  // namespace
}  // namespace cw::control
