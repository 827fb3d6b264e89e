// SPDX-License-Identifier: Apache-2.0
// The memory of a stranger: whole, torn, and hostile.
#include "tests/unit/time_units.h"
#include "userspace/profile/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>

namespace cw::profile {
namespace {


class ProfileMemory : public ::testing::Test {
 protected:
  ProfileMemory() : shared(std::make_unique<cw_prof_shared>()), memory(shared.get()) {
    std::memset(shared.get(), 0, sizeof(*shared));
  }
  void Put(uint64_t index, uint64_t value) {
    cw_prof_record& record = shared->ring[index % CW_PROF_RING];
    record.time_ns = value;
    record.seq = 2 * index + 2;
    shared->head = std::max(shared->head, index + 1);
  }
  std::vector<uint64_t> Read(int64_t now_ns = 1, size_t limit = SIZE_MAX) {
    std::vector<uint64_t> out;
    for (const cw_prof_record& record : memory.Read(now_ns, limit)) out.push_back(record.time_ns);
    return out;
  }

  std::unique_ptr<cw_prof_shared> shared;
  Memory memory;
};

TEST_F(ProfileMemory, GivesEachRecordOnce) {
  for (uint64_t i = 0; i < 5; ++i) Put(i, 100 + i);
  EXPECT_EQ(Read(1, 2), (std::vector<uint64_t>{100, 101}));
  EXPECT_EQ(Read(), (std::vector<uint64_t>{102, 103, 104}));
  EXPECT_TRUE(Read().empty());
  EXPECT_EQ(memory.lost(), 0u);
}

TEST_F(ProfileMemory, CountsWhatWasOverwritten) {
  Put(0, 1);
  (void)Read();
  for (uint64_t i = 1; i < CW_PROF_RING + 11; ++i) Put(i, i);
  const std::vector<uint64_t> got = Read();
  EXPECT_EQ(got.size(), static_cast<size_t>(CW_PROF_RING));
  EXPECT_EQ(got.front(), 11u);
  EXPECT_EQ(memory.lost(), 10u);
}

TEST_F(ProfileMemory, WaitsForARecordThatIsBeingWrittenAndGivesItUp) {
  Put(0, 1);
  Put(2, 3);
  shared->ring[1].seq = 3;  // 2·1 + 1
  EXPECT_EQ(Read(kSecond), (std::vector<uint64_t>{1}));
  EXPECT_TRUE(Read(kSecond + kSecond / 2).empty());
  EXPECT_EQ(Read(3 * kSecond), (std::vector<uint64_t>{3})) << "its writer died";
  EXPECT_EQ(memory.lost(), 1u);
}

TEST_F(ProfileMemory, AnyNumbersAreHarmless) {
  std::mt19937_64 random(1);
  auto* words = reinterpret_cast<uint64_t*>(shared.get());
  for (int round = 0; round < 20; ++round) {
    for (size_t i = 0; i < sizeof(*shared) / 8; ++i) words[i] = random();
    if (round % 3 == 0) shared->head = UINT64_MAX - static_cast<uint64_t>(round);
    if (round % 3 == 1) shared->head = 0;
    (void)memory.Read(round * kSecond, CW_PROF_RING);
    for (const Memory::OpenOp& open : memory.OpenOps()) EXPECT_LE(open.op.qps, CW_PROF_OP_QPS);
    for (const cw_prof_step& step : memory.OpenSteps()) EXPECT_LT(step.wait, uint32_t{CW_WAIT_STATES});
    (void)memory.OpenNets();
    for (int i = 0; i < 100; ++i) (void)memory.Coll(random());
    for (char c : memory.Label() + memory.Process()) EXPECT_TRUE(c >= ' ' && c <= '~');
  }
}

TEST_F(ProfileMemory, OnlyLiveSlotsAreOpen) {
  shared->op[3].generation = 5;
  shared->op[3].peer = 7;
  shared->op[4].generation = 6;
  const std::vector<Memory::OpenOp> open = memory.OpenOps();
  ASSERT_EQ(open.size(), 1u);
  EXPECT_EQ(open[0].op.peer, 7);
  EXPECT_EQ(open[0].handle, cw_prof_handle(CW_PROF_OP, 5, 3));
  shared->coll[9].generation = 3;
  EXPECT_TRUE(memory.Coll(cw_prof_handle(CW_PROF_COLL, 3, 9)).has_value());
  EXPECT_FALSE(memory.Coll(cw_prof_handle(CW_PROF_COLL, 1, 9)).has_value());
  EXPECT_FALSE(memory.Coll(cw_prof_handle(CW_PROF_COLL, 3, CW_PROF_COLLS)).has_value());
}

int Made(size_t size, bool sealed, bool magic) {
  const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(fd, static_cast<off_t>(size)), 0);
  const uint64_t head[2] = {magic ? CW_PROF_MAGIC : 1, CW_PROF_VERSION};
  EXPECT_EQ(pwrite(fd, head, sizeof(head), 0), 16);
  if (sealed) {
    EXPECT_EQ(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
  }
  return fd;
}

// A file that can be cut would end the agent with a signal.
TEST(ProfileMemoryMap, TakesSealedMemoryOfItsSizeOnly) {
  EXPECT_TRUE(Memory::Map(Made(CW_PROF_SIZE, true, true)).ok());
  EXPECT_FALSE(Memory::Map(Made(CW_PROF_SIZE, false, true)).ok());
  EXPECT_FALSE(Memory::Map(Made(CW_PROF_SIZE - 1, true, true)).ok());
  EXPECT_FALSE(Memory::Map(Made(CW_PROF_SIZE, true, false)).ok());
  EXPECT_FALSE(Memory::Map(-1).ok());
  EXPECT_FALSE(Memory::Map(open("/dev/null", O_RDONLY | O_CLOEXEC)).ok());
}

}  // namespace
}  // namespace cw::profile
