// SPDX-License-Identifier: Apache-2.0
#include "bpf/icrc.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "maps/siphash.h"
#include "tests/bpf/frame.h"

namespace cw::test {
namespace {

const std::vector<uint32_t>& Pow() {
  static const std::vector<uint32_t> pow = [] {
    std::vector<uint32_t> p(CW_ICRC_POWS);
    cw_icrc_pow_fill(p.data());
    return p;
  }();
  return pow;
}

// What the dataplane does: new port, ICRC patched.
void Rewrite(Bytes* frame, uint16_t port) {
  size_t udp = UdpOffset(*frame);
  uint32_t distance = cw_icrc_distance(Load16(*frame, udp + 4));
  ASSERT_LE(distance, static_cast<uint32_t>(CW_ICRC_DISTANCE_MAX));
  auto changed = static_cast<uint16_t>(__builtin_bswap16(Load16(*frame, udp) ^ port));
  uint32_t icrc = StoredIcrc(*frame) ^ cw_icrc_patch(Pow()[distance + 1], Pow()[distance], changed);
  Store16(*frame, udp, port);
  Store32(*frame, frame->size() - 4, __builtin_bswap32(icrc));
}

TEST(BpfIcrc, IndependentComputationAgreesWithCapturedPackets) {
  for (const char* hex :
       {"020000000002 020000000001 0800 45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff40000118"
        "00000000 00000000000000000000000000000000 82fd002a",
        "020000000002 020000000001 0800 45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d3"
        "00cf1710 4630818be28935d90e9a95505401be885e500000 78f353f3",
        "020000000002 020000000001 0800 4502003000004000401126b90a0000010a000002 c12312b7001c0000 1140ffff00000012"
        "00000007 1f000003 91a6236a",
        "020000000002 020000000001 86dd 60212345001c1140fd000000000000000000000000000001"
        "fd000000000000000000000000000002 c12312b7001c00001140ffff00000012000000071f000003 a66348cd"}) {
    Bytes frame = FromHex(hex);
    EXPECT_EQ(Icrc(frame), StoredIcrc(frame));
  }
}

TEST(BpfIcrc, PatchEqualsFullComputationAtEveryLength) {
  std::mt19937 random(1);
  for (size_t payload = 0; payload <= 9180; payload += payload < 600 ? 1 : 61) {
    Frame f;
    f.ip6 = payload % 2;
    f.opcode = 0x07;
    f.payload.resize(payload);
    for (uint8_t& byte : f.payload) byte = static_cast<uint8_t>(random());
    f.sport = static_cast<uint16_t>(random());
    f.psn = random() & 0xffffff;
    Bytes frame = Build(f);
    Rewrite(&frame, static_cast<uint16_t>(random()));
    ASSERT_EQ(StoredIcrc(frame), Icrc(frame)) << payload;
  }
}

TEST(BpfIcrc, EveryBitOfThePort) {
  for (int bit = 0; bit < 16; ++bit) {
    Frame f;
    Bytes frame = Build(f);
    Rewrite(&frame, static_cast<uint16_t>(f.sport ^ (1 << bit)));
    EXPECT_EQ(StoredIcrc(frame), Icrc(frame)) << bit;
  }
}

TEST(BpfIcrc, NoPowerIsZero) {
  for (uint32_t p : Pow()) ASSERT_NE(p, 0u); /* zero means that the loader did not fill the table */
}

// Vectors of the reference implementation: key 00 01 .. 0f, input 00 01 .. of n bytes.
TEST(BpfSiphash, ReferenceVectors) {
  const uint64_t key[2] = {0x0706050403020100ULL, 0x0f0e0d0c0b0a0908ULL};
  const uint64_t want[] = {0x726fdb47dd0e0e31ULL, 0x93f5f5799a932462ULL, 0x3f2acc7f57c29bdbULL, 0xb8ad50c6f649af94ULL,
                           0x7127512f72f27cceULL, 0x0e3ea96b5304a7d0ULL, 0xe612a3cb9ecba951ULL, 0xb78dbfaf3a8d83bdULL};
  uint64_t words[8];
  for (int i = 0; i < 64; ++i) reinterpret_cast<uint8_t*>(words)[i] = static_cast<uint8_t>(i);
  __u64 k[2] = {key[0], key[1]}, w[8];
  __builtin_memcpy(w, words, sizeof(w));
  for (uint32_t n = 0; n < 8; ++n) EXPECT_EQ(cw_siphash24(k, w, n), want[n]) << n;
}

}  // namespace
}  // namespace cw::test
