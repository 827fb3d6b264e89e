// SPDX-License-Identifier: Apache-2.0
//
// What tests wait for before they look: that agents take flows for new, that they have seen enough of them, and, where
// nothing may happen meanwhile, that there was time and reason for it to happen, counted in what agents did.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/strings/match.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {

// Flows that begin now are new to all agents, and get a path from their first packet on. Those that appear within two
// seconds of a first agent's start are taken for older than it, and stay where they
// are (userspace/agent/open_kernel.cc).
inline bool FlowsAreNewFromNowOn(Testbed& testbed) {
  constexpr double kOldFlowsS = 2, kClocksS = 0.1, kBackS = 3600;
  return Eventually([&] {
    const std::vector<Mark> marks =
        testbed.Events(MonotonicNs() - static_cast<int64_t>(kBackS * 1e9), "agent");  // at_s counts from an hour ago
    int started = 0;
    for (const Mark& mark : marks) {
      if (!absl::StrContains(mark.text, " started in mode ")) continue;
      if (mark.at_s > kBackS - kOldFlowsS - kClocksS) return false;
      ++started;
    }
    return started >= testbed.fabric().hosts();
  });
}

// Every agent has looked at everything `looks` more times, once per second: flows, refusals, drains, the breaker. It is
// in a look that an agent does what a test says it must not do, so that many are what "it did not" rests on.
inline bool AfterLooks(Testbed& testbed, int looks) {
  // The count of rounds is taken over once per look, and grows from look to look, because probes never rest.
  std::vector<uint64_t> last(static_cast<size_t>(testbed.fabric().hosts()));
  std::vector<int> seen(last.size(), -1);  // the first reading is of a look before
  return Eventually(
      [&] {
        for (size_t host = 0; host < last.size(); ++host) {
          const auto reply = testbed.agent(static_cast<int>(host)).Status();
          if (!reply.ok() || reply->prober().rounds() == last[host]) continue;
          last[host] = reply->prober().rounds();
          ++seen[host];
        }
        return std::all_of(seen.begin(), seen.end(), [&](int each) { return each >= looks; });
      },
      absl::Minutes(1) + looks * absl::Seconds(5));
}

// The agents together have accepted so many more answers to probes: whatever probes can tell has been told.
inline bool AfterReplies(Testbed& testbed, uint64_t replies) {
  const uint64_t before = testbed.CounterSum("probe_replies");
  return Eventually([&] { return testbed.CounterSum("probe_replies") >= before + replies; });
}

// Of every flow something arrived that was delivered after now.
inline bool EachFlowDelivers(const Emulator& emulator, absl::Duration limit = absl::Minutes(1)) {
  const int64_t since_ns = MonotonicNs();
  return Eventually(
      [&] {
        const Snapshot now = emulator.TakeSnapshot();
        return std::all_of(now.flows.begin(), now.flows.end(), [&](const FlowReport& flow) {
          return emulator.FirstDeliveryAfter(flow.id, since_ns).in_order_ns.has_value();
        });
      },
      limit);
}

}  // namespace cw::lab
