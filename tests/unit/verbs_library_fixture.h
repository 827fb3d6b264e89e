// SPDX-License-Identifier: Apache-2.0
// Processes that know nothing of libcwverbs with it, and agents of all kinds that they talk to.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <iterator>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "userspace/inproc/cw_inproc.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/placement.h"

namespace cw::rdma {

inline constexpr uint32_t kLabel = 0x1234;
inline constexpr int kLongDeadlineMs = 1000;  // an agent of ours answers at once, but the machine may be busy

struct Output {
  std::string text;
  int status = -1;
  std::vector<std::string> Words() const {
    std::istringstream in(text);
    return {std::istream_iterator<std::string>(in), {}};
  }
};

inline Output Shell(const std::string& command) {
  Output out;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return out;
  char buffer[4096];
  for (size_t n; (n = fread(buffer, 1, sizeof(buffer), pipe)) > 0;) out.text.append(buffer, n);
  const int status = pclose(pipe);
  out.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  return out;
}

class VerbsLibrary : public ::testing::Test {
 protected:
  void SetUp() override {
    char directory[] = "/tmp/cw_verbs_XXXXXX";
    ASSERT_NE(mkdtemp(directory), nullptr);
    directory_ = directory;
  }
  void TearDown() override {
    EndAgent();
    unlink(Socket().c_str());
    rmdir(directory_.c_str());
  }
  std::string Socket() const { return directory_ + "/inproc.sock"; }

  std::string Command(const std::string& what, int deadline_ms = kLongDeadlineMs) const {
    return "timeout 60 env LD_LIBRARY_PATH=" CW_FAKE_DIR " LD_PRELOAD=" CW_VERBS_LIB
           " CWVERBS_LABEL=job7 CWFABRIC_INPROC_SOCKET=" +
           Socket() + " CWVERBS_DEADLINE_MS=" + std::to_string(deadline_ms) + " " CW_VERBS_APP " " + what;
  }

  // The agent's own end of the socket. All it hears is kept.
  void StartAgent(std::function<Placement(const QpInfo&)> place) {
    auto server = InprocServer::Listen(Socket(), {.registered =
                                                      [this](const QpInfo& qp) {
                                                        std::lock_guard lock(mutex_);
                                                        told_.push_back(qp);
                                                      },
                                                  .unregistered =
                                                      [this](const QpInfo& qp) {
                                                        std::lock_guard lock(mutex_);
                                                        gone_.push_back(qp);
                                                      },
                                                  .place =
                                                      [this, place](const QpInfo& qp, const Requester& who) {
                                                        std::lock_guard lock(mutex_);
                                                        asked_by_.insert(who.pid);
                                                        return place(qp);
                                                      },
                                                  .moved =
                                                      [this](const QpInfo& qp, const MoveResult& result) {
                                                        std::lock_guard lock(mutex_);
                                                        results_[result.request] = result.error;
                                                        told_.push_back(qp);
                                                      }});
    ASSERT_TRUE(server.ok()) << server.status();
    agent_ = std::thread([this, server = *std::move(server)]() mutable {
      while (!stop_) {
        pollfd wait{.fd = server->fd(), .events = POLLIN};
        poll(&wait, 1, 10);
        server->Poll();
        std::lock_guard lock(mutex_);
        for (const auto& work : std::exchange(work_, {})) work(*server);
      }
    });
  }
  void EndAgent() {
    stop_ = true;
    if (agent_.joinable()) agent_.join();
    stop_ = false;
  }

  // In the agent's thread; returns when it is done.
  void InAgent(std::function<void(InprocServer&)> work) {
    std::promise<void> done;
    {
      std::lock_guard lock(mutex_);
      work_.push_back([&](InprocServer& server) {
        work(server);
        done.set_value();
      });
    }
    done.get_future().wait();
  }

  // An agent that takes connections and answers each message with what `answer` makes of it: nothing for "".
  void StartOddAgent(std::function<std::string(const std::string&)> answer) {
    const int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strcpy(at.sun_path, Socket().c_str());
    ASSERT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    ASSERT_EQ(listen(fd, 4), 0);
    agent_ = std::thread([this, fd, answer = std::move(answer)] {
      std::vector<pollfd> open = {{.fd = fd, .events = POLLIN}};
      while (!stop_) {
        poll(open.data(), open.size(), 10);
        for (size_t i = open.size(); i-- > 1;) {
          if (open[i].revents == 0) continue;
          char buffer[512];
          const ssize_t n = recv(open[i].fd, buffer, sizeof(buffer), MSG_DONTWAIT);
          if (n <= 0) {
            close(open[i].fd);
            open.erase(open.begin() + static_cast<std::ptrdiff_t>(i));
            continue;
          }
          const std::string reply = answer(std::string(buffer, static_cast<size_t>(n)));
          if (!reply.empty()) (void)send(open[i].fd, reply.data(), reply.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        }
        if (open[0].revents != 0) open.push_back({.fd = accept4(fd, nullptr, nullptr, SOCK_CLOEXEC), .events = POLLIN});
      }
      for (const pollfd& each : open) close(each.fd);
    });
  }

  static Placement Placed(const QpInfo&) {
    return {.verdict = CW_INPROC_PLACED, .flow_label = kLabel, .udp_sport = PortOfLabel(kLabel), .slot = 3};
  }
  // The last that was told of each queue pair.
  QpInfo LastTold() {
    std::lock_guard lock(mutex_);
    return told_.empty() ? QpInfo{} : told_.back();
  }
  // What closing the connection leads to takes another round of the agent's.
  bool WaitGone(size_t count) {
    for (int i = 0; i < 1000; ++i) {
      {
        std::lock_guard lock(mutex_);
        if (gone_.size() >= count) return true;
      }
      usleep(10'000);
    }
    return false;
  }

  std::string directory_;
  std::thread agent_;
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<QpInfo> told_, gone_;
  std::map<uint32_t, int> results_;  // of moves: errno by request
  std::vector<std::function<void(InprocServer&)>> work_;
  std::set<uint32_t> asked_by_;
};

}  // namespace cw::rdma
