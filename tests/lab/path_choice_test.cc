// SPDX-License-Identifier: Apache-2.0
// Two hosts whose ways there and back are not alike: which of them the clock is measured on, and how well.
#include <gtest/gtest.h>

#include <cstdio>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_rig.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int64_t kLongerNs = 30'000;
constexpr int kSpines = 4;

class PathChoiceOnFabric : public FleetRig {
 protected:
  // Spines 0 and 1 are longer from leaf 0 to leaf 1, spines 1 and 2 from leaf 1 to leaf 0: of sixteen ways there and
  // back four are short both ways, four long both ways, and eight are off by half of kLongerNs.
  void SetUp() override {
    TestbedSpec spec = Spec("pathchoice", 2);
    spec.fabric.spines = kSpines;
    spec.clocks.push_back({.offset_ns = 300'000'000, .drift_ppm = 40, .segment_s = 120, .seed = 1});
    spec.clocks.push_back({.offset_ns = -200'000'000, .drift_ppm = -30, .segment_s = 120, .seed = 2});
    Up(spec);
    for (const int spine : {0, 1})
      ASSERT_TRUE(testbed->fabric().SetLonger(LinkDirection::LeafToSpine(0, spine), kLongerNs).ok());
    for (const int spine : {1, 2})
      ASSERT_TRUE(testbed->fabric().SetLonger(LinkDirection::LeafToSpine(1, spine), kLongerNs).ok());
  }

  std::vector<v1::Path> PathsOf(int host) {
    absl::StatusOr<v1::PathsReply> reply = testbed->agent(host).Paths({});
    EXPECT_TRUE(reply.ok()) << reply.status();
    if (!reply.ok() || reply->pairs().empty()) return {};
    return {reply->pairs(0).paths().begin(), reply->pairs(0).paths().end()};
  }

  static int SpineOf(const v1::Path& path) {
    for (const std::string& hop : path.hops()) {
      for (int spine = 0; spine < kSpines; ++spine) {
        if (absl::StartsWith(hop, absl::StrCat("10.1.", spine, "."))) return spine;
      }
    }
    return -1;
  }

  // The paths of a host that are left out are those over these spines, and no others.
  bool LeavesOut(int host, const std::set<int>& spines) {
    const std::vector<v1::Path> paths = PathsOf(host);
    for (const v1::Path& path : paths) {
      if (path.clock_left_out_forward() != spines.contains(SpineOf(path))) return false;
    }
    return !paths.empty();
  }
};

TEST_F(PathChoiceOnFabric, WaysThatAreLongerInOneDirectionAreLeftOut) {
  ASSERT_NE(testbed, nullptr);
  EXPECT_TRUE(Eventually([&] { return LeavesOut(0, {0, 1}) && LeavesOut(1, {1, 2}); }));
  for (int host = 0; host < hosts(); ++host) {
    for (const v1::Path& path : PathsOf(host)) {
      std::printf("h%d path %u by spine %d: longer by %.1f us there, the peer's %u by %.1f us%s\n", host, path.slot(),
                  SpineOf(path), path.longer_forward_ns() / 1e3, path.reverse_slot(), path.longer_reverse_ns() / 1e3,
                  path.clock_left_out_forward() ? ", left out" : "");
      const bool longer = path.clock_left_out_forward();
      EXPECT_NEAR(path.longer_forward_ns(), longer ? kLongerNs : 0, kLongerNs / 3);
    }
  }
  ASSERT_TRUE(AfterRounds(4));
  const Judged judged = Judge(100);
  std::printf("%s\n", judged.Text().c_str());
  ASSERT_FALSE(judged.errors_ns.empty()) << Why();
  EXPECT_EQ(judged.outside_bound, 0) << Why();
  // One way too many would move it by half of kLongerNs; single readings are as late as the machine is busy.
  EXPECT_LT(judged.Quantile(0.5), 1'000) << "ten times what is expected";

  // As soon as the ways are alike again all are used.
  for (int spine = 0; spine < kSpines; ++spine) {
    for (const int leaf : {0, 1})
      ASSERT_TRUE(testbed->fabric().SetLonger(LinkDirection::LeafToSpine(leaf, spine), 0).ok());
  }
  EXPECT_TRUE(Eventually([&] { return LeavesOut(0, {}) && LeavesOut(1, {}); }));
}

}  // namespace
}  // namespace cw::lab
