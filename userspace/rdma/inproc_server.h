// SPDX-License-Identifier: Apache-2.0
// The agent's end of the in-process socket (userspace/inproc/cw_inproc.h): programs and libraries that own queue pairs
// announce them here.
//
// Thread rule: one thread; drive it with Poll() when fd() is readable.
#ifndef CW_USERSPACE_RDMA_INPROC_SERVER_H
#define CW_USERSPACE_RDMA_INPROC_SERVER_H

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/model/addr.h"

namespace cw::rdma {

// A queue pair as its owner announced it, or as it was read from the kernel. Zero or empty = unknown.
struct QpInfo {
  uint32_t lqpn = 0;
  uint32_t rqpn = 0;
  Addr laddr;
  Addr raddr;
  uint32_t pid = 0;
  uint16_t udp_sport = 0;
  uint16_t path_mtu = 0;
  std::string comm;
  std::string label;
  std::string device;  // RDMA device, such as mlx5_0
  std::string source;  // "inproc" or "nldev"
};

class InprocServer {
 public:
  struct Handler {
    std::function<void(const QpInfo&)> registered;
    std::function<void(const QpInfo&)> unregistered;  // also for each queue pair of a connection that closed
  };
  // Creates the socket (mode 0666: any process may announce its own queue pairs; the kernel's credentials replace the
  // pid that a message claims unless the sender is root). A stale socket file is replaced.
  static absl::StatusOr<std::unique_ptr<InprocServer>> Listen(const std::string& path, Handler handler);
  ~InprocServer();

  int fd() const { return epoll_fd_; }
  // Takes what is waiting, at most a few hundred messages, without blocking.
  void Poll();
  uint64_t malformed() const { return malformed_; }

 private:
  struct Connection {
    int fd;
    uint32_t pid;
    uint32_t uid;
    std::vector<QpInfo> qps;
  };
  InprocServer(std::string path, int listen_fd, int epoll_fd, Handler handler);
  void Accept();
  bool Receive(Connection& connection);  // false: the connection ended
  void Message(Connection& connection, const char* data, size_t size);
  void Close(size_t index);

  std::string path_;
  int listen_fd_;
  int epoll_fd_;
  Handler handler_;
  std::vector<std::unique_ptr<Connection>> connections_;
  uint64_t malformed_ = 0;
};

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_INPROC_SERVER_H
