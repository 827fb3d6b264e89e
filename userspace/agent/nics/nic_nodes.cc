// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/nic_nodes.h"

#include <cmath>

namespace cw::agent {
namespace {

constexpr int64_t kSlackNs = 200;  // beside the tie's likely error

}  // namespace

void NicNode::Look() {
  const std::optional<sync::CrossStamp> read = clock_->Read();
  ++(read ? reads_ : failed_);
  if (read) tie_.Add(*read);
}

std::optional<cw_nic_line> NicNode::Line(int64_t now_ns) const {
  const sync::Estimate e = tie_.At(now_ns);
  if (e.state != sync::SyncState::kSynchronised || !e.settled || UntilNextLook(now_ns).bound_ns > kMostBoundNs)
    return std::nullopt;
  const double slope = e.slope_ppb * 1e-9;  // of NIC − local
  const auto nic_ns = static_cast<uint64_t>(now_ns + e.offset_ns);
  if (std::abs(slope) > 0.9e-3) return std::nullopt;
  return cw_nic_line{.nic_ns = nic_ns,
                     .local_ns = static_cast<uint64_t>(now_ns),
                     .rate_q32 = std::llround(-slope / (1 + slope) * 0x1p32),
                     .until_ns = static_cast<uint64_t>(now_ns + kLineNs),
                     .slack_ns = static_cast<uint64_t>(2 * e.error_est_ns + kSlackNs)};
}

}  // namespace cw::agent
