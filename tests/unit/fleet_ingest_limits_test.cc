// SPDX-License-Identifier: Apache-2.0
// How much hosts may send, what waits, and what becomes of it where the store fails.
#include "tests/unit/fleet_failing_store.h"
#include "tests/unit/fleet_ingest_fixture.h"
#include "userspace/fleet/ingest/quota.h"

namespace cw::fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TEST(Quota, ABurstAndThenARate) {
  Quota quota({.bytes_per_s = 100, .burst_bytes = 1000});
  EXPECT_EQ(quota.Take(1000, kNow), absl::ZeroDuration());
  EXPECT_EQ(quota.Take(50, kNow), absl::Milliseconds(500));
  EXPECT_EQ(quota.Take(50, kNow + absl::Milliseconds(500)), absl::ZeroDuration());
  EXPECT_GT(quota.Take(1, kNow), absl::ZeroDuration());                          // a clock that goes back gives nothing
  EXPECT_EQ(quota.Take(5000, kNow + absl::Seconds(100)), absl::ZeroDuration());  // all there is, not never
}

TEST_F(IngestTest, AHostThatFloodsWaitsAlone) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 600};
  Restart();
  Connect();
  Connect("b");
  pb::Ack ack;
  uint64_t sequence = 0;
  while (ack.pause_s() == 0 && sequence < 50) ack = Send(Batch(++sequence));
  EXPECT_GT(ack.pause_s(), 0);
  EXPECT_EQ(ack.through_sequence(), sequence - 1);
  EXPECT_EQ(Send(Batch(1, "b"), "b").through_sequence(), 1u);
}

// Names are told once, so a record of a few bytes brings all of its flow's words.
TEST_F(IngestTest, FlowsCostWhatTheyTakeInMemory) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 200'000};
  Restart();
  Connect();
  pb::Batch batch = Batch(1);
  *batch.mutable_definitions()->add_flows() = NameOfFlow(1);
  batch.mutable_definitions()->mutable_flows(0)->set_label(std::string(250, 'x'));
  EXPECT_EQ(Send(batch).pause_s(), 0);
  const auto flood = [](uint64_t sequence) {
    pb::Batch many = Batch(sequence);
    for (int f = 0; f < 500; ++f) *many.add_flows() = FlowOf(1);
    return many;
  };
  EXPECT_EQ(Send(flood(2)).pause_s(), 0);
  const pb::Ack ack = Send(flood(3));
  EXPECT_GT(ack.pause_s(), 0) << "on the wire both take " << 2 * flood(2).ByteSizeLong() << " bytes";
  EXPECT_EQ(ack.through_sequence(), 2u);
}

// What is packed is inflated only for who may say so much, and is charged for what it came to.
TEST_F(IngestTest, APackedBatchIsAdmittedAsItCameAndChargedForWhatIsInIt) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 4000};
  Restart();
  Connect();
  pb::Batch batch = Batch(1);
  for (uint32_t path = 0; path < 100; ++path) batch.add_paths()->set_path(path);
  pb::Batch packed = batch;
  packed.clear_paths();
  packed.set_calm_paths("a few bytes");
  EXPECT_FALSE(ingest_->Admit("a", packed, kNow).has_value());
  EXPECT_FALSE(ingest_->Enqueue("a", batch, kNow, packed.ByteSizeLong()).has_value());
  ingest_->Flush(kNow);
  EXPECT_EQ(ingest_->Admit("a", packed, kNow)->through_sequence(), 1u) << "it is known";

  const uint64_t left = 4000 - batch.ByteSizeLong();
  packed.set_sequence(2);
  packed.set_calm_paths(std::string(left, 'a'));
  const std::optional<pb::Ack> ack = ingest_->Admit("a", packed, kNow);
  ASSERT_TRUE(ack.has_value()) << "a packed one of " << left << " bytes beside what the first came to";
  EXPECT_GT(ack->pause_s(), 0);
  packed.set_host("b");
  packed.clear_calm_paths();
  EXPECT_EQ(ingest_->Admit("a", packed, kNow)->refusals_size(), 1) << "another host's";
  EXPECT_TRUE(ingest_->Admit("c", packed, kNow)->again()) << "it never said Hello";
}

