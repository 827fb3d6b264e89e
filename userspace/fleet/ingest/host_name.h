// SPDX-License-Identifier: Apache-2.0
//
// Who a host may say that it is. Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace cw::fleet {

// A DNS name or a single label, at most 253 characters: what ends up in files, tables and on the page.
absl::Status CheckHostName(absl::string_view host);

// `names`: the DNS names of the certificate, or its common name where it has none. Compared as DNS does, without case;
// a wildcard names no host here, since each would speak for all. PermissionDenied says which names it has.
absl::Status MaySpeakFor(const std::vector<std::string>& names, absl::string_view host);

}  // namespace cw::fleet
