// SPDX-License-Identifier: Apache-2.0
#include "cli/offline.h"

#include <bpf/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "maps/abi.h"
#include "maps/names.h"

namespace cw::cli {

std::string CtlPinPath(const std::string& instance) {
  return absl::StrFormat("%s/%s/%s", CW_PIN_ROOT, instance, CW_MAP_CTL);
}

absl::Status SwitchOffWithoutAgent(const std::string& instance) {
  if (instance.empty() || absl::StrContains(instance, "/")) {
    return absl::InvalidArgumentError(absl::StrFormat("\"%s\" is no instance's name", instance));
  }
  const std::string path = CtlPinPath(instance);
  const int fd = bpf_obj_get(path.c_str());
  if (fd < 0) {
    const std::string message = absl::StrFormat("cannot open %s: %s", path, strerror(errno));
    if (errno == EPERM || errno == EACCES) return absl::PermissionDeniedError(message + "; run as root");
    return absl::NotFoundError(message);
  }
  absl::Cleanup close_fd = [fd] { close(fd); };

  bpf_map_info info{};
  uint32_t length = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd, &info, &length) != 0 || info.type != BPF_MAP_TYPE_ARRAY ||
      info.value_size != sizeof(cw_ctl) || (info.map_flags & BPF_F_MMAPABLE) == 0) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s is not the control map of this version; use the cwctl of the agent that made it", path));
  }
  // Mapped, so that only the mode is stored: the kernel writes other fields of the record at any time.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED) return absl::InternalError(absl::StrFormat("mapping %s: %s", path, strerror(errno)));
  auto* control = static_cast<cw_ctl*>(memory);
  const bool known = control->abi_version == CW_ABI_VERSION;
  if (known) std::atomic_ref<uint32_t>(control->mode).store(CW_MODE_OFF);
  munmap(memory, page);
  if (known) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("%s has another layout version; use the cwctl of its agent", path));
}

}  // namespace cw::cli
