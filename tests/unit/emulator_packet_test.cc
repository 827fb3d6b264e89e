// SPDX-License-Identifier: Apache-2.0
// The emulator's packets: ICRC vectors byte for byte, the CRC's linearity, PSN arithmetic, encoding and parsing.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "userspace/lab/roce_packet.h"
#include "userspace/lab/roce_packet_crc.h"

namespace cw::lab {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes Hex(const std::string& text) {
  Bytes out;
  std::string digits;
  for (char c : text) {
    if (c != ' ') digits += c;
  }
  for (size_t i = 0; i + 1 < digits.size(); i += 2) out.push_back(std::stoul(digits.substr(i, 2), nullptr, 16) & 0xff);
  return out;
}

// A CNP and a UC SEND captured elsewhere, two ACKs; all from the IP header on, ICRC last.
const char kCnpVector[] =
    "45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff4000011800000000"
    "00000000000000000000000000000000 82fd002a";
const char kUcSendVector[] =
    "45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710"
    "4630818be28935d90e9a95505401be885e500000 78f353f3";
const char kAckVector[] =
    "4502003000004000401126b90a0000010a000002 c12312b7001c0000 1140ffff0000001200000007 1f000003 91a6236a";
const char kAckV6Vector[] =
    "60212345001c1140 fd000000000000000000000000000001 fd000000000000000000000000000002"
    "c12312b7001c0000 1140ffff0000001200000007 1f000003 a66348cd";

uint32_t BitwiseCrc(uint32_t state, const Bytes& data) {
  for (uint8_t byte : data) {
    state ^= byte;
    for (int i = 0; i < 8; ++i) state = (state & 1) ? (state >> 1) ^ 0xEDB88320u : state >> 1;
  }
  return state;
}

Bytes RandomBytes(std::mt19937& random, size_t n) {
  Bytes b(n);
  for (uint8_t& x : b) x = static_cast<uint8_t>(random());
  return b;
}

// The whole packet, ICRC included, as the wire has it.
Bytes Wire(const RocePacket& packet, const Bytes& payload) {
  Bytes b(kMaxRoceHeader);
  b.resize(EncodeHeaders(packet, b.data()));
  b.insert(b.end(), payload.begin(), payload.end());
  b.insert(b.end(), packet.PadBytes(), 0);
  const uint32_t icrc = Icrc(b);
  for (int i = 0; i < 4; ++i) b.push_back(static_cast<uint8_t>(icrc >> (8 * i)));
  return b;
}

RocePacket RandomPacket(std::mt19937& random) {
  static const uint8_t kOpcodes[] = {0x00, 0x01, 0x02, 0x04, 0x06, 0x07, 0x08, 0x09, 0x0a,
                                     0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10, 0x11, 0x81};
  RocePacket p;
  p.source = random();
  p.destination = random();
  p.source_port = static_cast<uint16_t>(random());
  p.ip_id = static_cast<uint16_t>(random());
  p.tos = static_cast<uint8_t>(random());
  p.opcode = kOpcodes[random() % std::size(kOpcodes)];
  p.ack_req = random() & 1;
  p.becn = random() & 1;
  p.dest_qpn = random() & kQpnMask;
  p.psn = random() & kPsnMask;
  if (HasReth(p.opcode))
    p.reth_va = uint64_t{random()} << 32 | random(), p.reth_rkey = random(), p.reth_length = random();
  if (HasAeth(p.opcode)) p.aeth_syndrome = static_cast<uint8_t>(random()), p.aeth_msn = random() & 0xffffff;
  if (HasImmediate(p.opcode)) p.immediate = random();
  p.payload_bytes = random() % 4097;
  return p;
}

TEST(IcrcTest, VectorsByteForByte) {
  for (const char* text : {kCnpVector, kUcSendVector, kAckVector, kAckV6Vector}) {
    Bytes packet = Hex(text);
    EXPECT_TRUE(IcrcIsRight(packet)) << text;
    const uint32_t icrc = Icrc({packet.data(), packet.size() - 4});
    const Bytes stored = {static_cast<uint8_t>(icrc), static_cast<uint8_t>(icrc >> 8), static_cast<uint8_t>(icrc >> 16),
                          static_cast<uint8_t>(icrc >> 24)};
    EXPECT_EQ(stored, Bytes(packet.end() - 4, packet.end())) << text;
    packet[packet.size() - 5] ^= 1;
    EXPECT_FALSE(IcrcIsRight(packet)) << text;
  }
}

TEST(IcrcTest, MaskedFieldsDoNotCount) {
  for (size_t offset : {1, 8, 10, 11, 26, 27, 32}) {  // ToS, TTL, header checksum, UDP checksum, BTH byte 4
    Bytes packet = Hex(kAckVector);
    packet[offset] ^= 0x5a;
    EXPECT_TRUE(IcrcIsRight(packet)) << offset;
  }
  for (size_t offset : {4, 12, 16, 20, 28, 31, 33, 36, 40}) {
    Bytes packet = Hex(kAckVector);
    packet[offset] ^= 0x5a;
    EXPECT_FALSE(IcrcIsRight(packet)) << offset;
  }
}

TEST(RocePacketTest, OverIpv6AllButTheIpHeaderIsTheSame) {
  std::mt19937 random(5);
  for (int i = 0; i < 500; ++i) {
    RocePacket p = RandomPacket(random);
    const Bytes payload = RandomBytes(random, p.payload_bytes);
    const Bytes four = Wire(p, payload);
    p.ip6 = true;
    p.label = random() & 0xfffff;
    const Bytes six = Wire(p, payload);
    ASSERT_EQ(six.size(), four.size() + 20);
    EXPECT_EQ(Bytes(six.begin() + 40, six.end() - 4), Bytes(four.begin() + 20, four.end() - 4));
    size_t bytes = 0;
    const auto parsed = ParsePacket(six, &bytes);
    ASSERT_TRUE(parsed.has_value());
    EXPECT_EQ(bytes, six.size());
    EXPECT_TRUE(parsed->ip6);
    EXPECT_EQ(parsed->label, p.label);
    EXPECT_EQ(parsed->tos, p.tos);
    EXPECT_EQ(parsed->source, p.source);
    EXPECT_EQ(parsed->destination, p.destination);
    EXPECT_EQ(parsed->psn, p.psn);
    EXPECT_EQ(parsed->payload_bytes, p.payload_bytes);
    EXPECT_TRUE(IcrcIsRight(six));
  }
  const Bytes foreign = Hex(kAckV6Vector);
  size_t bytes = 0;
  EXPECT_TRUE(ParsePacket(foreign, &bytes).has_value()) << "fd00::1 is fd00::0.0.0.1";
  Bytes other = foreign;
  other[9] = 1;
  EXPECT_FALSE(ParsePacket(other, &bytes).has_value()) << "no address of the lab";
}

TEST(Crc32Test, EveryPathEqualsTheBitwiseOne) {
  std::mt19937 random(1);
  for (size_t n = 0; n < 700; ++n) {
    const Bytes data = RandomBytes(random, n + (n % 7 == 0 ? 4096 : 0));
    const uint32_t state = random();
    const uint32_t expected = BitwiseCrc(state, data);
    ASSERT_EQ(Crc32Raw(state, data), expected) << n;
    ASSERT_EQ(Crc32RawTable(state, data), expected) << n;
  }
}

TEST(Crc32Test, PartsCombine) {
  std::mt19937 random(2);
  for (int i = 0; i < 300; ++i) {
    const Bytes a = RandomBytes(random, random() % 100), b = RandomBytes(random, random() % 5000);
    const uint32_t state = random();
    const uint32_t joined = BitwiseCrc(BitwiseCrc(state, a), b);
    EXPECT_EQ(Crc32Multiply(Crc32ZerosOperator(b.size()), BitwiseCrc(state, a)) ^ BitwiseCrc(0, b), joined);
  }
}

TEST(IcrcTest, PatchEqualsRecomputationOverRandomPackets) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const RocePacket p = RandomPacket(random);
    Bytes packet = Wire(p, RandomBytes(random, p.payload_bytes));
    const size_t body = packet.size() - 4;
    const uint32_t old_icrc = Icrc({packet.data(), body});
    const Bytes delta = RandomBytes(random, 2);  // a rewritten UDP source port
    packet[20] ^= delta[0];
    packet[21] ^= delta[1];
    ASSERT_EQ(IcrcPatch(old_icrc, delta, body - 22), Icrc({packet.data(), body}));
  }
}

