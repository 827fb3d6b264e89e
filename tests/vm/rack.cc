// SPDX-License-Identifier: Apache-2.0
#include "tests/vm/rack.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/vm/host_command.h"
#include "userspace/lab/fabric_layout.h"

namespace cw::vm {

Rack::~Rack() {
  if (shared_fd_ >= 0) close(shared_fd_);
}

std::string Rack::FabricAddress(int i) { return absl::StrCat("10.0.", i, ".100"); }
std::string Rack::FabricAddress6(int i) { return lab::Address6(FabricAddress(i)); }
std::string Rack::SecondAddress(int i) { return absl::StrCat("10.0.", i, ".101"); }
std::string Rack::MgmtAddress(int i) { return absl::StrCat("192.168.77.", 100 + i); }

// Its ports of the switches, and what it boots with.
absl::Status Rack::Plug(int i) {
  std::string tap = absl::StrCat("vm", i), mgmt = absl::StrCat("vmm", i);
  auto port = fabric_->AddTapPort(i, tap, FabricAddress(i));
  if (!port.ok()) return port.status();
  ports_[static_cast<size_t>(i)] = *port;
  absl::Status status = fabric_->AddMgmtTap(mgmt);
  if (!status.ok()) return status;

  VmConfig& config = configs_[static_cast<size_t>(i)];
  config.memory_mib = options_.memory_mib;
  config.name = tap;
  config.log_dir = options_.log_dir;
  config.nics = {
      {.tap = tap,
       .netns = fabric_->LeafNetns(i),
       .address = FabricAddress(i) + "/24",
       .gateway = absl::StrCat("10.0.", i, ".1"),
       .mtu = fabric_->spec().mtu},
      {.tap = mgmt, .netns = fabric_->MgmtNetns(), .address = MgmtAddress(i) + "/24", .gateway = "", .mtu = 1500}};
  if (options_.second_nic) {
    const std::string second = absl::StrCat("vms", i);
    auto second_port = fabric_->AddTapPort(i, second, SecondAddress(i));
    if (!second_port.ok()) return second_port.status();
    second_ports_[static_cast<size_t>(i)] = *second_port;
    config.nics.push_back({.tap = second,
                           .netns = fabric_->LeafNetns(i),
                           .address = SecondAddress(i) + "/32",
                           .gateway = "",
                           .mtu = fabric_->spec().mtu});
  }
  if (shared_fd_ >= 0) config.shared_memory = absl::StrCat("/proc/", getpid(), "/fd/", shared_fd_);
  return absl::OkStatus();
}

absl::Status Rack::Boot(int i) {
  auto machine = Vm::Boot(image_, configs_[static_cast<size_t>(i)]);
  if (!machine.ok()) return machine.status();
  absl::Status status = fabric_->RecordProcess((*machine)->qemu_pid(), "vm");
  machines_[static_cast<size_t>(i)] = *std::move(machine);
  return status;
}

absl::Status Rack::AwaitMachine(int i) {
  absl::Status status = machine(i).WaitReady(options_.boot_timeout);
  if (status.ok() && options_.second_nic) status = RouteSecondNic(i);
  if (status.ok() && options_.ipv6) status = GiveAddress6(i);
  return status;
}

absl::Status Rack::Restart(const std::vector<int>& machines) {
  for (const int i : machines) {
    fabric_->ForgetProcess(machine(i).qemu_pid());
    machines_[static_cast<size_t>(i)].reset();
  }
  absl::Status status;
  for (const int i : machines) status.Update(Boot(i));
  for (const int i : machines) {
    if (status.ok()) status = AwaitMachine(i);
  }
  return status;
}

// What is sent from its address, or told to leave by it, does; all else goes by eth0.
absl::Status Rack::RouteSecondNic(int i) {
  const std::string gateway = absl::StrCat("10.0.", i, ".1");
  return machine(i)
      .Run(absl::StrCat("ip route add ", gateway, " dev eth2 scope link metric 100 && ",
                        "ip route add 10.0.0.0/15 via ", gateway, " dev eth2 onlink metric 100 && ",
                        "ip route add 10.0.0.0/15 via ", gateway, " dev eth2 onlink table 100 && ", "ip rule add from ",
                        SecondAddress(i), " table 100"))
      .status();
}

absl::Status Rack::GiveAddress6(int i) {
  return machine(i)
      .Run(absl::StrCat("ip -6 addr add ", FabricAddress6(i),
                        "/128 dev eth0 nodad && ip -6 route add fd00::/16 via fe80::1 ", "dev eth0 src ",
                        FabricAddress6(i)))
      .status();
}

// A veth leaves each packet to the processor that sent it, so a flow whose sender moves to another processor can be
// overtaken by itself: seen as sequence errors without a lost packet in two of ten runs. With receive packet steering
// each flow has one processor per port.
absl::Status Rack::KeepFlowsInOrder() {
  long processors = std::clamp(sysconf(_SC_NPROCESSORS_ONLN), 1L, 32L);
  std::string script = absl::StrFormat("for f in /sys/class/net/*/queues/rx-*/rps_cpus; do echo %x >$f; done",
                                       (uint64_t{1} << processors) - 1);
  std::vector<std::string> switches = {fabric_->LeafNetns(0), fabric_->LeafNetns(1)};
  for (int spine = 0; spine < fabric_->spec().spines; spine++) switches.push_back(fabric_->SpineNetns(spine));
  for (const std::string& path : switches) {
    // `ip netns exec` mounts the namespace's own /sys.
    std::string name = std::filesystem::path(path).filename();
    int status = RunHostCommand({"ip", "netns", "exec", name, "sh", "-c", script});
    if (status != 0) return absl::InternalError(absl::StrCat("receive packet steering in ", name, ": ", status));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::map<uint32_t, int>> Rack::SpinesByQpn() const {
  auto flows = fabric_->Flows();
  if (!flows.ok()) return flows.status();
  std::map<uint32_t, int> spines;
  std::map<uint32_t, int64_t> newest_ns;
  for (const lab::FlowCounters& flow : *flows) {
    bool up = flow.link.tier == lab::LinkDirection::Tier::kSpine && flow.link.toward == lab::LinkDirection::Toward::kUp;
    if (!up || flow.probe || (flow.source != FabricAddress(0) && flow.source != FabricAddress6(0)) ||
        flow.last_ns <= newest_ns[flow.dest_qpn])
      continue;
    newest_ns[flow.dest_qpn] = flow.last_ns;
    spines[flow.dest_qpn] = flow.link.spine;
  }
  return spines;
}

absl::StatusOr<std::unique_ptr<Rack>> Rack::Up(const RackOptions& options) {
  std::error_code ignored;  // Boot says it better when the folder is missing
  if (!options.log_dir.empty()) std::filesystem::create_directories(options.log_dir, ignored);
  auto image = Image::Build(options.image);
  if (!image.ok()) return image.status();
  std::unique_ptr<Rack> rack(new Rack(options, *std::move(image)));
  if (options.shared_memory) {
    // Without a name, so that a killed run leaves nothing behind.
    rack->shared_fd_ = memfd_create("shared", MFD_CLOEXEC);
    if (rack->shared_fd_ < 0 || ftruncate(rack->shared_fd_, kSharedMemoryBytes) != 0)
      return absl::ErrnoToStatus(errno, "memory for both machines");
  }

  lab::FabricSpec spec;
  spec.lab = options.lab;
  spec.spines = options.spines;
  spec.link_mbps = options.link_mbps;
  spec.queue_bytes = options.queue_bytes;
  spec.ipv6 = options.ipv6;
  auto fabric = lab::Fabric::Up(spec);
  if (!fabric.ok()) return fabric.status();
  rack->fabric_ = *std::move(fabric);

  absl::Status ordered = rack->KeepFlowsInOrder();
  if (!ordered.ok()) return ordered;

  for (int i = 0; i < 2; i++) {
    absl::Status status = rack->Plug(i);
    if (status.ok()) status = rack->Boot(i);
    if (!status.ok()) return status;
  }
  for (int i = 0; i < 2; i++) {
    absl::Status status = rack->AwaitMachine(i);
    if (!status.ok()) return status;
  }
  return rack;
}

}  // namespace cw::vm
