// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/flow_samples.h"

#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"

namespace cw::agent {
namespace {

constexpr uint32_t kSampledQpn = 0x77;

class SampledFlow : public testing::Test {
 protected:
  SampledFlow() {
    host_.pair().HeardClock();
    host_.pair().estimate.settled = true;
    flow_ = &host_.AddSent(kSampledQpn);
    flow_->tx.slot = 2;
    flow_->tx.port = 50'000;
    local_.Set(100 * kSecond);
  }
  // Of the ring: as it left, or as it came from the peer.
  void Sample(bool sent, uint32_t psn, int64_t at_ns) {
    cw_ev_sample sample = {};
    sample.key =
        ToMap(sent ? host_.FlowTo(kSampledQpn) : FlowKey{.src = host_.remote, .dst = host_.local, .dqpn = kSampledQpn});
    sample.psn = psn;
    sample.ns = static_cast<uint64_t>(at_ns);
    sample.is_tx = sent;
    sample.slot = 2;
    samples_.OnRecord(sample);
  }
  void PeerSays(uint32_t psn, int64_t at_ns) {
    samples_.OnBatch(host_.pair(), {.samples = {{.dqpn = kSampledQpn, .psn = psn, .t_rx_ns = at_ns}}});
  }
  // Matches have to stand for a while.
  uint64_t Delays() {
    samples_.Match();
    local_.Advance(2 * telemetry::SampleMatcher::kWaitNs);
    samples_.Match();
    return flow_->owd.Merged().count();
  }

  OnePair host_;
  ManualClock local_, monotonic_{kSecond};
  FlowEntry* flow_ = nullptr;
  FlowSamples samples_{host_.pairs, host_.flows, host_.mesh, host_.mail, local_, monotonic_, [] { return true; }};
};

TEST_F(SampledFlow, TwoHalvesAreOneDelayOfTheFlow) {
  Sample(/*sent=*/true, 5, local_.NowNs());
  PeerSays(5, local_.NowNs() + 7000);
  EXPECT_EQ(Delays(), 1u);
  EXPECT_EQ(flow_->owd_slot, 2);
}

TEST_F(SampledFlow, WithoutTheClockOfThePeerThereIsNone) {
  host_.pair().estimate.settled = false;
  Sample(/*sent=*/true, 5, local_.NowNs());
  PeerSays(5, local_.NowNs() + 7000);
  EXPECT_EQ(Delays(), 0u);
}

TEST_F(SampledFlow, ALostRecordVoidsWhatIsOpen) {
  Sample(/*sent=*/true, 5, local_.NowNs());
  samples_.CountLost(1);
  PeerSays(5, local_.NowNs() + 7000);
  EXPECT_EQ(Delays(), 0u);
  EXPECT_EQ(samples_.lost(), 1u);
  samples_.CountLost(1);
  Sample(/*sent=*/true, 6, local_.NowNs());
  PeerSays(6, local_.NowNs() + 7000);
  EXPECT_EQ(Delays(), 1u) << "nothing more was lost";
}

TEST_F(SampledFlow, WhatCameFromThePeerGoesBackToItInMessagesThatFit) {
  const auto many = static_cast<uint32_t>(probe::kMaxSamplesPerMessage + 3);
  for (uint32_t psn = 0; psn < many; ++psn) Sample(/*sent=*/false, psn, kSecond + psn);
  samples_.Send(host_.pair());
  const auto sent = host_.mail.Take<probe::SampleBatch>();
  ASSERT_EQ(sent.size(), 2u);
  EXPECT_EQ(sent[0].samples.size(), probe::kMaxSamplesPerMessage);
  EXPECT_EQ(sent[1].samples.size(), 3u);
  EXPECT_EQ(sent[1].samples[2].psn, many - 1);
  samples_.Send(host_.pair());
  EXPECT_TRUE(host_.mail.Take<probe::SampleBatch>().empty());
}

}  // namespace
}  // namespace cw::agent
