// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/fuse_that_never_answers.h"

#include <fcntl.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

namespace cw {
namespace {

constexpr uint64_t kFile = 2;  // the root is 1

void WriteText(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return;
  (void)!write(fd, text.data(), text.size());
  close(fd);
}

// −1: this kernel or host does not let a user do that.
int Mount(const std::string& folder) {
  const uid_t uid = getuid();
  const gid_t gid = getgid();
  if (unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return -1;
  WriteText("/proc/self/setgroups", "deny");
  WriteText("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
  WriteText("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return -1;
  const int fuse = open("/dev/fuse", O_RDWR | O_CLOEXEC);
  if (fuse < 0) return -1;
  const std::string options = "fd=" + std::to_string(fuse) + ",rootmode=40000,user_id=0,group_id=0";
  return mount("cw", folder.c_str(), "fuse", 0, options.c_str()) == 0 ? fuse : -1;
}

template <typename T>
void Answer(int fuse, uint64_t unique, int error, const T* body) {
  char buffer[sizeof(fuse_out_header) + sizeof(T)];
  const size_t size = sizeof(fuse_out_header) + (body != nullptr ? sizeof(T) : 0);
  const fuse_out_header head{.len = static_cast<uint32_t>(size), .error = error, .unique = unique};
  std::memcpy(buffer, &head, sizeof(head));
  if (body != nullptr) std::memcpy(buffer + sizeof(head), body, sizeof(T));
  (void)!write(fuse, buffer, size);
}

fuse_attr Attributes(uint64_t node) {
  fuse_attr attr{};
  attr.ino = node;
  attr.mode = node == kFile ? S_IFREG | 0666 : S_IFDIR | 0777;
  attr.nlink = 1;
  attr.blksize = 4096;
  return attr;
}

void Serve(int fuse) {
  alignas(fuse_in_header) static char request[1 << 17];
  for (bool flushed = false; true;) {
    const ssize_t size = read(fuse, request, sizeof(request));
    if (size < static_cast<ssize_t>(sizeof(fuse_in_header))) {
      if (errno == EINTR || errno == EAGAIN || errno == ENOENT) continue;
      return;
    }
    const auto& in = *reinterpret_cast<const fuse_in_header*>(request);
    if (in.opcode == FUSE_INIT) {
      const fuse_init_out out{.major = FUSE_KERNEL_VERSION, .minor = 31, .max_readahead = 4096, .max_write = 4096};
      Answer(fuse, in.unique, 0, &out);
    } else if (in.opcode == FUSE_LOOKUP) {
      const fuse_entry_out out{.nodeid = kFile, .entry_valid = 3600, .attr_valid = 3600, .attr = Attributes(kFile)};
      Answer(fuse, in.unique, 0, &out);
    } else if (in.opcode == FUSE_GETATTR) {
      const fuse_attr_out out{.attr_valid = 3600, .attr_valid_nsec = 0, .dummy = 0, .attr = Attributes(in.nodeid)};
      Answer(fuse, in.unique, 0, &out);
    } else if (in.opcode == FUSE_OPEN) {
      const fuse_open_out out{.fh = 1};
      Answer(fuse, in.unique, 0, &out);
    } else if (in.opcode == FUSE_FLUSH && !flushed) {
      flushed = true;
      Answer<char>(fuse, in.unique, 0, nullptr);
    } else if (in.opcode != FUSE_FLUSH && in.opcode != FUSE_RELEASE && in.opcode != FUSE_FORGET) {
      Answer<char>(fuse, in.unique, -ENOSYS, nullptr);
    }
  }
}

[[noreturn]] void Use(const std::string& file, const std::function<bool(int fd)>& with, int report) {
  const int fd = open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const char result = fd < 0 ? 'o' : !with(fd) ? 's' : '+';
  if (fd >= 0) close(fd);
  (void)!write(report, &result, 1);
  _exit(0);
}

[[noreturn]] void BeServer(const std::string& folder, const std::function<bool(int fd)>& with, int report) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  signal(SIGCHLD, SIG_IGN);
  const int fuse = Mount(folder);
  if (fuse < 0) {
    (void)!write(report, "m", 1);
    _exit(1);
  }
  if (fork() == 0) {
    close(fuse);  // or the server's end would not be the connection's
    Use(folder + "/file", with, report);
  }
  Serve(fuse);
  _exit(0);
}

}  // namespace

std::string FuseThatNeverAnswers::Start(const std::string& folder, const std::function<bool(int fd)>& with) {
  int report[2];
  if (pipe2(report, O_CLOEXEC) != 0) return "no pipe";
  server_ = fork();
  if (server_ == 0) BeServer(folder, with, report[1]);
  close(report[1]);
  char result = 0;
  pollfd wait{.fd = report[0], .events = POLLIN, .revents = 0};
  if (poll(&wait, 1, 30'000) > 0) (void)!read(report[0], &result, 1);
  close(report[0]);
  if (result == '+') return "";
  End();
  return result == 'm' ? "no FUSE in a user namespace here" : result == 'o' ? "its file cannot be opened" : "not sent";
}

void FuseThatNeverAnswers::End() {
  if (server_ <= 0) return;
  kill(server_, SIGKILL);
  waitpid(server_, nullptr, 0);
  server_ = -1;
}

}  // namespace cw
