// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/alerts/delivery_log.h"

#include <algorithm>
#include <tuple>

#include "absl/strings/str_cat.h"

namespace cw::fleet {

void DeliveryLog::Take(const Finding& finding, bool resumed, absl::Time now) {
  const auto [place, fresh] = by_id_.try_emplace(finding.id);
  AlertDelivery& entry = place->second;
  const bool open = finding.end_ns == 0;
  if (!fresh && entry.open == open && entry.cause == finding.cause) return;
  entry = {.finding = finding.id,
           .cause = finding.cause,
           .scope = finding.scope,
           .open = open,
           .since = now,
           .result = resumed ? "told before a restart" : "waiting"};
  if (by_id_.size() <= kMost) return;
  // Those that are over go first.
  const auto before = [](const auto& a, const auto& b) {
    return std::tuple(a.second.open, a.second.since) < std::tuple(b.second.open, b.second.since);
  };
  by_id_.erase(std::min_element(by_id_.begin(), by_id_.end(), before));
}

void DeliveryLog::Answered(const std::vector<std::pair<uint64_t, bool>>& findings, const absl::Status& status,
                           absl::Time now) {
  for (const auto& [id, open] : findings) {
    const auto found = by_id_.find(id);
    if (found == by_id_.end() || found->second.open != open) continue;
    AlertDelivery& entry = found->second;
    if (status.ok()) entry.delivered = now;
    entry.result = status.ok()                       ? "delivered"
                   : absl::IsInvalidArgument(status) ? absl::StrCat("refused: ", std::string(status.message()))
                                                     : absl::StrCat("not yet: ", std::string(status.message()));
  }
}

std::vector<AlertDelivery> DeliveryLog::All() const {
  std::vector<AlertDelivery> all;
  for (const auto& [id, entry] : by_id_) all.push_back(entry);
  std::stable_sort(all.begin(), all.end(),
                   [](const AlertDelivery& a, const AlertDelivery& b) { return a.since > b.since; });
  return all;
}

}  // namespace cw::fleet
