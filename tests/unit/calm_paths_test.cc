// SPDX-License-Identifier: Apache-2.0
// Calm paths as bytes and back, and what is no such bytes.
#include "userspace/model/calm_paths.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <limits>

#include "userspace/model/varint.h"

namespace cw {
namespace {

constexpr uint64_t kMost64 = std::numeric_limits<uint64_t>::max();

// Anything, deflated as paths are.
std::string Deflated(const std::string& plain) {
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 9, Z_DEFLATED, -15, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, plain.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(plain.data()));
  stream.avail_in = static_cast<uInt>(plain.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Varints(std::initializer_list<uint64_t> numbers) {
  std::string out;
  for (const uint64_t number : numbers) PutVarint(number, &out);
  return out;
}

void ExpectDamaged(const std::string& plain, const std::string& what) {
  const auto paths = UnpackCalmPaths(Deflated(plain), 100);
  EXPECT_FALSE(paths.ok()) << what;
  EXPECT_NE(std::string(paths.status().message()).find(what), std::string::npos) << paths.status();
}

TEST(CalmPaths, ComeBackAsTheyWere) {
  const std::vector<CalmPath> paths = {{0, 0, ""},
                                       {1, 4000, "abc"},
                                       {7, 12, std::string(300, 'q')},
                                       {std::numeric_limits<uint32_t>::max(), kMost64, std::string("\0z", 2)}};
  const auto back = UnpackCalmPaths(PackCalmPaths(paths), 4);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(*back, paths);
  EXPECT_EQ(PackCalmPaths({}), "");
  EXPECT_TRUE(UnpackCalmPaths("", 4)->empty());
}

TEST(CalmPaths, WhatCannotBePackedIsNot) {
  EXPECT_EQ(PackCalmPaths({{{2, 0, ""}, {1, 0, ""}}}), "") << "not ascending";
  EXPECT_EQ(PackCalmPaths({{{1, 0, ""}, {1, 0, ""}}}), "") << "twice";
  EXPECT_EQ(PackCalmPaths({{{1, 0, std::string(kMostCalmBytes, 'x')}}}), "") << "too many bytes";
}

TEST(CalmPaths, MoreThanThereMayBeAreRefused) {
  const std::string bytes = PackCalmPaths({{{1, 0, ""}, {2, 0, ""}}});
  EXPECT_TRUE(UnpackCalmPaths(bytes, 2).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(UnpackCalmPaths(bytes, 1).status()));
}

TEST(CalmPaths, AFewBytesThatInflateToManyAreRefusedEarly) {
  const std::string bomb = Deflated(std::string(32 << 20, '\0'));
  ASSERT_LT(bomb.size(), kMostCalmBytes);
  const auto paths = UnpackCalmPaths(bomb, 100);
  EXPECT_TRUE(absl::IsInvalidArgument(paths.status()));
  EXPECT_NE(std::string(paths.status().message()).find("more than they may be"), std::string::npos) << paths.status();
  EXPECT_TRUE(absl::IsInvalidArgument(UnpackCalmPaths(std::string(kMostCalmBytes + 1, 'x'), 100).status()));
}

TEST(CalmPaths, DamageIsNamed) {
  ExpectDamaged("", "no number of paths");
  ExpectDamaged(Varints({0}), "0 paths");
  ExpectDamaged(Varints({kMost64}), "paths; 1 to 100");
  ExpectDamaged(Varints({1, uint64_t{1} << 32}), "beyond 32 bits");
  ExpectDamaged(Varints({2, 0xffffffff, 0, 0, 0, 0, 0}), "beyond 32 bits");
  ExpectDamaged(Varints({1, 1}), "fewer bases");
  ExpectDamaged(Varints({1, 1, 1}), "fewer delays");
  ExpectDamaged(Varints({1, 1, 1, kMost64}), "delays that are not there");
  ExpectDamaged(Varints({1, 1, 1, 0}) + "x", "behind the last delay");
  const std::string good = PackCalmPaths({{{1, 4000, "abc"}}});
  EXPECT_FALSE(UnpackCalmPaths(good + "x", 100).ok());
  EXPECT_FALSE(UnpackCalmPaths(good.substr(0, good.size() - 1), 100).ok());
  EXPECT_FALSE(UnpackCalmPaths("\x07nonsense", 100).ok());
}

}  // namespace
}  // namespace cw
