// SPDX-License-Identifier: Apache-2.0
//
// The views of one host's flows and paths, from maps in plain memory, for the tests of each and of what rests on them.
#pragma once

#include <gtest/gtest.h>

#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"

namespace cw::agent {

class ViewsRig : public ::testing::Test {
 protected:
  OnePair host_;
  rdma::QpRegistry qps_;
  DatagramQps datagrams_;
  ManualClock clock_{1000 * kSecond};
  UnseenFlows unseen_{
      host_.pairs, host_.nics,
      host_.flows, qps_,
      host_.mesh,  {.assigns = [] { return true; }, .fold = [](uint32_t, uint16_t) { return std::nullopt; }}};
  OwnerMover owners_{host_.pairs, host_.flows,  qps_,
                     unseen_,     host_.mesh,   host_.names,
                     clock_,      host_.events, {.allowed = [] { return Allowed(Mode::kProtect); }}};
  CauseBook causes_;
  Gaps gaps_{host_.flows, host_.pairs, host_.nics, host_.mesh, {}, causes_, host_.names, host_.events};
  LabelBook labels_;
  Deadlines deadlines_{"", "boot"};
  Allowed allowed_{Mode::kOptimize};
  probe::Discovery discovery_{probe::DiscoveryOptions{}, {}};
  uint8_t hops_slot_ = 0;  // the only one that was traced
  probe::Hops hops_{probe::TestAddr("10.0.0.254"), Addr{}, host_.remote};
  LinkFlaps links_{
      testing::TempDir() + "/views_no_outages.json", "boot", host_.pairs, host_.mesh, clock_, clock_, host_.events, {}};
  FlowsView flows_view_{host_.flows,
                        host_.pairs,
                        host_.nics,
                        qps_,
                        datagrams_,
                        owners_,
                        causes_,
                        gaps_,
                        labels_,
                        deadlines_,
                        host_.mesh,
                        host_.names,
                        clock_,
                        {.acts = [this] { return allowed_.ActsAtAll(); },
                         .at_ns = [](uint64_t jiffies) { return static_cast<int64_t>(jiffies) * kMs; },
                         .hops = [this](uint32_t, uint8_t slot) { return slot == hops_slot_ ? &hops_ : nullptr; }}};
  PathsView paths_view_{host_.pairs,
                        host_.nics,
                        host_.flows,
                        host_.mesh,
                        host_.store,
                        links_,
                        clock_,
                        clock_,
                        {.discovery = [this](uint32_t) { return &discovery_; },
                         .interval_ns = [](uint32_t) { return kSecond / 10; },
                         .acts = [this] { return allowed_.ActsAtAll(); },
                         .dscp_configured = [] { return false; }}};
};

}  // namespace cw::agent
