// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/rig.h"

#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <functional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::vm {
namespace {

// A locally administered address, different for machines of different names.
std::string MacOf(const std::string& machine, size_t nic) {
  size_t hash = std::hash<std::string>()(machine);
  return absl::StrFormat("02:c0:%02x:%02x:%02x:%02x", hash & 0xff, (hash >> 8) & 0xff, (hash >> 16) & 0xff, nic);
}

std::string KernelCommandLine(const VmConfig& config) {
  // The emulated time stamp counter runs at a constant rate, and reading any other clock leaves the emulated CPU.
  std::vector<std::string> words = {"console=ttyS0", "panic=-1",        "quiet",
                                    "tsc=reliable",  "clocksource=tsc", "mitigations=off"};
  for (size_t i = 0; i < config.nics.size(); i++) {
    const VmNic& nic = config.nics[i];
    std::string gateway = nic.gateway.empty() ? "" : "," + nic.gateway;
    words.push_back(absl::StrFormat("cw.eth%d=%s,%d%s", i, nic.address, nic.mtu, gateway));
  }
  words.push_back("cw.rxe=" + config.rxe_device);
  words.push_back("cw.name=" + config.name);
  if (!config.root.empty()) words.push_back("cw.root=" + config.root);
  return absl::StrJoin(words, " ");
}

struct Descriptors {
  std::vector<int> fds;
  ~Descriptors() {
    for (int fd : fds) close(fd);
  }
};

// An emulated machine may get no processor for many milliseconds; soft-RoCE repeats what is in flight meanwhile. What
// the tap's own queue of 500 packets then loses would look like a fault of the fabric.
void LengthenQueue(const std::string& tap) {
  int any = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request{};
  strncpy(request.ifr_name, tap.c_str(), IFNAMSIZ - 1);
  request.ifr_qlen = 10000;
  ioctl(any, SIOCSIFTXQLEN, &request);  // best effort: the kernel's own length serves an idle host
  close(any);
}

absl::StatusOr<int> AttachTap(const std::string& name) {
  int fd = open("/dev/net/tun", O_RDWR | O_CLOEXEC);
  if (fd < 0) return absl::ErrnoToStatus(errno, "/dev/net/tun");
  ifreq request{};
  request.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR;
  strncpy(request.ifr_name, name.c_str(), IFNAMSIZ - 1);
  if (ioctl(fd, TUNSETIFF, &request) == 0) {
    LengthenQueue(name);
    return fd;
  }
  absl::Status status = absl::ErrnoToStatus(errno, absl::StrCat("tap ", name));
  close(fd);
  return status;
}

// QEMU gets open taps, so that the NICs of one machine may lie in several namespaces (fabric and management).
absl::StatusOr<int> OpenTap(const VmNic& nic) {
  if (nic.netns.empty()) return AttachTap(nic.tap);
  absl::StatusOr<int> tap;
  int netns = open(nic.netns.c_str(), O_RDONLY | O_CLOEXEC);
  if (netns < 0) return absl::ErrnoToStatus(errno, nic.netns);
  // A thread of its own: it ends in the namespace, and no other thread has to come back from one.
  std::thread([&] {
    tap = setns(netns, CLONE_NEWNET) == 0 ? AttachTap(nic.tap) : absl::ErrnoToStatus(errno, nic.netns);
  }).join();
  close(netns);
  return tap;
}

}  // namespace

