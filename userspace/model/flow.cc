// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/flow.h"

#include <array>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace cw {
namespace {

// FNV-1a, 64 bits (G. Fowler, L. C. Noll, K.-P. Vo), then folded to 32. Part of the id's definition: never change it.
uint64_t Fnv1a(const uint8_t* data, size_t len, uint64_t h) {
  for (size_t i = 0; i < len; ++i) h = (h ^ data[i]) * 0x100000001b3u;
  return h;
}

}  // namespace

std::string PairText(const Addr& from, const Addr& to) { return absl::StrCat(from.ToString(), " > ", to.ToString()); }

std::string FlowId::ToString() const { return absl::StrFormat("%08x", value); }

std::optional<FlowId> FlowId::Parse(absl::string_view text) {
  if (text.size() != 8) return std::nullopt;
  FlowId id;
  for (const char c : text) {
    if (!absl::ascii_isxdigit(static_cast<unsigned char>(c))) return std::nullopt;
    const char lower = absl::ascii_tolower(static_cast<unsigned char>(c));
    id.value = id.value << 4 | static_cast<uint32_t>(lower <= '9' ? lower - '0' : lower - 'a' + 10);
  }
  return id;
}

FlowId FlowKey::Id() const {
  const std::array<uint8_t, 4> qpn = {static_cast<uint8_t>(dqpn >> 24), static_cast<uint8_t>(dqpn >> 16),
                                      static_cast<uint8_t>(dqpn >> 8), static_cast<uint8_t>(dqpn)};
  uint64_t h = 0xcbf29ce484222325u;
  h = Fnv1a(src.bytes.data(), src.bytes.size(), h);
  h = Fnv1a(dst.bytes.data(), dst.bytes.size(), h);
  h = Fnv1a(qpn.data(), qpn.size(), h);
  return {static_cast<uint32_t>(h ^ h >> 32)};
}

std::string FlowKey::ToString() const {
  return absl::StrFormat("%s > %s qp 0x%x", src.ToString(), dst.ToString(), dqpn);
}

}  // namespace cw
