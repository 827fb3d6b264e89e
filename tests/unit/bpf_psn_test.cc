// SPDX-License-Identifier: Apache-2.0
#include "bpf/psn.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bpf/clock.h"

namespace cw::test {
namespace {

cw_packet Packet(uint8_t opcode, uint32_t psn) {
  cw_packet p = {};
  p.opcode = opcode;
  p.op = cw_opcode_info(opcode);
  p.psn = psn;
  p.ip_len = 1064;
  p.payload = 1024;
  return p;
}

int Update(cw_flow* f, uint8_t opcode, uint32_t psn) {
  cw_packet p = Packet(opcode, psn);
  return cw_flow_update(f, &p, 1);
}

int Read(cw_flow* f, uint32_t psn, uint32_t length) {
  cw_packet p = Packet(0x0c, psn);
  p.dma_len = length;
  return cw_flow_update(f, &p, 1);
}

void Acknowledge(cw_flow* f, uint32_t psn, uint8_t syndrome) {
  cw_packet p = Packet(0x11, psn);
  p.syndrome = syndrome;
  cw_flow_update(f, &p, 1);
}

constexpr uint8_t kFirst = 0x06, kMiddle = 0x07, kLast = 0x08, kOnly = 0x0a;
constexpr uint8_t kRespFirst = 0x0d, kRespMiddle = 0x0e, kRespLast = 0x0f, kRespOnly = 0x10;

TEST(BpfPsn, SerialDifference) {
  EXPECT_EQ(cw_psn_diff(5, 3), 2);
  EXPECT_EQ(cw_psn_diff(3, 5), -2);
  EXPECT_EQ(cw_psn_diff(1, 0xffffff), 2);
  EXPECT_EQ(cw_psn_diff(0xffffff, 1), -2);
  EXPECT_EQ(cw_psn_diff(0x800000, 0), -0x800000);
}

TEST(BpfPsn, InOrderAcrossTheWrap) {
  cw_flow f = {};
  for (uint32_t i = 0; i < 100; ++i) EXPECT_EQ(Update(&f, kMiddle, (0xffffd0 + i) & 0xffffff), 0);
  EXPECT_EQ(f.req.packets, 100u);
  EXPECT_EQ(f.req.gaps, 0u);
  EXPECT_EQ(f.req.duplicates, 0u);
  EXPECT_EQ(f.req.next, 0x34u);
  EXPECT_EQ(f.mtu, 1024u);
  EXPECT_EQ(f.bytes, 100u * 1064);
}

TEST(BpfPsn, GapsAndGoBackN) {
  cw_flow f = {};
  Update(&f, kFirst, 10);
  Update(&f, kMiddle, 13);  // 11 and 12 missing
  EXPECT_EQ(f.req.gaps, 1u);
  EXPECT_EQ(f.req.missing, 2u);
  EXPECT_EQ(Update(&f, kMiddle, 11), 1);
  EXPECT_EQ(Update(&f, kMiddle, 12), 1);
  EXPECT_EQ(Update(&f, kMiddle, 13), 1);
  EXPECT_EQ(Update(&f, kLast, 14), 0);
  EXPECT_EQ(f.req.gaps, 1u);
  EXPECT_EQ(f.req.duplicates, 3u);
}

TEST(BpfPsn, ReadRequestTakesTheRangeOfItsAnswer) {
  cw_flow f = {};
  Update(&f, kMiddle, 0);  // teaches the MTU
  Read(&f, 1, 10 * 1024 + 1);
  EXPECT_EQ(f.req.next, 12u);
  EXPECT_EQ(f.req.seen, 1u);
  Update(&f, kOnly, 12);
  EXPECT_EQ(f.req.gaps, 0u);
  Read(&f, 13, 0);  // nothing asked for, one PSN
  EXPECT_EQ(f.req.next, 14u);
}

TEST(BpfPsn, ReadRequestOfUnknownMtuIsALowerLimit) {
  cw_flow f = {};
  Read(&f, 5, 100000);
  EXPECT_EQ(f.req.seen, 2u);
  EXPECT_EQ(f.req.next, 6u);
  EXPECT_EQ(Update(&f, kOnly, 30), 0);
  EXPECT_EQ(f.req.gaps, 0u);
  EXPECT_EQ(f.req.seen, 1u);
  Update(&f, kOnly, 32);
  EXPECT_EQ(f.req.gaps, 1u);
  cw_flow g = {};
  Read(&g, 5, 200);  // one packet at any MTU
  EXPECT_EQ(g.req.seen, 1u);
}

TEST(BpfPsn, ResponsesAreASequenceOfTheirOwn) {
  cw_flow f = {};
  Update(&f, kOnly, 100);
  Update(&f, kRespFirst, 7);
  Update(&f, kRespMiddle, 8);
  Update(&f, kRespLast, 9);
  Update(&f, kRespOnly, 20);  // WRITEs lay between the two READs
  Update(&f, kOnly, 101);
  EXPECT_EQ(f.resp.packets, 4u);
  EXPECT_EQ(f.resp.gaps, 0u);
  EXPECT_EQ(f.req.gaps, 0u);
  Update(&f, kRespFirst, 30);
  Update(&f, kRespMiddle, 33);  // within one answer nothing may be skipped
  EXPECT_EQ(f.resp.gaps, 1u);
  EXPECT_EQ(f.resp.missing, 2u);
  EXPECT_EQ(Update(&f, kRespMiddle, 31), 1);
}

TEST(BpfPsn, AcknowledgementsAreNeverGaps) {
  cw_flow f = {};
  Update(&f, kOnly, 0);
  Acknowledge(&f, 500, 0x1f);
  Acknowledge(&f, 400, 0x00);
  Acknowledge(&f, 401, 0x60);
  Acknowledge(&f, 401, 0x61);
  Acknowledge(&f, 401, 0x63);
  Acknowledge(&f, 402, 0x2c);
  Update(&f, kOnly, 1);
  EXPECT_EQ(f.req.gaps + f.resp.gaps + f.req.duplicates + f.resp.duplicates, 0u);
  EXPECT_EQ(f.resp.packets, 0u);
  EXPECT_EQ(f.acks, 2u);
  EXPECT_EQ(f.nak_seq, 1u);
  EXPECT_EQ(f.nak_other, 2u);
  EXPECT_EQ(f.rnr, 1u);
  EXPECT_EQ(f.packets, 8u);
}

TEST(BpfPsn, UnreliableDatagramsAndUnknownOpcodesHaveNoSequence) {
  cw_flow f = {};
  for (uint8_t opcode : {0x64, 0x65, 0xe0, 0xa6, 0x15})
    for (uint32_t psn : {5u, 900u, 2u}) Update(&f, opcode, psn);
  EXPECT_EQ(f.packets, 15u);
  EXPECT_EQ(f.req.packets + f.resp.packets + f.req.gaps, 0u);
  cw_packet cnp = Packet(CW_OPCODE_CNP, 0);
  cnp.tos = 0x33;
  cw_flow_update(&f, &cnp, 1);
  EXPECT_EQ(f.cnp, 1u);
  EXPECT_EQ(f.ce, 1u);
}

TEST(BpfPsn, AQueuePairMadeAnewIsNeitherLossNorRetransmission) {
  cw_flow f = {};
  Update(&f, kOnly, 0x900000);
  EXPECT_EQ(Update(&f, kOnly, 0), 0);
  EXPECT_EQ(Update(&f, kOnly, 0x500000), 0);
  EXPECT_EQ(f.req.gaps + f.req.duplicates, 0u);
  EXPECT_EQ(f.req.next, 0x500001u);
}

TEST(BpfPsn, WhatAnAcknowledgementProves) {
  cw_packet p = Packet(0x11, 0xffffff);
  EXPECT_EQ(cw_acked_psn(&p), 0);  // all up to and with it
  p.syndrome = 0x60;
  EXPECT_EQ(cw_acked_psn(&p), 0xffffff);  // all before it
  p.syndrome = 0x21;
  EXPECT_EQ(cw_acked_psn(&p), 0xffffff);
  p.syndrome = 0x62;
  EXPECT_EQ(cw_acked_psn(&p), -1);
  cw_packet data = Packet(kOnly, 3);
  EXPECT_EQ(cw_acked_psn(&data), -1);
  cw_packet answer = Packet(kRespOnly, 3);
  EXPECT_EQ(cw_acked_psn(&answer), 4);
}

TEST(BpfPsn, AcknowledgementsOfAnEarlierLifeAreToldByWhatIsSent) {
  cw_tx_flow f = {};
  f.flow.req = {.next = 100, .seen = 1};
  f.acked_psn = 90;
  const auto old = [&](uint8_t opcode, uint32_t psn) {
    const cw_packet p = Packet(opcode, psn);
    return cw_acked_is_old(&f, &p);
  };
  EXPECT_EQ(old(kOnly, 100), 0);
  EXPECT_EQ(old(kOnly, 90), 0) << "sent again";
  EXPECT_EQ(old(kOnly, 89), 1) << "acknowledged, and sent again";
  EXPECT_EQ(old(kOnly, 101), 1) << "100 was left out";
  EXPECT_EQ(old(kRespOnly, 7), 0) << "another sequence";
  f.flow.req.seen = 2;  // a READ of unknown length
  EXPECT_EQ(old(kOnly, 101), 0);
  f.flow.req = {.next = 2, .seen = 1};
  f.acked_psn = 0xfffffe;
  EXPECT_EQ(old(kOnly, 0xffffff), 0);
  EXPECT_EQ(old(kOnly, 0xfffffd), 1);
}

TEST(BpfSampling, CoarserSetsAreSubsetsOfTheSizeTheyShouldHave) {
  constexpr uint32_t kPsns = 1 << 20;
  for (uint32_t level = 0; level < 14; ++level) {
    uint32_t count = 0;
    for (uint32_t psn = 0; psn < kPsns; ++psn) {
      bool in = cw_psn_sampled(psn, level);
      count += in;
      if (level > 0 && in) {
        ASSERT_TRUE(cw_psn_sampled(psn, level - 1)) << psn;
      }
    }
    double expected = static_cast<double>(kPsns) / (1 << level);
    EXPECT_NEAR(count, expected, 5 * std::sqrt(expected) + 1) << level;
  }
  for (uint32_t psn = 0; psn < 1000; ++psn) EXPECT_FALSE(cw_psn_sampled(psn, 32));
}

TEST(BpfSampling, RunsOfPsnsAreSampledEvenly) {
  constexpr uint32_t kLevel = 6, kRun = 4096;
  for (uint32_t start = 0; start < (1u << 24); start += 1u << 18) {
    int count = 0;
    for (uint32_t i = 0; i < kRun; ++i) count += cw_psn_sampled(start + i, kLevel);
    EXPECT_GT(count, 24) << start;  // 64 expected, 8 is one standard deviation
    EXPECT_LT(count, 104) << start;
  }
}

TEST(BpfClock, SegmentsOfDrift) {
  cw_lab_clock c = {};
  EXPECT_EQ(cw_lab_clock_at(&c, 12345), 12345u);
  c.segments = 2;
  c.start_ns[0] = 1000000000;
  c.base_ns[0] = 1000000000;  // one second ahead
  c.drift_ppb[0] = 50000;
  c.start_ns[1] = 11000000000;
  c.base_ns[1] = 1000500000;
  c.drift_ppb[1] = -50000;
  EXPECT_EQ(cw_lab_clock_at(&c, 999999999), 999999999u);
  EXPECT_EQ(cw_lab_clock_at(&c, 2000000000), 3000050000u);
  EXPECT_EQ(cw_lab_clock_at(&c, 12000000000), 12000000000u + 1000500000u - 50000u);
  c.base_ns[1] = -5;
  EXPECT_EQ(cw_lab_clock_at(&c, 11000000000), 10999999995u);
}

}  // namespace
}  // namespace cw::test
