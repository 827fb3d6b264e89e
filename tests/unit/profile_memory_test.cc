// SPDX-License-Identifier: Apache-2.0
// The memory of a stranger: whole, torn, and hostile.
#include "tests/unit/time_units.h"
#include "userspace/profile/memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "userspace/profile/hello.h"
#include "userspace/profile/profiles.h"

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

// The other end, as the plug-in has it.
class Given {
 public:
  explicit Given(int fd) : fd_(fd) {
    shared = static_cast<cw_prof_shared*>(mmap(nullptr, CW_PROF_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  }
  ~Given() {
    munmap(shared, CW_PROF_SIZE);
    close(fd_);
  }
  cw_prof_shared* shared;

 private:
  const int fd_;
};

// A file that can be cut would end the agent with a signal.
// One process that writes without end, and others that write a little.
class ManyProfiles : public ::testing::Test {
 protected:
  void Put(size_t process, uint64_t count) {
    cw_prof_shared& shared = *shared_[process];
    for (uint64_t i = 0; i < count; ++i, ++shared.head) {
      shared.ring[shared.head % CW_PROF_RING] = {.seq = 2 * shared.head + 2};
    }
  }
  void Add(size_t count) {
    for (size_t i = 0; i < count; ++i) {
      shared_.push_back(std::make_unique<cw_prof_shared>());
      auto memory = std::make_unique<Memory>(shared_.back().get());
      memories_.push_back(memory.get());
      profiles_.Add(i + 1, static_cast<uint32_t>(i + 1), 1000, std::move(memory));
    }
  }
  size_t Poll() {
    return profiles_.Poll(now_ns_ += kMs, [](const Stall&) {});
  }

  int64_t now_ns_ = kSecond;
  std::vector<std::unique_ptr<cw_prof_shared>> shared_;
  std::vector<const Memory*> memories_;
  Profiles profiles_{{.records_per_poll = 2048}};
};

TEST_F(ManyProfiles, ShareOneBudgetOfAPoll) {
  Add(8);
  for (size_t i = 0; i < 8; ++i) Put(i, 4096);
  size_t total = 0;
  for (int poll = 0; poll < 16; ++poll) {
    const size_t got = Poll();
    EXPECT_EQ(got, 2048u);
    total += got;
  }
  EXPECT_EQ(total, 8u * 4096) << "the rest came with later polls";
  EXPECT_EQ(Poll(), 0u);
}

TEST_F(ManyProfiles, OneThatWritesWithoutEndDelaysNobody) {
  Add(8);
  for (int poll = 0; poll < 8; ++poll) {
    Put(0, 20'000);
    for (size_t i = 1; i < 8; ++i) Put(i, 100);
    EXPECT_LE(Poll(), 2048u);
  }
  Put(0, 20'000);
  size_t others = 0;
  for (int poll = 0; poll < 4; ++poll) Poll();
  for (size_t i = 1; i < 8; ++i) others += memories_[i]->unread() == 0;
  EXPECT_EQ(others, 7u) << "each had its turn";
  EXPECT_GT(memories_[0]->unread(), 0u);
}

// A process with one collective that began at 1 s, and a send of it on queue pair 9.
class ACollective : public ManyProfiles {
 protected:
  ACollective() {
    Add(1);
    cw_prof_shared& shared = *shared_[0];
    shared.coll[0] = {.generation = 1, .open = 1, .comm = 5, .start_ns = static_cast<uint64_t>(kSecond)};
    cw_prof_op& op = shared.op[0];
    op.generation = 1;
    op.coll = cw_prof_handle(CW_PROF_COLL, 1, 0);
    op.is_send = 1;
    op.qps = 1;
    op.qp[0] = {.qpn = 9, .requests = 3};  // that are complete
    cw_prof_record record{.seq = 2, .type = CW_PROF_COLL_START};
    record.time_ns = static_cast<uint64_t>(kSecond);
    record.coll = op.coll;
    shared.ring[0] = record;
    shared.head = 1;
    Poll();
  }
  void Post() {
    shared_[0]->net[0] = {.generation = 1, .qpn = 9, .op = cw_prof_handle(CW_PROF_OP, 1, 0)};
    shared_[0]->net[0].start_ns = static_cast<uint64_t>(kSecond);
  }
};

TEST_F(ACollective, WaitsForWhatIsPostedOnceItHasRunForASecond) {
  EXPECT_TRUE(profiles_.AwaitedSends(3 * kSecond).empty()) << "nothing is posted: there is nothing to send";
  Post();
  EXPECT_TRUE(profiles_.AwaitedSends(kSecond + kSecond / 2).empty()) << "as all collectives do";
  const std::vector<QpOfProcess> awaited = profiles_.AwaitedSends(3 * kSecond);
  ASSERT_EQ(awaited.size(), 1u);
  EXPECT_EQ(awaited[0].qpn, 9u);
  EXPECT_EQ(awaited[0].pid, 1u);
  shared_[0]->op[0].is_send = 0;
  EXPECT_TRUE(profiles_.AwaitedSends(3 * kSecond).empty()) << "it waits for what comes to it";
  profiles_.Closed(1, 3 * kSecond);
  shared_[0]->op[0].is_send = 1;
  EXPECT_TRUE(profiles_.AwaitedSends(3 * kSecond).empty());
}

TEST(ProfileMemoryMade, WhoeverIsGivenItCannotChangeItsSize) {
  absl::StatusOr<Memory::Made> made = Memory::Make();
  ASSERT_TRUE(made.ok()) << made.status();
  const Given given(made->fd);
  ASSERT_NE(given.shared, MAP_FAILED);
  EXPECT_NE(ftruncate(made->fd, 0), 0);
  EXPECT_NE(ftruncate(made->fd, CW_PROF_SIZE + 4096), 0);
  EXPECT_EQ(fcntl(made->fd, F_GET_SEALS) & F_SEAL_SEAL, F_SEAL_SEAL);
  EXPECT_FALSE(made->memory->Check().ok()) << "nobody has written there";
  given.shared->version = CW_PROF_VERSION;
  given.shared->magic = CW_PROF_MAGIC;
  EXPECT_TRUE(made->memory->Check().ok());
  given.shared->version = CW_PROF_VERSION + 1;
  EXPECT_FALSE(made->memory->Check().ok());
}

cw_prof_hello Hello(cw_prof_message type) {
  return {.magic = CW_INPROC_MAGIC,
          .version = CW_INPROC_VERSION,
          .type = static_cast<uint16_t>(type),
          .layout = CW_PROF_VERSION,
          .size = CW_PROF_SIZE};
}

class ProfileHello : public ::testing::Test {
 protected:
  ~ProfileHello() override {
    for (const int fd : fds) close(fd);
  }
  absl::Status Take(uint64_t connection, const cw_prof_hello& hello, uint32_t uid = 1000) {
    return TakeHello(profiles, connection, 7, uid, {reinterpret_cast<const uint8_t*>(&hello), sizeof(hello)},
                     [this](absl::Span<const uint8_t> bytes, int fd) {
                       std::memcpy(&answer, bytes.data(), sizeof(answer));
                       if (fd >= 0) fds.push_back(dup(fd));
                       return absl::OkStatus();
                     });
  }
  Profiles profiles{ProfileOptions{}};
  cw_prof_hello answer{};
  std::vector<int> fds;  // that were given
};

TEST_F(ProfileHello, GivesOneMemoryToEachConnection) {
  ASSERT_TRUE(Take(1, Hello(CW_PROF_ASK)).ok());
  ASSERT_EQ(fds.size(), 1u);
  EXPECT_EQ(answer.type, CW_PROF_MEMORY);
  EXPECT_EQ(answer.refused, 0u);
  EXPECT_FALSE(Take(1, Hello(CW_PROF_ASK)).ok());
  EXPECT_NE(answer.refused, 0u);
  EXPECT_FALSE(Take(1, Hello(CW_PROF_READY)).ok()) << "nothing is there";
  EXPECT_FALSE(Take(2, Hello(CW_PROF_READY)).ok()) << "it was given none";
  const Given given(fds[0]);
  fds.clear();
  given.shared->version = CW_PROF_VERSION;
  given.shared->magic = CW_PROF_MAGIC;
  EXPECT_TRUE(profiles.empty());
  EXPECT_TRUE(Take(1, Hello(CW_PROF_READY)).ok());
  EXPECT_FALSE(profiles.empty());
}

TEST_F(ProfileHello, APlugInOfAnotherReleaseIsToldApart) {
  const absl::Status older = Take(1, Hello(CW_PROF_REGISTER));
  EXPECT_NE(older.message().find("of an earlier release: install libnccl-profiler-cwfabric"), std::string::npos)
      << older;
  cw_prof_hello other = Hello(CW_PROF_ASK);
  other.size += 8;
  EXPECT_FALSE(Take(2, other).ok());
  EXPECT_EQ(answer.refused, static_cast<uint32_t>(EPROTO));
  EXPECT_TRUE(fds.empty());
}

TEST_F(ProfileHello, OneUserLeavesRoomForOthers) {
  uint64_t connection = 0;
  while (connection < 1000 && Take(connection, Hello(CW_PROF_ASK)).ok()) ++connection;
  EXPECT_EQ(connection, 128u);
  EXPECT_EQ(answer.refused, static_cast<uint32_t>(EDQUOT));
  EXPECT_TRUE(Take(1000, Hello(CW_PROF_ASK), 1001).ok());
  profiles.Closed(5, 1);
  EXPECT_TRUE(Take(1001, Hello(CW_PROF_ASK)).ok()) << "what one gave back another may take";
}

}  // namespace
}  // namespace cw::profile
