// SPDX-License-Identifier: Apache-2.0
// What strangers send to the in-process socket besides messages: descriptors whose end takes for ever, silence, and
// more connections than there are descriptors.
#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <thread>
#include <utility>

#include "tests/unit/fuse_that_never_answers.h"
#include "tests/unit/no_descriptors.h"
#include "userspace/rdma/inproc_server.h"

#ifndef SO_PASSRIGHTS
#define SO_PASSRIGHTS 83
#endif

namespace cw::rdma {
namespace {

bool Within10s(const std::function<bool()>& is) {
  for (int i = 0; i < 10'000; ++i) {
    if (is()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// errno; 0: sent.
int SendWith(int socket, int fd, size_t size = sizeof(cw_inproc_head)) {
  cw_inproc_register_qp message{};
  message.magic = CW_INPROC_MAGIC;
  message.version = CW_INPROC_VERSION;
  message.type = CW_INPROC_PROFILER;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec bytes{&message, size};
  msghdr packet{.msg_iov = &bytes, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof(control)};
  cmsghdr* const rights = CMSG_FIRSTHDR(&packet);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(rights), &fd, sizeof(fd));
  return sendmsg(socket, &packet, MSG_NOSIGNAL) >= 0 ? 0 : errno;
}

// A TCP socket whose peer takes nothing: the last close of it would wait for an hour.
struct Lingering {
  int fd = -1, peer = -1;

  Lingering() {
    const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(at);
    EXPECT_EQ(bind(listener, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(listen(listener, 1), 0);
    getsockname(listener, reinterpret_cast<sockaddr*>(&at), &length);
    fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    peer = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
    close(listener);
    const linger hour{.l_onoff = 1, .l_linger = 3600};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &hour, sizeof(hour));
    const std::string much(1 << 16, 'x');
    while (send(fd, much.data(), much.size(), MSG_DONTWAIT) > 0) {
    }
  }
  ~Lingering() { End(); }
  void End() {
    if (peer < 0) return;
    const linger now{.l_onoff = 1, .l_linger = 0};  // ends the other side's wait, too
    setsockopt(peer, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    close(std::exchange(peer, -1));
  }
};

class InprocDescriptors : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/cw_fds_XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
    Listen({});
  }
  void Listen(const QuotaLimits& limits) {
    server_.reset();
    auto server = InprocServer::Listen(Path(),
                                       {.registered = [this](const QpInfo&) { ++registered_; },
                                        .unregistered = [](const QpInfo&) {},
                                        .profiler = [](const InprocServer::Peer&, absl::Span<const uint8_t>) {},
                                        .strange = [this](const InprocServer::Peer&) { ++strange_; }},
                                       limits);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  void TearDown() override {
    EndLoop();
    server_.reset();
    std::filesystem::remove_all(directory_);
  }
  std::string Path() const { return directory_ + "/inproc.sock"; }

  int Connect() const {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, Path().c_str());
    EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  static void Register(int fd) {
    cw_inproc_register_qp message{};
    message.magic = CW_INPROC_MAGIC;
    message.version = CW_INPROC_VERSION;
    message.type = CW_INPROC_REGISTER_QP;
    message.lqpn = static_cast<uint32_t>(fd);
    EXPECT_GT(send(fd, &message, sizeof(message), MSG_NOSIGNAL), 0);
  }

  // As a kernel before 6.16, which lets everybody send descriptors: the listening socket is looked for from outside.
  void LetSendersDo() const {
    for (int fd = 0; fd < 1024; ++fd) {
      sockaddr_un at{};
      socklen_t length = sizeof(at);
      int listens = 0;
      socklen_t size = sizeof(listens);
      if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &size) != 0 || listens == 0) continue;
      if (getsockname(fd, reinterpret_cast<sockaddr*>(&at), &length) != 0 || Path() != at.sun_path) continue;
      const int yes = 1;
      (void)setsockopt(fd, SOL_SOCKET, SO_PASSRIGHTS, &yes, sizeof(yes));
    }
  }

  void StartLoop() {
    loop_ = std::thread([this] {
      while (!stop_) {
        pollfd wait{.fd = server_->fd(), .events = POLLIN, .revents = 0};
        poll(&wait, 1, 5);
        server_->Poll();
        descriptors_ = server_->counts().descriptors;
        ++ticks_;
      }
    });
  }
  void EndLoop() {
    stop_ = true;
    if (loop_.joinable()) loop_.join();
    stop_ = false;
  }
  bool Ticks() {
    const int now = ticks_;
    return Within10s([&] { return ticks_ > now + 5; });
  }

  std::string directory_;
  std::unique_ptr<InprocServer> server_;
  std::thread loop_;
  std::atomic<bool> stop_{false};
  std::atomic<int> ticks_{0}, registered_{0}, strange_{0};
  std::atomic<uint64_t> descriptors_{0};
};

bool Closed(int fd) {  // by the other side
  char byte;
  return recv(fd, &byte, 1, MSG_DONTWAIT) == 0;
}

TEST_F(InprocDescriptors, NoneComesIn) {
  LetSendersDo();
  StartLoop();
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  const int stranger = Connect(), empty = Connect(), good = Connect();
  Register(stranger);
  ASSERT_EQ(SendWith(stranger, ends[1]), 0);
  ASSERT_EQ(SendWith(empty, ends[1], 0), 0) << "with a message of no bytes";
  EXPECT_TRUE(Within10s([&] { return Closed(stranger) && Closed(empty); }));
  EXPECT_TRUE(Within10s([&] { return strange_ == 2; }));
  EXPECT_EQ(descriptors_, 2u);
  close(ends[1]);
  pollfd wait{.fd = ends[0], .events = POLLIN, .revents = 0};
  EXPECT_EQ(poll(&wait, 1, 10'000), 1) << "somebody still has the pipe's other end";
  Register(good);
  EXPECT_TRUE(Within10s([&] { return registered_ == 2; })) << "others go on";
  for (const int fd : {ends[0], stranger, empty, good}) close(fd);
}

TEST_F(InprocDescriptors, NewKernelsRefuseThemAtTheSender) {
  const int stranger = Connect();
  const int refused = SendWith(stranger, STDIN_FILENO);
  const int no = 0;
  const bool can = setsockopt(stranger, SOL_SOCKET, SO_PASSRIGHTS, &no, sizeof(no)) == 0;
  EXPECT_EQ(refused, can ? EPERM : 0);
  close(stranger);
  server_->Poll();
  server_->Poll();
  EXPECT_EQ(strange_, 1) << "as a plug-in of an earlier release does";
}

TEST_F(InprocDescriptors, ASocketThatLingersHoldsNothingUp) {
  LetSendersDo();
  const Lingering lingering;
  const int stranger = Connect();
  ASSERT_EQ(SendWith(stranger, lingering.fd), 0);
  close(lingering.fd);  // the message has the last one
  StartLoop();
  EXPECT_TRUE(Within10s([&] { return descriptors_ == 1; }));
  EXPECT_TRUE(Ticks());
  close(stranger);
}

TEST_F(InprocDescriptors, AFuseFileWhoseServerNeverAnswersHoldsNothingUp) {
  LetSendersDo();
  const std::string folder = directory_ + "/fuse";
  std::filesystem::create_directory(folder);
  FuseThatNeverAnswers fuse;
  const std::string wrong = fuse.Start(folder, [this](int fd) { return SendWith(Connect(), fd) == 0; });
  if (wrong.rfind("no FUSE", 0) == 0) GTEST_SKIP() << wrong;
  ASSERT_EQ(wrong, "");
  StartLoop();
  EXPECT_TRUE(Within10s([&] { return ticks_ > 5; }));
  EXPECT_TRUE(Ticks());
  EXPECT_EQ(descriptors_, 1u);
  fuse.End();  // who waits for it goes on: the test ends, whatever came of it
}

// What nobody has read yet, and what nobody has accepted, is not ours to wait for either.
TEST_F(InprocDescriptors, TheServersEndWaitsForNobody) {
  LetSendersDo();
  Lingering unread, backlog;
  const int first = Connect();
  server_->Poll();
  ASSERT_EQ(SendWith(first, unread.fd), 0);
  const int second = Connect();
  ASSERT_EQ(SendWith(second, backlog.fd), 0);
  close(unread.fd);
  close(backlog.fd);
  std::atomic<bool> ended{false};
  std::thread end([&] {
    server_.reset();
    ended = true;
  });
  EXPECT_TRUE(Within10s([&] { return ended.load(); }));
  unread.End();  // who waits for it goes on
  backlog.End();
  end.join();
  close(first);
  close(second);
}

TEST_F(InprocDescriptors, WithoutADescriptorItRestsAndRefusesOne) {
  const int first = Connect(), second = Connect();
  {
    const NoDescriptors none;
    ASSERT_TRUE(none.none_left());
    server_->Poll();
    EXPECT_EQ(server_->counts().rests, 1u);
    EXPECT_TRUE(Closed(first)) << "who came first is told";
    EXPECT_FALSE(Closed(second));
    pollfd wait{.fd = server_->fd(), .events = POLLIN, .revents = 0};
    EXPECT_EQ(poll(&wait, 1, 0), 0) << "the loop would turn without end";
  }
  Register(second);
  EXPECT_TRUE(Within10s([&] {
    server_->Poll();
    return registered_ == 1;
  }));
  close(first);
  close(second);
}

TEST(Quota, LeavesDescriptorsForAllElse) {
  const QuotaLimits asked{.user_connections = 1024, .connections = 4096};
  const QuotaLimits many = Within(asked, 16384), few = Within(asked, 1024);
  EXPECT_EQ(many.connections, 4096u);
  EXPECT_EQ(many.user_connections, 1024u);
  EXPECT_EQ(few.connections, 512u);
  EXPECT_EQ(few.user_connections, 128u);
  ProcessQuota quota({.user_connections = 2, .connections = 3});
  EXPECT_TRUE(quota.Connected(1, 1000, 0) && quota.Connected(2, 1000, 0) && quota.Connected(3, 0, 0));
  EXPECT_FALSE(quota.Connected(4, 0, 0)) << "root, too";
  quota.Disconnected(1);
  EXPECT_TRUE(quota.Connected(4, 1001, 0));
}

}  // namespace
}  // namespace cw::rdma
