// SPDX-License-Identifier: Apache-2.0
// Fleet time in a BPF program: the publisher writes the record through the map's own memory, the verifier takes the
// reader, and the program computes what sync's line says.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include "fleet_record.skel.h"
#include "userspace/publish/publisher.h"

namespace cw::publish {
namespace {

class FleetClockMap : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = std::filesystem::temp_directory_path() / "cwfleet-XXXXXX";
    folder_ = mkdtemp(name.data());
    skel_.reset(fleet_record__open_and_load());
    ASSERT_NE(skel_, nullptr) << "run as root, on a kernel with BPF";
    bytes_ = static_cast<size_t>(sysconf(_SC_PAGESIZE));
    void* at = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(skel_->maps.fleet_clock), 0);
    ASSERT_NE(at, MAP_FAILED);
    record_ = static_cast<cw_fleet_clock*>(at);
    PublisherOptions options;
    options.page.path = folder_ + "/clock";
    auto publisher = Publisher::Create(options);
    ASSERT_TRUE(publisher.ok()) << publisher.status();
    publisher_ = *std::move(publisher);
  }
  void TearDown() override {
    if (record_ != nullptr) munmap(record_, bytes_);
    std::filesystem::remove_all(folder_);
  }
  // Mean nanoseconds per run.
  static uint32_t Run(const bpf_program* program, int repeat) {
    std::array<char, 64> packet{};
    LIBBPF_OPTS(bpf_test_run_opts, opts, .data_in = packet.data(), .data_size_in = packet.size(), .repeat = repeat);
    EXPECT_EQ(bpf_prog_test_run_opts(bpf_program__fd(program), &opts), 0);
    return opts.duration;
  }
  struct Destroy {
    void operator()(fleet_record* s) const { fleet_record__destroy(s); }
  };
  std::unique_ptr<fleet_record, Destroy> skel_;
  cw_fleet_clock* record_ = nullptr;
  size_t bytes_ = 0;
  std::string folder_;
  std::unique_ptr<Publisher> publisher_;
};

TEST_F(FleetClockMap, AProgramComputesWhatWasPublished) {
  Run(skel_->progs.fleet_time, 1);
  EXPECT_EQ(skel_->bss->result, -1) << "nothing published yet";
  Publication what;
  what.time.state = sync::SyncState::kSynchronised;
  what.time.anchor_ns = ReadKernelClock(CLOCK_MONOTONIC) - 1'000'000'000;
  what.time.offset_ns = -123'456'789'012;
  what.time.slope_ppb = -87'654;
  what.time.bound_ns = 777;
  ASSERT_TRUE(publisher_->Publish(what).ok());
  publisher_->FillBpf(record_);
  Run(skel_->progs.fleet_time, 1);
  ASSERT_EQ(skel_->bss->result, 0);
  const int64_t expected_ns = what.time.ToFleetNs(static_cast<int64_t>(skel_->bss->local_ns));
  EXPECT_NEAR(static_cast<double>(skel_->bss->fleet_ns - expected_ns), 0, 5);
  EXPECT_GE(skel_->bss->bound_ns, 777u + 200'000) << "a second at 200 ppm since the anchor";
  Run(skel_->progs.tai_time, 1);
  EXPECT_EQ(skel_->bss->result, -1) << "the fleet has no anchor";
  what.tai_offset_ns = 1'700'000'000'000'000'000;
  what.tai_slope_ppb = 36'000;
  what.tai_bound_ns = 900;
  ASSERT_TRUE(publisher_->Publish(what).ok());
  publisher_->FillBpf(record_);
  Run(skel_->progs.tai_time, 1);
  ASSERT_EQ(skel_->bss->result, 0);
  const int64_t then_ns = what.time.ToFleetNs(static_cast<int64_t>(skel_->bss->local_ns));
  const double grown_ns = 36e-6 * static_cast<double>(then_ns - what.time.ToFleetNs(what.time.anchor_ns));
  EXPECT_NEAR(static_cast<double>(skel_->bss->tai_ns - then_ns - what.tai_offset_ns), grown_ns, 8);
  EXPECT_GE(skel_->bss->bound_ns, 777u + 900);
  what.time.state = sync::SyncState::kUnknown;
  ASSERT_TRUE(publisher_->Publish(what).ok());
  publisher_->FillBpf(record_);
  Run(skel_->progs.fleet_time, 1);
  EXPECT_EQ(skel_->bss->result, -1);
  std::printf("local time %u ns, fleet time %u ns per run of the program\n", Run(skel_->progs.local_time, 100'000),
              Run(skel_->progs.fleet_time, 100'000));
}

}  // namespace
}  // namespace cw::publish
