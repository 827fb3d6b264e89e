// SPDX-License-Identifier: Apache-2.0
//
// The peer xdp-filter of xdp-tools: loaded by its own program on a veth in a network namespace of its own, without
// libxdp's dispatcher (its cheapest way). The namespace is removed again; the program stays for as long as we hold it.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "maps/unique_fd.h"

namespace cw::bench {

// features: as for `xdp-filter load -f`; rules: further xdp-filter commands, for example "port 99 -p udp".
absl::StatusOr<maps::UniqueFd> LoadXdpFilter(const std::string& features, const std::vector<std::string>& rules);

}  // namespace cw::bench