TEST(PsnTest, SerialArithmetic) {
  EXPECT_EQ(PsnAdd(0xffffff, 1), 0u);
  EXPECT_EQ(PsnAdd(0xfffff0, 0x20), 0x10u);
  EXPECT_EQ(PsnDiff(0, 0xffffff), 1);
  EXPECT_EQ(PsnDiff(0xffffff, 0), -1);
  EXPECT_EQ(PsnDiff(0x7fffff, 0), 0x7fffff);
  EXPECT_EQ(PsnDiff(0x800000, 0), -0x800000);
  EXPECT_EQ(PsnDiff(5, 5), 0);
}

TEST(PacketTest, EncodesTheVectorsByteForByte) {
  RocePacket ack;
  ack.source = 0x0a000001;
  ack.destination = 0x0a000002;
  ack.source_port = 0xc123;
  ack.tos = 2;
  ack.opcode = kAcknowledge;
  ack.dest_qpn = 0x12;
  ack.psn = 7;
  ack.aeth_syndrome = kSyndromeAck;
  ack.aeth_msn = 3;
  EXPECT_EQ(Wire(ack, {}), Hex(kAckVector));
  RocePacket cnp;
  cnp.source = 0x0a001101;
  cnp.destination = 0x0a001201;
  cnp.ip_id = 0x718c;
  cnp.tos = 0xc2;
  cnp.opcode = kCnp;
  cnp.becn = true;
  cnp.dest_qpn = 0x118;
  cnp.payload_bytes = 16;
  EXPECT_EQ(Wire(cnp, Bytes(16, 0)), Hex(kCnpVector));
}

