// SPDX-License-Identifier: Apache-2.0
// Fleet time for others: the page and the pinned map, and that the next agent goes on with the same map.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_format.h"
#include "maps/bpf_map.h"
#include "maps/clock_abi.h"
#include "userspace/agent/fleet_clock/clock_output.h"
#include "userspace/dataplane/pins.h"

namespace cw::agent {
namespace {

namespace fs = std::filesystem;

class ClockOutputMap : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(dataplane::EnsureBpffs().ok()) << "run as root";
    std::string name = fs::temp_directory_path() / "cw-clock-output-XXXXXX";
    folder_ = mkdtemp(name.data());
    options_.page = folder_ + "/clock";
    options_.pin = absl::StrFormat("/sys/fs/bpf/cw-clock-output-%d", getpid());
    options_.clock = std::make_shared<MonotonicClock>();
  }
  void TearDown() override {
    fs::remove_all(folder_);
    unlink(options_.pin.c_str());
  }
  std::unique_ptr<ClockOutput> Make() {
    auto output = ClockOutput::Create(options_);
    EXPECT_TRUE(output.ok()) << output.status();
    return output.ok() ? *std::move(output) : nullptr;
  }
  uint32_t PinnedId() const {
    const auto map = maps::BpfMap::OpenPinned(options_.pin);
    return map.ok() ? map->id() : 0;
  }
  std::string folder_;
  ClockOutput::Options options_;
};

TEST_F(ClockOutputMap, APageAndAMapAreWrittenAndTheNextAgentGoesOnWithTheMap) {
  std::unique_ptr<ClockOutput> output = Make();
  ASSERT_NE(output, nullptr);
  FleetClock clock("h0", 1);
  EXPECT_TRUE(output->Publish(clock, /*has_anchor=*/false).ok());
  EXPECT_GT(fs::file_size(options_.page), 0u);
  EXPECT_FALSE(output->feeds_chrony());
  const uint32_t id = PinnedId();
  EXPECT_NE(id, 0u);
  cw_fleet_clock record{};
  const uint32_t index = 0;
  ASSERT_TRUE(maps::BpfMap::OpenPinned(options_.pin)->Lookup(&index, &record).ok());
  EXPECT_NE(record.generation, 0u) << "it was written";
  output.reset();
  output = Make();
  EXPECT_EQ(PinnedId(), id) << "programs that hold it see time go on";
}

TEST_F(ClockOutputMap, AMapOfAnotherShapeIsReplaced) {
  const maps::UniqueFd other(bpf_map_create(BPF_MAP_TYPE_ARRAY, "other", 4, 8, 1, nullptr));
  ASSERT_EQ(bpf_obj_pin(other.get(), options_.pin.c_str()), 0);
  const uint32_t before = PinnedId();
  ASSERT_NE(Make(), nullptr);
  EXPECT_NE(PinnedId(), before);
  EXPECT_EQ(maps::BpfMap::OpenPinned(options_.pin)->shape().value_size, sizeof(cw_fleet_clock));
}

}  // namespace
}  // namespace cw::agent
