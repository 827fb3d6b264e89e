// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/flow_class.h"

#include <algorithm>
#include <cmath>

namespace cw::control {
namespace {

constexpr double kForgotten = 1e-3;

}  // namespace

void FlowClass::Saw(uint8_t dscp, uint64_t packets) {
  if (packets == 0) return;
  const auto same = [dscp](const Class& c) { return c.packets > 0 && c.dscp == dscp; };
  auto at = std::find_if(classes_.begin(), classes_.end(), same);
  if (at == classes_.end()) {
    at = std::min_element(classes_.begin(), classes_.end(),
                          [](const Class& a, const Class& b) { return a.packets < b.packets; });
    *at = {.dscp = dscp};
  }
  at->packets += static_cast<double>(packets);
}

const FlowClass::Class* FlowClass::Most() const {
  const auto most = std::max_element(classes_.begin(), classes_.end(),
                                     [](const Class& a, const Class& b) { return a.packets < b.packets; });
  return most->packets > 0 ? &*most : nullptr;
}

double FlowClass::PacketsOf(uint8_t dscp) const {
  for (const Class& c : classes_) {
    if (c.packets > 0 && c.dscp == dscp) return c.packets;
  }
  return 0;
}

bool FlowClass::Step(int64_t now_ns) {
  if (taken_ && now_ns - stepped_ns_ < rules_.look_ns) return false;
  const Class* most = Most();
  if (most == nullptr) return false;
  if (!taken_) {
    taken_ = most->dscp;
    stepped_ns_ = now_ns;
    return true;
  }
  const double left = std::exp(-static_cast<double>(now_ns - stepped_ns_) / static_cast<double>(rules_.fade_ns));
  stepped_ns_ = now_ns;
  for (Class& c : classes_) c.packets = c.packets * left > kForgotten ? c.packets * left : 0;
  const bool leads = most->packets >= rules_.least && most->packets > rules_.margin * PacketsOf(*taken_);
  if (!leads || most->dscp == *taken_) {
    leads_.reset();
    return false;
  }
  if (leads_ != most->dscp) {
    leads_ = most->dscp;
    leads_since_ns_ = now_ns;
  }
  if (now_ns - leads_since_ns_ < rules_.hold_ns) return false;
  taken_ = leads_;
  leads_.reset();
  return true;
}

}  // namespace cw::control
