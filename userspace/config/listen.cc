// SPDX-License-Identifier: Apache-2.0
#include "userspace/config/listen.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"

namespace cw::config {
namespace {

// The server binds under a longer name first.
constexpr size_t kLongestPath = sizeof(sockaddr_un::sun_path) - 12;

absl::Status Wanted() {
  return absl::InvalidArgumentError(
      "\"auto\", \"none\", \"unix:/PATH\", or an address and a port such as \"127.0.0.1:9477\" or \"[::1]:9477\"");
}

bool IsLoopback(const std::string& address) {
  in_addr v4{};
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

bool IsAddress(const std::string& text, bool brackets) {
  unsigned char bytes[sizeof(in6_addr)];
  return inet_pton(brackets ? AF_INET6 : AF_INET, text.c_str(), bytes) == 1;
}

}  // namespace

absl::StatusOr<Listen> ParseListen(const std::string& text) {
  if (text == "none") return Listen{};
  if (absl::StartsWith(text, "unix:")) {
    Listen out{.kind = Listen::Kind::kUnix, .path = text.substr(5)};
    if (out.path.size() < 2 || out.path[0] != '/' || out.path.size() > kLongestPath) return Wanted();
    return out;
  }
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon == 0) return Wanted();
  const bool brackets = text[0] == '[' && text[colon - 1] == ']';
  Listen out{.kind = Listen::Kind::kTcp, .address = brackets ? text.substr(1, colon - 2) : text.substr(0, colon)};
  uint32_t port = 0;
  if (!IsAddress(out.address, brackets) || !absl::SimpleAtoi(text.substr(colon + 1), &port) || port == 0 ||
      port > 65535)
    return Wanted();
  out.port = static_cast<uint16_t>(port);
  out.loopback = IsLoopback(out.address);
  return out;
}

}  // namespace cw::config
