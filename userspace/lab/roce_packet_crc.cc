// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/roce_packet_crc.h"

#include <array>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace cw::lab {
namespace {

constexpr uint32_t TimesX(uint32_t a) { return (a & 1) ? (a >> 1) ^ kCrc32Polynomial : a >> 1; }

constexpr uint32_t XPower(unsigned n) {
  uint32_t a = 0x80000000u;
  for (unsigned i = 0; i < n; ++i) a = TimesX(a);
  return a;
}

using Tables = std::array<std::array<uint32_t, 256>, 8>;

constexpr Tables MakeTables() {
  Tables t{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int bit = 0; bit < 8; ++bit) c = TimesX(c);
    t[0][i] = c;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (uint32_t i = 0; i < 256; ++i) t[k][i] = (t[k - 1][i] >> 8) ^ t[0][t[k - 1][i] & 0xff];
  }
  return t;
}

constexpr Tables kTables = MakeTables();

uint32_t Load32(const uint8_t* p) { return p[0] | uint32_t{p[1]} << 8 | uint32_t{p[2]} << 16 | uint32_t{p[3]} << 24; }

#if defined(__x86_64__)
// A folding constant: x^n mod P in reflected form, moved up one bit because a reflected 64×64 product is one bit short.
constexpr uint64_t Fold(unsigned n) { return uint64_t{XPower(n)} << 1; }

__attribute__((target("pclmul,sse4.1"))) __m128i FoldInto(__m128i acc, __m128i k, __m128i data) {
  const __m128i low = _mm_clmulepi64_si128(acc, k, 0x00);
  const __m128i high = _mm_clmulepi64_si128(acc, k, 0x11);
  return _mm_xor_si128(_mm_xor_si128(low, high), data);
}

__attribute__((target("pclmul,sse4.1"))) __m128i LoadBlock(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// Folds four lanes of 16 bytes at a time, then the lanes, then leaves the last 16 bytes to the tables.
__attribute__((target("pclmul,sse4.1"))) uint32_t Crc32RawClmul(uint32_t state, const uint8_t* p, size_t n) {
  const __m128i by4 = _mm_set_epi64x(Fold(4 * 128 - 32), Fold(4 * 128 + 32));
  const __m128i by1 = _mm_set_epi64x(Fold(128 - 32), Fold(128 + 32));
  __m128i lane[4];
  for (int i = 0; i < 4; ++i) lane[i] = LoadBlock(p + 16 * i);
  lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128(static_cast<int>(state)));
  for (p += 64, n -= 64; n >= 64; p += 64, n -= 64) {
    for (int i = 0; i < 4; ++i) lane[i] = FoldInto(lane[i], by4, LoadBlock(p + 16 * i));
  }
  __m128i acc = lane[0];
  for (int i = 1; i < 4; ++i) acc = FoldInto(acc, by1, lane[i]);
  for (; n >= 16; p += 16, n -= 16) acc = FoldInto(acc, by1, LoadBlock(p));
  std::array<uint8_t, 16> last;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(last.data()), acc);
  return Crc32RawTable(Crc32RawTable(0, last), {p, n});
}

const bool kHasClmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif

}  // namespace

uint32_t Crc32RawTable(uint32_t state, std::span<const uint8_t> data) {
  const uint8_t* p = data.data();
  size_t n = data.size();
  for (; n >= 8; p += 8, n -= 8) {
    const uint32_t a = Load32(p) ^ state;
    const uint32_t b = Load32(p + 4);
    state = kTables[7][a & 0xff] ^ kTables[6][(a >> 8) & 0xff] ^ kTables[5][(a >> 16) & 0xff] ^ kTables[4][a >> 24] ^
            kTables[3][b & 0xff] ^ kTables[2][(b >> 8) & 0xff] ^ kTables[1][(b >> 16) & 0xff] ^ kTables[0][b >> 24];
  }
  for (; n > 0; ++p, --n) state = (state >> 8) ^ kTables[0][(state ^ *p) & 0xff];
  return state;
}

uint32_t Crc32Raw(uint32_t state, std::span<const uint8_t> data) {
#if defined(__x86_64__)
  if (kHasClmul && data.size() >= 128) return Crc32RawClmul(state, data.data(), data.size());
#endif
  return Crc32RawTable(state, data);
}

uint32_t Crc32Multiply(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (uint32_t bit = 0x80000000u; bit != 0; bit >>= 1) {
    if (a & bit) product ^= b;
    b = TimesX(b);
  }
  return product;
}

uint32_t Crc32ZerosOperator(size_t bytes) {
  uint32_t result = 0x80000000u;
  uint32_t power = XPower(8);
  for (; bytes != 0; bytes >>= 1) {
    if (bytes & 1) result = Crc32Multiply(power, result);
    power = Crc32Multiply(power, power);
  }
  return result;
}

}  // namespace cw::lab
