// SPDX-License-Identifier: Apache-2.0
#include "userspace/rights/rights.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"

namespace cw::rights {

static_assert(Bit(CAP_DAC_OVERRIDE) == Bit(1));

const Set kNone = 0;
const Set kSteady = Bit(CAP_BPF) | Bit(CAP_NET_ADMIN) | Bit(CAP_NET_RAW);

namespace {

constexpr const char* kNames[] = {"CHOWN",
                                  "DAC_OVERRIDE",
                                  "DAC_READ_SEARCH",
                                  "FOWNER",
                                  "FSETID",
                                  "KILL",
                                  "SETGID",
                                  "SETUID",
                                  "SETPCAP",
                                  "LINUX_IMMUTABLE",
                                  "NET_BIND_SERVICE",
                                  "NET_BROADCAST",
                                  "NET_ADMIN",
                                  "NET_RAW",
                                  "IPC_LOCK",
                                  "IPC_OWNER",
                                  "SYS_MODULE",
                                  "SYS_RAWIO",
                                  "SYS_CHROOT",
                                  "SYS_PTRACE",
                                  "SYS_PACCT",
                                  "SYS_ADMIN",
                                  "SYS_BOOT",
                                  "SYS_NICE",
                                  "SYS_RESOURCE",
                                  "SYS_TIME",
                                  "SYS_TTY_CONFIG",
                                  "MKNOD",
                                  "LEASE",
                                  "AUDIT_WRITE",
                                  "AUDIT_CONTROL",
                                  "SETFCAP",
                                  "MAC_OVERRIDE",
                                  "MAC_ADMIN",
                                  "SYSLOG",
                                  "WAKE_ALARM",
                                  "BLOCK_SUSPEND",
                                  "AUDIT_READ",
                                  "PERFMON",
                                  "BPF",
                                  "CHECKPOINT_RESTORE"};
constexpr size_t kKnown = sizeof(kNames) / sizeof(kNames[0]);
static_assert(kKnown == CAP_CHECKPOINT_RESTORE + 1);

// The kernel's shape: two halves of 32 bits each.
struct Caps {
  __user_cap_header_struct head = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct half[2] = {};
};

}  // namespace

absl::StatusOr<Set> Held() {
  Caps caps;
  if (syscall(SYS_capget, &caps.head, caps.half) != 0) return absl::ErrnoToStatus(errno, "ask for capabilities");
  return Set{caps.half[1].permitted} << 32 | caps.half[0].permitted;
}

absl::Status KeepOnly(Set keep) {
  const absl::StatusOr<Set> held = Held();
  if (!held.ok()) return held.status();
  const Set left = Left(*held, keep, geteuid() == 0);
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return absl::ErrnoToStatus(errno, "set no_new_privs");
  // What is not inheritable cannot be ambient, so this clears both.
  Caps caps;
  for (int half = 0; half < 2; ++half) {
    caps.half[half].permitted = caps.half[half].effective = static_cast<uint32_t>(left >> (32 * half));
  }
  if (syscall(SYS_capset, &caps.head, caps.half) != 0) return absl::ErrnoToStatus(errno, "give up capabilities");
  return absl::OkStatus();
}

absl::Status RunWithout(absl::FunctionRef<void()> work) {
  absl::Status dropped;
  try {
    std::thread([&] {
      dropped = KeepOnly(kNone);
      if (dropped.ok()) work();
    }).join();
  } catch (const std::system_error& e) {
    return absl::ResourceExhaustedError(absl::StrCat("starting a thread without rights: ", e.what()));
  }
  return dropped;
}

std::vector<std::string> Names(Set set) {
  std::vector<std::string> names;
  for (size_t i = 0; i < 64; ++i) {
    if ((set >> i & 1) == 0) continue;
    names.push_back(i < kKnown ? absl::StrCat("CAP_", kNames[i]) : absl::StrCat("CAP_", i));
  }
  return names;
}

}  // namespace cw::rights
