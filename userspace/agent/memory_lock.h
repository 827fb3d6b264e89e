// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace cw::agent {

struct MemoryLock {
  bool locked = false;
  std::string note;  // why it is not, though it was asked for
};

// From now on what this process has touched stays in RAM (mlockall(2), pages as they are used): memory is a process's,
// so the thread that sends probes has it locked only together with the others. Not where RLIMIT_MEMLOCK is limited and
// cannot be lifted, since beyond the limit no memory could be had at all. Call once, before other threads.
void LockMemory();

// Any thread.
const MemoryLock& PresentMemoryLock();

}  // namespace cw::agent
