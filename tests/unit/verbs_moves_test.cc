// SPDX-License-Identifier: Apache-2.0
// Moves of connected queue pairs through libcwverbs: a process with a provider that can (fake_mlx5.h), and an agent's
// end of the socket that orders them; agents and libraries that know nothing of moves.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <memory>
#include <optional>

#include "tests/unit/verbs/app_process.h"
#include "tests/unit/verbs/fake_mlx5.h"
#include "tests/unit/verbs_library_fixture.h"
#include "userspace/rdma/move_book.h"

namespace cw::rdma {
namespace {

constexpr uint16_t kPort = 50123;
constexpr auto kPatience = std::chrono::seconds(30);

bool Eventually(const std::function<bool()>& condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    usleep(2000);
  }
  return true;
}

class VerbsMoves : public VerbsLibrary {
 protected:
  void SetUp() override {
    VerbsLibrary::SetUp();
    const int fd = open(LogPath().c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_EQ(ftruncate(fd, sizeof(fake_mlx5_log)), 0);
    void* at = mmap(nullptr, sizeof(fake_mlx5_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ASSERT_NE(at, MAP_FAILED);
    log_ = static_cast<fake_mlx5_log*>(at);
  }
  void TearDown() override {
    if (app_.running()) {
      EXPECT_EQ(app_.End(), 0);
    }
    munmap(log_, sizeof(*log_));
    unlink(LogPath().c_str());
    VerbsLibrary::TearDown();
  }
  std::string LogPath() const { return directory_ + "/mlx5"; }

  // A process of verbs_app; returns when its queue pairs are connected.
  void StartApp(const std::string& what, const std::string& environment = "FAKE_PROVIDER=" CW_FAKE_MLX5) {
    app_.Start("env FAKE_MLX5_LOG=" + LogPath() + " " + environment + " " + Command(what));
  }
  // Its queue pairs by number, as they told of themselves last.
  std::map<uint32_t, QpInfo> Told() {
    std::lock_guard lock(mutex_);
    std::map<uint32_t, QpInfo> last;
    for (const QpInfo& qp : told_) last[qp.lqpn] = qp;
    return last;
  }
  // The first one, once it has said what it can.
  QpInfo TheOne() {
    EXPECT_TRUE(Eventually([&] {
      const auto told = Told();
      return !told.empty() && told.begin()->second.owner && told.begin()->second.owner->told_can;
    }));
    const auto told = Told();
    return told.empty() ? QpInfo{} : told.begin()->second;
  }
  static MoveOrder OrderFor(const QpInfo& qp, uint32_t request, uint16_t port, uint8_t lag_port = 0) {
    return {
        .laddr = qp.laddr, .lqpn = qp.lqpn, .pid = qp.pid, .request = request, .udp_sport = port, .lag_port = lag_port};
  }
  std::vector<uint32_t> Order(const std::vector<MoveOrder>& orders) {
    std::vector<uint32_t> unsent;
    InAgent([&](InprocServer& server) { unsent = server.Move(orders); });
    return unsent;
  }
  // The errno of the answer; −1: none came.
  int Answer(uint32_t request) {
    int error = -1;
    Eventually([&] {
      std::lock_guard lock(mutex_);
      const auto found = results_.find(request);
      if (found != results_.end()) error = found->second;
      return error >= 0;
    });
    return error;
  }
  int MoveTheOne(uint16_t port, uint8_t lag_port = 0) {
    static uint32_t request = 0;
    const QpInfo qp = TheOne();
    EXPECT_TRUE(Order({OrderFor(qp, ++request, port, lag_port)}).empty());
    return Answer(request);
  }

  fake_mlx5_log* log_ = nullptr;
  AppProcess app_;
};

TEST_F(VerbsMoves, ToThePortThatTheAgentOrders) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay"));
  const QpInfo before = TheOne();
  EXPECT_EQ(before.udp_sport, PortOfLabel(kLabel));
  EXPECT_EQ(CannotMove(before), "");
  EXPECT_EQ(MoveTheOne(kPort), 0);
  EXPECT_EQ(TheOne().udp_sport, kPort);
  EXPECT_EQ(log_->port[before.lqpn % FAKE_MLX5_QPNS], kPort);
  EXPECT_EQ(log_->changes, 1u);
}

TEST_F(VerbsMoves, ManyAtOnceOneAfterTheOther) {
  constexpr uint32_t kMany = 256;
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay 256", "FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_US=200"));
  ASSERT_TRUE(Eventually([&] {
    const auto told = Told();
    return told.size() == kMany && std::all_of(told.begin(), told.end(), [](const auto& each) {
             return each.second.owner && each.second.owner->told_can;
           });
  }));
  std::vector<MoveOrder> orders;
  for (const auto& [qpn, qp] : Told()) orders.push_back(OrderFor(qp, 1000 + qpn, static_cast<uint16_t>(50000 + qpn)));
  EXPECT_TRUE(Order(orders).empty());
  for (const MoveOrder& order : orders) EXPECT_EQ(Answer(order.request), 0) << order.lqpn;
  for (const auto& [qpn, qp] : Told()) {
    EXPECT_EQ(qp.udp_sport, 50000 + qpn);
    EXPECT_EQ(log_->port[qpn % FAKE_MLX5_QPNS], 50000 + qpn);
  }
  EXPECT_EQ(log_->changes, kMany);
  EXPECT_EQ(log_->most_inside, 1u);
}

TEST_F(VerbsMoves, ADeviceThatRefusesSaysSoForAllOfItsQueuePairs) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay 2", "FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_ERRNO=95"));
  EXPECT_EQ(MoveTheOne(kPort), EOPNOTSUPP);
  EXPECT_TRUE(Eventually([&] {
    const auto told = Told();
    return told.size() == 2 && std::all_of(told.begin(), told.end(), [](const auto& each) {
             return each.second.owner && each.second.owner->refused_errno == EOPNOTSUPP;
           });
  }));
  for (const auto& [qpn, qp] : Told()) {
    EXPECT_EQ(CannotMove(qp), "its device refuses: Operation not supported (errno 95)");
    EXPECT_EQ(qp.udp_sport, PortOfLabel(kLabel));
    EXPECT_EQ(Order({OrderFor(qp, 77, kPort)}), std::vector<uint32_t>{77}) << "nobody is asked again";
  }
}

TEST_F(VerbsMoves, OneRefusalIsNoWordAboutTheDevice) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay", "FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_ERRNO=16"));
  EXPECT_EQ(MoveTheOne(kPort), EBUSY);
  EXPECT_EQ(CannotMove(TheOne()), "");
}

TEST_F(VerbsMoves, AProviderWithoutTheCallSaysSo) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay", "FAKE_NOTHING=1"));
  EXPECT_EQ(CannotMove(TheOne()), "its provider has no call for it");
  EXPECT_EQ(Order({OrderFor(TheOne(), 5, kPort)}), std::vector<uint32_t>{5});
}

