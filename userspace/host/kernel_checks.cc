// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/kernel_checks.h"

#include <linux/capability.h>

#include <filesystem>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

#ifndef CAP_PERFMON
#define CAP_PERFMON 38
#endif
#ifndef CAP_BPF
#define CAP_BPF 39
#endif

namespace cw::host {
namespace {

using KernelResult = Check::Result;

constexpr char kBpffsPoint[] = "/sys/fs/bpf";
constexpr char kOwnFolder[] = "/sys/fs/bpf/cwfabric";  // all that the service sees of it

bool Has(uint64_t effective, int capability) { return (effective >> capability) & 1; }

}  // namespace

Check CheckBtf(const Roots& roots) {
  std::error_code error;
  const auto size = std::filesystem::file_size(roots.sys + "/kernel/btf/vmlinux", error);
  if (!error && size > 0) return {"kernel BTF", KernelResult::kOk, absl::StrFormat("%d KiB", size / 1024), ""};
  return {"kernel BTF", KernelResult::kFail, "no /sys/kernel/btf/vmlinux",
          "use a kernel built with CONFIG_DEBUG_INFO_BTF=y (distribution kernels since 2021 are)"};
}

Check CheckBpffs(const Roots& roots) {
  const std::optional<std::string> mounts = ReadTrimmed(roots.proc + "/self/mounts");
  if (!mounts) return {"bpffs", KernelResult::kUnknown, "cannot read /proc/self/mounts", "mount /proc"};
  std::string type, point = kBpffsPoint;  // of the last mount there: it is the one that is seen
  for (absl::string_view line : absl::StrSplit(*mounts, '\n')) {
    const std::vector<std::string> fields = absl::StrSplit(line, ' ');
    if (fields.size() < 3 || (fields[1] != kBpffsPoint && fields[1] != kOwnFolder)) continue;
    point = fields[1];
    type = fields[2];
  }
  if (type == "bpf") return {"bpffs", KernelResult::kOk, absl::StrFormat("mounted at %s", point), ""};
  const std::string seen = type.empty() ? absl::StrFormat("nothing is mounted at %s", kBpffsPoint)
                                        : absl::StrFormat("%s is mounted at %s", type, point);
  return {"bpffs", KernelResult::kFail, seen, absl::StrFormat("mount -t bpf bpf %s", kBpffsPoint)};
}

Check CheckCapabilities(const Roots& roots, bool agent_runs) {
  const std::optional<std::string> status = ReadTrimmed(roots.proc + "/self/status");
  uint64_t effective = 0;
  bool found = false;
  if (status) {
    for (absl::string_view line : absl::StrSplit(*status, '\n')) {
      if (absl::ConsumePrefix(&line, "CapEff:")) {
        found = absl::SimpleHexAtoi(absl::StripAsciiWhitespace(line), &effective);
      }
    }
  }
  if (!found) return {"capabilities", KernelResult::kUnknown, "cannot read CapEff of /proc/self/status", "mount /proc"};
  std::vector<std::string> missing;
  const bool admin = Has(effective, CAP_SYS_ADMIN);  // stands for the two BPF ones
  if (!admin && !Has(effective, CAP_BPF)) missing.push_back("CAP_BPF");
  if (!agent_runs && !admin && !Has(effective, CAP_PERFMON)) missing.push_back("CAP_PERFMON");
  if (!Has(effective, CAP_NET_ADMIN)) missing.push_back("CAP_NET_ADMIN");
  if (!Has(effective, CAP_NET_RAW)) missing.push_back("CAP_NET_RAW");
  if (missing.empty() && agent_runs)
    return {"capabilities", KernelResult::kOk, "BPF, NET_ADMIN, NET_RAW; what only the start needs was given up", ""};
  if (missing.empty()) return {"capabilities", KernelResult::kOk, "BPF, PERFMON, NET_ADMIN, NET_RAW", ""};
  return {"capabilities", KernelResult::kFail, "missing " + absl::StrJoin(missing, ", "),
          "run as root, or add them to AmbientCapabilities= of the unit"};
}

Check CheckJit(const Roots& roots) {
  const std::optional<std::string> enabled = ReadTrimmed(roots.proc + "/sys/net/core/bpf_jit_enable");
  if (!enabled) {
    return {"BPF JIT", KernelResult::kUnknown, "bpf_jit_enable is not visible (it is not, in a network namespace)",
            "look at it in the host's own namespace: sysctl net.core.bpf_jit_enable"};
  }
  if (*enabled == "1") return {"BPF JIT", KernelResult::kOk, "on", ""};
  if (*enabled == "2") {
    return {"BPF JIT", KernelResult::kWarn, "on, with debug output to the kernel log",
            "sysctl -w net.core.bpf_jit_enable=1"};
  }
  return {"BPF JIT", KernelResult::kFail, "off: each packet costs about ten times as much",
          "sysctl -w net.core.bpf_jit_enable=1"};
}

Check CheckClocksource(const Roots& roots) {
  const std::string folder = roots.sys + "/devices/system/clocksource/clocksource0";
  const std::optional<std::string> current = ReadTrimmed(folder + "/current_clocksource");
  if (!current) return {"clocksource", KernelResult::kUnknown, "not visible", "mount /sys"};
  // Read by a few instructions; the others by an access to a device or to the hypervisor, about 1 µs each.
  for (const char* good : {"tsc", "arch_sys_counter", "kvm-clock", "hyperv_clocksource_tsc_page"}) {
    if (*current == good) return {"clocksource", KernelResult::kOk, *current, ""};
  }
  const std::string available = ReadTrimmed(folder + "/available_clocksource").value_or("");
  std::vector<std::string> names = absl::StrSplit(available, ' ', absl::SkipEmpty());
  for (const std::string& name : names) {
    if (name == "tsc") {
      return {"clocksource", KernelResult::kWarn, *current + ": reading it is slow, so each stamp is",
              "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource"};
    }
  }
  return {"clocksource", KernelResult::kWarn, *current + ": reading it is slow, so each stamp is",
          "no faster one is offered; see the kernel log for why the TSC was refused"};
}

}  // namespace cw::host
