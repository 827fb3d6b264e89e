// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/time_units.h"
#include "userspace/profile/book.h"

#include <gtest/gtest.h>

#include <cstring>

namespace cw::profile {
namespace {

constexpr uint64_t kComm = 7;

template <size_t N>
void Put(char (&to)[N], const char* text) {
  std::strncpy(to, text, N - 1);
}

cw_prof_record Record(cw_prof_type type, uint64_t coll, int64_t time_ns) {
  cw_prof_record record{};
  record.type = static_cast<uint8_t>(type);
  record.coll = coll;
  record.time_ns = static_cast<uint64_t>(time_ns);
  return record;
}

class ProfileBook : public ::testing::Test {
 protected:
  ProfileBook() {
    cw_prof_record comm = Record(CW_PROF_COMM_START, kComm, 1);
    comm.u.comm.id = 0xabc;
    comm.u.comm.ranks = 4;
    Put(comm.u.comm.name, "name");
    book.Add(comm);
  }
  void Start(uint64_t coll, int64_t at_ns, const char* function = "AllReduce", uint64_t count = 1000) {
    cw_prof_record record = Record(CW_PROF_COLL_START, coll, at_ns);
    record.u.coll.comm = kComm;
    record.u.coll.count = count;
    Put(record.u.coll.function, function);
    Put(record.u.coll.datatype, "ncclFloat32");
    book.Add(record);
  }
  void Enqueued(uint64_t coll, int64_t at_ns) { book.Add(Record(CW_PROF_COLL_STOP, coll, at_ns)); }
  void Op(uint64_t coll, uint64_t op, int64_t start_ns, int64_t first_ns, int64_t end_ns, int peer = 1) {
    cw_prof_record record = Record(CW_PROF_OP_STOP, coll, end_ns);
    record.is_send = 1;
    record.u.op.op = op;
    record.u.op.start_ns = static_cast<uint64_t>(start_ns);
    record.u.op.first_ns = static_cast<uint64_t>(first_ns);
    record.u.op.peer = peer;
    record.u.op.wait_ns[CW_WAIT_SEND - 1] = 5;
    book.Add(record);
  }
  void Qp(uint64_t op, uint32_t qpn) {
    cw_prof_record record = Record(CW_PROF_QP, 0, 0);
    record.u.qp.op = op;
    record.u.qp.qp.qpn = qpn;
    record.u.qp.qp.requests = 2;
    book.Add(record);
  }
  void Chunks(uint64_t op, uint32_t qpn, uint32_t count, bool unsure = false) {
    cw_prof_record record = Record(CW_PROF_CHUNKS, 1, 0);
    record.u.chunks = {.op = op, .base_ns = 10, .qpn = qpn, .posted = count};
    record.u.chunks.count = static_cast<uint8_t>(count);
    record.u.chunks.unsure = unsure ? 1 : 0;
    for (uint32_t i = 0; i < count; ++i) record.u.chunks.stamp[i] = {i, i};
    book.Add(record);
  }
  void Tick(int64_t now_ns, int open = 0) {
    book.Tick(now_ns, 2, [open](uint64_t) { return open; });
  }

