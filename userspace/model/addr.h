// SPDX-License-Identifier: Apache-2.0
//
// An address of a NIC: 16 bytes in network order, IPv4 as ::ffff:a.b.c.d, which is the form of a RoCEv2 GID and of
// every address in maps/abi.h. A value type; safe on any thread.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cw {

struct Addr {
  std::array<uint8_t, 16> bytes{};

  static Addr FromBytes(const uint8_t* sixteen_bytes);
  // Host order: FromV4(0x0a000001) is 10.0.0.1.
  static Addr FromV4(uint32_t host_order);
  // Dotted IPv4, or IPv6 as in RFC 4291 (including ::ffff:a.b.c.d). InvalidArgument names the text.
  static absl::StatusOr<Addr> Parse(absl::string_view text);

  bool is_v4() const;
  bool is_zero() const { return *this == Addr{}; }
  uint32_t v4() const;  // host order; meaningful only if is_v4()
  // Dotted for IPv4, RFC 5952 for IPv6; the zero address prints as "::".
  std::string ToString() const;

  auto operator<=>(const Addr&) const = default;

  template <typename H>
  friend H AbslHashValue(H h, const Addr& a) {
    return H::combine_contiguous(std::move(h), a.bytes.data(), a.bytes.size());
  }
};

}  // namespace cw
