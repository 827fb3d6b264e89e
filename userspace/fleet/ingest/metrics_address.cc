// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/metrics_address.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "userspace/fleet/ingest/host_name.h"
#include "userspace/model/addr.h"

namespace cw::fleet {
namespace {

std::string Joined(const Addr& address, uint32_t port) {
  return absl::StrCat(address.is_v4() ? address.ToString() : absl::StrCat("[", address.ToString(), "]"), ":", port);
}

bool Owns(const Speaker& who, const Addr& address) {
  const auto same = [&](const std::string& text) {
    const absl::StatusOr<Addr> own = Addr::Parse(text);
    return own.ok() && *own == address;
  };
  return same(who.from) || std::any_of(who.addresses.begin(), who.addresses.end(), same);
}

}  // namespace

absl::StatusOr<std::string> CheckMetricsAddress(const std::string& told, const Speaker& who) {
  if (told.empty()) return told;
  const size_t colon = told.rfind(':');
  uint32_t port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(told.substr(colon + 1), &port) || port == 0 || port > 65535)
    return absl::InvalidArgumentError("the address of its metrics is no HOST:PORT; see fleet.metrics_address");
  std::string host = colon == 0 ? who.from : told.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) host = host.substr(1, host.size() - 2);
  if (const absl::StatusOr<Addr> address = Addr::Parse(host); address.ok()) {
    if (Owns(who, *address)) return Joined(*address, port);
    return absl::PermissionDeniedError(absl::StrCat("its metrics are said to be at ", Joined(*address, port),
                                                    ", which is neither the address that it connects from nor one in "
                                                    "its certificate (cwctl certs host NAME --also ADDRESS)"));
  }
  if (absl::Status status = MaySpeakFor(who.names, host); !status.ok())
    return absl::Status(status.code(), absl::StrCat("the address of its metrics: ", std::string(status.message())));
  return absl::StrCat(host, ":", port);
}

}  // namespace cw::fleet
