// SPDX-License-Identifier: Apache-2.0
//
// How one agent learns the number of another's probe queue pair: a question and an answer of equal length, plain UDP
// between the NICs' addresses, which a NIC that keeps UDP 4791 for itself still gives to the kernel. All integers
// big-endian, the MAC (SipHash-2-4 of what precedes it, under the key of the ordered pair of addresses, as in
// maps/wire.h) as a little-endian word. An answer echoes the question's nonce, so an old one is worth nothing; a
// question changes nothing at its receiver. Pure; any thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>

#include "absl/types/span.h"
#include "maps/abi.h"
#include "userspace/model/addr.h"

namespace cw::probe_verbs {

inline constexpr size_t kHelloLen = 64;
using HelloBytes = std::array<uint8_t, kHelloLen>;

struct Hello {
  enum class Type : uint8_t { kAsk = 1, kAnswer = 2 };
  Type type = Type::kAsk;
  uint64_t nonce = 0;  // the question's
  uint32_t qpn = 0;    // the sender's; 24 bits
  Addr from, to;
};

// keys: of the pair {from, to} as its sender has them.
HelloBytes EncodeHello(const Hello& hello, const cw_pair_keys& keys);
// keys: of the pair as the receiver has them, which are looked up by the addresses that PeekHello tells. nullopt: not
// authentic, or not one of ours.
std::optional<Hello> DecodeHello(absl::Span<const uint8_t> bytes, const cw_pair_keys& keys);
// Without looking at the MAC.
std::optional<Hello> PeekHello(absl::Span<const uint8_t> bytes);

}  // namespace cw::probe_verbs
