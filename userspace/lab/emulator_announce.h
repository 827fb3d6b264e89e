// SPDX-License-Identifier: Apache-2.0
// Tells the agents of the hosts which queue pairs there are, over the socket of userspace/inproc/cw_inproc.h.
//
// An agent that is not there, or goes away and comes back, hears of everything again: tried once a second.
// Thread rule: Add, Start and Stop from any thread; a thread of its own does the talking.
#pragma once

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "userspace/inproc/cw_inproc.h"

namespace cw::lab {

struct QpAnnouncement {
  uint32_t lqpn = 0;
  uint32_t rqpn = 0;
  uint32_t local_address = 0;  // IPv4, host order
  uint32_t remote_address = 0;
  bool ip6 = false;  // fd00:: and those addresses
  uint16_t source_port = 0;
  uint16_t path_mtu = 0;
  std::string label;
};

// The message that goes out, with this process as the owner.
cw_inproc_register_qp MakeRegisterQp(const QpAnnouncement& qp, cw_inproc_type type);

class Announcer {
 public:
  // One socket path per host; an empty path is a host without an agent.
  explicit Announcer(std::vector<std::string> socket_paths);
  ~Announcer();
  Announcer(const Announcer&) = delete;
  Announcer& operator=(const Announcer&) = delete;

  void Add(int host, const QpAnnouncement& qp);
  // Takes a queue pair back.
  void Remove(int host, uint32_t lqpn);
  void Start();
  void Stop();  // closes the connections: the agents forget the queue pairs
  int connected() const;

 private:
  struct Host {
    std::string path;
    int fd = -1;
    size_t sent = 0;  // how many of `qps` the agent has heard of on this connection
    std::vector<QpAnnouncement> qps;
  };

  void Loop();
  void Serve(Host& host);
  static bool Connect(Host& host);
  static void Close(Host& host);

  mutable absl::Mutex mutex_;
  std::vector<Host> hosts_;
  bool changed_ = false;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace cw::lab
