// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/gone_links.h"

#include <algorithm>

namespace cw::control {

void GoneLinks::Left(const std::string& from, absl::Span<const std::string> ends, int64_t now_ns) {
  std::string before = from;
  for (const std::string& end : ends) {
    by_end_[end] = {.from = before, .to = end, .left_ns = now_ns};
    before = end;
  }
  std::erase_if(by_end_, [&](const auto& entry) { return now_ns - entry.second.left_ns > kWindowNs; });
  while (by_end_.size() > kMost) {
    by_end_.erase(std::min_element(by_end_.begin(), by_end_.end(),
                                   [](const auto& a, const auto& b) { return a.second.left_ns < b.second.left_ns; }));
  }
}

std::vector<GoneLink> GoneLinks::All(int64_t now_ns) const {
  std::vector<GoneLink> all;
  for (const auto& [end, link] : by_end_) {
    if (now_ns - link.left_ns <= kWindowNs) all.push_back(link);
  }
  return all;
}

}  // namespace cw::control
