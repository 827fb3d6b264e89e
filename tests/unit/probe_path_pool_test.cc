// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/path_pool.h"

#include <gtest/gtest.h>

namespace cw::probe {
namespace {

// By way of the n-th spine to a leaf.
Hops By(uint32_t spine, uint32_t leaf) {
  return {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a010000 + spine), Addr::FromV4(0x0a020000 + leaf * 256 + spine)};
}

TEST(PathPool, PairsBehindOneSwitchAddUp) {
  PathPool pool;
  pool.Add({By(1, 7), By(2, 7)}, 20, Hashing::kUnknown, 5);
  pool.Add({By(2, 7), By(3, 7)}, 30, Hashing::kPorts, 9);
  pool.Add({By(1, 8)}, 40, Hashing::kTtl, 9);
  const PathPool::Group* group = pool.Find({By(1, 7), By(3, 7)});
  ASSERT_NE(group, nullptr);
  EXPECT_EQ(group->paths, (std::set<Hops>{By(1, 7), By(2, 7), By(3, 7)}));
  EXPECT_EQ(group->ports, 50);
  EXPECT_EQ(group->hashing, Hashing::kPorts);
  EXPECT_EQ(group->since_ns, 5);
  ASSERT_NE(pool.Find({By(1, 8)}), nullptr);
  EXPECT_EQ(pool.Find({By(1, 8)})->ports, 40);
}

TEST(PathPool, APathThatJoinsTwoGroupsMakesThemOne) {
  PathPool pool;
  pool.Add({By(1, 7)}, 3, Hashing::kUnknown, 5);
  pool.Add({By(2, 7)}, 4, Hashing::kUnknown, 6);
  EXPECT_EQ(pool.Find({By(1, 7), By(2, 7)}), nullptr);
  pool.Add({By(1, 7), By(2, 7)}, 5, Hashing::kUnknown, 7);
  ASSERT_NE(pool.Find({By(1, 7), By(2, 7)}), nullptr);
  EXPECT_EQ(pool.Find({By(2, 7)})->ports, 12);
}

TEST(PathPool, OneUnknownPathIsEnoughForNoGroup) {
  PathPool pool;
  pool.Add({By(1, 7), By(2, 7)}, 20, Hashing::kUnknown, 5);
  EXPECT_EQ(pool.Find({By(1, 7), By(9, 7)}), nullptr);
  EXPECT_EQ(pool.Find({}), nullptr);
  pool.Add({}, 20, Hashing::kPorts, 5);
  EXPECT_EQ(pool.Find({By(1, 7)})->hashing, Hashing::kUnknown);
}

TEST(PathPool, ForgetsWhatHasChangedAndWhatIsOld) {
  PathPool pool;
  pool.Add({By(1, 7), By(2, 7)}, 20, Hashing::kUnknown, 5);
  pool.Add({By(1, 8)}, 20, Hashing::kUnknown, 6);
  pool.Add({By(1, 9)}, 20, Hashing::kUnknown, 7);
  pool.Forget(By(2, 7));
  EXPECT_EQ(pool.Find({By(1, 7)}), nullptr);
  EXPECT_NE(pool.Find({By(1, 8)}), nullptr);
  pool.ForgetBefore(7);
  EXPECT_EQ(pool.Find({By(1, 8)}), nullptr);
  EXPECT_NE(pool.Find({By(1, 9)}), nullptr);
}

}  // namespace
}  // namespace cw::probe
