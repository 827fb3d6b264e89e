// SPDX-License-Identifier: Apache-2.0
// How much one process may tell the agent: queue pairs, and messages per second with a store of two seconds' worth. And
// one user with all processes, or it would be enough to make more of them; root is trusted. Pure; one thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"

namespace cw::rdma {

struct QuotaLimits {
  size_t max_qps = 16384;
  double messages_per_second = 10000;
  size_t user_connections = 1024;
  size_t user_qps = 65536;
  size_t connections = 4096;  // of all users, root too: each is a descriptor of this process
};

// The same, with connections that leave a process of so many descriptors half of them, and other users three quarters
// of what one may have.
QuotaLimits Within(QuotaLimits limits, uint64_t descriptors);

class ProcessQuota {
 public:
  explicit ProcessQuota(const QuotaLimits& limits) : limits_(limits) {}

  // false: its user, or all together, have as many connections as they may; nothing is remembered of this one.
  bool Connected(uint32_t pid, uint32_t uid, int64_t now_ns);
  void Disconnected(uint32_t pid);  // the last one forgets the process

  bool TakeMessage(uint32_t pid, int64_t now_ns);
  bool TakeQp(uint32_t pid);
  void ReturnQp(uint32_t pid);

 private:
  struct User {
    size_t connections = 0;
    size_t qps = 0;
  };
  struct Process {
    uint32_t uid = 0;  // of its first connection
    size_t connections = 0;
    size_t qps = 0;
    double messages = 0;  // that it may still send at once
    int64_t filled_ns = 0;
  };
  QuotaLimits limits_;
  size_t connections_ = 0;
  absl::flat_hash_map<uint32_t, Process> processes_;
  absl::flat_hash_map<uint32_t, User> users_;
};

}  // namespace cw::rdma
