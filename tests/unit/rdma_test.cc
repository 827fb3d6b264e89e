// SPDX-License-Identifier: Apache-2.0
// Queue pairs reach one table from their owners (a real SEQPACKET socket) and from the kernel's list.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "userspace/inproc/cw_inproc.h"
#include "userspace/rdma/ended_flows.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/process_of.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::rdma {
namespace {

const Addr kA = *Addr::Parse("10.0.0.10");
const Addr kB = *Addr::Parse("10.0.1.10");
const Addr kC = *Addr::Parse("10.0.2.10");

cw_inproc_register_qp RegisterMessage(uint32_t lqpn, uint32_t rqpn) {
  cw_inproc_register_qp message{};
  message.magic = CW_INPROC_MAGIC;
  message.version = CW_INPROC_VERSION;
  message.type = CW_INPROC_REGISTER_QP;
  message.lqpn = lqpn;
  message.rqpn = rqpn;
  std::memcpy(message.laddr, kA.bytes.data(), 16);
  std::memcpy(message.raddr, kB.bytes.data(), 16);
  message.pid = 4242;
  std::memset(message.comm, 'x', sizeof(message.comm));  // not terminated: must be cut, not overrun
  std::strcpy(message.label, "job7");
  return message;
}

class InprocServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/cw_inproc_XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    auto server = InprocServer::Listen(directory_ + "/inproc.sock",
                                       {.registered = [this](const QpInfo& qp) { registered.push_back(qp); },
                                        .unregistered = [this](const QpInfo& qp) { gone.push_back(qp); }});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = std::move(*server);
  }
  void TearDown() override {
    server_.reset();
    rmdir(directory_.c_str());
  }
  int Connect() {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, (directory_ + "/inproc.sock").c_str());
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  void PollTwice() {  // accept, then receive
    server_->Poll();
    server_->Poll();
  }
  std::string directory_;
  std::unique_ptr<InprocServer> server_;
  std::vector<QpInfo> registered, gone;
};

TEST_F(InprocServerTest, RegistersAndForgetsWithTheConnection) {
  const int fd = Connect();
  const cw_inproc_register_qp message = RegisterMessage(0x11, 0x22);
  ASSERT_EQ(send(fd, &message, sizeof(message), 0), static_cast<ssize_t>(sizeof(message)));
  PollTwice();
  ASSERT_EQ(registered.size(), 1u);
  EXPECT_EQ(registered[0].lqpn, 0x11u);
  EXPECT_EQ(registered[0].raddr, kB);
  EXPECT_EQ(registered[0].comm, std::string(16, 'x'));
  EXPECT_EQ(registered[0].label, "job7");
  EXPECT_EQ(registered[0].pid, static_cast<uint32_t>(getpid())) << "what the message says was believed";
  close(fd);
  PollTwice();
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].lqpn, 0x11u);
}

TEST_F(InprocServerTest, MalformedMessagesAreCountedAndHarmless) {
  const int fd = Connect();
  cw_inproc_register_qp message = RegisterMessage(1, 2);
  ASSERT_GT(send(fd, &message, sizeof(message) - 1, 0), 0);
  message.magic = 0;
  ASSERT_GT(send(fd, &message, sizeof(message), 0), 0);
  message = RegisterMessage(1, 2);
  message.type = 99;
  ASSERT_GT(send(fd, &message, sizeof(message), 0), 0);
  message = RegisterMessage(1, 2);
  message.type = CW_INPROC_UNREGISTER_QP;  // never registered by this process
  ASSERT_GT(send(fd, &message, sizeof(message), 0), 0);
  PollTwice();
  EXPECT_EQ(server_->counts().malformed, 3u);
  EXPECT_TRUE(registered.empty());
  EXPECT_TRUE(gone.empty());
  close(fd);
}