std::vector<std::string> QemuArguments(const Image& image, const VmConfig& config, int channel_fd,
                                       const std::vector<int>& tap_fds) {
  std::string console =
      config.log_dir.empty() ? "null" : absl::StrCat("file:", config.log_dir, "/", config.name, ".console");
  // maxcpus=2: for a machine that can have one processor only, QEMU 7.2 leaves out the guest's memory barriers. The
  // guest then misses now and then that QEMU's other thread waits for its kick, and a NIC stops sending for good.
  // clang-format off
  std::vector<std::string> argv = {
      "qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
      "-machine", "pc", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "1,maxcpus=2", "-m", absl::StrCat(config.memory_mib),
      "-kernel", image.kernel(), "-initrd", image.initrd(), "-append", KernelCommandLine(config),
      "-serial", console,
      "-device", "virtio-serial-pci", "-chardev", absl::StrCat("socket,id=commands,fd=", channel_fd),
      "-device", "virtserialport,chardev=commands,name=cw.commands"};
  // clang-format on
  if (!config.shared_memory.empty()) {
    argv.push_back("-object");
    argv.push_back(absl::StrFormat("memory-backend-file,id=shared,share=on,size=%d,mem-path=%s", kSharedMemoryBytes,
                                   config.shared_memory));
    argv.push_back("-device");
    argv.push_back("ivshmem-plain,memdev=shared");
  }
  for (size_t i = 0; i < config.nics.size(); i++) {
    const VmNic& nic = config.nics[i];
    argv.push_back("-netdev");
    argv.push_back(absl::StrFormat("tap,id=n%d,fd=%d", i, tap_fds[i]));
    argv.push_back("-device");
    argv.push_back(
        absl::StrFormat("virtio-net-pci,netdev=n%d,mac=%s,host_mtu=%d,romfile=", i, MacOf(config.name, i), nic.mtu));
  }
  return argv;
}

absl::StatusOr<std::unique_ptr<Vm>> Vm::Boot(const Image& image, const VmConfig& config) {
  Descriptors ours;  // all but the channel's near end, which the machine keeps
  for (const VmNic& nic : config.nics) {
    auto tap = OpenTap(nic);
    if (!tap.ok()) return tap.status();
    ours.fds.push_back(*tap);
  }
  std::vector<int> taps = ours.fds;
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets) != 0) return absl::ErrnoToStatus(errno, "socketpair");
  ours.fds.push_back(sockets[1]);
  ChildOptions options;
  options.argv = QemuArguments(image, config, sockets[1], taps);
  options.log = config.log_dir.empty() ? "" : absl::StrCat(config.log_dir, "/", config.name, ".qemu");
  options.keep_fds = ours.fds;
  auto qemu = ChildProcess::Start(std::move(options));
  if (!qemu.ok()) {
    close(sockets[0]);
    return qemu.status();
  }
  return std::unique_ptr<Vm>(new Vm(config, *std::move(qemu), sockets[0]));
}

Vm::Vm(VmConfig config, std::unique_ptr<ChildProcess> qemu, int channel_fd)
    : config_(std::move(config)), qemu_(std::move(qemu)), channel_(channel_fd) {}

absl::Status Vm::WaitReady(absl::Duration timeout) {
  absl::Status status = channel_.WaitReady(timeout);
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrFormat("virtual machine %s did not come up (QEMU %s): %s; see %s/%s.*",
                                                     config_.name, qemu_->running() ? "runs" : "has ended",
                                                     status.message(), config_.log_dir, config_.name));
}

absl::StatusOr<CommandResult> Vm::Exec(const std::string& line, absl::Duration timeout, const std::string& input) {
  return channel_.Exec(line, timeout, input);
}

absl::StatusOr<std::string> Vm::Run(const std::string& line, absl::Duration timeout) {
  auto result = channel_.Exec(line, timeout);
  if (!result.ok()) return result.status();
  if (result->exit_code == 0) return result->output;
  return absl::FailedPreconditionError(
      absl::StrFormat("%s: `%s` ended with %d: %s", config_.name, line, result->exit_code, result->output));
}

absl::StatusOr<std::unique_ptr<Command>> Vm::Start(const std::string& line) { return channel_.Start(line); }

absl::Status Vm::Put(const std::string& content, const std::string& guest_path, int mode) {
  std::string line = absl::StrFormat("mkdir -p \"$(dirname '%s')\" && cat >'%s' && chmod %o '%s'", guest_path,
                                     guest_path, mode, guest_path);
  auto result = channel_.Exec(line, absl::Seconds(60), content);
  if (!result.ok()) return result.status();
  if (result->exit_code != 0) return absl::InternalError(absl::StrFormat("%s: %s", guest_path, result->output));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Vm::Get(const std::string& guest_path) {
  return Run(absl::StrFormat("cat '%s'", guest_path), absl::Seconds(60));
}

}  // namespace cw::vm
