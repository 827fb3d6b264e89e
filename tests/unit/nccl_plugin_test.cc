// SPDX-License-Identifier: Apache-2.0
// The plug-in as a file, driven as NCCL drives it, with the agent's reader at the other end of the socket.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "nccl_harness.h"
#include "userspace/inproc/nccl/cw_profiler.h"
#include "userspace/model/clock.h"
#include "userspace/profile/hello.h"
#include "userspace/profile/profiles.h"
#include "userspace/rdma/inproc_server.h"

namespace cw::nccl {
namespace {

namespace v1 = ::cwfabric::v1;
using ::testing::HasSubstr;

int64_t NowNs() { return MonotonicClock().NowNs(); }

// The plug-in looks for its agent once, so all tests of this program share one place for the socket.
const std::string& Folder() {
  static const std::string folder = [] {
    char name[] = "/tmp/cw-nccl-XXXXXX";
    return std::string(mkdtemp(name));
  }();
  return folder;
}

class Agent {
 public:
  Agent() : profiles(profile::ProfileOptions{.stall_ns = 200'000'000, .slow_factor = 2}) {
    auto listening = rdma::InprocServer::Listen(
        Folder() + "/inproc.sock",
        {.registered = [](const rdma::QpInfo&) {},
         .unregistered = [](const rdma::QpInfo&) {},
         .profiler =
             [this](const rdma::InprocServer::Peer& peer, absl::Span<const uint8_t> message) {
               ASSERT_EQ(message.size(), sizeof(cw_prof_hello));
               const absl::Status status = profile::TakeHello(
                   profiles, peer.connection, peer.pid, peer.uid, message,
                   [&](const auto& answer, int fd) { return server->Give(peer.connection, answer, fd); });
               // A child that has ended since it asked gets nothing any more.
               EXPECT_TRUE(status.ok() || status.message().find("Broken pipe") != std::string::npos) << status;
               cw_prof_hello hello;
               std::memcpy(&hello, message.data(), sizeof(hello));
               if (hello.type == CW_PROF_READY) ++registered;
             },
         .closed = [this](const rdma::InprocServer::Peer& peer) { profiles.Closed(peer.connection, NowNs()); }});
    EXPECT_TRUE(listening.ok()) << listening.status();
    if (listening.ok()) server = std::move(*listening);
  }

  void Poll() {
    server->Poll();
    profiles.Poll(NowNs(), [this](const profile::Stall& stall) { stalls.push_back(stall); });
  }

