// SPDX-License-Identifier: Apache-2.0
#include "bpf/parse.h"

#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <random>

#include "tests/bpf/frame.h"

namespace cw::test {
namespace {

int Parse(const Bytes& frame, cw_packet* p) {
  // Of exactly the frame's size, so that a sanitizer sees any byte read too many.
  std::unique_ptr<uint8_t[]> exact(new uint8_t[frame.size()]);
  std::copy(frame.begin(), frame.end(), exact.get());
  return cw_parse(exact.get(), static_cast<__u32>(frame.size()), p);
}

int Parse(const Frame& frame) {
  cw_packet p = {};
  return Parse(Build(frame), &p);
}

Bytes WithEthernet(const char* hex) {
  Bytes frame = FromHex("020000000002 020000000001 0800");
  Bytes ip = FromHex(hex);
  frame.insert(frame.end(), ip.begin(), ip.end());
  return frame;
}

TEST(BpfParse, FieldsOfAWrite) {
  Frame f;
  f.psn = 0xabcdef;
  f.dqpn = 0x123456;
  f.tos = 0x6b;
  f.sport = 50001;
  f.ack_req = true;
  for (int tags = 0; tags <= 2; ++tags) {
    f.vlan_tags = tags;
    cw_packet p = {};
    ASSERT_EQ(Parse(Build(f), &p), CW_PARSE_ROCE) << tags;
    EXPECT_EQ(p.l3_off, 14u + 4 * tags);
    EXPECT_EQ(p.l4_off, p.l3_off + 20);
    EXPECT_FALSE(cw_is_ip6(&p));
    EXPECT_EQ(Bytes(p.key.saddr, p.key.saddr + 16), AddressBytes(0x0a000001, false));
    EXPECT_EQ(Bytes(p.key.daddr, p.key.daddr + 16), AddressBytes(0x0a000002, false));
    EXPECT_EQ(p.key.dqpn, 0x123456u);
    EXPECT_EQ(p.psn, 0xabcdefu);
    EXPECT_EQ(p.sport, 50001);
    EXPECT_EQ(p.tos, 0x6b);
    EXPECT_EQ(p.opcode, 0x0a);
    EXPECT_EQ(p.udp_len, 8 + 12 + 16 + 64 + 4);
    EXPECT_EQ(p.ip_len, p.udp_len + 20);
    EXPECT_EQ(p.payload, 64);
    EXPECT_TRUE(p.op & CW_OP_REQ);
  }
}

TEST(BpfParse, CapturedPackets) {
  cw_packet p = {};
  // A congestion notification of a NIC, and an acknowledgement.
  ASSERT_EQ(Parse(WithEthernet("45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff40000118"
                               "00000000 00000000000000000000000000000000 82fd002a"),
                  &p),
            CW_PARSE_ROCE);
  EXPECT_EQ(p.op & ~CW_OP_EXT, static_cast<__u32>(CW_OP_KNOWN | CW_OP_CNP));
  EXPECT_EQ(p.key.dqpn, 0x118u);
  ASSERT_EQ(Parse(WithEthernet("4502003000004000401126b90a0000010a000002 c12312b7001c0000 1140ffff00000012"
                               "00000007 1f000003 91a6236a"),
                  &p),
            CW_PARSE_ROCE);
  EXPECT_TRUE(p.op & CW_OP_ACK);
  EXPECT_EQ(p.syndrome, 0x1f);
  EXPECT_EQ(p.psn, 7u);
  EXPECT_EQ(p.payload, 0);
  // Unreliable connection, SEND only, two bytes of pad: the payload is shorter by them.
  ASSERT_EQ(Parse(WithEthernet("45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d3"
                               "00cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3"),
                  &p),
            CW_PARSE_ROCE);
  EXPECT_EQ(p.payload, 18);
  EXPECT_EQ(p.udp_check, 0xa2ac);
}

TEST(BpfParse, EveryTruncationIsRefusedUnderItsName) {
  for (uint8_t opcode : {0x0a, 0x0c, 0x11, 0x00}) {
    Frame f;
    f.opcode = opcode;
    f.vlan_tags = opcode == 0x11 ? 2 : 0;
    f.payload = opcode == 0x0c || opcode == 0x11 ? Bytes() : Bytes(8, 1);
    Bytes whole = Build(f);
    size_t ip = IpOffset(whole);
    for (size_t len = 0; len < whole.size(); ++len) {
      cw_packet p = {};
      int r = Parse(Bytes(whole.begin(), whole.begin() + len), &p);
      int want = len < ip        ? CW_COUNT_eth_truncated
                 : len < ip + 20 ? CW_COUNT_ip_truncated
                 : len < ip + 28 ? CW_COUNT_udp_truncated
                                 : CW_COUNT_ip_truncated;
      ASSERT_EQ(r, want) << "opcode " << int{opcode} << " length " << len;
    }
  }
}

TEST(BpfParse, FrameLongerThanItsLinearPart) {
  Frame f;
  f.opcode = 0x0c;
  f.payload.clear();
  Bytes whole = Build(f);
  const uint8_t* data = whole.data();
  auto size = static_cast<__u32>(whole.size());
  // Linear up to somewhere inside BTH or RETH: refused, because what lies behind is not there to be read.
  for (size_t linear = 42; linear < 42 + 12 + 16; ++linear) {
    cw_packet p = {};
    ASSERT_EQ(cw_parse_udp(data, data + linear, &p), CW_PARSE_ROCE);
    EXPECT_EQ(cw_parse_roce(data, data + linear, size, &p),
              linear < 54 ? CW_COUNT_bth_truncated : CW_COUNT_ext_truncated);
  }
  cw_packet p = {};
  ASSERT_EQ(cw_parse_udp(data, data + 70, &p), CW_PARSE_ROCE);
  EXPECT_EQ(cw_parse_roce(data, data + 70, size, &p), CW_PARSE_ROCE);
}

TEST(BpfParse, WhatIsNotHandled) {
  auto with = [](auto change) {
    Frame f;
    change(f);
    return Parse(f);
  };
  EXPECT_EQ(with([](Frame& f) { f.vlan_tags = 3; }), CW_COUNT_vlan_too_deep);
  EXPECT_EQ(with([](Frame& f) { f.ethertype = 0x8915; }), CW_COUNT_rocev1_frames);
  EXPECT_EQ(with([](Frame& f) { f.ethertype = 0x0806; }), CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) { f.version_ihl = 0x55; }), CW_COUNT_ip_truncated);
  EXPECT_EQ(with([](Frame& f) { f.version_ihl = 0x44; }), CW_COUNT_ip_truncated);
  EXPECT_EQ(with([](Frame& f) { f.protocol = 6; }), CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) { f.dport = 4792; }), CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) { f.frag = 0x2000; }), CW_COUNT_ip_fragment);
  EXPECT_EQ(with([](Frame& f) { f.frag = 185; }), CW_COUNT_ip_fragment);
  EXPECT_EQ(with([](Frame& f) { f.udp_len_delta = 4; }), CW_COUNT_udp_length_bad);
  EXPECT_EQ(with([](Frame& f) { f.udp_len_delta = -4; }), CW_COUNT_udp_length_bad);
  EXPECT_EQ(with([](Frame& f) { f.ip_len_delta = 4; }), CW_COUNT_ip_truncated);
  EXPECT_EQ(with([](Frame& f) { f.ip_len_delta = -4; }), CW_COUNT_udp_length_bad);
  EXPECT_EQ(with([](Frame& f) { f.bth_flags = 0x41; }), CW_COUNT_bth_version);
  EXPECT_EQ(with([](Frame& f) {
              f.version_ihl = 0x46;
              f.ip_options = Bytes(4, 1);
            }),
            CW_COUNT_ip_options);
  EXPECT_EQ(with([](Frame& f) {
              f.version_ihl = 0x46;
              f.ip_options = Bytes(4, 1);
              f.dport = 53;
            }),
            CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) {  // a WRITE without room for its RETH
              f.ext = Bytes(4, 0);
              f.payload.clear();
            }),
            CW_COUNT_ext_truncated);
}