TEST_F(InprocServerTest, HandsProfilersMessagesOnAndGivesThemADescriptor) {
  std::vector<InprocServer::Peer> got;
  std::vector<uint64_t> closed;
  server_.reset();
  auto server =
      InprocServer::Listen(directory_ + "/inproc.sock",
                           {.registered = [](const QpInfo&) {},
                            .unregistered = [](const QpInfo&) {},
                            .profiler =
                                [&](const InprocServer::Peer& peer, absl::Span<const uint8_t> message) {
                                  EXPECT_EQ(message.size(), 24u);
                                  got.push_back(peer);
                                },
                            .closed = [&](const InprocServer::Peer& peer) { closed.push_back(peer.connection); }});
  ASSERT_TRUE(server.ok()) << server.status();
  server_ = *std::move(server);
  const int fd = Connect();
  char message[24] = {};
  const cw_inproc_head head{CW_INPROC_MAGIC, CW_INPROC_VERSION, CW_INPROC_PROFILER};
  std::memcpy(message, &head, sizeof(head));
  ASSERT_EQ(send(fd, message, sizeof(message), 0), 24);
  PollTwice();
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].pid, static_cast<uint32_t>(getpid()));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const uint8_t answer[3] = {1, 2, 3};
  EXPECT_TRUE(server_->Give(got[0].connection, answer, ends[1]).ok());
  EXPECT_TRUE(absl::IsNotFound(server_->Give(got[0].connection + 1, answer, ends[1])));
  close(ends[1]);
  char byte;
  EXPECT_EQ(read(ends[0], &byte, 1), -1) << "it is in the message";
  close(fd);
  EXPECT_EQ(read(ends[0], &byte, 1), 0);
  PollTwice();
  EXPECT_EQ(closed, std::vector<uint64_t>{got[0].connection});
  close(ends[0]);
}

TEST(ProcessOf, AThreadsProcessAndItsName) {
  pthread_setname_np(pthread_self(), "the process");
  Process process;
  std::thread thread([&] {
    pthread_setname_np(pthread_self(), "async");
    process = ProcessOf(static_cast<uint32_t>(gettid()));
  });
  thread.join();
  EXPECT_EQ(process.pid, static_cast<uint32_t>(getpid()));
  EXPECT_EQ(process.comm, "the process");
  process = ProcessOf(UINT32_MAX);
  EXPECT_EQ(process.pid, UINT32_MAX);
  EXPECT_EQ(process.comm, "");
}

TEST(QpRegistry, FindsBothDirections) {
  QpRegistry registry;
  registry.Register({.lqpn = 17, .rqpn = 18, .laddr = kA, .raddr = kB, .source = "inproc"});
  ASSERT_TRUE(registry.BySentFlow({kA, kB, 18}).has_value());
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->lqpn, 17u);
  EXPECT_EQ(registry.ByReceivedFlow({kB, kA, 17})->rqpn, 18u);
  EXPECT_FALSE(registry.BySentFlow({kA, kC, 18}).has_value());
  registry.Unregister({.lqpn = 17, .laddr = kA});
  EXPECT_FALSE(registry.BySentFlow({kA, kB, 18}).has_value());
  EXPECT_EQ(registry.size(), 0u);
}

TEST(QpRegistry, KernelListLearnsTheRemoteAddressFromPackets) {
  QpRegistry registry;
  // Two peers both use QPN 18: only the received packet tells them apart.
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .source = "nldev"},
                              {.lqpn = 19, .rqpn = 18, .laddr = kA, .source = "nldev"}});
  EXPECT_FALSE(registry.BySentFlow({kA, kB, 18}).has_value());
  EXPECT_TRUE(registry.ObserveReceived({kB, kA, 17}));
  EXPECT_TRUE(registry.ObserveReceived({kC, kA, 19}));
  EXPECT_FALSE(registry.ObserveReceived({kC, kA, 19}));
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->lqpn, 17u);
  EXPECT_EQ(registry.BySentFlow({kA, kC, 18})->lqpn, 19u);
  // The same list again keeps what was learned; a reused number does not; a missing one is forgotten.
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .source = "nldev"}});
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18}).has_value());
  EXPECT_EQ(registry.size(), 1u);
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 30, .laddr = kA, .source = "nldev"}});
  EXPECT_FALSE(registry.BySentFlow({kA, kB, 30}).has_value());
}

