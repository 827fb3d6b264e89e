// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "bpf/psn.h"
#include "tests/unit/probe_fakes.h"
#include "userspace/probe/nak_packet.h"

namespace cw::probe {
namespace {

NakSpec Example() {
  return {.from = TestAddr("10.0.1.10"), .to = TestAddr("10.0.0.10"), .qpn = 0x1a2b3c, .psn = 0xfedcba};
}

TEST(NakPacket, BytesByTheSpecification) {
  const auto packet = BuildSequenceNak(Example());
  ASSERT_TRUE(packet.ok()) << packet.status();
  const std::array<uint8_t, 44> expected = {
      0x45, 0, 0,    48,   0x43, 0x57, 0x40, 0,    64, 17,   0xe2, 0x51, 10, 0, 1, 10,  // IPv4 …
      10,   0, 0,    10,   0xc0, 0,    0x12, 0xb7, 0,  28,   0,    0,                   // … and UDP
      0x11, 0, 0xff, 0xff, 0,    0x1a, 0x2b, 0x3c, 0,  0xfe, 0xdc, 0xba,                // BTH
      0x60, 0, 0,    0};                                                                // AETH
  std::array<uint8_t, 44> got;
  std::memcpy(got.data(), packet->data(), got.size());
  // The checksum of the IPv4 header apart: its sum is all ones.
  uint32_t sum = 0;
  for (size_t i = 0; i < 20; i += 2) sum += got[i] << 8 | got[i + 1];
  EXPECT_EQ((sum & 0xffff) + (sum >> 16), 0xffffu);
  got[10] = expected[10];
  got[11] = expected[11];
  EXPECT_EQ(got, expected);
  uint32_t icrc;
  std::memcpy(&icrc, packet->data() + 44, 4);
  EXPECT_EQ(icrc, ComputeIcrc({packet->data(), 44}));
}

TEST(NakPacket, OurOwnParserSeesARefusedPsnAndNothingAcknowledgedBeyondIt) {
  const auto packet = BuildSequenceNak(Example());
  ASSERT_TRUE(packet.ok());
  std::vector<uint8_t> frame(14 + packet->size());
  frame[12] = 8;
  std::memcpy(frame.data() + 14, packet->data(), packet->size());
  cw_packet p{};
  ASSERT_EQ(cw_parse(frame.data(), static_cast<__u32>(frame.size()), &p), CW_PARSE_ROCE);
  EXPECT_EQ(p.key.dqpn, 0x1a2b3cu);
  EXPECT_EQ(p.psn, 0xfedcbau);
  EXPECT_EQ(p.syndrome, 0x60);
  EXPECT_EQ(cw_acked_psn(&p), 0xfedcba);
}

TEST(NakPacket, OverIpv6) {
  NakSpec spec = Example();
  spec.from = TestAddr("fd00::2");
  spec.to = TestAddr("fd00::1");
  const auto packet = BuildSequenceNak(spec);
  ASSERT_TRUE(packet.ok());
  std::vector<uint8_t> frame(14 + packet->size());
  frame[12] = 0x86;
  frame[13] = 0xdd;
  std::memcpy(frame.data() + 14, packet->data(), packet->size());
  cw_packet p{};
  ASSERT_EQ(cw_parse(frame.data(), static_cast<__u32>(frame.size()), &p), CW_PARSE_ROCE);
  EXPECT_EQ(Addr::FromBytes(p.key.saddr), spec.from);
  EXPECT_EQ(Addr::FromBytes(p.key.daddr), spec.to);
  EXPECT_EQ(p.udp_check, 0);
  EXPECT_EQ(cw_acked_psn(&p), 0xfedcba);
}

TEST(NakPacket, WhatCannotBeIsRefused) {
  NakSpec spec = Example();
  spec.qpn = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(BuildSequenceNak(spec).status()));
  spec = Example();
  spec.psn = 1 << 24;
  EXPECT_TRUE(absl::IsInvalidArgument(BuildSequenceNak(spec).status()));
  spec = Example();
  spec.to = TestAddr("fd00::1");
  EXPECT_TRUE(absl::IsInvalidArgument(BuildSequenceNak(spec).status()));
}

}  // namespace
}  // namespace cw::probe
