// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/addr.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace cw {
namespace {

constexpr std::array<uint8_t, 12> kV4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};

}  // namespace

Addr Addr::FromBytes(const uint8_t* sixteen_bytes) {
  Addr a;
  std::memcpy(a.bytes.data(), sixteen_bytes, a.bytes.size());
  return a;
}

Addr Addr::FromV4(uint32_t host_order) {
  Addr a;
  std::copy(kV4Prefix.begin(), kV4Prefix.end(), a.bytes.begin());
  for (int i = 0; i < 4; ++i) a.bytes[12 + i] = static_cast<uint8_t>(host_order >> (24 - 8 * i));
  return a;
}

absl::StatusOr<Addr> Addr::Parse(absl::string_view text) {
  const std::string s(text);
  in_addr v4{};
  if (inet_pton(AF_INET, s.c_str(), &v4) == 1) return FromV4(ntohl(v4.s_addr));
  Addr a;
  if (inet_pton(AF_INET6, s.c_str(), a.bytes.data()) == 1) return a;
  return absl::InvalidArgumentError(absl::StrCat("\"", text, "\" is not an IPv4 or IPv6 address"));
}

bool Addr::is_v4() const { return std::equal(kV4Prefix.begin(), kV4Prefix.end(), bytes.begin()); }

uint32_t Addr::v4() const {
  return uint32_t{bytes[12]} << 24 | uint32_t{bytes[13]} << 16 | uint32_t{bytes[14]} << 8 | uint32_t{bytes[15]};
}

std::string Addr::ToString() const {
  char text[INET6_ADDRSTRLEN] = "";
  if (is_v4()) {
    inet_ntop(AF_INET, bytes.data() + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, bytes.data(), text, sizeof(text));
  }
  return text;
}

}  // namespace cw