TEST(QpRegistry, KernelListMayKnowTheOtherEnd) {
  QpRegistry registry;
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .source = "nldev"}});
  EXPECT_FALSE(registry.BySentFlow({kA, kB, 18}).has_value());
  // rdma_cm tells it, perhaps later.
  registry.ReplaceKernelList({{.lqpn = 17,
                               .rqpn = 18,
                               .laddr = kA,
                               .raddr = kB,
                               .source = "nldev",
                               .flow_label = 77,
                               .label_known = true,
                               .state = 3}});
  ASSERT_TRUE(registry.BySentFlow({kA, kB, 18}).has_value());
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->flow_label, 77u);
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->state, 3);
  // A list without it takes nothing away.
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .source = "nldev", .state = 3}});
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18})->label_known);
}

TEST(QpRegistry, OneThatTheKernelToldAtItsMomentMayBeYoungerThanTheList) {
  QpRegistry registry;
  const QpInfo told = {.lqpn = 17, .rqpn = 18, .laddr = kA, .raddr = kB, .pid = 7, .source = "hook"};
  const QpInfo listed = {.lqpn = 17, .rqpn = 18, .laddr = kA, .pid = 7, .source = "nldev"};
  registry.Register(told);
  registry.ReplaceKernelList({});
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18}).has_value());
  registry.ReplaceKernelList({listed});
  registry.ReplaceKernelList({});
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18}).has_value()) << "one list without it may be older";
  registry.ReplaceKernelList({});
  EXPECT_EQ(registry.size(), 0u);
}

// The thread that made it has ended, and then the process itself.
TEST(QpRegistry, AListThatKnowsNoProcessTakesNothingAway) {
  QpRegistry registry;
  registry.Register({.lqpn = 17,
                     .rqpn = 18,
                     .laddr = kA,
                     .raddr = kB,
                     .pid = 7,
                     .comm = "async",
                     .source = "hook",
                     .flow_label = 77,
                     .label_known = true});
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .pid = 7, .comm = "train", .source = "nldev"}});
  ASSERT_TRUE(registry.BySentFlow({kA, kB, 18}));
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->comm, "train") << "the process's name, not its thread's";
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .source = "nldev"}});
  const auto kept = registry.BySentFlow({kA, kB, 18});
  ASSERT_TRUE(kept);
  EXPECT_EQ(kept->pid, 7u);
  EXPECT_EQ(kept->comm, "train");
  EXPECT_EQ(kept->flow_label, 77u);
  // Another process's queue pair of that number is another one.
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .pid = 8, .comm = "other", .source = "nldev"}});
  EXPECT_FALSE(registry.BySentFlow({kA, kB, 18}));
}

TEST(QpRegistry, OwnersAnnouncementOutranksTheKernelList) {
  QpRegistry registry;
  registry.Register({.lqpn = 17, .rqpn = 18, .laddr = kA, .raddr = kB, .label = "job", .source = "inproc"});
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .device = "rxe0", .source = "nldev"}});
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->label, "job");
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->device, "rxe0");
  registry.ReplaceKernelList({});
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18}).has_value());
}

// The list as cover of address kA with these numbers, connected or not.
KernelCover Covering(std::initializer_list<uint32_t> lqpns) {
  KernelCover cover;
  cover.addresses.insert(kA);
  for (const uint32_t lqpn : lqpns) cover.there.insert({kA, lqpn});
  return cover;
}

constexpr uint32_t kVictim = 7, kThief = 66;
QpInfo ClaimBy(uint32_t pid, uint32_t lqpn, uint32_t rqpn) {
  return {.lqpn = lqpn, .rqpn = rqpn, .laddr = kA, .raddr = kB, .pid = pid, .source = "inproc"};
}

