// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/packet.h"

#include <gtest/gtest.h>
#include <openssl/core_names.h>
#include <openssl/evp.h>
#include <openssl/params.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <iostream>
#include <random>
#include <string>

#include "absl/strings/escaping.h"
#include "tests/unit/probe_fakes.h"

namespace cw::probe {
namespace {

// Bit by bit, from the specification, sharing nothing with the code under test.
uint32_t BitwiseIcrc(std::vector<uint8_t> packet) {
  packet[1] = packet[8] = packet[10] = packet[11] = 0xff;  // ToS, TTL, header checksum
  packet[26] = packet[27] = 0xff;                          // UDP checksum
  packet[32] = 0xff;                                       // BTH: FECN, BECN, reserved
  packet.insert(packet.begin(), 8, 0xff);
  uint32_t crc = 0xffffffff;
  for (uint8_t byte : packet) {
    crc ^= byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc & 1) != 0 ? crc >> 1 ^ 0xEDB88320u : crc >> 1;
  }
  return ~crc;
}

// OpenSSL's SipHash-2-4, the independent computation.
uint64_t ReferenceMac(const MacKey& key, absl::Span<const uint8_t> data) {
  EVP_MAC* mac = EVP_MAC_fetch(nullptr, "SIPHASH", nullptr);
  EVP_MAC_CTX* ctx = EVP_MAC_CTX_new(mac);
  size_t size = 8;
  OSSL_PARAM params[] = {OSSL_PARAM_construct_size_t(OSSL_MAC_PARAM_SIZE, &size), OSSL_PARAM_construct_end()};
  uint8_t out[8];
  size_t out_len = 0;
  EXPECT_EQ(1, EVP_MAC_CTX_set_params(ctx, params));
  EXPECT_EQ(1, EVP_MAC_init(ctx, reinterpret_cast<const uint8_t*>(key.k), 16, nullptr));
  EXPECT_EQ(1, EVP_MAC_update(ctx, data.data(), data.size()));
  EXPECT_EQ(1, EVP_MAC_final(ctx, out, &out_len, sizeof(out)));
  EVP_MAC_CTX_free(ctx);
  EVP_MAC_free(mac);
  uint64_t v;
  std::memcpy(&v, out, sizeof(v));
  return v;
}

uint32_t StoredIcrc(absl::Span<const uint8_t> packet) {
  uint32_t v;
  std::memcpy(&v, packet.data() + packet.size() - 4, 4);
  return v;
}

std::vector<uint8_t> WithoutIcrc(absl::Span<const uint8_t> packet) { return {packet.begin(), packet.end() - 4}; }

PacketSpec Spec() {
  PacketSpec s;
  s.local = TestAddr("10.0.0.10");
  s.remote = TestAddr("10.0.1.10");
  s.port = 0xc123;
  s.slot = 5;
  s.dscp = 26;
  s.session = 0x01020304;
  s.cookie = 0x0a0b;
  s.key_id = 1;
  s.key = {{0x0706050403020100, 0x0f0e0d0c0b0a0908}};
  return s;
}

TEST(ProbePacket, IcrcOfKnownPackets) {
  const struct {
    const char* packet;
    uint32_t icrc;
  } vectors[] = {
      {"45c2003c718c4000401191610a0011010a001201000012b7002800008100ffff4000011800000000"
       "00000000000000000000000000000000",
       0x2a00fd82},
      {"4502003000004000401126b90a0000010a000002c12312b7001c00001140ffff00000012000000071f000003", 0x6a23a691},
  };
  for (const auto& v : vectors) {
    const std::string raw = absl::HexStringToBytes(v.packet);
    const std::vector<uint8_t> bytes(raw.begin(), raw.end());
    EXPECT_EQ(v.icrc, ComputeIcrc(bytes));
    EXPECT_EQ(v.icrc, BitwiseIcrc(bytes));
  }
}

TEST(ProbePacket, RequestByteForByte) {
  auto t = ProbeTemplate::Make(CW_PROBE_REQUEST, Spec());
  ASSERT_TRUE(t.ok()) << t.status();
  t->SetRound(0x11223344);
  const std::string expected = absl::HexStringToBytes(
      "456a007c43574000401100000a00000a0a00010a"  // DSCP 26, ECT(0), DF; the checksum is looked at below
      "c12312b700680000"
      "e700ffff0000cf0b00000000"
      "435746500101"
      "05ff"
      "01020304"
      "11223344"
      "0a0b"
      "01"
      "00"
      "00000000"
      "000000000000000000000000000000000000000000000000"
      "00000000000000000000000000000000"
      "0000000000000000");
  std::vector<uint8_t> got(t->bytes().begin(), t->bytes().end());
  ASSERT_EQ(kIp4Len + CW_PROBE_UDP_LEN, got.size());
  uint32_t sum = 0;
  for (size_t i = 0; i < 20; i += 2) sum += got[i] << 8 | got[i + 1];
  EXPECT_EQ(0xffffu, (sum & 0xffff) + (sum >> 16)) << "IPv4 header checksum";
  got[10] = got[11] = 0;
  EXPECT_EQ(absl::BytesToHexString(expected),
            absl::BytesToHexString(std::string(got.begin(), got.begin() + HdrOffset(true) + CW_PROBE_MAC_OFFSET)));
  uint64_t mac;
  std::memcpy(&mac, got.data() + HdrOffset(true) + CW_PROBE_MAC_OFFSET, 8);
  EXPECT_EQ(ReferenceMac(Spec().key, t->bytes().subspan(HdrOffset(true), CW_PROBE_MAC_OFFSET)), mac);
  EXPECT_EQ(BitwiseIcrc(WithoutIcrc(t->bytes())), StoredIcrc(t->bytes()));
}

TEST(ProbePacket, EveryRoundHasItsOwnValidMacAndIcrc) {
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    PacketSpec s = Spec();
    s.port = static_cast<uint16_t>(1 + random() % 65535);
    s.slot = random() % 16;
    s.dscp = random() % 64;
    s.ttl = static_cast<uint8_t>(random());
    s.ip_id = static_cast<uint16_t>(1 + random() % 65535);
    s.session = random();
    s.key.k[0] = random();
    auto t = ProbeTemplate::Make(i % 2 == 0 ? CW_PROBE_REQUEST : CW_PROBE_TRACE, s);
    ASSERT_TRUE(t.ok());
    for (uint32_t round : {0u, 1u, uint32_t(random()), 0xffffffffu}) {
      t->SetRound(round);
      uint64_t mac;
      std::memcpy(&mac, t->bytes().data() + HdrOffset(true) + CW_PROBE_MAC_OFFSET, 8);
      EXPECT_EQ(ReferenceMac(s.key, t->bytes().subspan(HdrOffset(true), CW_PROBE_MAC_OFFSET)), mac);
      EXPECT_EQ(BitwiseIcrc(WithoutIcrc(t->bytes())), StoredIcrc(t->bytes()));
    }
  }
}

