// SPDX-License-Identifier: Apache-2.0
// Parts of the way from agents to the store fail: a full disk, a network that is gone. No event is lost or doubled.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/lab/fleet_service_rig.h"

namespace cw::lab {
namespace {

using nlohmann::json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

class FleetOutageOnFabric : public FleetServiceRig {
 protected:
  // Whatever there is room for, block by block.
  void FillDisk() {
    std::ofstream filler(StoreFolder() + "/filler", std::ios::binary);
    const std::string block(4096, 'x');
    constexpr int kMostBlocks = 4096;
    for (int i = 0; i < kMostBlocks && filler.write(block.data(), static_cast<std::streamsize>(block.size())).flush();)
      ++i;
  }
  bool IsConnected(const std::string& host) const {
    const json reply = Ask({"hosts"});
    for (const json& known : reply.value("hosts", json::array())) {
      if (known["host"] == host) return known.value("connected", false);
    }
    return false;
  }
};

TEST_F(FleetOutageOnFabric, AFullDiskIsSaidAndLosesNoEvent) {
  store_size_ = "2m";
  ASSERT_NO_FATAL_FAILURE(Up(Spec("fleetfull", 1)));
  ASSERT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();
  FillDisk();
  // Until there is no room for what hosts tell, or samples went for it.
  ASSERT_TRUE(Eventually(
      [&] {
        for (int host = 0; host < 2; ++host) Act(host, 10);
        const std::string log = bed_->Log();
        return log.find("cannot be stored") != std::string::npos ||
               log.find("disk of the store is full") != std::string::npos;
      },
      absl::Minutes(2)))
      << Why();
  ASSERT_TRUE(std::filesystem::remove(StoreFolder() + "/filler"));
  for (int host = 0; host < 2; ++host) Act(host, 2);
  for (int host = 0; host < 2; ++host) {
    EXPECT_TRUE(Eventually([&] { return SameEvents(host); }, absl::Minutes(2)))
        << Why() << "\nwritten " << bed_->Written(testbed_->fabric(), host).size() << ", stored "
        << bed_->Stored(host).size();
  }
  EXPECT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();
}

// Its management network is gone, and nothing tells either side.
TEST_F(FleetOutageOnFabric, AHostThatIsCutOffTellsEverythingLater) {
  ASSERT_NO_FATAL_FAILURE(Up(Spec("fleetcut", 1)));
  ASSERT_TRUE(Eventually([&] { return bed_->AllThere(); })) << Why();
  const std::string netns = "--net=" + testbed_->fabric().HostNetns(1);
  ASSERT_TRUE(RunTool({"nsenter", netns, "ip", "route", "add", "blackhole", "192.168.77.10/32"}).ok());
  Act(1, 6);
  EXPECT_TRUE(Eventually([&] { return !IsConnected("h1"); }, absl::Minutes(2))) << Why();
  Act(1, 6);
  EXPECT_TRUE(Eventually([&] { return SameEvents(0); })) << "the other's go on\n" << Why();
  EXPECT_FALSE(SameEvents(1));
  ASSERT_TRUE(RunTool({"nsenter", netns, "ip", "route", "del", "blackhole", "192.168.77.10/32"}).ok());
  EXPECT_TRUE(Eventually([&] { return IsConnected("h1") && SameEvents(1); }, absl::Minutes(2)))
      << Why() << "\nwritten " << bed_->Written(testbed_->fabric(), 1).size() << ", stored " << bed_->Stored(1).size();
}

}  // namespace
}  // namespace cw::lab
