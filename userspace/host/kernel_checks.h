// SPDX-License-Identifier: Apache-2.0
//
// Checks of the kernel and of this process' rights. Pure functions over file trees.
#pragma once

#include "userspace/host/check.h"
#include "userspace/host/roots.h"

namespace cw::host {

Check CheckBtf(const Roots& roots);    // /sys/kernel/btf/vmlinux
Check CheckBpffs(const Roots& roots);  // mounted at /sys/fs/bpf, from /proc/self/mounts
// BPF, PERFMON, NET_ADMIN, NET_RAW, from /proc/self/status; an agent that runs has given up PERFMON.
Check CheckCapabilities(const Roots& roots, bool agent_runs = false);
Check CheckJit(const Roots& roots);          // /proc/sys/net/core/bpf_jit_enable
Check CheckClocksource(const Roots& roots);  // the clock that stamps packets

}  // namespace cw::host