  bool Wait(const std::function<bool()>& is) {
    for (const int64_t end_ns = NowNs() + 30'000'000'000; NowNs() < end_ns;) {
      Poll();
      if (is()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  std::vector<v1::Collective> Of(const std::string& name) const {
    v1::ListCollectivesRequest request;
    request.set_job(name);
    request.set_last(10'000);
    const v1::ListCollectivesReply reply = profiles.Collectives(request, NowNs());
    return {reply.collectives().begin(), reply.collectives().end()};
  }
  std::vector<v1::Collective> Done(const std::string& name, size_t count) {
    std::vector<v1::Collective> done;
    EXPECT_TRUE(Wait([&] {
      done.clear();
      for (v1::Collective& c : Of(name)) {
        if (c.state() == v1::Collective::STATE_DONE) done.push_back(c);
      }
      return done.size() >= count;
    })) << name;
    return done;
  }
  v1::Job Job(const std::string& name) const {
    v1::ListJobsRequest request;
    request.set_job(name);
    const v1::ListJobsReply reply = profiles.Jobs(request, NowNs());
    return reply.jobs_size() > 0 ? reply.jobs(0) : v1::Job();
  }

  profile::Profiles profiles;
  std::unique_ptr<rdma::InprocServer> server;
  std::vector<profile::Stall> stalls;
  int registered = 0;
};

class NcclPlugin : public ::testing::Test {
 protected:
  NcclPlugin() {
    setenv("CWFABRIC_INPROC_SOCKET", (Folder() + "/inproc.sock").c_str(), 1);
    unsetenv("CWFABRIC_JOB");
    unsetenv("SLURM_JOB_ID");
  }
  ~NcclPlugin() override {
    EXPECT_EQ(plugin.failures(), 0) << "a call did not return 0";
    std::error_code ignored;
    std::filesystem::remove(Folder() + "/inproc.sock", ignored);
  }
  void* Comm(const std::string& name, int rank = 0, int ranks = 4) {
    int mask = 0;
    return plugin.Init(std::hash<std::string>()(name), name, 2, ranks, rank, &mask);
  }

  Plugin plugin{NCCL_PLUGIN, 6};
  Agent agent;
};

void Nap(int) { std::this_thread::sleep_for(std::chrono::milliseconds(3)); }

TEST_F(NcclPlugin, EveryVersionGivesWholeCollectives) {
  for (int version : {4, 5, 6, 7}) {
    SCOPED_TRACE(version);
    Plugin one(NCCL_PLUGIN, version);
    ASSERT_TRUE(one.ok());
    const std::string name = "version" + std::to_string(version);
    int mask = 0;
    void* context = one.Init(0x1234, name, 2, 4, 3, &mask);
    EXPECT_EQ(mask, 2 | 4 | 8 | 16 | 128);
    CollSpec spec{.function = "AllGather", .seq = 7, .count = 1000, .datatype = "ncclBfloat16"};
    spec.ops = {{.peer = 2, .channel = 1, .send = true, .steps = 3, .qps = {{0x21, 100}, {0x22, 50}}, .third = Nap},
                {.peer = 1, .channel = 1, .send = false, .steps = 2, .qps = {{0x31}}, .first = Nap}};
    one.Run(context, spec);
    one.Finalize(context);
    EXPECT_EQ(one.failures(), 0);
    const std::vector<v1::Collective> done = agent.Done(name, 1);
    ASSERT_EQ(done.size(), 1u);
    const v1::Collective& c = done[0];
    EXPECT_EQ(c.function(), "AllGather");
    EXPECT_EQ(c.seq(), 7u);
    EXPECT_EQ(c.bytes(), 8000u);
    EXPECT_EQ(c.algorithm(), "RING");
    EXPECT_EQ(c.rank(), 3);
    EXPECT_EQ(c.job_id(), "0000000000001234");
    EXPECT_GE(c.duration_ns(), 9e6);
    ASSERT_EQ(c.peers_size(), 2);
    const v1::CollectivePeer& send = c.peers(c.peers(0).send() ? 0 : 1);
    EXPECT_EQ(send.rank(), 2);
    EXPECT_EQ(send.steps_done(), 3u);
    EXPECT_EQ(send.bytes(), 3 * 4096u);
    EXPECT_GE(send.send_wait_ns(), 9e6);
    ASSERT_EQ(send.qps_size(), 2);
    EXPECT_EQ(send.qps(0).qpn(), 0x21u);
    EXPECT_EQ(send.qps(0).requests(), 3u);
    EXPECT_EQ(send.qps(1).bytes(), 150u);
    EXPECT_GE(send.qps(1).wire_ns(), 9e6);
    const v1::CollectivePeer& receive = c.peers(c.peers(0).send() ? 1 : 0);
    EXPECT_GE(receive.recv_wait_ns(), 6e6);
    EXPECT_EQ(receive.bytes(), 2 * 4096u);
    const v1::Job job = agent.Job(name);
    EXPECT_EQ(job.profiler_version(), static_cast<uint32_t>(version));
    EXPECT_TRUE(job.ended());
    EXPECT_TRUE(job.queue_pair_events());
  }
}

// Both ends stamp the same chunks, whatever there is on their queue pairs.
TEST_F(NcclPlugin, ChunksAreCountedAndStampedAlikeAtBothEnds) {
  void* context = Comm("chunks");
  CollSpec spec{.function = "AllReduce", .seq = 3};
  spec.ops = {{.peer = 2, .channel = 1, .send = true, .steps = 21, .qps = {{0x21, 100}, {0x22, 50}}},
              {.peer = 1, .channel = 1, .send = false, .steps = 21, .qps = {{0x31}, {0x32}}},
              {.peer = 1, .channel = 2, .send = false, .steps = 3, .qps = {{0x31}}}};
  (void)agent.profiles.TakeChunks();
  const int64_t before_ns = NowNs();
  plugin.Run(context, spec);
  const int64_t after_ns = NowNs();
  ASSERT_EQ(agent.Done("chunks", 1).size(), 1u);
  const uint64_t name = profile::OperationName(std::hash<std::string>()("chunks"), "AllReduce", 3, 1);
  size_t seen = 0;
  for (const profile::ChunkOp& op : agent.profiles.TakeChunks()) {
    if (op.operation != name) continue;
    ++seen;
    EXPECT_EQ(op.send, op.qpn < 0x30) << op.qpn;
    EXPECT_EQ(op.posted, 21u);
    EXPECT_EQ(op.bytes, 21u * 4096);
    std::vector<uint32_t> numbers;
    for (const auto& [number, at_ns] : op.stamps) {
      numbers.push_back(number);
      EXPECT_TRUE(at_ns >= before_ns && at_ns <= after_ns);
    }
    EXPECT_EQ(numbers, (std::vector<uint32_t>{0, 4, 8, 12, 16, 20}));
  }
  EXPECT_EQ(seen, 4u);
  plugin.Finalize(context);
}

// An operation during which events were lost, anybody's, may have counted wrongly.
TEST_F(NcclPlugin, AfterALossNumbersOfChunksAreNotTold) {
  void* context = Comm("chunks-lost");
  void* coll = plugin.StartColl(context, {.seq = 4});
  void* op = plugin.StartOp(context, {.peer = 2}, coll);
  for (int i = 0; i < 2; ++i) {
    void* step = plugin.StartStep(context, i, op);
    plugin.Stop(plugin.StartNet(context, {0x51, 64}, true, step));
    plugin.Stop(step);
  }
  (void)plugin.StartNet(context, {0x51, 64}, true, nullptr);  // its step had no room
  plugin.Stop(op);
  plugin.RunOp(context, {.peer = 3, .channel = 1, .qps = {{0x52}}}, coll);
  plugin.Stop(coll);
  ASSERT_EQ(agent.Done("chunks-lost", 1).size(), 1u);
  std::set<uint32_t> told;
  for (const profile::ChunkOp& chunks : agent.profiles.TakeChunks()) told.insert(chunks.qpn);
  EXPECT_EQ(told.count(0x51), 0u);
  EXPECT_EQ(told.count(0x52), 1u);
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, CommunicatorsStayApartAndOutliveEachOther) {
  void* a = Comm("apart-a");
  void* b = Comm("apart-b");
  void* coll = plugin.StartColl(b, {.function = "Broadcast", .seq = 1});
  plugin.Run(a, {.seq = 11});
  plugin.Stop(coll);
  plugin.Finalize(a);
  plugin.RunOp(b, {.peer = 3}, coll);
  plugin.Finalize(b);
  plugin.RunOp(nullptr, {.peer = 3}, coll);  // without a context nothing begins
  const std::vector<v1::Collective> of_a = agent.Done("apart-a", 1), of_b = agent.Done("apart-b", 1);
  ASSERT_EQ(of_a.size(), 1u);
  ASSERT_EQ(of_b.size(), 1u);
  EXPECT_EQ(of_a[0].seq(), 11u);
  EXPECT_EQ(of_b[0].function(), "Broadcast");
  EXPECT_EQ(of_b[0].peers(0).rank(), 3);
}

TEST_F(NcclPlugin, StopsOutOfOrderAndTwiceAreHarmless) {
  void* context = Comm("order");
  void* coll = plugin.StartColl(context, {.seq = 5});
  void* op = plugin.StartOp(context, {.peer = 2}, coll);
  void* step = plugin.StartStep(context, 0, op);
  plugin.State(step, CW_NCCL_SEND_WAIT, 512);
  void* request = plugin.StartNet(context, {0x41, 512}, true, step);
  plugin.Stop(op);  // before its step, and that before its request
  plugin.Stop(step);
  plugin.Stop(request);
  for (int twice = 0; twice < 2; ++twice) {
    for (void* handle : {request, step, op}) plugin.Stop(handle);
  }
  plugin.State(step, CW_NCCL_SEND_WAIT);
  plugin.State(reinterpret_cast<void*>(0x123456789abcull), CW_NCCL_SEND_WAIT);
  plugin.Stop(reinterpret_cast<void*>(~uintptr_t{0}));
  plugin.Stop(reinterpret_cast<void*>(uintptr_t{0x5fffffffffffffff}));
  plugin.Stop(coll);
  const std::vector<v1::Collective> done = agent.Done("order", 1);
  ASSERT_EQ(done.size(), 1u);
  EXPECT_EQ(done[0].peers_size(), 1);
  plugin.Finalize(context);
}

// Under PXN the parent is another process' number: it is told on, never looked up.
TEST_F(NcclPlugin, OperationsOfAnotherProcessAndWithoutParent) {
  void* context = Comm("foreign");
  plugin.Run(context, {.seq = 1});
  void* own = plugin.StartColl(context, {.seq = 2});
  plugin.RunOp(context, {.peer = 2, .pid = getpid() + 1}, reinterpret_cast<void*>(0x7fff12345678));
  plugin.RunOp(context, {.peer = 2}, nullptr);
  plugin.RunOp(context, {.peer = 2}, reinterpret_cast<void*>(0x7fff12345678));
  void* op = plugin.StartOp(context, {.peer = 9}, own);
  EXPECT_EQ(plugin.StartStep(context, 0, nullptr), nullptr);
  void* step = plugin.StartStep(context, 0, op);
  EXPECT_EQ(plugin.StartNet(context, {}, true, nullptr), nullptr);
  plugin.Stop(step);
  plugin.Stop(op);
  plugin.Stop(own);
  const std::vector<v1::Collective> done = agent.Done("foreign", 2);
  ASSERT_EQ(done.size(), 2u);
  for (const v1::Collective& c : done) EXPECT_EQ(c.peers_size(), 1) << c.ShortDebugString();
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, FullPoolsGiveNoHandleAndAreCounted) {
  void* context = Comm("full");
  void* coll = plugin.StartColl(context, {.seq = 1});
  std::vector<void*> ops;
  for (int i = 0; i < CW_PROF_OPS + 10; ++i) ops.push_back(plugin.StartOp(context, {.peer = 2}, coll));
  EXPECT_GE(std::count(ops.begin(), ops.end(), nullptr), 10);
  ASSERT_TRUE(agent.Wait([&] { return agent.Job("full").dropped() >= 10; }));
  for (void* op : ops) plugin.Stop(op);
  void* again = plugin.StartOp(context, {.peer = 2}, coll);
  EXPECT_NE(again, nullptr);
  plugin.Stop(again);
  plugin.Stop(coll);
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, WithoutQueuePairEventsItSaysSo) {
  void* context = Comm("no-qps");
  CollSpec spec;
  spec.ops[0].qps.clear();
  plugin.Run(context, spec);
  ASSERT_EQ(agent.Done("no-qps", 1).size(), 1u);
  // Tests of this program share the process, whose other communicators may have had such events.
  const v1::Job job = agent.Job("no-qps");
  if (!job.queue_pair_events()) {
    EXPECT_THAT(job.note(), HasSubstr("NET_PROFILER=1"));
  }
  EXPECT_EQ(agent.Done("no-qps", 1)[0].held_qpn(), 0u);
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, OffMeansNothing) {
  setenv("CWFABRIC_NCCL_PROFILER", "off", 1);
  int mask = 0;
  void* context = plugin.Init(1, "off", 2, 4, 0, &mask);
  unsetenv("CWFABRIC_NCCL_PROFILER");
  EXPECT_EQ(mask, 0);
  EXPECT_EQ(plugin.StartColl(context, {}), nullptr);
  plugin.Run(context, {});
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, AChildHasAMemoryOfItsOwn) {
  void* context = Comm("fork");
  void* coll = plugin.StartColl(context, {.seq = 3});
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(20);
    plugin.RunOp(context, {.peer = 2}, coll);  // the parent's: nothing of it is left here
    const bool nothing = plugin.StartColl(context, {.seq = 99}) == nullptr;
    int mask = 0;
    void* own = plugin.Init(2, "child", 1, 2, 0, &mask);
    const bool begins = plugin.StartColl(own, {.seq = 4}) != nullptr;
    _exit(nothing && begins && plugin.failures() == 0 ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  plugin.RunOp(context, {.peer = 1}, coll);
  plugin.Stop(coll);
  const std::vector<v1::Collective> done = agent.Done("fork", 1);
  ASSERT_EQ(done.size(), 1u);
  ASSERT_EQ(done[0].peers_size(), 1);
  EXPECT_EQ(done[0].peers(0).rank(), 1);
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, AnotherAgentGetsTheMemoryAgain) {
  void* context = Comm("restart");
  plugin.Run(context, {.seq = 1});
  ASSERT_EQ(agent.Done("restart", 1).size(), 1u);
  agent.server.reset();
  plugin.Run(context, {.seq = 2});  // nobody listens
  Agent later;
  ASSERT_TRUE(later.Wait([&] { return later.registered > 0; }));
  plugin.Run(context, {.seq = 3});
  const std::vector<v1::Collective> done = later.Done("restart", 3);
  ASSERT_EQ(done.size(), 3u) << "the ring still has what was before";
  EXPECT_EQ(done[2].seq(), 3u);
  plugin.Finalize(context);
}

// This process's sockets but the agent's own end: what a program that closes what it does not know would close.
std::vector<int> OpenSockets() {
  std::vector<int> out;
  for (int fd = 3; fd < 256; ++fd) {
    struct stat info;
    if (fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode)) out.push_back(fd);
  }
  return out;
}

TEST_F(NcclPlugin, ADescriptorThatTheProgramReusedIsLeftAlone) {
  void* context = Comm("closed");
  plugin.Run(context, {.seq = 1});
  ASSERT_EQ(agent.Done("closed", 1).size(), 1u);
  // The plug-in's end is the one that is connected to the agent's socket.
  int link = -1;
  for (const int fd : OpenSockets()) {
    sockaddr_un peer{};
    socklen_t size = sizeof(peer);
    if (getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &size) == 0 && Folder() + "/inproc.sock" == peer.sun_path)
      link = fd;
  }
  ASSERT_GE(link, 0);
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  ASSERT_EQ(dup3(ends[0], link, O_CLOEXEC), link);  // closed, and used again
  ASSERT_EQ(write(ends[1], "ours", 4), 4);
  const int before = agent.registered;
  ASSERT_TRUE(agent.Wait([&] { return agent.registered > before; })) << "it connects again";
  char word[8];
  EXPECT_EQ(recv(link, word, sizeof(word), MSG_DONTWAIT), 4) << "nobody read or closed it";
  EXPECT_EQ(recv(ends[1], word, sizeof(word), MSG_DONTWAIT), -1) << "nobody wrote";
  EXPECT_EQ(errno, EAGAIN);
  for (const int fd : {link, ends[0], ends[1]}) close(fd);
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, OneThatStandsIsToldOnce) {
  void* context = Comm("stall");
  void* coll = plugin.StartColl(context, {.seq = 8});
  plugin.Stop(coll);
  void* op = plugin.StartOp(context, {.peer = 3, .channel = 1}, coll);
  void* step = plugin.StartStep(context, 0, op);
  plugin.State(step, CW_NCCL_SEND_WAIT, 512);
  void* request = plugin.StartNet(context, {0x77, 512}, true, step);
  ASSERT_TRUE(agent.Wait([&] { return !agent.stalls.empty(); }));
  for (int more = 0; more < 3; ++more) agent.Poll();
  ASSERT_EQ(agent.stalls.size(), 1u);
  const profile::Stall& stall = agent.stalls[0];
  EXPECT_GE(stall.stands_s, 0.2);
  EXPECT_EQ(stall.collective.seq(), 8u);
  EXPECT_EQ(stall.collective.state(), v1::Collective::STATE_STALLED);
  EXPECT_EQ(stall.collective.held_qpn(), 0x77u);
  EXPECT_THAT(stall.collective.held(), HasSubstr("the network to rank 3"));
  EXPECT_EQ(stall.collective.peers(0).state(), "SendWait");
  EXPECT_EQ(stall.collective.peers(0).qps(0).open(), 1u);
  plugin.Stop(request);
  plugin.Stop(step);
  plugin.Stop(op);
  EXPECT_EQ(agent.Done("stall", 1).size(), 1u);
  plugin.Finalize(context);
}

TEST_F(NcclPlugin, ManyThreadsAtOnce) {
  constexpr int kThreads = 4, kEach = 40;
  void* context = Comm("threads");
  std::vector<std::thread> threads;
  std::atomic<int> failures{0};
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      Plugin own(NCCL_PLUGIN, 6);
      for (int i = 0; i < kEach; ++i) own.Run(context, {.seq = static_cast<uint64_t>(t * kEach + i)});
      failures += own.failures();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  const std::vector<v1::Collective> done = agent.Done("threads", kThreads * kEach);
  std::set<uint64_t> seqs;
  for (const v1::Collective& c : done) {
    seqs.insert(c.seq());
    EXPECT_EQ(c.peers_size(), 1);
  }
  EXPECT_EQ(seqs.size(), static_cast<size_t>(kThreads * kEach));
  plugin.Finalize(context);
}

std::string OutputOf(const std::string& command) {
  std::string out;
  char part[4096];
  std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "re"), pclose);
  while (pipe && fgets(part, sizeof(part), pipe.get()) != nullptr) out += part;
  return out;
}

#ifdef NCCL_PLAIN_BUILD  // sanitizers and gcov bring libraries of their own
TEST(NcclPluginFile, NeedsLibcOnlyAndAnOldOne) {
  std::istringstream in(OutputOf("objdump -p " NCCL_PLUGIN));
  std::set<std::string> needed;
  for (std::string word; in >> word;) {
    if (word == "NEEDED") {
      in >> word;
      needed.insert(word);
    }
    int major = 0, minor = 0;
    if (std::sscanf(word.c_str(), "GLIBC_%d.%d", &major, &minor) == 2) {
      EXPECT_LE(major * 1000 + minor, 2017) << word << ": RHEL 7's has 2.17";
    }
  }
  EXPECT_EQ(needed, std::set<std::string>{"libc.so.6"});
}
#endif

TEST(NcclPluginFile, ExportsItsTablesAndNothingElse) {
  std::istringstream in(OutputOf("nm -D --defined-only " NCCL_PLUGIN));
  std::set<std::string> exported;
  for (std::string line; std::getline(in, line);) exported.insert(line.substr(line.rfind(' ') + 1));
  EXPECT_EQ(exported,
            (std::set<std::string>{"ncclProfiler_v4", "ncclProfiler_v5", "ncclProfiler_v6", "ncclProfiler_v7"}));
}

}  // namespace
}  // namespace cw::nccl