TEST(QpClaim, IsProvenByProcessAndPeerQpnAlone) {
  const QpInfo mine = ClaimBy(kVictim, 17, 18);
  const KernelWord word{.asked = true, .there = true, .pid = kVictim, .rqpn = 18};
  EXPECT_EQ(Judge(mine, word), Claim::kProven);
  EXPECT_EQ(Judge(ClaimBy(kThief, 17, 18), word), Claim::kFalse);
  EXPECT_EQ(Judge(ClaimBy(kVictim, 17, 19), word), Claim::kFalse) << "another peer QPN";
  EXPECT_EQ(Judge(mine, {.asked = true}), Claim::kFalse) << "there is no such queue pair (yet)";
  EXPECT_EQ(Judge(mine, {.asked = true, .there = true, .by_kernel = true}), Claim::kFalse);
  EXPECT_EQ(Judge(mine, {.asked = true, .there = true, .pid = kVictim}), Claim::kOpen) << "not connected yet";
  EXPECT_EQ(Judge(mine, {.asked = true, .there = true, .rqpn = 18}), Claim::kOpen) << "nobody's by the list";
  EXPECT_EQ(Judge(mine, {}), Claim::kProven) << "no RDMA device that could tell";
}

TEST(QpClaim, OneThatCameBeforeTheKernelsWordGivesWayToIt) {
  QpRegistry registry;
  const QpInfo listed = {.lqpn = 17, .rqpn = 18, .laddr = kA, .pid = kVictim, .device = "rxe0", .source = "nldev"};
  // It is there, and the kernel names nobody.
  ASSERT_TRUE(registry.Claim(ClaimBy(kThief, 17, 18), {.asked = true, .there = true}));
  EXPECT_FALSE(IsProven(*registry.BySentFlow({kA, kB, 18}))) << "no NAK, no peer QPN by this";
  const std::vector<QpInfo> ended = registry.ReplaceKernelList({listed}, Covering({17}));
  ASSERT_EQ(ended.size(), 1u);
  EXPECT_EQ(ended[0].pid, kThief);
  const auto now = registry.ByReceivedFlow({kB, kA, 17});
  ASSERT_TRUE(now);
  EXPECT_EQ(now->pid, kVictim);
  EXPECT_EQ(now->source, "nldev");
  EXPECT_FALSE(registry.Claim(ClaimBy(kThief, 17, 18), {.asked = true, .there = true, .rqpn = 18}))
      << "the thread that made it has ended: what the kernel told before holds";
  EXPECT_EQ(registry.ByReceivedFlow({kB, kA, 17})->pid, kVictim);
  // A lie about one's own peer.
  ASSERT_TRUE(registry.Claim(ClaimBy(kVictim, 17, 99), {.asked = true, .there = true, .pid = kVictim}));
  EXPECT_EQ(registry.ReplaceKernelList({listed}, Covering({17})).size(), 1u);
  EXPECT_EQ(registry.ByReceivedFlow({kB, kA, 17})->rqpn, 18u);
}

TEST(QpClaim, OfItsProcessIsProvenByTheNextListAndEndsWithTheQueuePair) {
  QpRegistry registry;
  ASSERT_TRUE(registry.Claim(ClaimBy(kVictim, 17, 18), {.asked = true, .there = true, .pid = kVictim}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(registry.ReplaceKernelList({}, Covering({17})).empty()) << "it connects";
  EXPECT_FALSE(registry.BySentFlow({kA, kB, 18})->proven);
  registry.ReplaceKernelList({{.lqpn = 17, .rqpn = 18, .laddr = kA, .pid = kVictim, .source = "nldev"}},
                             Covering({17}));
  ASSERT_TRUE(registry.BySentFlow({kA, kB, 18}));
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18})->proven);
  EXPECT_TRUE(registry.TellAnew(ClaimBy(kVictim, 17, 18)));
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18})->proven) << "and its sums change nothing of that";
  EXPECT_FALSE(registry.TellAnew(ClaimBy(kVictim, 17, 20))) << "another connection is asked about";
  EXPECT_FALSE(registry.TellAnew(ClaimBy(kThief, 17, 18)));
  EXPECT_TRUE(registry.ReplaceKernelList({}, Covering({})).empty()) << "it may be younger than the list";
  EXPECT_EQ(registry.ReplaceKernelList({}, Covering({})).size(), 1u);
  EXPECT_EQ(registry.size(), 0u);
}

