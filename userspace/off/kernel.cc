// SPDX-License-Identifier: Apache-2.0
#include "userspace/off/kernel.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "userspace/dataplane/tcx_query.h"

namespace cw::off {
namespace {

// The result, or minus an errno.
int Bpf(bpf_cmd command, bpf_attr& attr, size_t size) {
  const auto rc = static_cast<int>(syscall(SYS_bpf, command, &attr, size));
  return rc < 0 ? -errno : rc;
}

template <typename Info>
int ReadInfo(int fd, Info& info) {
  bpf_attr attr = {};
  attr.info.bpf_fd = static_cast<__u32>(fd);
  attr.info.info_len = sizeof(info);
  attr.info.info = reinterpret_cast<__u64>(&info);
  return -Bpf(BPF_OBJ_GET_INFO_BY_FD, attr, sizeof(attr));
}

// What kind of object it is: programs, maps and links look alike from outside.
bool IsKind(int fd, const char* kind) {
  char path[64], target[64] = {};
  snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
  return readlink(path, target, sizeof(target) - 1) > 0 && std::string(target) == std::string("anon_inode:") + kind;
}

}  // namespace

maps::UniqueFd OpenPin(const std::string& path, int* error) {
  bpf_attr attr = {};
  attr.pathname = reinterpret_cast<__u64>(path.c_str());
  const int fd = Bpf(BPF_OBJ_GET, attr, sizeof(attr));
  *error = fd < 0 ? -fd : 0;
  return maps::UniqueFd(std::max(fd, -1));
}

maps::UniqueFd OpenPinIn(int folder, const std::string& name, int* error) {
  const maps::UniqueFd pin(openat(folder, name.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
  struct stat info;
  if (!pin.ok() || fstat(pin.get(), &info) != 0 || !S_ISREG(info.st_mode)) {
    *error = pin.ok() ? ELOOP : errno;
    return maps::UniqueFd();
  }
  return OpenPin("/proc/self/fd/" + std::to_string(pin.get()), error);
}

int ReadMap(int fd, MapInfo* out) {
  if (!IsKind(fd, "bpf-map")) return EINVAL;
  bpf_map_info info = {};
  if (const int e = ReadInfo(fd, info); e != 0) return e;
  *out = {info.id, info.type, info.value_size, info.map_flags};
  return 0;
}

int ReadLink(int fd, Link* out) {
  if (!IsKind(fd, "bpf_link") && !IsKind(fd, "bpf-link")) return EINVAL;
  bpf_link_info info = {};
  if (const int e = ReadInfo(fd, info); e != 0) return e;
  if (info.type != BPF_LINK_TYPE_XDP && info.type != dataplane::kTcxLinkType) return EINVAL;
  *out = {info.xdp.ifindex, info.prog_id};  // tcx has its ifindex in the same place
  return 0;
}

int DetachLink(int fd) {
  bpf_attr attr = {};
  attr.link_detach.link_fd = static_cast<__u32>(fd);
  return -Bpf(BPF_LINK_DETACH, attr, sizeof(attr));
}

int ReadProgram(uint32_t id, Program* out) {
  bpf_attr attr = {};
  attr.prog_id = id;
  const int fd = Bpf(BPF_PROG_GET_FD_BY_ID, attr, sizeof(attr));
  if (fd < 0) return -fd;
  const maps::UniqueFd program(fd);
  std::vector<uint32_t> ids(256);
  bpf_prog_info info = {};
  info.nr_map_ids = static_cast<__u32>(ids.size());
  info.map_ids = reinterpret_cast<__u64>(ids.data());
  if (const int e = ReadInfo(program.get(), info); e != 0) return e;
  ids.resize(std::min<size_t>(ids.size(), info.nr_map_ids));
  out->name.assign(info.name, strnlen(info.name, sizeof(info.name)));
  out->maps = std::set<uint32_t>(ids.begin(), ids.end());
  return 0;
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  DIR* folder = opendir(path.c_str());
  if (folder == nullptr) return names;
  while (const dirent* entry = readdir(folder)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<std::string> ListFolder(int folder) { return ListFolder("/proc/self/fd/" + std::to_string(folder)); }

bool Exists(const std::string& path) {
  struct stat info;
  return stat(path.c_str(), &info) == 0;
}

}  // namespace cw::off