TEST_F(VerbsMoves, AnApplicationsOwnPortIsNotMoved) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay_own"));
  EXPECT_EQ(CannotMove(TheOne()), "its application chose its port");
  EXPECT_EQ(MoveTheOne(kPort), EPERM) << "though an agent orders it";
  EXPECT_EQ(log_->changes, 0u);
}

TEST_F(VerbsMoves, NorWhatNcclMovesItself) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay", "NCCL_IB_RESILIENCY_PORT_FAILOVER=1 FAKE_PROVIDER=" CW_FAKE_MLX5));
  const QpInfo qp = TheOne();
  EXPECT_TRUE(OwnFailover(qp));
  EXPECT_EQ(qp.udp_sport, PortOfLabel(kLabel)) << "it is placed nevertheless";
  EXPECT_EQ(MoveTheOne(kPort), EPERM);
  EXPECT_EQ(log_->changes, 0u);
}

TEST_F(VerbsMoves, NcclsFailoverSwitchedOffIsNone) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay", "NCCL_IB_RESILIENCY_PORT_FAILOVER=0 FAKE_PROVIDER=" CW_FAKE_MLX5));
  EXPECT_FALSE(OwnFailover(TheOne()));
  EXPECT_EQ(MoveTheOne(kPort), 0);
}

TEST_F(VerbsMoves, NoPortThatAProviderWouldNotTake) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay"));
  EXPECT_EQ(MoveTheOne(4791), EINVAL);
  EXPECT_EQ(MoveTheOne(0), EINVAL);
  EXPECT_EQ(log_->changes, 0u);
}

TEST_F(VerbsMoves, ThePortOutlivesChangesOfTheApplications) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay"));
  ASSERT_EQ(MoveTheOne(kPort), 0);
  app_.Type("\n");  // from RTS to RTS: the device may have the old port again
  EXPECT_TRUE(Eventually([&] { return log_->changes == 2; }));
  EXPECT_EQ(log_->port[TheOne().lqpn % FAKE_MLX5_QPNS], kPort);
}

TEST_F(VerbsMoves, AQueuePairIsNotDestroyedWhileItIsBeingMoved) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("destroy_moving", "FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_US=300000"));
  EXPECT_TRUE(Order({OrderFor(TheOne(), 9, kPort)}).empty());
  EXPECT_EQ(app_.End(), 0) << "5: the provider had it still";
}

