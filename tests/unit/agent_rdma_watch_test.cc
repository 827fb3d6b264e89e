// SPDX-License-Identifier: Apache-2.0
// RDMA devices that the agent looks after, over a made-up /sys.
#include "userspace/agent/rdma_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>

#include "absl/strings/match.h"

namespace cw::agent {
namespace {

namespace fs = std::filesystem;

class RdmaWatchPart : public ::testing::Test {
 protected:
  RdmaWatchPart() {
    Write("node_type", "1: CA");
    Write("fw_ver", "28.1");
    Write("node_guid", "946d:aeff:fea1:b2c0");
    Write("ports/1/state", "4: ACTIVE");
    Write("ports/1/phys_state", "5: LinkUp");
    Write("ports/1/link_layer", "Ethernet");
    Write("ports/1/rate", "400 Gb/sec (4X NDR)");
    Write("ports/1/hw_counters/out_of_sequence", "17");
  }
  ~RdmaWatchPart() override {
    watch_.reset();
    fs::remove_all(folder_);
  }
  static std::string Folder() {
    char name[] = "/tmp/cw-rdma-watch-XXXXXX";
    return mkdtemp(name);
  }
  // Of the only device. At once or not at all: a reader sees no file that is half written.
  void Write(const std::string& path, const std::string& text) {
    const fs::path full = folder_ + "/sys/class/infiniband/mlx5_0/" + path;
    fs::create_directories(full.parent_path());
    std::ofstream(folder_ + "/new") << text << "\n";
    fs::rename(folder_ + "/new", full);
  }
  void Start() {
    RdmaWatch::Options options;
    options.roots = {folder_ + "/proc", folder_ + "/sys"};
    options.tell = [this](const telemetry::Event& event) { Note(event.text); };
    options.port = [](const std::string&, bool) {};
    options.device = [this](const std::string& device, bool gone) { Note(device + (gone ? " gone" : " changed")); };
    watch_ = std::make_unique<RdmaWatch>(std::move(options));
    // Its first look is what it compares with, and counts from.
    for (int i = 0; i < 500 && Device().ports(0).counters_over_s() == 0; ++i) absl::SleepFor(absl::Milliseconds(10));
  }
  api::v1::RdmaNic Device() {
    const api::v1::NicsReply reply = watch_->Look();
    return reply.nics_size() == 1 ? reply.nics(0) : api::v1::RdmaNic();
  }
  void Note(const std::string& what) {
    const std::lock_guard lock(mutex_);
    noted_.push_back(what);
    news_.notify_all();
  }
  // Whether that is noted, ten times as long as it looks apart at most.
  bool IsNoted(const std::string& part) {
    std::unique_lock lock(mutex_);
    return news_.wait_for(lock, std::chrono::seconds(10), [&] {
      return std::any_of(noted_.begin(), noted_.end(), [&](const auto& each) { return absl::StrContains(each, part); });
    });
  }

  const std::string folder_ = Folder();
  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::string> noted_;
  std::unique_ptr<RdmaWatch> watch_;
};

TEST_F(RdmaWatchPart, ADeviceIsShownWithWhatItsCountersMovedSince) {
  Start();
  EXPECT_EQ(Device().name(), "mlx5_0");
  EXPECT_EQ(Device().events(), "polled") << "there is no such device to listen to";
  ASSERT_EQ(Device().ports(0).counters_size(), 1);
  EXPECT_EQ(Device().ports(0).counters(0).moved(), 0u);
  Write("ports/1/hw_counters/out_of_sequence", "20");
  EXPECT_EQ(Device().ports(0).counters(0).moved(), 3u);
}

TEST_F(RdmaWatchPart, APortThatGoesDownIsToldWithinSeconds) {
  Start();
  Write("ports/1/state", "1: DOWN");
  EXPECT_TRUE(IsNoted("mlx5_0 changed"));
  EXPECT_TRUE(IsNoted("DOWN") || IsNoted("down")) << testing::PrintToString(noted_);
}

TEST_F(RdmaWatchPart, ADeviceThatGoesIsTold) {
  Start();
  fs::remove_all(folder_ + "/sys/class/infiniband/mlx5_0");
  EXPECT_TRUE(IsNoted("mlx5_0 gone"));
}

}  // namespace
}  // namespace cw::agent