TEST_F(IngestTest, TheQueueHoldsSoManyBytesOfAllHosts) {
  limits_.queued_bytes = 100'000;
  Restart();
  Connect();
  Connect("b");
  pb::Batch batch = Batch(1);
  *batch.mutable_definitions()->add_flows() = NameOfFlow(1);
  for (int f = 0; f < 500; ++f) *batch.add_flows() = FlowOf(1);
  EXPECT_FALSE(ingest_->Enqueue("a", batch, kNow).has_value());
  const std::optional<pb::Ack> ack = ingest_->Enqueue("b", Batch(1, "b"), kNow);
  ASSERT_TRUE(ack.has_value());
  EXPECT_GT(ack->pause_s(), 0);
  ingest_->Flush(kNow);
  EXPECT_EQ(Send(Batch(1, "b"), "b").through_sequence(), 1u);
}

TEST_F(IngestTest, ReportsAreOfTheSameQuota) {
  limits_.quota = {.bytes_per_s = 10, .burst_bytes = 1000};
  Restart();
  Connect();
  Connect("b");
  EXPECT_TRUE(ingest_->TakesReport("a", 900, kNow));
  EXPECT_FALSE(ingest_->TakesReport("a", 200, kNow));
  EXPECT_FALSE(ingest_->TakesReport("a", 200, kNow + absl::Seconds(9)));
  EXPECT_EQ(ingest_->Find("a")->refused_reports, 2u);
  EXPECT_TRUE(ingest_->TakesReport("a", 200, kNow + absl::Seconds(10)));
  EXPECT_TRUE(ingest_->TakesReport("b", 1000, kNow)) << "it waits alone";
  EXPECT_FALSE(ingest_->TakesReport("c", 1, kNow)) << "it never said Hello";
}

TEST_F(IngestTest, MoreThanTheQueueHoldsWaitsAndIsTakenLater) {
  limits_.queued_batches = 2;
  Restart();
  Connect();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(1), kNow).has_value());
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  for (const uint64_t s : {3, 4}) {
    const std::optional<pb::Ack> ack = ingest_->Enqueue("a", Batch(s), kNow);
    ASSERT_TRUE(ack.has_value());
    EXPECT_TRUE(ack->again());
    EXPECT_EQ(ack->through_sequence(), 0u);  // nothing is in the store yet
  }
  EXPECT_EQ(ingest_->Flush(kNow).at(0).second.through_sequence(), 2u);
  EXPECT_EQ(Send(Batch(3)).through_sequence(), 3u);
}

TEST_F(IngestTest, WhatTheStoreDidNotTakeIsNotAcknowledgedAndComesAgain) {
  FailingStore failing(*store_);
  Ingest ingest(failing, "one", limits_);
  ASSERT_TRUE(ingest.Connect(Hello(), {.names = {"a"}}, kNow).ok());
  failing.fails = true;
  EXPECT_FALSE(ingest.Enqueue("a", Batch(1), kNow).has_value());
  EXPECT_FALSE(ingest.Enqueue("a", Batch(2), kNow).has_value());
  const auto failed = ingest.Flush(kNow);
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_TRUE(failed[0].second.again());
  EXPECT_EQ(failed[0].second.through_sequence(), 0u);
  EXPECT_EQ(ingest.Find("a")->dropped_events, 0u) << "it comes again, and is counted then";
  EXPECT_GT(failed[0].second.pause_s(), 0);
  EXPECT_TRUE(ingest.Enqueue("a", Batch(3), kNow)->again());  // it was under way already
  failing.fails = false;
  EXPECT_FALSE(ingest.Enqueue("a", Batch(1), kNow).has_value());
  EXPECT_FALSE(ingest.Enqueue("a", Batch(2), kNow).has_value());
  EXPECT_EQ(ingest.Flush(kNow).at(0).second.through_sequence(), 2u);
}