  Book book;
};

TEST_F(ProfileBook, FromFirstDataToTheLastEnd) {
  Start(1, 10 * kMs);
  Enqueued(1, 11 * kMs);
  Qp(100, 0x21);
  Op(1, 100, 12 * kMs, 20 * kMs, 50 * kMs);
  Op(1, 101, 12 * kMs, 15 * kMs, 45 * kMs, 2);
  Tick(51 * kMs + Book::kSettleNs);
  ASSERT_EQ(book.done().size(), 1u);
  const Collective& coll = book.done()[0];
  EXPECT_EQ(coll.DurationNs(), 35 * kMs);
  EXPECT_EQ(coll.bytes, 4000u);
  ASSERT_EQ(coll.ops.size(), 2u);
  ASSERT_EQ(coll.ops[0].qps.size(), 1u);
  EXPECT_EQ(coll.ops[0].qps[0].qpn, 0x21u);
  EXPECT_TRUE(coll.ops[1].qps.empty());
  EXPECT_EQ(coll.ops[0].wait_ns[CW_WAIT_SEND], 5);
  EXPECT_EQ(book.comms().at(kComm).done, 1u);
}

TEST_F(ProfileBook, NotDoneBeforeItsStopNorWithOpenChildrenNorAtOnce) {
  Start(1, 0);
  Op(1, 100, kMs, kMs, 2 * kMs);
  Tick(kSecond);
  EXPECT_TRUE(book.done().empty()) << "not enqueued whole";
  Enqueued(1, kSecond);
  Tick(kSecond, 1);
  EXPECT_TRUE(book.done().empty()) << "a child is open";
  Op(1, 101, kMs, kMs, kSecond);
  Tick(kSecond + Book::kSettleNs / 2);
  EXPECT_TRUE(book.done().empty()) << "another may come";
  Tick(kSecond + 2 * Book::kSettleNs);
  EXPECT_EQ(book.done().size(), 1u);
}

TEST_F(ProfileBook, OneWithoutAPartOnTheNetworkIsForgotten) {
  Start(1, 0);
  Enqueued(1, 1);
  Tick(Book::kLocalNs / 2);
  EXPECT_EQ(book.open().size(), 1u);
  Tick(2 * Book::kLocalNs);
  EXPECT_TRUE(book.open().empty());
  EXPECT_TRUE(book.done().empty());
}

TEST_F(ProfileBook, SlowIsMuchLongerThanItsLike) {
  int64_t at = 0;
  const auto run = [&](uint64_t coll, int64_t takes, uint64_t count) {
    Start(coll, at, "AllReduce", count);
    Enqueued(coll, at);
    Op(coll, 1000 + coll, at + 1, at + 1, at + 1 + takes);
    at += kSecond;
    Tick(at);
    return book.done().back().slow;
  };
  for (uint64_t i = 1; i <= 5; ++i) EXPECT_FALSE(run(i, 10 * kMs, 1000));
  EXPECT_FALSE(run(6, 19 * kMs, 1000));
  EXPECT_TRUE(run(7, 21 * kMs, 1000));
  EXPECT_FALSE(run(8, 90 * kMs, 100'000)) << "another size";
}

TEST_F(ProfileBook, LostRecordsCutWhatIsOpen) {
  Start(1, 0);
  Op(1, 100, kMs, kMs, 2 * kMs);
  book.Lost();
  Tick(kSecond);
  ASSERT_EQ(book.done().size(), 1u) << "its stop may be among the lost";
  EXPECT_TRUE(book.done()[0].cut);
}

TEST_F(ProfileBook, WhatIsOpenIsAddedOnce) {
  Start(1, 0);
  Op(1, 100, kMs, 5 * kMs, 9 * kMs);
  OpenNow now;
  for (uint64_t handle : {100, 101, 102}) {
    now.ops.push_back({.handle = handle, .first_ns = handle == 101 ? 3 * kMs : 0});
    now.coll.push_back(handle == 102 ? 2 : 1);
    now.pid.push_back(0);
  }
  const Collective running = Book::Running(book.open().at(1), now);
  EXPECT_EQ(running.ops.size(), 2u);
  EXPECT_EQ(running.first_ns, 3 * kMs);
}

TEST_F(ProfileBook, ChunksOfAnOperationGetTheirDelays) {
  Start(1, 0);
  Qp(100, 0x21);
  Chunks(100, 0x21, 3);
  Chunks(100, 0x22, 2, true);
  Op(1, 100, kMs, kMs, 2 * kMs);
  const std::vector<ChunkOp> taken = book.TakeChunks();
  ASSERT_EQ(taken.size(), 1u) << "one is unsure";
  EXPECT_EQ(taken[0].operation, OperationName(0xabc, "AllReduce", 0, 0));
  EXPECT_EQ(taken[0].stamps, (std::vector<std::pair<uint32_t, int64_t>>{{0, 10}, {1, 11}, {2, 12}}));
  EXPECT_TRUE(book.TakeChunks().empty());
  book.AddDelays({.coll = 1, .handle = 100, .qpn = 0x21, .delay_ns = {7, 8}, .bound_ns = 5});
  book.AddDelays({.coll = 1, .handle = 101, .qpn = 0x21, .delay_ns = {9}});
  EXPECT_EQ(book.open().at(1).ops[0].qps[0].chunk_ns, (std::vector<int64_t>{7, 8}));
  Enqueued(1, kMs);
  Tick(kSecond);
  book.AddDelays({.coll = 1, .handle = 100, .qpn = 0x21, .delay_ns = {6}, .bound_ns = 5});
  EXPECT_EQ(book.done()[0].ops[0].qps[0].chunk_ns, std::vector<int64_t>{6});
}

TEST_F(ProfileBook, ChunksOfUnknownCollectivesAndClaimsThatCannotBeAreLeftOut) {
  Chunks(100, 0x21, 3);
  Op(7, 100, kMs, kMs, 2 * kMs);  // its start was lost
  Start(1, 0);
  cw_prof_record record = Record(CW_PROF_CHUNKS, 1, 0);
  record.u.chunks = {.op = 101, .base_ns = UINT64_MAX, .posted = 1, .count = 200};
  book.Add(record);
  record.u.chunks = {.op = 101, .posted = UINT32_MAX, .count = 8};
  book.Add(record);
  Op(1, 101, kMs, kMs, 2 * kMs);
  EXPECT_TRUE(book.TakeChunks().empty());
  for (uint64_t op = 0; op < 2 * Book::kMaxChunkOps; ++op) {
    Chunks(1000 + op, 1, 1);
    Op(1, 1000 + op, kMs, kMs, 2 * kMs);
  }
  EXPECT_EQ(book.TakeChunks().size(), Book::kMaxChunkOps);
}

TEST_F(ProfileBook, StaysBounded) {
  for (uint64_t i = 0; i < 3 * Book::kMaxOpen; ++i) Start(i, static_cast<int64_t>(i));
  EXPECT_LE(book.open().size(), Book::kMaxOpen);
  const uint64_t last = 3 * Book::kMaxOpen - 1;
  for (uint64_t i = 0; i < 2 * Book::kMaxOps; ++i) Op(last, i, 1, 1, 2);
  EXPECT_EQ(book.open().at(last).ops.size(), Book::kMaxOps);
  EXPECT_TRUE(book.open().at(last).cut);
  for (uint64_t i = 0; i < 100'000; ++i) Qp(i, 1);
  // All collectives together, too, whether open or done.
  constexpr uint64_t kFirst = 1 << 21;  // the lowest handles make room
  for (uint64_t coll = kFirst; coll < kFirst + 2 * Book::kMaxAllOps / Book::kMaxOps; ++coll) {
    Start(coll, 1);
    for (uint64_t i = 0; i < Book::kMaxOps; ++i) Op(coll, i, 1, 1, 2);
  }
  const auto all = [&] {
    size_t ops = 0;
    for (const auto& [handle, open] : book.open()) ops += open.ops.size();
    for (const Collective& done : book.done()) ops += done.ops.size();
    return ops;
  };
  EXPECT_EQ(all(), Book::kMaxAllOps);
  for (uint64_t coll = kFirst; coll < kFirst + Book::kMaxOpen; ++coll) Enqueued(coll, 2);
  Tick(kSecond);
  EXPECT_FALSE(book.done().empty());
  Start(1 << 22, kSecond);
  Op(1 << 22, 1, 1, 1, 2);
  EXPECT_EQ(book.open().at(1 << 22).ops.size(), 1u) << "the oldest made room";
  EXPECT_LE(all(), Book::kMaxAllOps);
}

TEST(ProfileFigures, NcclTestsSizesAndFactors) {
  EXPECT_EQ(SizeBytes("AllReduce", "ncclFloat16", 10, 4), 20u);
  EXPECT_EQ(SizeBytes("AllGather", "ncclFloat32", 10, 4), 160u);
  EXPECT_EQ(SizeBytes("ReduceScatter", "ncclFloat8e4m3", 10, 4), 40u);
  EXPECT_EQ(SizeBytes("Send", "ncclInt8", 10, 4), 10u);
  EXPECT_EQ(SizeBytes("AllReduce", "ncclBfloat16", UINT64_MAX / 2 + 1, 4), 0u) << "no such size";
  EXPECT_EQ(SizeBytes("AllReduce", "unknown", 10, 4), 0u);
  EXPECT_DOUBLE_EQ(BusFactor("AllReduce", 4), 1.5);
  EXPECT_DOUBLE_EQ(BusFactor("AllGather", 4), 0.75);
  EXPECT_DOUBLE_EQ(BusFactor("ReduceScatter", 8), 0.875);
  EXPECT_DOUBLE_EQ(BusFactor("Broadcast", 8), 1);
  EXPECT_DOUBLE_EQ(BusFactor("Send", 8), 1);
  EXPECT_DOUBLE_EQ(BusFactor("AllReduce", 1), 1);
}

}  // namespace
}  // namespace cw::profile
