// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/netns.h"

#include <dirent.h>
#include <fcntl.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace cw::lab {
namespace {

constexpr char kNetnsDir[] = "/run/netns";
constexpr absl::Duration kRunningLimit = absl::Seconds(20);

absl::Status Errno(const std::string& what) { return absl::ErrnoToStatus(errno, what); }

// As ip-netns(8) does: the folder is a shared mount, so that names made in one mount namespace are seen in others.
absl::Status PrepareNetnsDir() {
  if (mkdir(kNetnsDir, 0755) && errno != EEXIST) return Errno(absl::StrCat("mkdir ", kNetnsDir));
  if (!mount("", kNetnsDir, "none", MS_SHARED | MS_REC, nullptr)) return absl::OkStatus();
  if (errno != EINVAL) return Errno(absl::StrCat("mount --make-shared ", kNetnsDir));
  if (mount(kNetnsDir, kNetnsDir, "none", MS_BIND | MS_REC, nullptr) ||
      mount("", kNetnsDir, "none", MS_SHARED | MS_REC, nullptr)) {
    return Errno(absl::StrCat("bind mount ", kNetnsDir));
  }
  return absl::OkStatus();
}

// One request of netdevice(7) on a device of the calling thread's namespace.
absl::Status DeviceRequest(unsigned long code, const std::string& device, ifreq& request) {
  if (device.size() >= IFNAMSIZ) return absl::InvalidArgumentError(absl::StrCat("device name ", device));
  int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return Errno("socket");
  std::strcpy(request.ifr_name, device.c_str());
  absl::Status status = ioctl(fd, code, &request) ? Errno(absl::StrCat("device ", device)) : absl::OkStatus();
  close(fd);
  return status;
}

absl::Status BringLoopbackUp() {
  ifreq request = {};
  request.ifr_flags = IFF_UP | IFF_LOOPBACK;
  return DeviceRequest(SIOCSIFFLAGS, "lo", request);
}

absl::StatusOr<int> DeviceFlags(const std::string& device) {
  ifreq request = {};
  if (absl::Status status = DeviceRequest(SIOCGIFFLAGS, device, request); !status.ok()) return status;
  return request.ifr_flags;
}

// Runs in a thread of its own, which ends in the new namespace.
absl::Status UnshareAndBind(const std::string& path) {
  if (unshare(CLONE_NEWNET)) return Errno("unshare(CLONE_NEWNET)");
  if (mount("/proc/thread-self/ns/net", path.c_str(), "none", MS_BIND, nullptr)) return Errno("bind " + path);
  return BringLoopbackUp();
}

}  // namespace

std::string NetnsPath(const std::string& name) { return absl::StrCat(kNetnsDir, "/", name); }

absl::Status CreateNetns(const std::string& name) {
  if (absl::Status status = PrepareNetnsDir(); !status.ok()) return status;
  const std::string path = NetnsPath(name);
  int fd = open(path.c_str(), O_RDONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0);
  if (fd < 0) return Errno(absl::StrCat("create namespace ", name));
  close(fd);
  absl::Status status;
  std::thread([&] { status = UnshareAndBind(path); }).join();
  if (!status.ok()) DeleteNetns(name).IgnoreError();
  return status;
}

absl::Status DeleteNetns(const std::string& name) {
  const std::string path = NetnsPath(name);
  umount2(path.c_str(), MNT_DETACH);  // fails when a crash left the bare file: then the unlink is all there is to do
  if (unlink(path.c_str()) && errno != ENOENT) return Errno(absl::StrCat("delete namespace ", name));
  return absl::OkStatus();
}

std::vector<std::string> ListNetns() {
  std::vector<std::string> names;
  if (DIR* dir = opendir(kNetnsDir)) {
    while (dirent* entry = readdir(dir)) {
      if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
    }
    closedir(dir);
  }
  std::sort(names.begin(), names.end());
  return names;
}

absl::Status RunInNetns(const std::string& path, const std::function<absl::Status()>& fn) {
  int home = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
  if (home < 0) return Errno("open own network namespace");
  int target = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (target < 0) {
    absl::Status status = Errno(absl::StrCat("open network namespace ", path));
    close(home);
    return status;
  }
  absl::Status status = setns(target, CLONE_NEWNET) ? Errno(absl::StrCat("enter ", path)) : absl::OkStatus();
  close(target);
  if (status.ok()) {
    status = fn();
    if (setns(home, CLONE_NEWNET)) {
      std::perror("cannot return to the own network namespace");
      std::abort();
    }
  }
  close(home);
  return status;
}

absl::StatusOr<int> SocketInNetns(const std::string& path, int domain, int type, int protocol) {
  int fd = -1;
  absl::Status status = RunInNetns(path, [&] {
    fd = socket(domain, type | SOCK_CLOEXEC, protocol);
    return fd < 0 ? Errno(absl::StrCat("socket in ", path)) : absl::OkStatus();
  });
  if (!status.ok()) return status;
  return fd;
}

absl::Status WaitUntilRunning(const std::vector<std::string>& devices) {
  const absl::Time deadline = absl::Now() + kRunningLimit;
  for (const std::string& device : devices) {
    for (;;) {
      absl::StatusOr<int> flags = DeviceFlags(device);
      if (!flags.ok()) return flags.status();
      if (*flags & IFF_RUNNING) break;
      if (absl::Now() > deadline) return absl::DeadlineExceededError(absl::StrCat(device, " gets no carrier"));
      absl::SleepFor(absl::Milliseconds(1));
    }
  }
  // The flag shows a moment before the queue and the routes are ready, within one hold of the kernel's configuration
  // lock; a setting that changes nothing waits for that lock.
  return devices.empty() ? absl::OkStatus() : BringLoopbackUp();
}

absl::StatusOr<bool> IsDeviceUp(const std::string& device) {
  absl::StatusOr<int> flags = DeviceFlags(device);
  if (!flags.ok()) return flags.status();
  return (*flags & IFF_UP) != 0;
}

absl::Status WriteSysctl(const std::string& key, const std::string& value) {
  const std::string path = absl::StrCat("/proc/sys/", key);
  int fd = open(path.c_str(), O_WRONLY | O_CLOEXEC);
  if (fd < 0) return Errno(absl::StrCat("open ", path));
  ssize_t n = write(fd, value.data(), value.size());
  absl::Status status =
      n == static_cast<ssize_t>(value.size()) ? absl::OkStatus() : Errno(absl::StrCat("write ", path));
  close(fd);
  return status;
}

}  // namespace cw::lab
