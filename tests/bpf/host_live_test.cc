// SPDX-License-Identifier: Apache-2.0
//
// What the doctor learns from a running kernel: programs of other owners, real time, clock.
#include "userspace/host/live.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <net/if.h>
#include <sched.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <thread>

#include "maps/names.h"
#include "tests/bpf/veth_rig.h"

namespace cw::host {
namespace {

// "r0 = verdict; exit" of this type and name.
int Load(bpf_prog_type type, const char* name, int verdict) {
  const bpf_insn code[] = {
      {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_0, .src_reg = 0, .off = 0, .imm = verdict},
      {.code = BPF_JMP | BPF_EXIT, .dst_reg = 0, .src_reg = 0, .off = 0, .imm = 0}};
  const int fd = bpf_prog_load(type, name, "GPL", code, 2, nullptr);
  EXPECT_GE(fd, 0) << name;
  return fd;
}

void AttachTc(int ifindex, bpf_tc_attach_point point, int fd, bool make_hook) {
  LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = ifindex, .attach_point = point);
  if (make_hook) {
    ASSERT_EQ(bpf_tc_hook_create(&hook), 0);
  }
  LIBBPF_OPTS(bpf_tc_opts, options, .prog_fd = fd);
  ASSERT_EQ(bpf_tc_attach(&hook, &options), 0);
}

std::map<std::string, AttachedProgram> ByHook(KernelProbe& probe) {
  std::map<std::string, AttachedProgram> by_hook;
  absl::StatusOr<std::vector<AttachedProgram>> programs = probe.Programs(test::VethRig::kDevice);
  EXPECT_TRUE(programs.ok()) << programs.status();
  if (!programs.ok()) return by_hook;
  for (const AttachedProgram& program : *programs) by_hook[program.hook + " " + program.name] = program;
  EXPECT_EQ(by_hook.size(), programs->size());
  return by_hook;
}

TEST(KernelProbe, NamesWhatIsAttachedAndWhoseItIs) {
  const test::VethRig rig;
  rig.InNear([] {
    KernelProbe probe;
    EXPECT_TRUE(ByHook(probe).empty());

    const auto ifindex = static_cast<int>(if_nametoindex(test::VethRig::kDevice));
    const int xdp = Load(BPF_PROG_TYPE_XDP, "foreign_xdp", 2);
    const int other = Load(BPF_PROG_TYPE_SCHED_CLS, "foreign_tc", -1);
    const int ours = Load(BPF_PROG_TYPE_SCHED_CLS, CW_PROG_TC, -1);
    ASSERT_EQ(bpf_xdp_attach(ifindex, xdp, 1u << 1 /* XDP_FLAGS_SKB_MODE */, nullptr), 0);
    AttachTc(ifindex, BPF_TC_INGRESS, other, true);
    AttachTc(ifindex, BPF_TC_EGRESS, other, false);
    AttachTc(ifindex, BPF_TC_EGRESS, ours, false);
    for (const int fd : {xdp, other, ours}) close(fd);

    std::map<std::string, AttachedProgram> programs = ByHook(probe);
    ASSERT_EQ(programs.size(), 4u);
    EXPECT_EQ(programs.count("xdp generic foreign_xdp"), 1u);
    EXPECT_EQ(programs.count("tc ingress foreign_tc"), 1u);
    EXPECT_FALSE(programs["tc egress foreign_tc"].ours);
    EXPECT_TRUE(programs["tc egress " CW_PROG_TC].ours);
    EXPECT_NE(programs["tc egress " CW_PROG_TC].id, 0u);
  });
}

// CAP_SYS_ADMIN is not among the service's rights, and programs cannot be opened by their numbers without it.
void WithoutSysAdmin(const std::function<void()>& run) {
  std::thread([&] {
    __user_cap_header_struct head{_LINUX_CAPABILITY_VERSION_3, 0};
    __user_cap_data_struct data[2] = {};
    ASSERT_EQ(syscall(SYS_capget, &head, data), 0);
    data[0].effective &= ~(1u << CAP_SYS_ADMIN);
    ASSERT_EQ(syscall(SYS_capset, &head, data), 0);
    run();
  }).join();
}

TEST(KernelProbe, WithoutTheRightToOpenProgramsOursAreKnownByTheirPins) {
  const test::VethRig rig;
  rig.InNear([] {
    const auto ifindex = static_cast<int>(if_nametoindex(test::VethRig::kDevice));
    const std::string root = "/sys/fs/bpf/cw-host-live-" + std::to_string(getpid());
    const std::string folder = root + "/default";
    ASSERT_EQ(mkdir(root.c_str(), 0700), 0);
    ASSERT_EQ(mkdir(folder.c_str(), 0700), 0);
    const int xdp = Load(BPF_PROG_TYPE_XDP, CW_PROG_XDP, 2), tc = Load(BPF_PROG_TYPE_SCHED_CLS, CW_PROG_TC, -1);
    const int other = Load(BPF_PROG_TYPE_SCHED_CLS, "foreign_tc", -1);
    LIBBPF_OPTS(bpf_link_create_opts, options, .flags = 1u << 1 /* XDP_FLAGS_SKB_MODE */);
    const int link = bpf_link_create(xdp, ifindex, BPF_XDP, &options);
    ASSERT_GE(link, 0);
    EXPECT_EQ(bpf_obj_pin(link, (folder + "/xdp_7").c_str()), 0);
    EXPECT_EQ(bpf_obj_pin(tc, (folder + "/" CW_PROG_TC).c_str()), 0);
    AttachTc(ifindex, BPF_TC_EGRESS, tc, true);
    AttachTc(ifindex, BPF_TC_EGRESS, other, false);
    for (const int fd : {xdp, tc, other, link}) close(fd);
    WithoutSysAdmin([&] {
      const auto ours = [](KernelProbe probe) {
        int count = 0;
        const std::vector<AttachedProgram> programs = probe.Programs(test::VethRig::kDevice).value();
        for (const AttachedProgram& program : programs) count += program.ours ? 1 : 0;
        return count;
      };
      EXPECT_EQ(ours(KernelProbe(root)), 2) << "and the foreign one is not";
      EXPECT_EQ(ours(KernelProbe(root + "-nothing")), 1) << "tc tells a name, XDP none";
    });
    std::filesystem::remove_all(root);
  });
}

// /sys is the first namespace's; the facts have to be those of the namespace that asks.
TEST(KernelProbe, InterfacesAreThoseOfTheNamespaceThatAsks) {
  const test::VethRig rig;
  rig.InNear([] {
    KernelProbe probe;
    const std::string device = test::VethRig::kDevice;
    ASSERT_EQ(std::system(("ip link set " + device + " mtu 1999").c_str()), 0);
    absl::StatusOr<std::vector<Interface>> interfaces = probe.Interfaces();
    ASSERT_TRUE(interfaces.ok()) << interfaces.status();
    const auto find = [&] {
      return std::find_if(interfaces->begin(), interfaces->end(), [&](const Interface& i) { return i.name == device; });
    };
    ASSERT_NE(find(), interfaces->end());
    EXPECT_EQ(find()->mtu, 1999);
    EXPECT_EQ(find()->state, "up");
    EXPECT_FALSE(find()->on_bus);
    ASSERT_EQ(std::system(("ip link set " + device + " down").c_str()), 0);
    interfaces = probe.Interfaces();
    ASSERT_TRUE(interfaces.ok()) << interfaces.status();
    ASSERT_NE(find(), interfaces->end());
    EXPECT_EQ(find()->state, "down");
    absl::StatusOr<std::vector<RdmaPort>> ports = probe.RdmaPorts();
    ASSERT_TRUE(ports.ok()) << ports.status();
    EXPECT_TRUE(std::none_of(ports->begin(), ports->end(), [&](const RdmaPort& port) { return port.nic == device; }));
  });
}

TEST(KernelProbe, MissingDevice) {
  KernelProbe probe;
  EXPECT_EQ(probe.Programs("no-such-nic").status().code(), absl::StatusCode::kNotFound);
}

TEST(KernelProbe, AskingForRealTimeLeavesTheCallerAsItIs) {
  KernelProbe probe;
  const int before = sched_getscheduler(0);
  (void)probe.Realtime();
  EXPECT_EQ(sched_getscheduler(0), before);
  absl::StatusOr<ClockDiscipline> clock = probe.Clock();
  ASSERT_TRUE(clock.ok()) << clock.status();
  EXPECT_GE(clock->max_error_us, 0);
}

}  // namespace
}  // namespace cw::host