TEST_F(VerbsMoves, BondsTellTheirPortsAndTakeOthers) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay", "FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_PORTS=2"));
  ASSERT_TRUE(Eventually([&] { return TheOne().owner->lag_active == 1; }));
  EXPECT_NE(TheOne().owner->can & CW_INPROC_CAN_MOVE_LAG, 0u);
  EXPECT_EQ(MoveTheOne(0, 2), 0);
  EXPECT_EQ(TheOne().owner->lag_active, 2);
  EXPECT_EQ(TheOne().owner->lag_wanted, 2);
  EXPECT_EQ(MoveTheOne(0, 3), EINVAL);
  EXPECT_EQ(TheOne().owner->lag_active, 2);
  EXPECT_EQ(TheOne().udp_sport, PortOfLabel(kLabel));
}

TEST_F(VerbsMoves, ADeviceWithoutABondIsAskedOnce) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay 3"));
  ASSERT_TRUE(Eventually([&] { return log_->lag_questions >= 1; }));
  EXPECT_EQ(MoveTheOne(kPort), 0);
  EXPECT_EQ(TheOne().owner->can & CW_INPROC_CAN_MOVE_LAG, 0u);
  EXPECT_LE(log_->lag_questions, 3u) << "those that were in line by then";
  const int before = static_cast<int>(log_->lag_questions);
  for (uint16_t later = 1; later <= 3; ++later) EXPECT_EQ(MoveTheOne(kPort + later), 0);
  EXPECT_EQ(static_cast<int>(log_->lag_questions), before);
}

// The agent ends and another one comes: what was moved is told as it is now.
TEST_F(VerbsMoves, ALaterAgentHearsOfThePortInForce) {
  StartAgent(Placed);
  ASSERT_NO_FATAL_FAILURE(StartApp("stay"));
  ASSERT_EQ(MoveTheOne(kPort), 0);
  EndAgent();
  told_.clear();
  StartAgent(Placed);
  const QpInfo qp = TheOne();
  EXPECT_EQ(qp.udp_sport, kPort);
  EXPECT_EQ(CannotMove(qp), "");
  EXPECT_EQ(MoveTheOne(kPort + 1), 0);
}

// An agent of a release that knows messages 1 to 5 only, each of one length.
TEST_F(VerbsMoves, AnOldAgentFindsAllItKnows) {
  std::mutex mutex;
  std::map<uint16_t, std::set<size_t>> lengths;
  StartOddAgent([&](const std::string& message) -> std::string {
    cw_inproc_head head;
    std::memcpy(&head, message.data(), sizeof(head));
    std::lock_guard lock(mutex);
    EXPECT_EQ(head.version, 1);
    lengths[head.type].insert(message.size());
    if (head.type != CW_INPROC_PLACE_QP) return "";
    cw_inproc_place_qp asked;
    std::memcpy(&asked, message.data(), sizeof(asked));
    const cw_inproc_placement reply = {.magic = CW_INPROC_MAGIC,
                                       .version = CW_INPROC_VERSION,
                                       .type = CW_INPROC_PLACEMENT,
                                       .request = asked.request,
                                       .flow_label = kLabel,
                                       .udp_sport = PortOfLabel(kLabel),
                                       .verdict = CW_INPROC_PLACED,
                                       .lqpn = asked.qp.lqpn};
    return {reinterpret_cast<const char*>(&reply), sizeof(reply)};
  });
  const Output out = Shell("env FAKE_PROVIDER=" CW_FAKE_MLX5 " " + Command("traffic"));
  EXPECT_EQ(out.status, 0);
  // The process ends before its last messages are read.
  EXPECT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return lengths.contains(CW_INPROC_UNREGISTER_QP);
  }));
  EndAgent();
  EXPECT_EQ(lengths[CW_INPROC_REGISTER_QP], std::set<size_t>{104});
  EXPECT_EQ(lengths[CW_INPROC_PLACE_QP], std::set<size_t>{112});
  EXPECT_EQ(lengths[CW_INPROC_QP_SUMS], std::set<size_t>{80});
  EXPECT_EQ(lengths[CW_INPROC_UNREGISTER_QP], std::set<size_t>{104});
}

// A connection that is driven by hand.
class RawOwner {
 public:
  explicit RawOwner(const std::string& path) {
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strcpy(at.sun_path, path.c_str());
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  }
  ~RawOwner() { close(fd_); }
  void Send(const std::string& message) {
    ASSERT_EQ(send(fd_, message.data(), message.size(), MSG_NOSIGNAL), static_cast<ssize_t>(message.size()));
  }
  bool HasWord() {
    pollfd wait{.fd = fd_, .events = POLLIN};
    return poll(&wait, 1, 0) == 1;
  }

