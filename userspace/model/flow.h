// SPDX-License-Identifier: Apache-2.0
//
// A flow: one direction of one queue pair on the wire. Value types; safe on any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "userspace/model/addr.h"

namespace cw {

// What people see and type for a flow: 8 hex digits. A hash of the key, so it is the same on every host, after every
// restart and in every log. Two flows of a host share an id with a chance of about n²/2³³; look-ups must expect it.
struct FlowId {
  uint32_t value = 0;

  std::string ToString() const;  // "0b5c91fe"
  // Eight hex digits of either case; nothing else.
  static std::optional<FlowId> Parse(absl::string_view text);

  auto operator<=>(const FlowId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, FlowId id) {
    return H::combine(std::move(h), id.value);
  }
};

// The same 36 bytes as struct cw_flow_key of maps/abi.h (a unit test holds them together).
struct FlowKey {
  Addr src;
  Addr dst;
  uint32_t dqpn = 0;  // destination QPN, 24 bits

  FlowId Id() const;
  // "10.0.0.10 > 10.0.1.10 qp 0x1a2b"
  std::string ToString() const;

  auto operator<=>(const FlowKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const FlowKey& k) {
    return H::combine(std::move(h), k.src, k.dst, k.dqpn);
  }
};

// A pair of NICs, seen from the local one.
std::string PairText(const Addr& from, const Addr& to);  // "10.0.0.10 > 10.0.1.10"

struct PairKey {
  Addr local;
  Addr remote;

  auto operator<=>(const PairKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PairKey& k) {
    return H::combine(std::move(h), k.local, k.remote);
  }
};

// A path of a pair of NICs, known by its slot (0–15).
struct PathId {
  PairKey pair;
  uint8_t slot = 0;

  auto operator<=>(const PathId&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const PathId& k) {
    return H::combine(std::move(h), k.pair, k.slot);
  }
};

}  // namespace cw
