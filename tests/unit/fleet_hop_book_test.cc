// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/query/hop_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/model/hops_id.h"

namespace cw::fleet {
namespace {

const absl::Time kNow = absl::FromUnixSeconds(1'800'000'000);

HopList ListOf(uint32_t hop) { return {.id = HopsId({Addr::FromV4(hop)}), .hops = {Addr::FromV4(hop)}}; }

class HopBookTest : public ::testing::Test {
 protected:
  void Tell(uint64_t sequence, std::vector<HopList> lists) {
    HostBatch batch{.host = "a", .run = 1, .sequence = sequence};
    batch.hop_lists = std::move(lists);
    ASSERT_TRUE(store_->Append({batch}).ok());
  }
  size_t Known(const std::set<uint64_t>& names, absl::Time now) {
    const auto lists = book_.Of("a", names, now);
    EXPECT_TRUE(lists.ok()) << lists.status();
    size_t known = 0;
    for (const uint64_t name : names) known += lists.ok() && (*lists)->contains(name);
    return known;
  }
  const std::unique_ptr<Store> store_ = OpenSqliteStore(":memory:", {.reserve_bytes = 0}).value();
  HopBook book_{*store_};
};

TEST_F(HopBookTest, ReadsWhatIsAskedForAndLooksForWhatWasMissingLater) {
  Tell(1, {ListOf(1)});
  EXPECT_EQ(book_.Cached("a"), nullptr);
  EXPECT_EQ(Known({0, ListOf(1).id, ListOf(2).id}, kNow), 1u);
  EXPECT_EQ(book_.Cached("a")->size(), 1u);
  Tell(2, {ListOf(2)});
  EXPECT_EQ(Known({ListOf(2).id}, kNow + absl::Seconds(1)), 0u) << "missed just now";
  EXPECT_EQ(Known({ListOf(2).id}, kNow + HopBook::kMissHolds), 1u);
}

TEST_F(HopBookTest, ManyAreReadAtOnceAndAHostOfWhichNothingIsKeptHasNone) {
  std::vector<HopList> lists;
  std::set<uint64_t> names;
  for (uint32_t hop = 1; hop <= 200; ++hop) {
    lists.push_back(ListOf(hop));
    names.insert(lists.back().id);
  }
  EXPECT_EQ(Known(names, kNow), 0u) << "nothing is kept of this host";
  Tell(1, lists);
  EXPECT_EQ(Known(names, kNow + HopBook::kMissHolds), 200u);
}

}  // namespace
}  // namespace cw::fleet