TEST(QpClaim, TakesNoFlowFromItsProvenQueuePair) {
  QpRegistry registry;
  const KernelWord connected{.asked = true, .there = true, .pid = kVictim, .rqpn = 18};
  ASSERT_TRUE(registry.Claim(ClaimBy(kThief, 40, 18), {.asked = true, .there = true, .pid = kThief}));
  ASSERT_TRUE(registry.Claim(ClaimBy(kVictim, 17, 18), connected));
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->lqpn, 17u);
  ASSERT_TRUE(registry.Claim(ClaimBy(kThief, 41, 18), {.asked = true, .there = true, .pid = kThief}));
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->lqpn, 17u);
}

TEST(QpClaim, WithoutRdmaTheFirstOneIsBelieved) {
  QpRegistry registry;
  ASSERT_TRUE(registry.Claim(ClaimBy(kVictim, 17, 18), {}));
  EXPECT_TRUE(registry.BySentFlow({kA, kB, 18})->proven);
  EXPECT_FALSE(registry.Claim(ClaimBy(kThief, 17, 99), {}));
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(registry.ReplaceKernelList({}, {}).empty());
  EXPECT_EQ(registry.BySentFlow({kA, kB, 18})->pid, kVictim);
}

TEST(EndedFlows, LeaveWhenTwoListsLackThemAndNothingCameBetween) {
  EndedFlows ended;
  KernelCover list = Covering({17});
  list.sends.insert({kA, kB, 18});
  const std::vector<EndedFlows::Flow> flows = {{{kA, kB, 18}, false, 5}, {{kA, kB, 30}, false, 5},
                                               {{kA, kC, 18}, false, 5}, {{kC, kB, 30}, false, 5},
                                               {{kB, kA, 17}, true, 5},  {{kB, kA, 20}, true, 5}};
  EXPECT_TRUE(ended.Step(list, flows).empty()) << "they may be younger than the list";
  const auto gone = ended.Step(list, flows);
  ASSERT_EQ(gone.size(), 3u) << "not that of an address without an RDMA device";
  EXPECT_EQ(gone[0].key, (FlowKey{kA, kB, 30}));
  EXPECT_EQ(gone[1].key, (FlowKey{kA, kC, 18})) << "to another peer's queue pair of that number";
  EXPECT_EQ(gone[2].key, (FlowKey{kB, kA, 20}));
}

TEST(EndedFlows, AListThatLacksALivingOneIsNotBelieved) {
  EndedFlows ended;
  const KernelCover list = Covering({});
  (void)ended.Step(list, {{{kA, kB, 18}, false, 5}, {{kA, kB, 30}, false, 5}});
  EXPECT_TRUE(ended.Step(list, {{{kA, kB, 18}, false, 6}, {{kA, kB, 30}, false, 5}}).empty());
  EXPECT_EQ(ended.Step(list, {{{kA, kB, 18}, false, 6}, {{kA, kB, 30}, false, 5}}).size(), 2u);
}

TEST(EndedFlows, DatagramsAreLookedForByTheirSender) {
  EndedFlows ended;
  const KernelCover list = Covering({17});
  const std::vector<EndedFlows::Flow> flows = {{{kA, kB, 40}, false, 5, 17}, {{kA, kB, 41}, false, 5, 19}};
  EXPECT_TRUE(ended.Step(list, flows).empty());
  const auto gone = ended.Step(list, flows);
  ASSERT_EQ(gone.size(), 1u);
  EXPECT_EQ(gone[0].key, (FlowKey{kA, kB, 41}));
}

TEST(EndedFlows, ToAPeerThatTheListDoesNotKnow) {
  EndedFlows ended;
  KernelCover list = Covering({17});
  list.sends.insert({.src = kA, .dst = {}, .dqpn = 18});
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(ended.Step(list, {{{kA, kC, 18}, false, 5}}).empty());
}

}  // namespace
}  // namespace cw::rdma