 private:
  int fd_;
};

template <typename T>
std::string Bytes(const T& message) {
  return {reinterpret_cast<const char*>(&message), sizeof(message)};
}

// A library of a release that says nothing of moves: it is never asked. One of a later release, whose word is longer:
// counted, and the conversation goes on.
TEST_F(VerbsMoves, AnOldLibraryIsNotAsked) {
  StartAgent(Placed);
  RawOwner old(Socket());
  cw_inproc_register_qp qp{};
  qp.magic = CW_INPROC_MAGIC;
  qp.version = CW_INPROC_VERSION;
  qp.type = CW_INPROC_REGISTER_QP;
  qp.lqpn = 0x123;
  qp.udp_sport = kPort;
  old.Send(Bytes(qp));
  ASSERT_TRUE(Eventually([&] { return !Told().empty(); }));
  EXPECT_EQ(CannotMove(Told().at(0x123)), "its library does not say that it can");
  EXPECT_EQ(Order({OrderFor(Told().at(0x123), 3, kPort + 1)}), std::vector<uint32_t>{3});
  EXPECT_FALSE(old.HasWord());

  cw_inproc_qp_can can{.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_QP_CAN, .lqpn = 0x123};
  can.can = CW_INPROC_CAN_MOVE_PORT;
  old.Send(Bytes(can) + "more");
  qp.udp_sport = kPort + 2;
  old.Send(Bytes(qp));
  ASSERT_TRUE(Eventually([&] { return Told().at(0x123).udp_sport == kPort + 2; }));
  EXPECT_FALSE(Told().at(0x123).owner && Told().at(0x123).owner->told_can);
  uint64_t malformed = 0;
  InAgent([&](InprocServer& server) { malformed = server.counts().malformed; });
  EXPECT_EQ(malformed, 1u);
}

// Orders of an agent of a later release, longer or of another version: passed over; what the library knows is done.
TEST_F(VerbsMoves, OnlyOrdersOfItsOwnShapeAreTaken) {
  cw_inproc_move_qps order{.magic = CW_INPROC_MAGIC, .version = CW_INPROC_VERSION, .type = CW_INPROC_MOVE_QPS};
  std::mutex mutex;
  std::vector<cw_inproc_qp_moved> answers;
  int turn = 0;
  StartOddAgent([&](const std::string& message) -> std::string {
    cw_inproc_head head;
    std::memcpy(&head, message.data(), sizeof(head));
    std::lock_guard lock(mutex);
    if (head.type == CW_INPROC_QP_MOVED && message.size() == sizeof(cw_inproc_qp_moved)) {
      answers.emplace_back();
      std::memcpy(&answers.back(), message.data(), message.size());
      while (answers.back().error == ENOTCONN && turn % 3 != 2) ++turn;  // too early: the good one again
    }
    cw_inproc_qp_can can;
    if (head.type == CW_INPROC_QP_CAN && message.size() == sizeof(can)) {
      std::memcpy(&can, message.data(), sizeof(can));
      order.count = 1;
      order.move[0].lqpn = can.lqpn;
      std::copy(std::begin(can.laddr), std::end(can.laddr), order.move[0].laddr);
    }
    if (order.count == 0) return "";
    // Three words for each message of the library's: the connection asks for two queue pairs, and reports.
    order.move[0].request = static_cast<uint32_t>(100 + turn);
    order.move[0].udp_sport = static_cast<uint16_t>(kPort + turn);
    cw_inproc_move_qps other = order;
    other.version = 2;
    switch (turn++ % 3) {
      case 0:
        return Bytes(order) + "more";
      case 1:
        return Bytes(other);
      default:
        return Bytes(order);
    }
  });
  ASSERT_NO_FATAL_FAILURE(StartApp("stay 3"));
  EXPECT_TRUE(Eventually([&] {
    std::lock_guard lock(mutex);
    return std::any_of(answers.begin(), answers.end(), [](const auto& answer) { return answer.error == 0; });
  }));
  {
    std::lock_guard lock(mutex);
    for (const cw_inproc_qp_moved& answer : answers) {
      // The queue pair is told of before it may send: an order of that moment comes too early.
      EXPECT_TRUE(answer.error == 0 || answer.error == ENOTCONN) << answer.error;
      EXPECT_EQ((answer.request - 100) % 3, 2u) << "one that it does not know was taken";
    }
  }
  EXPECT_EQ(app_.End(), 0);
  EndAgent();
}

}  // namespace
}  // namespace cw::rdma
