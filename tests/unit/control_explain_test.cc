// SPDX-License-Identifier: Apache-2.0
//
// What the contention rule says of itself.
#include "userspace/control/explain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <map>

namespace cw::control {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kExplainWindowNs = 40'000'000;
const PairKey kExplainPair{Addr::FromV4(1), Addr::FromV4(2)};

FlowKey Key(uint32_t qpn) { return {kExplainPair.local, kExplainPair.remote, qpn}; }

// One flow on path 0 of four, as often as wanted.
class ExplainHost {
 public:
  explicit ExplainHost(uint64_t seed = 1) : state({}, seed) {}

  Decision Window() {
    Observation seen{.now_ns = now_ns_ += kExplainWindowNs, .window_ns = kExplainWindowNs, .pairs = {}};
    PairObservation pair{.pair = kExplainPair, .table_valid = true, .paths = {}, .flows = {}};
    for (uint8_t s = 0; s < queue_us.size(); ++s) {
      const double noise = 1 + 0.02 * static_cast<double>((now_ns_ / kExplainWindowNs + s) % 3);
      pair.paths.push_back({.slot = s,
                            .usable = unusable != s,
                            .queue_samples = 40,
                            .queue_ns = queue_us[s] * 1e3 * noise,
                            .base_ns = 6'000,
                            .links = {}});
    }
    for (const auto& [qpn, slot] : flows)
      pair.flows.push_back({.key = Key(qpn), .slot = slot, .bytes = bytes, .cnps = 0, .locked = locked});
    seen.pairs.push_back(pair);
    return DecideMoves(seen, state);
  }
  void Run(int windows) {
    for (int i = 0; i < windows; ++i) Window();
  }

  std::map<uint32_t, uint8_t> flows = {{7, 0}};
  std::array<double, 4> queue_us = {400, 20, 400, 390};
  int unusable = 3;
  uint64_t bytes = 500'000;
  bool locked = false;
  ContentionState state;

 private:
  int64_t now_ns_ = 1'000'000'000;
};

TEST(Explain, AFlowThatWasNotSeenIsNotKnown) {
  ExplainHost host;
  EXPECT_EQ(Explain(host.state, Key(7)).standing, Standing::kUnknown);
  host.Run(10);
  EXPECT_NE(Explain(host.state, Key(7)).standing, Standing::kUnknown);
  EXPECT_EQ(Explain(host.state, Key(8)).standing, Standing::kUnknown);
  host.flows.clear();
  host.Run(1);
  const Explanation gone = Explain(host.state, Key(7));
  EXPECT_EQ(gone.standing, Standing::kUnknown);
  EXPECT_THAT(gone.text, HasSubstr("sends nothing"));
}

TEST(Explain, NamesWhatHoldsAFlowInTheOrderOfTheRule) {
  ExplainHost host;
  host.Run(2);
  Explanation e = Explain(host.state, Key(7));
  EXPECT_EQ(e.standing, Standing::kSettling) << e.text;
  EXPECT_THAT(e.text, HasSubstr("for 2 windows, and is judged after 6"));
  host.locked = true;
  host.Run(10);
  EXPECT_EQ(Explain(host.state, Key(7)).standing, Standing::kHeld);
  host.locked = false;
  host.queue_us[0] = 3;
  host.Run(3);
  e = Explain(host.state, Key(7));
  EXPECT_EQ(e.standing, Standing::kNotCongested) << e.text;
  EXPECT_EQ(e.congested_windows, 0);
  EXPECT_EQ(e.congested_wanted, 2);
  EXPECT_DOUBLE_EQ(e.here.queue_limit_ns, 10'000);
  EXPECT_NEAR(e.rate_bps, 100e6, 1e3);
  host.flows[7] = kSlotNone;
  host.Run(1);
  EXPECT_EQ(Explain(host.state, Key(7)).standing, Standing::kPathUnknown);
}

TEST(Explain, TellsOfEachPathWhatItPromises) {
  ExplainHost host;
  host.queue_us = {400, 395, 402, 20};
  host.Run(12);
  const Explanation e = Explain(host.state, Key(7));
  EXPECT_EQ(e.standing, Standing::kNoBetter) << e.text;
  EXPECT_EQ(e.here.own_flows, 1);
  ASSERT_EQ(e.candidates.size(), 3u);
  EXPECT_THAT(e.candidates[0].text, HasSubstr("standard errors"));
  EXPECT_FALSE(e.candidates[2].path.usable);  // the idle one is not to be had
  EXPECT_THAT(e.candidates[2].text, HasSubstr("no flow is put there"));
}

// Windows in which the rule said that a move waits, before it was decided; −1: none was.
int WaitsBeforeMove(uint64_t seed) {
  ExplainHost host(seed);
  int waits = 0;
  for (int w = 0; w < 200; ++w) {
    const Decision decision = host.Window();
    const Explanation e = Explain(host.state, Key(7));
    if (!decision.moves.empty()) {
      EXPECT_EQ(e.standing, Standing::kAsked) << e.text;
      host.flows[7] = decision.moves[0].to;
      host.Run(1);
      EXPECT_EQ(Explain(host.state, Key(7)).standing, Standing::kTrial);
      return waits;
    }
    if (e.standing != Standing::kWaits) continue;
    ++waits;
    EXPECT_TRUE(e.candidates[0].enough) << e.candidates[0].text;
    EXPECT_EQ(e.candidates[0].path.slot, 1);
    EXPECT_LT(e.candidates[0].probability, 1);
  }
  return -1;
}

TEST(Explain, AMoveThatIsComingIsSeenBeforeAndAfterItsDecision) {
  int waited = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const int waits = WaitsBeforeMove(seed);
    EXPECT_GE(waits, 0) << "no move with seed " << seed;
    waited += waits > 0;
  }
  EXPECT_GT(waited, 5);  // with probability 0.3 per window few are taken at once
}

TEST(Explain, AskingChangesNoDecision) {
  ExplainHost asked, silent;
  for (int w = 0; w < 200; ++w) {
    const Decision a = asked.Window(), b = silent.Window();
    ASSERT_EQ(a.moves.size(), b.moves.size()) << w;
    for (uint32_t qpn = 6; qpn < 9; ++qpn) (void)Explain(asked.state, Key(qpn));
  }
}

}  // namespace
}  // namespace cw::control
