// SPDX-License-Identifier: Apache-2.0
// What a host costs on the wire: the figure that fleet-wide bandwidth and disks are planned by.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <random>

#include "userspace/api/fleet.pb.h"
#include "userspace/model/packed_sketch.h"

namespace cw {
namespace {

constexpr int kPaths = 160;    // 8 NICs, 20 peers each
constexpr int kSamples = 100;  // 10 s at ten probes a second

// Delay above the windowed minimum on a path without traffic: the clocks' noise and a switch's own, and now and then a
// packet of somebody else's in front.
uint64_t CalmQueueNs(std::mt19937_64& random) {
  std::normal_distribution<double> noise(120, 40);
  std::exponential_distribution<double> other(1.0 / 600);
  const double ns = noise(random) + (random() % 50 == 0 ? other(random) : 0);
  return static_cast<uint64_t>(std::max(0.0, ns));
}

cwfabric::v1::Batch CalmBatch(uint32_t floor_ns) {
  std::mt19937_64 random(3);
  cwfabric::v1::Batch batch;
  batch.set_host("gpu-node-0001.rack-17");
  batch.set_run(0x1234567890abcdef);
  batch.set_sequence(8640 * 30);  // a month old
  batch.set_from_ns(1'800'000'000'000'000'000);
  batch.set_to_ns(1'800'000'010'000'000'000);
  batch.set_bound_ns(4000);
  batch.set_usual_sent(kSamples);
  batch.set_usual_floor_ns(floor_ns);
  for (int i = 1; i <= kPaths; ++i) {
    PackedSketch sketch;
    for (int s = 0; s < kSamples; ++s) {
      const uint64_t queue = CalmQueueNs(random);
      sketch.Add(queue < floor_ns ? 0 : queue);
    }
    cwfabric::v1::PathRecord* path = batch.add_paths();
    path->set_path(static_cast<uint32_t>(i));
    path->set_queue(sketch.Pack());
    path->set_base_ns(5000 + random() % 3000);
  }
  return batch;
}

TEST(FleetWire, AQuietHostOf160PathsTakesAtMost400BytesASecond) {
  cwfabric::v1::ToFleet message;
  *message.mutable_batch() = CalmBatch(256);
  const double bytes_per_s = static_cast<double>(message.ByteSizeLong()) / 10;
  RecordProperty("bytes_per_s", std::to_string(bytes_per_s));
  std::printf("160 paths, 10 s, no traffic: %.0f B/s\n", bytes_per_s);
  EXPECT_LE(bytes_per_s, 400);
}

TEST(FleetWire, WithEveryNanosecondOfNoiseItIsStillBounded) {
  const double bytes_per_s = static_cast<double>(CalmBatch(0).ByteSizeLong()) / 10;
  std::printf("the same with every nanosecond of noise: %.0f B/s\n", bytes_per_s);
  EXPECT_LE(bytes_per_s, 1000);
}

}  // namespace
}  // namespace cw
