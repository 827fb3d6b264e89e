// SPDX-License-Identifier: Apache-2.0
// A virtual machine with real soft-RoCE (rdma_rxe) on a tap of the lab's fabric: QEMU's emulated CPU, so it needs no
// hardware support, and no millisecond bound may be asked of it.
//
//   auto image = Image::Build({.files = {{agent, "/usr/bin/cwagentd"}}});
//   auto vm = Vm::Boot(*image, {.name = "a", .nics = {{.tap = "vma", .netns = "/run/netns/leaf0", ...}}});
//   (*vm)->WaitReady(absl::Seconds(60));
//   auto result = (*vm)->Exec("rdma link show", absl::Seconds(5));
//
// Thread rule: a Vm may be used from any thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tests/vm/channel.h"
#include "tests/vm/child.h"
#include "tests/vm/image.h"

namespace cw::vm {

constexpr int kSharedMemoryBytes = 1 << 20;

struct VmNic {
  std::string tap;      // an existing tap
  std::string netns;    // path of the namespace that holds it, for example /run/netns/leaf0; empty: ours
  std::string address;  // "10.0.1.2/24"
  std::string gateway;  // default route; empty: none
  int mtu = 4500;       // 4096-byte RoCE MTU needs 4158 and more; the tap and every switch port must carry it too
};

struct VmConfig {
  std::string name;                 // for logs, and the machine's host name
  std::string netns;                // path of the namespace that holds the taps; empty: ours
  std::vector<VmNic> nics;          // eth0, eth1, ... in this order
  std::string rxe_device = "eth0";  // NIC under rxe0; empty: no soft-RoCE
  int memory_mib = 768;
  std::string root;           // folder of the image with a whole system, whose init is started; empty: the rig's own
  std::string shared_memory;  // a file of the host that the machine sees as BAR 2 of an ivshmem device; empty: none
  std::string log_dir;        // gets NAME.console and NAME.qemu; empty: no logs
};

class Vm {
 public:
  // Starts the machine; it is usable when WaitReady has returned. The image must live until then.
  static absl::StatusOr<std::unique_ptr<Vm>> Boot(const Image& image, const VmConfig& config);
  // Kills QEMU. (It also dies with this process.)
  ~Vm() = default;

  absl::Status WaitReady(absl::Duration timeout);

  // Runs a shell line to its end. DeadlineExceeded: it was killed.
  absl::StatusOr<CommandResult> Exec(const std::string& line, absl::Duration timeout, const std::string& input = "");
  // As Exec; an exit code other than 0 is an error that tells the output.
  absl::StatusOr<std::string> Run(const std::string& line, absl::Duration timeout = absl::Seconds(30));
  // Runs in the background. Commands run at the same time without mixing their output.
  absl::StatusOr<std::unique_ptr<Command>> Start(const std::string& line);

  absl::Status Put(const std::string& content, const std::string& guest_path, int mode = 0644);
  absl::StatusOr<std::string> Get(const std::string& guest_path);

  const std::string& name() const { return config_.name; }
  pid_t qemu_pid() const { return qemu_->pid(); }

 private:
  Vm(VmConfig config, std::unique_ptr<ChildProcess> qemu, int channel_fd);

  VmConfig config_;
  std::unique_ptr<ChildProcess> qemu_;
  Channel channel_;  // after qemu_: commands end before the machine does
};

// The QEMU command line of `config`; descriptors of the command channel's socket and of each NIC's tap. Pure.
std::vector<std::string> QemuArguments(const Image& image, const VmConfig& config, int channel_fd,
                                       const std::vector<int>& tap_fds);

}  // namespace cw::vm
