// SPDX-License-Identifier: Apache-2.0
// A host cannot reach the fleet service for ten minutes, in which a spine dies: the others' findings go on, and
// afterwards nothing of the host is missing.
#include <gmock/gmock.h>

#include "tests/lab/fleet_service_rig.h"

namespace cw::lab {
namespace {

using nlohmann::json;

constexpr int kHosts = 4, kCutOff = 3;
constexpr absl::Duration kAway = absl::Minutes(10), kBetweenEvents = absl::Seconds(10);

class FleetLongOutage : public FleetServiceRig {
 protected:
  // Its management network: nothing tells either side.
  bool SetReach(int host, bool reachable) {
    const std::string netns = "--net=" + testbed_->fabric().HostNetns(host);
    return RunTool({"nsenter", netns, "ip", "route", reachable ? "del" : "add", "blackhole", "192.168.77.10/32"}).ok();
  }
  json PathsThen(const std::string& host, absl::Time then) const {
    const std::string text = absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", then, absl::UTCTimeZone());
    const json reply = bed_->Ask({"paths", "--host", host, "--at", text});
    return reply.contains("paths") ? reply["paths"] : json{{"reply", reply}};
  }
  bool FoundDead() const {
    const json findings = Findings();
    return std::any_of(findings.begin(), findings.end(),
                       [](const json& f) { return f["cause"] == "link dead" || f["cause"] == "switch dead"; });
  }
};

TEST_F(FleetLongOutage, TenMinutesLaterNothingIsMissing) {
  ASSERT_NO_FATAL_FAILURE(Up(Spec("fleetlong", 2)));
  ASSERT_TRUE(Eventually([&] { return bed_->AllThere() && SeesAll(); })) << Why();
  const absl::Time cut = absl::Now(), end = cut + kAway;
  ASSERT_TRUE(SetReach(kCutOff, false));
  absl::Time next = cut;
  bool dropped = false, found = false;
  int acts = 0;
  const auto over = [&] {
    const absl::Time now = absl::Now();
    if (now >= next) {
      for (int host = 0; host < kHosts; ++host) Act(host, 2);
      ++acts;
      next = now + kBetweenEvents;
    }
    if (!dropped && now > cut + kAway / 4)
      dropped = SetCable(0, 0, Fault::Drop()).ok() && SetCable(1, 0, Fault::Drop()).ok();
    if (dropped && !found) found = FoundDead();
    return now >= end;
  };
  ASSERT_TRUE(Eventually(over, 2 * kAway, absl::Milliseconds(200)));
  EXPECT_TRUE(found) << "reported by the others\n" << Findings().dump(1);
  EXPECT_GT(acts, 30);
  for (int host = 0; host < kCutOff; ++host) EXPECT_TRUE(Eventually([&] { return SameEvents(host); })) << Why();
  EXPECT_FALSE(SameEvents(kCutOff)) << "nothing can have come";

  ASSERT_TRUE(SetReach(kCutOff, true));
  EXPECT_TRUE(Eventually([&] { return SameEvents(kCutOff); }, absl::Minutes(2)))
      << Why() << "\nwritten " << bed_->Written(testbed_->fabric(), kCutOff).size() << ", stored "
      << bed_->Stored(kCutOff).size();
  // Its samples of then have come, too: before the spine died and after it.
  for (const absl::Time then : {cut + kAway / 8, cut + kAway / 2}) {
    EXPECT_TRUE(Eventually([&] { return PathsThen("h3", then).is_array() && !PathsThen("h3", then).empty(); }))
        << then << PathsThen("h3", then).dump(1) << Why();
  }
}

}  // namespace
}  // namespace cw::lab
