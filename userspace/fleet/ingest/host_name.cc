// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/ingest/host_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace cw::fleet {

absl::Status CheckHostName(absl::string_view host) {
  bool good = !host.empty() && host.size() <= 253 && host.front() != '.' && host.front() != '-';
  for (const char c : host)
    good = good && (absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' || c == '.' || c == '_');
  if (good && !absl::StrContains(host, "..")) return absl::OkStatus();
  return absl::InvalidArgumentError("no host name: letters, digits, '-', '_' and '.', at most 253 of them");
}

absl::Status MaySpeakFor(const std::vector<std::string>& names, absl::string_view host) {
  if (absl::Status status = CheckHostName(host); !status.ok()) return status;
  for (const std::string& name : names) {
    if (name == host) return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat("the certificate is for ",
                                                  names.empty() ? "no host" : absl::StrJoin(names, ", "), ", not for ",
                                                  host, ": make one for that host, spelt alike"));
}

}  // namespace cw::fleet
