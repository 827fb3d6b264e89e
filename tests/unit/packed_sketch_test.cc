// SPDX-License-Identifier: Apache-2.0
#include "userspace/model/packed_sketch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "userspace/model/hops_id.h"
#include "userspace/model/varint.h"

namespace cw {
namespace {

PackedSketch Of(std::initializer_list<uint64_t> values) {
  PackedSketch s;
  for (const uint64_t v : values) s.Add(v);
  return s;
}

TEST(PackedSketch, AnEmptyOneIsNoBytes) {
  EXPECT_EQ(PackedSketch{}.Pack(), "");
  ASSERT_TRUE(PackedSketch::Unpack("").ok());
  EXPECT_TRUE(PackedSketch::Unpack("")->empty());
  EXPECT_EQ(PackedSketch{}.QuantileNs(0.99), 0);
}

TEST(PackedSketch, ComesBackAsItWas) {
  std::mt19937_64 random(7);
  for (int round = 0; round < 2000; ++round) {
    PackedSketch s;
    const int samples = 1 + static_cast<int>(random() % 200);
    for (int i = 0; i < samples; ++i) {
      s.Add(random() >> (random() % 63 + 1), 1 + static_cast<uint32_t>(random() % (round % 2 == 0 ? 3 : 100000)));
    }
    const absl::StatusOr<PackedSketch> back = PackedSketch::Unpack(s.Pack());
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(*back, s);
  }
}

TEST(PackedSketch, QuantilesAreWithinTheirError) {
  PackedSketch s;
  for (uint64_t v = 1; v <= 10000; ++v) s.Add(v);
  EXPECT_NEAR(s.QuantileNs(0.5), 5000, 5000 * 0.022);
  EXPECT_NEAR(s.QuantileNs(0.99), 9900, 9900 * 0.022);
  EXPECT_EQ(s.QuantileNs(1), 10000);
  EXPECT_NEAR(s.MeanNs(), 5000.5, 5000 * 0.022);
  EXPECT_EQ(s.Count(), 10000u);
}

TEST(PackedSketch, MergingIsAsIfAllHadBeenAddedToOne) {
  const PackedSketch a = Of({0, 5, 700, 700}), b = Of({0, 3, 5, 900000});
  PackedSketch merged = a;
  merged.Merge(b);
  EXPECT_EQ(merged, Of({0, 5, 700, 700, 0, 3, 5, 900000}));
  PackedSketch other = b;
  other.Merge(a);
  EXPECT_EQ(merged, other);
}

TEST(PackedSketch, ACountStopsBeforeItWraps) {
  PackedSketch s;
  s.Add(10, UINT32_MAX);
  s.Add(10, UINT32_MAX);
  EXPECT_EQ(s.Count(), uint64_t{UINT32_MAX});
  EXPECT_EQ(*PackedSketch::Unpack(s.Pack()), s);
}

TEST(PackedSketch, RefusesWhatNoSketchIs) {
  const std::string good = Of({5, 100, 100000}).Pack();
  for (size_t cut = 1; cut < good.size(); ++cut) EXPECT_FALSE(PackedSketch::Unpack(good.substr(0, cut)).ok()) << cut;
  EXPECT_FALSE(PackedSketch::Unpack(good + '\x01').ok());
  EXPECT_FALSE(PackedSketch::Unpack(std::string("\x00\x3f\xff", 3)).ok());
  EXPECT_FALSE(PackedSketch::Unpack(std::string(40, '\xff')).ok());
  // A longer form of the same maximum.
  EXPECT_FALSE(PackedSketch::Unpack(std::string("\x80\x00\x05", 3)).ok());
  EXPECT_TRUE(PackedSketch::Unpack(std::string("\x00\x05", 2)).ok());
}

TEST(PackedSketch, NoBytesCrash) {
  std::mt19937_64 random(11);
  for (int round = 0; round < 50000; ++round) {
    std::string bytes(random() % 12, 0);
    for (char& c : bytes) c = static_cast<char>(random());
    const absl::StatusOr<PackedSketch> sketch = PackedSketch::Unpack(bytes);
    if (!sketch.ok()) continue;
    EXPECT_EQ(sketch->Pack(), bytes);
  }
}

TEST(HopsId, OrderAndSilenceMatterAndNoneIsZero) {
  const Addr a = Addr::FromV4(0x0a000001), b = Addr::FromV4(0x0a000002);
  EXPECT_NE(HopsId({a, b}), HopsId({b, a}));
  EXPECT_NE(HopsId({a, Addr{}}), HopsId({a}));
  EXPECT_NE(HopsId({}), 0u);
  EXPECT_EQ(HopsId({a, b}), HopsId({a, b}));
}

TEST(Varint, SignedOnesComeBack) {
  for (const int64_t v : {int64_t{0}, int64_t{-1}, int64_t{1}, INT64_MIN, INT64_MAX}) EXPECT_EQ(UnZigZag(ZigZag(v)), v);
}

}  // namespace
}  // namespace cw