TEST(BpfParse, ShorterThanBth) {
  Bytes frame = Build(Frame{});
  frame.resize(14 + 20 + 8 + 12);
  Store16(frame, 16, 20 + 8 + 12);
  Store16(frame, 38, 8 + 12);
  cw_packet p = {};
  EXPECT_EQ(Parse(frame, &p), CW_COUNT_bth_truncated);
}

TEST(BpfParse, Ipv6LooksLikeIpv4) {
  Frame f;
  f.psn = 0xabcdef;
  f.dqpn = 0x123456;
  f.tos = 0x6b;
  f.label = 0xfedcb;
  f.sport = 50001;
  for (int tags = 0; tags <= 2; ++tags) {
    f.vlan_tags = tags;
    cw_packet four = {}, six = {};
    f.ip6 = false;
    ASSERT_EQ(Parse(Build(f), &four), CW_PARSE_ROCE) << tags;
    f.ip6 = true;
    ASSERT_EQ(Parse(Build(f), &six), CW_PARSE_ROCE) << tags;
    EXPECT_TRUE(cw_is_ip6(&six));
    EXPECT_EQ(six.l4_off, six.l3_off + 40);
    EXPECT_EQ(six.ip_len, six.udp_len + 40);
    EXPECT_EQ(six.label, 0xfedcbu);
    EXPECT_EQ(Bytes(six.key.saddr, six.key.saddr + 16), AddressBytes(f.saddr, true));
    EXPECT_EQ(Bytes(six.key.daddr, six.key.daddr + 16), AddressBytes(f.daddr, true));
    // All else is the same.
    six.l4_off -= 20;
    six.ip_len = static_cast<__u16>(six.ip_len - 20);
    six.label = 0;
    cw_address_copy(six.key.saddr, four.key.saddr);
    cw_address_copy(six.key.daddr, four.key.daddr);
    EXPECT_EQ(memcmp(&six, &four, sizeof(six)), 0);
  }
}

