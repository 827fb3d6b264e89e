// SPDX-License-Identifier: Apache-2.0
// What a process says of a queue pair over the in-process socket, against what the kernel knows of it. Any process may
// say anything: it may name a queue pair of another one, or name it before that one has it.
// Pure; any thread.
#pragma once

#include <cstdint>

#include "userspace/rdma/inproc_server.h"

namespace cw::rdma {

// The kernel's word on one number at one address.
struct KernelWord {
  bool asked = false;      // there is an RDMA device at the address, which would have it
  bool there = false;      // it has it
  bool by_kernel = false;  // … for the kernel itself
  uint32_t pid = 0;   // … for this process; 0: the thread that made it has ended, or the number is not ours to know
  uint32_t rqpn = 0;  // 0: not connected yet
};

enum class Claim : uint8_t {
  kFalse = 0,  // the kernel says otherwise
  kOpen = 1,   // it says nothing against it, and does not know all of it (yet)
  kProven = 2  // it knows the same process and peer QPN, or there is no RDMA device that could know
};
Claim Judge(const QpInfo& claimed, const KernelWord& word);

bool FromKernel(const QpInfo& qp);
// May what is told of it be acted on: its peer QPN used, a packet put into it? Everything else only shows it.
bool IsProven(const QpInfo& qp);

}  // namespace cw::rdma