TEST(ProbePacket, OverIpv6AllButTheIpHeaderIsTheSame) {
  PacketSpec six = Spec();
  six.local = TestAddr("fd00::1");
  six.remote = TestAddr("fd00::2");
  six.label = 0xabcde;
  auto four = ProbeTemplate::Make(CW_PROBE_REQUEST, Spec()), t = ProbeTemplate::Make(CW_PROBE_REQUEST, six);
  ASSERT_TRUE(four.ok() && t.ok()) << t.status();
  for (uint32_t round : {0u, 7u, 0xffffffffu}) {
    t->SetRound(round);
    four->SetRound(round);
    const absl::Span<const uint8_t> p = t->bytes();
    ASSERT_EQ(p.size(), 40u + CW_PROBE_UDP_LEN);
    const std::string header = absl::HexStringToBytes(
        "66aabcde00681140"
        "fd000000000000000000000000000001fd000000000000000000000000000002");
    EXPECT_EQ(absl::BytesToHexString(header), absl::BytesToHexString(std::string(p.begin(), p.begin() + 40)));
    const auto rest = p.subspan(40, p.size() - 40 - CW_ICRC_LEN);
    const auto rest4 = four->bytes().subspan(20, four->bytes().size() - 20 - CW_ICRC_LEN);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), rest4.begin(), rest4.end()));
    uint32_t icrc;
    std::memcpy(&icrc, p.data() + p.size() - 4, 4);
    EXPECT_EQ(icrc, ComputeIcrc(p.first(p.size() - 4)));
  }
}

// The bytes and the ICRC of scapy's RoCE layer.
TEST(ProbePacket, IcrcOverIpv6) {
  const std::string raw = absl::HexStringToBytes(
      "60212345001c1140fd000000000000000000000000000001fd000000000000000000000000000002"
      "c12312b7001c00001140ffff00000012000000071f000003a66348cd");
  const std::vector<uint8_t> p(raw.begin(), raw.end());
  uint32_t icrc;
  std::memcpy(&icrc, p.data() + p.size() - 4, 4);
  EXPECT_EQ(icrc, ComputeIcrc(absl::MakeConstSpan(p).first(p.size() - 4)));
}

