// SPDX-License-Identifier: Apache-2.0
//
// Which process a thread is of. RDMA netlink names a queue pair's maker by the number of the thread that made it
// (fill_res_name_pid in drivers/infiniband/core/nldev.c), and jobs make them in threads of their own (NCCL's proxy,
// UCX's "async"); sockets' credentials, labels and people name processes.
#ifndef CW_USERSPACE_RDMA_PROCESS_OF_H
#define CW_USERSPACE_RDMA_PROCESS_OF_H

#include <cstdint>
#include <string>

namespace cw::rdma {

struct Process {
  uint32_t pid = 0;
  std::string comm;  // the process's own name, not the thread's; empty: it has ended
};

// A thread that has ended meanwhile is taken for a process. Any thread.
Process ProcessOf(uint32_t thread, const std::string& proc = "/proc");

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_PROCESS_OF_H