TEST(PacketTest, ParsesWhatItEncodes) {
  std::mt19937 random(4);
  for (int i = 0; i < 2000; ++i) {
    const RocePacket p = RandomPacket(random);
    Bytes packet = Wire(p, RandomBytes(random, p.payload_bytes));
    size_t bytes = 0;
    Bytes with_trailer = packet;
    with_trailer.insert(with_trailer.end(), random() % 20, 0xee);  // Ethernet padding
    const auto parsed = ParsePacket(with_trailer, &bytes);
    ASSERT_TRUE(parsed);
    EXPECT_EQ(bytes, packet.size());
    EXPECT_EQ(Wire(*parsed, Bytes(packet.end() - 4 - p.PadBytes() - p.payload_bytes, packet.end() - 4 - p.PadBytes())),
              packet);
  }
}

TEST(PacketTest, RefusesWhatIsCutOrContradictsItself) {
  std::mt19937 random(5);
  size_t bytes = 0;
  const RocePacket p = RandomPacket(random);
  const Bytes whole = Wire(p, RandomBytes(random, p.payload_bytes));
  for (size_t n = 0; n < whole.size(); ++n) ASSERT_FALSE(ParsePacket({whole.data(), n}, &bytes)) << n;
  auto refused = [&](size_t offset, uint8_t flip) {
    Bytes packet = Hex(kAckVector);
    packet[offset] ^= flip;
    return !ParsePacket(packet, &bytes);
  };
  EXPECT_TRUE(refused(0, 0x20));   // version 6
  EXPECT_TRUE(refused(0, 0x0f));   // header length
  EXPECT_TRUE(refused(6, 0x20));   // more fragments
  EXPECT_TRUE(refused(7, 0x01));   // fragment offset
  EXPECT_TRUE(refused(9, 0x01));   // protocol
  EXPECT_TRUE(refused(22, 0x01));  // destination port
  EXPECT_TRUE(refused(25, 0x01));  // UDP length
  EXPECT_TRUE(refused(28, 0x02));  // opcode 0x13
  EXPECT_TRUE(refused(29, 0x01));  // TVer
  EXPECT_TRUE(refused(29, 0x10));  // padding longer than the packet
  EXPECT_FALSE(refused(8, 0x01));  // TTL is nobody's business
}

// Bytes that no sender made up: no read outside the buffer (the sanitizers watch), and lengths stay inside.
TEST(PacketTest, RandomBytesNeverReadOutside) {
  std::mt19937 random(6);
  int parsed = 0;
  for (int i = 0; i < 200000; ++i) {
    Bytes packet = RandomBytes(random, random() % 100);
    if (packet.size() > 28) {
      packet[0] = 0x45, packet[9] = 17, packet[6] = 0x40, packet[7] = 0;
      packet[2] = 0, packet[3] = static_cast<uint8_t>(packet.size());
      packet[22] = 0x12, packet[23] = 0xb7, packet[24] = 0, packet[25] = static_cast<uint8_t>(packet.size() - 20);
    }
    size_t bytes = 0;
    if (!ParsePacket(packet, &bytes)) continue;
    ++parsed;
    ASSERT_LE(bytes, packet.size());
    IcrcIsRight({packet.data(), bytes});
  }
  EXPECT_GT(parsed, 100);
}

TEST(PacketTest, SourcePortFollowsFromBothQpns) {
  // 0x100 · 0x200 = 0x20000: label 0x20000, low 14 bits 0, upper 6 bits 8.
  EXPECT_EQ(UdpSourcePort(0x100, 0x200), 0xc008);
  EXPECT_EQ(UdpSourcePort(0x123456, 0x0abcde), 0xfd2f);  // product 0xc379948a94, label 0x8bd0d
  std::mt19937 random(7);
  for (int i = 0; i < 1000; ++i) {
    const uint32_t a = random() & kQpnMask, b = random() & kQpnMask;
    EXPECT_EQ(UdpSourcePort(a, b), UdpSourcePort(b, a));
    EXPECT_GE(UdpSourcePort(a, b), 0xc000);
  }
}

}  // namespace
}  // namespace cw::lab
