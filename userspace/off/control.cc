// SPDX-License-Identifier: Apache-2.0
#include "userspace/off/control.h"

#include <linux/bpf.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "maps/abi.h"
#include "maps/names.h"
#include "userspace/off/kernel.h"

namespace cw::off {

using Outcome = Switched::Outcome;

std::string ControlPin(const std::string& instance_folder) { return instance_folder + "/" CW_MAP_CTL; }

namespace {

Switched SwitchOffAt(const std::string& pin, bool dry) {
  int error = 0;
  const maps::UniqueFd fd = OpenPin(pin, &error);
  if (!fd.ok()) {
    const std::string message = "cannot open " + pin + ": " + strerror(error);
    if (error == EPERM || error == EACCES) return {Outcome::kNotPermitted, message + "; run as root"};
    return {error == ENOENT ? Outcome::kNoPin : Outcome::kFailed, message};
  }
  MapInfo info;
  if (ReadMap(fd.get(), &info) != 0 || info.type != BPF_MAP_TYPE_ARRAY ||
      info.value_size < offsetof(cw_ctl, mode) + sizeof(uint32_t) || (info.flags & BPF_F_MMAPABLE) == 0) {
    return {Outcome::kUnknownMap, pin + " is no control map of an agent"};
  }
  // Mapped, so that only the mode is stored: the kernel writes other fields of the record at any time.
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  void* memory = mmap(nullptr, page, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (memory == MAP_FAILED) return {Outcome::kFailed, "mapping " + pin + ": " + strerror(errno)};
  // Of any release: version and mode have their places for good.
  auto* control = static_cast<cw_ctl*>(memory);
  const bool known = control->abi_version != 0;
  if (known && !dry) std::atomic_ref<uint32_t>(control->mode).store(CW_MODE_OFF);
  munmap(memory, page);
  if (known) return {Outcome::kDone, ""};
  return {Outcome::kUnknownMap, pin + " is no control map of an agent: it has no version"};
}

// former_ID_cw_ctl: what programs read that an upgrade has not exchanged yet.
bool IsFormer(const std::string& name) { return name.starts_with(CW_PIN_FORMER) && name.ends_with("_" CW_MAP_CTL); }

}  // namespace

Switched SwitchOff(const std::string& pin, bool dry) {
  Switched all = SwitchOffAt(pin, dry);
  const std::string folder = pin.substr(0, pin.rfind('/'));
  for (const std::string& name : ListFolder(folder)) {
    if (!IsFormer(name)) continue;
    const Switched one = SwitchOffAt(folder + "/" + name, dry);
    if (all.outcome == Outcome::kDone || all.outcome == Outcome::kNoPin) all = one;
  }
  return all;
}

}  // namespace cw::off