TEST(BpfParse, Ipv6Captured) {
  const Bytes frame = FromHex(
      "020000000002 020000000001 86dd 60212345001c1140fd000000000000000000000000000001fd000000000000000000000000000002"
      "c12312b7001c00001140ffff00000012000000071f000003 a66348cd");
  cw_packet p = {};
  ASSERT_EQ(Parse(frame, &p), CW_PARSE_ROCE);
  EXPECT_TRUE(p.op & CW_OP_ACK);
  EXPECT_EQ(p.tos, 2);
  EXPECT_EQ(p.label, 0x12345u);
  EXPECT_EQ(p.sport, 0xc123);
  EXPECT_EQ(p.key.dqpn, 0x12u);
}

TEST(BpfParse, EveryTruncationOfIpv6IsRefusedUnderItsName) {
  Frame f;
  f.ip6 = true;
  f.opcode = 0x0c;
  f.payload.clear();
  const Bytes whole = Build(f);
  const size_t ip = IpOffset(whole);
  for (size_t len = 0; len < whole.size(); ++len) {
    cw_packet p = {};
    const int want = len < ip        ? CW_COUNT_eth_truncated
                     : len < ip + 40 ? CW_COUNT_ip_truncated
                     : len < ip + 48 ? CW_COUNT_udp_truncated
                                     : CW_COUNT_ip_truncated;
    ASSERT_EQ(Parse(Bytes(whole.begin(), whole.begin() + static_cast<long>(len)), &p), want) << len;
  }
}

