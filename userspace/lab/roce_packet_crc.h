// SPDX-License-Identifier: Apache-2.0
// CRC-32 (the IEEE 802.3 polynomial, reflected) as the ICRC uses it, with the linear operations that make an ICRC
// cheap.
//
// All states here are raw: no initial and no final inversion. The reflected form holds x^0 in bit 31.
// Sources: IBTA 1.7 §9.3 (ICRC); V. Gopal et al., "Fast CRC Computation for Generic Polynomials Using PCLMULQDQ"
// (2009). Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace cw::lab {

inline constexpr uint32_t kCrc32Polynomial = 0xEDB88320u;

// Continues `state` over `data`; carry-less multiplication where the processor has it, tables elsewhere.
uint32_t Crc32Raw(uint32_t state, std::span<const uint8_t> data);

// The same by tables only: the independent computation in tests, and the path of processors without PCLMUL.
uint32_t Crc32RawTable(uint32_t state, std::span<const uint8_t> data);

// a·b modulo the polynomial.
uint32_t Crc32Multiply(uint32_t a, uint32_t b);

// x^(8·bytes) modulo the polynomial: multiplying a state by it has the effect of `bytes` zero bytes.
uint32_t Crc32ZerosOperator(size_t bytes);

}  // namespace cw::lab