// The store is at work without the streams' lock: what comes meanwhile is queued, and shares its fate.
TEST_F(IngestTest, WhatComesWhileTheStoreIsAtWorkIsForgottenWithItWhereThatFails) {
  Connect();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(1), kNow).has_value());
  Ingest::Taken taken = ingest_->Take();
  ASSERT_THAT(taken.batches, SizeIs(1));
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  const auto failed = ingest_->Settle(taken, /*stored=*/false, kNow);
  ASSERT_THAT(failed, SizeIs(1));
  EXPECT_TRUE(failed[0].second.again());
  EXPECT_THAT(ingest_->Take().batches, IsEmpty()) << "the second, without the first, would look as if all were there";
  EXPECT_EQ(store_->Through("a", kRun).value(), 0u);
  EXPECT_EQ(Send(Batch(1)).through_sequence(), 1u);
  EXPECT_EQ(Send(Batch(2)).through_sequence(), 2u);
}

TEST_F(IngestTest, WhatComesWhileTheStoreIsAtWorkIsTakenNext) {
  Connect();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(1), kNow).has_value());
  Ingest::Taken taken = ingest_->Take();
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  EXPECT_EQ(ingest_->Enqueue("a", Batch(1), kNow)->through_sequence(), 0u) << "it comes again, and is on its way";
  ASSERT_TRUE(ingest_->Put(taken).ok());
  EXPECT_EQ(ingest_->Settle(taken, /*stored=*/true, kNow).at(0).second.through_sequence(), 1u);
  EXPECT_EQ(ingest_->Flush(kNow).at(0).second.through_sequence(), 2u);
}

// What is acknowledged leaves the host's spool.
TEST_F(IngestTest, AWelcomeAcknowledgesNothingThatIsOnlyQueued) {
  EXPECT_EQ(Connect().acknowledged_sequence(), 0u);
  EXPECT_EQ(Send(Batch(1)).through_sequence(), 1u);
  EXPECT_FALSE(ingest_->Enqueue("a", Batch(2), kNow).has_value());
  EXPECT_EQ(Connect().acknowledged_sequence(), 1u);
  EXPECT_EQ(ingest_->Flush(kNow).at(0).second.through_sequence(), 2u);
  EXPECT_EQ(Connect().acknowledged_sequence(), 2u);
}

// A store that fails when the service starts tells of its hosts later.
TEST_F(IngestTest, HostsThatTheStoreCouldNotTellAreLearntOnceItCan) {
  Connect();
  Send(Batch(1));
  FailingStore failing(*store_);
  failing.fails_hosts = true;
  Ingest ingest(failing, "one", limits_);
  EXPECT_TRUE(ingest.facts().empty());
  failing.fails_hosts = false;
  ASSERT_TRUE(ingest.Connect(Hello("b"), {.names = {"b"}}, kNow).ok());
  ingest.Flush(kNow);
  EXPECT_TRUE(ingest.facts().contains("a"));
  EXPECT_TRUE(ingest.facts().contains("b"));
}

// An agent that starts anew never goes back to its run before; what moved to another address has one run at a time.
TEST_F(IngestTest, TwoAgentsThatSpeakAsOneHostAreNamedWithBothAddresses) {
  const auto come = [&](uint64_t run, const char* from) {
    EXPECT_TRUE(ingest_->Connect(Hello("a", run), {.names = {"a"}, .addresses = {}, .from = from}, kNow).ok());
    return ingest_->Find("a")->TwinsNow(kNow);
  };
  EXPECT_EQ(come(1, "10.0.0.1"), "");
  EXPECT_EQ(come(1, "10.0.0.9"), "") << "it moved";
  EXPECT_EQ(come(2, "10.0.0.2"), "") << "it was started anew";
  EXPECT_EQ(come(2, "10.0.0.2"), "");
  EXPECT_THAT(come(1, "10.0.0.1"), HasSubstr("from 10.0.0.2 and from 10.0.0.1"));
  EXPECT_EQ(ingest_->Find("a")->TwinsNow(kNow + absl::Minutes(11)), "") << "one of them ended";
}

}  // namespace
}  // namespace cw::fleet
