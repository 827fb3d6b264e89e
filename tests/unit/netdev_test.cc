// SPDX-License-Identifier: Apache-2.0
// A device that is gone, and one of which nothing is known for want of a descriptor to ask with.
#include "userspace/dataplane/netdev.h"

#include <gtest/gtest.h>

#include "tests/unit/no_descriptors.h"

namespace cw::dataplane {
namespace {

TEST(Netdev, OnlyTheKernelsWordSaysThatADeviceIsGone) {
  const absl::StatusOr<uint32_t> loopback = IfindexOf("lo");
  ASSERT_TRUE(loopback.ok()) << loopback.status();
  EXPECT_EQ(*IfnameOf(*loopback), "lo");
  EXPECT_TRUE(absl::IsNotFound(IfindexOf("no-such-nic").status()));
  EXPECT_TRUE(absl::IsNotFound(IfnameOf(0x7ffffffe).status()));
  const NoDescriptors none;
  ASSERT_TRUE(none.none_left());
  const absl::Status by_name = IfindexOf("lo").status(), by_index = IfnameOf(*loopback).status();
  EXPECT_TRUE(absl::IsUnavailable(by_name)) << by_name;
  EXPECT_TRUE(absl::IsUnavailable(by_index)) << by_index;
  EXPECT_FALSE(absl::IsNotFound(LinkUp("lo").status()));
}

}  // namespace
}  // namespace cw::dataplane
