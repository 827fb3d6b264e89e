// SPDX-License-Identifier: Apache-2.0
// A thread that serves the ports and queue pairs of some hosts: receive, post, send, sleep until the next packet is
// due.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "userspace/lab/emulator_flow.h"
#include "userspace/lab/emulator_port.h"
#include "userspace/lab/monotonic.h"

namespace cw::lab {

struct WorkerConfig {
  int64_t tick_ns = 100'000;  // sleeps at least so long after a pass, so that packets come in batches
  bool realtime = false;      // SCHED_FIFO, priority 1
};

// Thread rule: AddPort before Start; AddEndpoint and WithLock from any thread at any time.
class Worker {
 public:
  explicit Worker(const WorkerConfig& config);
  ~Worker();

  absl::Status AddPort(int host, std::unique_ptr<HostPort> port, double line_bps);
  void AddEndpoint(std::unique_ptr<Endpoint> endpoint);
  absl::Status Start();
  void Stop();

  // Runs f() while the worker stands still; endpoints and ports of this worker may be read then.
  template <typename F>
  auto WithLock(F f) {
    absl::MutexLock lock(&mutex_);
    return f();
  }
  const HostPort& port(int host) const { return *ports_.at(host)->port; }

 private:
  struct Port : PacketSink {
    std::unique_ptr<HostPort> port;
    double line_bps = 0;
    int64_t next_tx_ns = 0;
    int64_t now_ns = 0;
    size_t first = 0;  // endpoint that is asked first, so that each has its turn
    std::vector<Endpoint*> endpoints;
    std::unordered_map<uint64_t, Endpoint*> by_qpn;
    std::unordered_map<uint64_t, Endpoint*> by_remote;  // by the peer's address and QPN: for stamps of sent packets

    void OnPacket(const RocePacket& packet) override;
    void OnKernelStamp(const RocePacket& packet, bool sent, int64_t realtime_ns) override;
    void Transmit(int64_t now);
    bool SendOne(Endpoint* endpoint, int64_t now);
    int64_t NextEventNs(int64_t now) const;
  };

  void Loop();
  int64_t Pass();
  void Sleep(int64_t pass_began_ns, int64_t until_ns);

  WorkerConfig config_;
  absl::Mutex mutex_;
  std::unordered_map<int, std::unique_ptr<Port>> ports_;  // by host
  std::vector<Port*> order_;
  uint64_t passes_ = 0;
  std::vector<std::unique_ptr<Endpoint>> endpoints_;
  int epoll_fd_ = -1;
  int wake_fd_ = -1;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace cw::lab