TEST(BpfParse, WhatIsNotHandledOfIpv6) {
  auto with = [](auto change) {
    Frame f;
    f.ip6 = true;
    change(f);
    return Parse(f);
  };
  EXPECT_EQ(with([](Frame& f) { f.protocol = 6; }), CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) { f.protocol = 58; }), CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) { f.dport = 4792; }), CW_PARSE_OTHER);
  EXPECT_EQ(with([](Frame& f) { f.udp_len_delta = 4; }), CW_COUNT_udp_length_bad);
  EXPECT_EQ(with([](Frame& f) { f.ip_len_delta = 4; }), CW_COUNT_ip_truncated);
  EXPECT_EQ(with([](Frame& f) { f.ip_len_delta = -4; }), CW_COUNT_udp_length_bad);
  for (uint8_t kind : {0, 43, 60}) {
    const auto ext = [&](const char* hex, uint16_t port) {
      return with([&](Frame& f) {
        f.ip6_next = kind;
        f.ip6_extension = FromHex(hex);
        f.dport = port;
      });
    };
    EXPECT_EQ(ext("11 00 010400000000", 4791), CW_COUNT_ip6_extension);
    EXPECT_EQ(ext("11 01 010c000000000000000000000000", 4791), CW_COUNT_ip6_extension);
    EXPECT_EQ(ext("11 00 010400000000", 53), CW_PARSE_OTHER);
    EXPECT_EQ(ext("11 ff 010400000000", 4791), CW_PARSE_OTHER);  // longer than the packet
    EXPECT_EQ(ext("06 00 010400000000", 4791), CW_PARSE_OTHER);
  }
  EXPECT_EQ(with([](Frame& f) {
              f.ip6_next = 44;
              f.ip6_extension = FromHex("11 00 0001 00000007");
            }),
            CW_COUNT_ip_fragment);
  Frame f;
  f.ip6 = true;
  Bytes frame = Build(f);
  frame[14] = 0x45;  // the type says IPv6, the header does not
  cw_packet p = {};
  EXPECT_EQ(Parse(frame, &p), CW_COUNT_ip_truncated);
}

TEST(BpfParse, ExtendedHeadersOfEveryOpcode) {
  for (int opcode = 0; opcode < 256; ++opcode) {
    Frame f;
    f.opcode = static_cast<uint8_t>(opcode);
    cw_packet p = {};
    ASSERT_EQ(Parse(Build(f), &p), CW_PARSE_ROCE) << opcode;
    if (p.op & CW_OP_KNOWN)
      EXPECT_EQ(p.op & CW_OP_EXT, ExtLength(f.opcode)) << opcode;
    else
      EXPECT_EQ(p.op, 0u) << opcode;
    int transport = opcode >> 5;
    bool numbered = p.op & (CW_OP_REQ | CW_OP_RESP | CW_OP_ACK);
    EXPECT_TRUE(!numbered || transport == CW_TRANSPORT_RC || transport == CW_TRANSPORT_UC) << opcode;
    EXPECT_TRUE(transport != CW_TRANSPORT_UC || !(p.op & (CW_OP_RESP | CW_OP_ACK | CW_OP_READ))) << opcode;
  }
}

TEST(BpfParse, RandomBytesNeverReadOutside) {
  std::mt19937 random(7);
  for (int i = 0; i < 50000; ++i) {
    Frame f;
    f.ip6 = random() % 2;
    if (random() % 8 == 0) f.ip6_extension = Bytes(8, 17);
    f.vlan_tags = static_cast<int>(random() % 4);
    f.opcode = static_cast<uint8_t>(random());
    f.payload = Bytes(random() % 40, 0);
    Bytes frame = Build(f);
    for (int flips = static_cast<int>(random() % 4); flips > 0; --flips)
      frame[random() % frame.size()] = static_cast<uint8_t>(random());
    frame.resize(random() % (frame.size() + 1));
    cw_packet p = {};
    int r = Parse(frame, &p);
    ASSERT_TRUE(r == CW_PARSE_ROCE || r == CW_PARSE_OTHER || (r >= 0 && r < CW_COUNT_END));
    if (r == CW_PARSE_ROCE) {
      ASSERT_LE(p.l3_off + p.ip_len, frame.size());
    }
  }
}

}  // namespace
}  // namespace cw::test
