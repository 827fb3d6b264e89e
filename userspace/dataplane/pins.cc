// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/pins.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/mount.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "maps/bpf_map.h"
#include "maps/folder.h"
#include "maps/names.h"

namespace cw::dataplane {
namespace {

// The interface of a link's pin; 0: it is another pin.
uint32_t LinkIfindex(const std::string& name) {
  for (const char* format : {CW_PIN_XDP_LINK_FMT "%n", CW_PIN_TCX_EGRESS_FMT "%n", CW_PIN_TCX_INGRESS_FMT "%n"}) {
    uint32_t ifindex = 0;
    int end = 0;
    const bool fits = sscanf(name.c_str(), format, &ifindex, &end) == 1 && static_cast<size_t>(end) == name.size();
    if (fits) return ifindex;
  }
  return 0;
}

bool IsPinned(uint32_t program, const std::string& pin) {
  if (!absl::EndsWith(pin, CW_PROG_TC) && !absl::EndsWith(pin, CW_PROG_TC_IN)) return false;  // maps have ids, too
  const maps::UniqueFd fd(bpf_obj_get(pin.c_str()));
  const auto info = fd.ok() ? GetProgramInfo(fd.get()) : absl::NotFoundError("");
  return info.ok() && info->id == program;
}

// Is it, or a map of its, pinned in this folder? What may not be opened counts as one.
bool MayHave(const std::filesystem::path& folder, const ProgramInfo& program) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const auto map = maps::BpfMap::OpenPinned(entry.path());
    if (absl::IsPermissionDenied(map.status())) return true;
    if (!map.ok() && IsPinned(program.id, entry.path())) return true;
    if (map.ok() && std::binary_search(program.map_ids.begin(), program.map_ids.end(), map->id())) return true;
  }
  return false;
}

}  // namespace

absl::Status EnsureBpffs() {
  struct statfs fs;
  // A service sees its own folder of that file system alone.
  if (statfs(CW_BPFFS "/cwfabric", &fs) == 0 && fs.f_type == BPF_FS_MAGIC) return absl::OkStatus();
  if (statfs(CW_BPFFS, &fs) != 0) {
    return absl::ErrnoToStatus(errno, "look at " CW_BPFFS " (is sysfs mounted on /sys?)");
  }
  if (fs.f_type == BPF_FS_MAGIC) return absl::OkStatus();
  if (mount("bpf", CW_BPFFS, "bpf", 0, "mode=0700") != 0) {
    return absl::ErrnoToStatus(errno, "mount the BPF file system on " CW_BPFFS " (needs CAP_SYS_ADMIN)");
  }
  return absl::OkStatus();
}

absl::Status CheckInstanceName(const std::string& instance) {
  const bool good =
      !instance.empty() && instance.size() <= 32 && std::all_of(instance.begin(), instance.end(), [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
      });
  if (good) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrFormat("instance name \"%s\": use 1 to 32 letters, digits, '-' and '_'", instance));
}

PinFolder::PinFolder(std::string root, std::string instance) : root_(std::move(root)), path_(root_ + "/" + instance) {}

std::string PinFolder::XdpLink(uint32_t ifindex) const { return File(absl::StrFormat(CW_PIN_XDP_LINK_FMT, ifindex)); }

absl::Status PinFolder::Create() const {
  std::error_code error;
  // Another instance that leaves removes empty parents: try again when one went between two steps.
  for (int attempt = 0; attempt < 10; ++attempt) {
    std::filesystem::create_directories(path_, error);
    if (!error || error != std::errc::no_such_file_or_directory) break;
  }
  if (error) return absl::ErrnoToStatus(error.value(), absl::StrFormat("create %s", path_));
  return absl::OkStatus();
}

absl::Status PinFolder::Pin(int fd, const std::string& name) const {
  const std::string target = File(name), fresh = target + "_new";
  unlink(fresh.c_str());  // left by a crash
  if (bpf_obj_pin(fd, fresh.c_str()) != 0) return absl::ErrnoToStatus(errno, absl::StrFormat("pin %s", target));
  if (rename(fresh.c_str(), target.c_str()) != 0) {
    const int err = errno;
    unlink(fresh.c_str());
    return absl::ErrnoToStatus(err, absl::StrFormat("rename the pin to %s", target));
  }
  return absl::OkStatus();
}

absl::Status PinFolder::Unpin(const std::string& name) const {
  if (unlink(File(name).c_str()) == 0 || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrFormat("unpin %s", File(name)));
}

std::vector<std::string> PinFolder::Names() const {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path_, error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::string PinFolder::FormerName(const std::string& name, uint32_t id) {
  return absl::StrCat(CW_PIN_FORMER, id, "_", name);
}

std::vector<std::string> PinFolder::Former(const std::string& name) const {
  std::vector<std::string> out;
  for (const std::string& pin : Names()) {
    absl::string_view middle = pin;
    uint32_t id = 0;
    const bool fits = absl::ConsumePrefix(&middle, CW_PIN_FORMER) && absl::ConsumeSuffix(&middle, "_" + name);
    if (fits && absl::SimpleAtoi(middle, &id)) out.push_back(pin);
  }
  return out;
}

std::string PinFolder::TcxLinkName(TcSide side, uint32_t ifindex) {
  return side == TcSide::kEgress ? absl::StrFormat(CW_PIN_TCX_EGRESS_FMT, ifindex)
                                 : absl::StrFormat(CW_PIN_TCX_INGRESS_FMT, ifindex);
}

std::vector<uint32_t> PinFolder::LinkIfindexes() const {
  std::set<uint32_t> out;
  for (const std::string& name : Names()) out.insert(LinkIfindex(name));
  out.erase(0);
  return {out.begin(), out.end()};
}

bool PinFolder::Has(const std::string& name) const { return access(File(name).c_str(), F_OK) == 0; }

bool PinFolder::IsOrphan(const ProgramInfo& program) const {
  if (program.name != CW_PROG_TC && program.name != CW_PROG_TC_IN) return false;
  std::error_code error;
  for (const auto& instance : std::filesystem::directory_iterator(root_, error)) {
    if (MayHave(instance.path(), program)) return false;
  }
  return !error || error == std::errc::no_such_file_or_directory;
}

absl::Status PinFolder::CheckOwn() const {
  if (maps::OpenFolder(path_).ok() || errno == ENOENT) return absl::OkStatus();
  return absl::ErrnoToStatus(
      errno, absl::StrFormat("open %s, which must be a folder with no other user's symlink in its path", path_));
}

absl::Status PinFolder::RemoveAll() const {
  const maps::UniqueFd folder = maps::OpenFolder(path_);
  if (!folder.ok() && errno != ENOENT) return CheckOwn();
  // Names that another folder has by now are none of this one's.
  for (const std::string& name : Names()) {
    if (folder.ok() && unlinkat(folder.get(), name.c_str(), 0) != 0 && errno != ENOENT)
      return absl::ErrnoToStatus(errno, absl::StrFormat("unpin %s", File(name)));
  }
  if (rmdir(path_.c_str()) != 0 && errno != ENOENT)
    return absl::ErrnoToStatus(errno, absl::StrFormat("remove %s", path_));
  if (rmdir(root_.c_str()) == 0) rmdir(std::filesystem::path(root_).parent_path().c_str());
  return absl::OkStatus();
}

}  // namespace cw::dataplane