TEST(ProbePacket, RefusesWhatItCannotSend) {
  PacketSpec s = Spec();
  s.ip_id = 0;
  EXPECT_FALSE(ProbeTemplate::Make(CW_PROBE_REQUEST, s).ok());
  s = Spec();
  s.port = 0;
  EXPECT_FALSE(ProbeTemplate::Make(CW_PROBE_REQUEST, s).ok());
  s = Spec();
  s.remote = TestAddr("fd00::1");
  EXPECT_TRUE(absl::IsInvalidArgument(ProbeTemplate::Make(CW_PROBE_REQUEST, s).status())) << "from IPv4 to IPv6";
  EXPECT_FALSE(ProbeTemplate::Make(CW_PROBE_REPLY, Spec()).ok());
  s = Spec();
  s.qpn = 0x11;
  EXPECT_FALSE(ProbeTemplate::Make(CW_PROBE_TRACE, s).ok()) << "somebody's queue pair";
}

TEST(ProbePacket, MessageRoundTripAtEveryLength) {
  std::mt19937 random(3);
  for (size_t len = 0; len <= CW_MSG_MAX; len += len < 40 ? 1 : 53) {
    std::vector<uint8_t> body(len);
    for (uint8_t& b : body) b = static_cast<uint8_t>(random());
    auto packet = BuildMessage(Spec(), 77, body);
    ASSERT_TRUE(packet.ok()) << packet.status();
    EXPECT_EQ(BitwiseIcrc(WithoutIcrc(*packet)), StoredIcrc(*packet));
    EXPECT_EQ(packet->size(), size_t((*packet)[2] << 8 | (*packet)[3]));
    const absl::Span<const uint8_t> record =
        absl::MakeConstSpan(*packet).subspan(HdrOffset(true), packet->size() - HdrOffset(true) - CW_ICRC_LEN);
    uint64_t header_mac;
    std::memcpy(&header_mac, record.data() + CW_PROBE_MAC_OFFSET, 8);
    EXPECT_EQ(ReferenceMac(Spec().key, record.first(CW_PROBE_MAC_OFFSET)), header_mac);
    std::vector<uint8_t> padded(record.begin(), record.end() - CW_MSG_MAC_LEN);
    padded.resize((padded.size() + 7) / 8 * 8);
    uint64_t body_mac;
    std::memcpy(&body_mac, record.data() + record.size() - 8, 8);
    EXPECT_EQ(ReferenceMac(Spec().key, padded), body_mac);

    auto view = ParseMessage(record);
    ASSERT_TRUE(view.ok()) << view.status();
    EXPECT_EQ(Spec().session, view->session);
    EXPECT_EQ(77u, view->sequence);
    EXPECT_EQ(1, view->key_id);
    EXPECT_TRUE(std::equal(body.begin(), body.end(), view->body.begin(), view->body.end()));
    EXPECT_TRUE(VerifyMessage(record, Spec().key).ok());
    for (size_t cut = 0; cut < record.size(); ++cut) EXPECT_FALSE(ParseMessage(record.first(cut)).ok());
  }
  EXPECT_FALSE(BuildMessage(Spec(), 1, std::vector<uint8_t>(CW_MSG_MAX + 1)).ok());
}

TEST(ProbePacket, AnyChangedBitOfAMessageIsRefused) {
  auto packet = BuildMessage(Spec(), 9, std::vector<uint8_t>{1, 2, 3, 4, 5});
  ASSERT_TRUE(packet.ok());
  std::vector<uint8_t> record(packet->begin() + HdrOffset(true), packet->end() - CW_ICRC_LEN);
  ASSERT_TRUE(VerifyMessage(record, Spec().key).ok());
  for (size_t bit = 0; bit < record.size() * 8; ++bit) {
    record[bit / 8] ^= 1u << bit % 8;
    EXPECT_FALSE(ParseMessage(record).ok() && VerifyMessage(record, Spec().key).ok()) << "bit " << bit;
    record[bit / 8] ^= 1u << bit % 8;
  }
  MacKey other = Spec().key;
  other.k[1] ^= 1;
  EXPECT_TRUE(absl::IsUnauthenticated(VerifyMessage(record, other)));
}

// The prober's budget: 1 µs per probe. The bound is ten times that.
TEST(ProbePacket, ANewRoundIsCheap) {
  auto t = ProbeTemplate::Make(CW_PROBE_REQUEST, Spec());
  ASSERT_TRUE(t.ok());
  constexpr int kRounds = 20000;
  const auto start = std::chrono::steady_clock::now();
  uint32_t sink = 0;
  for (uint32_t i = 0; i < kRounds; ++i) {
    t->SetRound(i);
    sink += t->bytes()[120];
  }
  const double ns =
      std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / kRounds;
  RecordProperty("ns_per_round", static_cast<int>(ns));
  std::cout << "a new round: " << ns << " ns (" << sink % 2 << ")\n";
  EXPECT_LT(ns, 10'000);
}

}  // namespace
}  // namespace cw::probe
