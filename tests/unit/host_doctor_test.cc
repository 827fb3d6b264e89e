// SPDX-License-Identifier: Apache-2.0
//
// The doctor's judgement over made-up file trees and a made-up kernel.
#include "userspace/host/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <linux/pkt_cls.h>
#include <linux/rtnetlink.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>

#include "userspace/dataplane/tc_dump.h"
#include "userspace/host/kernel_checks.h"
#include "userspace/host/nic_checks.h"

namespace cw::host {
namespace {

namespace fs = std::filesystem;
using Result = Check::Result;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Doctor : public ::testing::Test {
 protected:
  Doctor() {
    char name[] = "/tmp/cw-doctor-XXXXXX";
    folder_ = mkdtemp(name);
    roots_ = {folder_ + "/proc", folder_ + "/sys"};
  }
  ~Doctor() override { fs::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path full = folder_ + "/" + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text;
  }

  void AddNic(const std::string& name, int mtu, const std::string& state = "up", bool on_bus = false) {
    std::erase_if(interfaces_, [&](const Interface& i) { return i.name == name; });
    interfaces_.push_back({name, state, mtu, on_bus});
    Write("proc/sys/net/ipv4/conf/" + name + "/rp_filter", "0\n");
  }

  void AddRdma(const std::string& name, const std::string& nic, const std::string& driver) {
    ports_.push_back({name, nic});
    const std::string device = "sys/class/infiniband/" + name;
    Write(device + "/node_type", "1: CA\n");
    fs::create_directories(folder_ + "/" + device + "/device");
    fs::create_symlink("../../../../bus/pci/drivers/" + driver, folder_ + "/" + device + "/device/driver");
  }

  std::string folder_;
  Roots roots_;
  std::vector<Interface> interfaces_;
  std::vector<RdmaPort> ports_;
};

TEST_F(Doctor, Btf) {
  EXPECT_EQ(CheckBtf(roots_).result, Result::kFail);
  Write("sys/kernel/btf/vmlinux", std::string(4096, 'x'));
  EXPECT_EQ(CheckBtf(roots_).result, Result::kOk);
  EXPECT_EQ(CheckBtf(roots_).seen, "4 KiB");
}

TEST_F(Doctor, BpffsIsTheLastMountAtItsPoint) {
  EXPECT_EQ(CheckBpffs(roots_).result, Result::kUnknown);
  Write("proc/self/mounts", "sysfs /sys sysfs rw 0 0\nbpf /elsewhere bpf rw 0 0\n");
  EXPECT_EQ(CheckBpffs(roots_).result, Result::kFail);
  EXPECT_EQ(CheckBpffs(roots_).todo, "mount -t bpf bpf /sys/fs/bpf");
  Write("proc/self/mounts", "sysfs /sys sysfs rw 0 0\nnone /sys/fs/bpf bpf rw,mode=700 0 0\n");
  EXPECT_EQ(CheckBpffs(roots_).result, Result::kOk);
  Write("proc/self/mounts", "none /sys/fs/bpf bpf rw 0 0\nnone /sys/fs/bpf tmpfs rw 0 0\n");
  EXPECT_EQ(CheckBpffs(roots_).result, Result::kFail);
  EXPECT_THAT(CheckBpffs(roots_).seen, HasSubstr("tmpfs"));
  // As the service sees it: an empty folder with its own in it.
  Write("proc/self/mounts",
        "none /sys/fs/bpf bpf rw 0 0\ntmpfs /sys/fs/bpf tmpfs rw 0 0\nnone /sys/fs/bpf/cwfabric bpf rw 0 0\n");
  EXPECT_EQ(CheckBpffs(roots_).result, Result::kOk);
  EXPECT_EQ(CheckBpffs(roots_).seen, "mounted at /sys/fs/bpf/cwfabric");
}

TEST_F(Doctor, Capabilities) {
  EXPECT_EQ(CheckCapabilities(roots_).result, Result::kUnknown);
  Write("proc/self/status", "Name:\tx\nCapEff:\t000001ffffffffff\n");
  EXPECT_EQ(CheckCapabilities(roots_).result, Result::kOk);
  Write("proc/self/status", "CapEff:\t0000000000000000\n");
  EXPECT_EQ(CheckCapabilities(roots_).seen, "missing CAP_BPF, CAP_PERFMON, CAP_NET_ADMIN, CAP_NET_RAW");
  Write("proc/self/status", "CapEff:\t000000c000003000\n");  // 39, 38, 13, 12
  EXPECT_EQ(CheckCapabilities(roots_).result, Result::kOk);
  Write("proc/self/status", "CapEff:\t0000000000201000\n");  // 21 (SYS_ADMIN), 12
  EXPECT_EQ(CheckCapabilities(roots_).seen, "missing CAP_NET_RAW");
  Write("proc/self/status", "CapEff:\t0000008000003000\n");  // without PERFMON
  EXPECT_EQ(CheckCapabilities(roots_).seen, "missing CAP_PERFMON");
  EXPECT_EQ(CheckCapabilities(roots_, /*agent_runs=*/true).result, Result::kOk) << "it needed that to load alone";
  Write("proc/self/status", "CapEff:\t0000008000002000\n");
  EXPECT_EQ(CheckCapabilities(roots_, /*agent_runs=*/true).seen, "missing CAP_NET_ADMIN");
}

TEST(Certificates, AreJudgedByTheirTimeAndTheirFiles) {
  const absl::Time now = absl::FromUnixSeconds(1'800'000'000);  // 2027-01-15
  const CertificateFacts good = {.problem = "",
                                 .files = {{.path = "/x/h.crt", .secret = false, .mode = 0644, .owner = 0},
                                           {.path = "/x/h.key", .secret = true, .mode = 0600, .owner = 900}},
                                 .host_until = now + absl::Hours(24 * 30),
                                 .authority_until = now + absl::Hours(24 * 300),
                                 .agent_uid = 900};
  const auto judge = [&](auto change) {
    CertificateFacts facts = good;
    change(facts);
    return CheckCertificates(facts, now);
  };
  EXPECT_EQ(judge([](CertificateFacts&) {}).seen, "the host's until 2027-02-14, the authority until 2027-11-11");
  EXPECT_EQ(judge([](CertificateFacts&) {}).result, Result::kOk);
  const Check soon = judge([&](CertificateFacts& f) { f.host_until = now + absl::Hours(24 * 13); });
  EXPECT_EQ(soon.result, Result::kWarn);
  EXPECT_EQ(soon.seen, "the host's certificate is over on 2027-01-28");
  const Check over = judge([&](CertificateFacts& f) { f.authority_until = now; });
  EXPECT_EQ(over.result, Result::kFail);
  EXPECT_EQ(over.seen, "the authority was over on 2027-01-15");
  EXPECT_EQ(judge([](CertificateFacts& f) { f.problem = "cannot read /x/h.crt"; }).result, Result::kFail);
  const Check open = judge([](CertificateFacts& f) { f.files[1].mode = 0640; });
  EXPECT_EQ(open.result, Result::kFail);
  EXPECT_EQ(open.seen, "the key /x/h.key has mode 0640 and owner 900");
  EXPECT_EQ(judge([](CertificateFacts& f) { f.files[1].owner = 1000; }).result, Result::kFail);
  EXPECT_EQ(judge([](CertificateFacts& f) { f.files[0].mode = 0664; }).result, Result::kWarn);
  EXPECT_EQ(judge([](CertificateFacts& f) { f.files[0].owner = 1000; }).result, Result::kWarn);
}

TEST_F(Doctor, Jit) {
  EXPECT_EQ(CheckJit(roots_).result, Result::kUnknown);
  const std::map<std::string, Result> cases = {{"0\n", Result::kFail}, {"1\n", Result::kOk}, {"2\n", Result::kWarn}};
  for (const auto& [text, result] : cases) {
    Write("proc/sys/net/core/bpf_jit_enable", text);
    EXPECT_EQ(CheckJit(roots_).result, result) << text;
  }
}

TEST_F(Doctor, Clocksource) {
  const std::string folder = "sys/devices/system/clocksource/clocksource0/";
  EXPECT_EQ(CheckClocksource(roots_).result, Result::kUnknown);
  Write(folder + "current_clocksource", "tsc\n");
  EXPECT_EQ(CheckClocksource(roots_).result, Result::kOk);
  Write(folder + "current_clocksource", "hpet\n");
  Write(folder + "available_clocksource", "tsc hpet acpi_pm \n");
  EXPECT_EQ(CheckClocksource(roots_).result, Result::kWarn);
  EXPECT_THAT(CheckClocksource(roots_).todo, HasSubstr("echo tsc"));
  Write(folder + "available_clocksource", "hpet acpi_pm \n");
  EXPECT_THAT(CheckClocksource(roots_).todo, HasSubstr("no faster one"));
}

TEST_F(Doctor, RoceMtuFollowsTheKernelsRule) {
  EXPECT_EQ(RoceMtu(1500), 1024);
  EXPECT_EQ(RoceMtu(4191), 2048);
  EXPECT_EQ(RoceMtu(4192), 4096);
  EXPECT_EQ(RoceMtu(9000), 4096);
  EXPECT_EQ(RoceMtu(351), 0);
  EXPECT_EQ(RoceMtu(352), 256);
}

TEST_F(Doctor, Mtu) {
  EXPECT_EQ(CheckMtu({"eth0", "up", 4500, true}).result, Result::kOk);
  EXPECT_EQ(CheckMtu({"eth0", "up", 1500, true}).result, Result::kWarn);
  EXPECT_EQ(CheckMtu({"eth0", "up", 1500, true}).seen, "1500: carries a RoCE MTU of 1024");
  EXPECT_EQ(CheckMtu({"eth0", "up", 100, true}).result, Result::kFail);
}

TEST_F(Doctor, RdmaDevicesTellWhoCarriesRoce) {
  AddRdma("mlx5_0", "eth0", "mlx5_core");
  AddRdma("rxe0", "eth1", "mlx5_core");  // soft-RoCE upon a NIC that could do it in hardware
  Write("sys/class/infiniband/rxe0/parent", "eth1\n");
  ports_.push_back({"siw0", "eth2"});
  Write("sys/class/infiniband/siw0/node_type", "4: RNIC\n");
  AddRdma("elsewhere", "eth0", "mlx5_core");  // /sys may show more than this namespace has
  ports_.pop_back();
  const std::vector<RdmaDevice> devices = RdmaDevices(roots_, ports_);
  ASSERT_EQ(devices.size(), 3u);
  EXPECT_TRUE(devices[0].offloads());
  EXPECT_EQ(devices[0].driver, "mlx5_core");
  EXPECT_THAT(devices[0].nics, ElementsAre("eth0"));
  EXPECT_TRUE(devices[1].software);
  EXPECT_FALSE(devices[1].offloads());
  EXPECT_FALSE(devices[2].roce);

  EXPECT_EQ(CheckOffload("eth0", devices).result, Result::kWarn);
  EXPECT_THAT(CheckOffload("eth0", devices).seen, HasSubstr("mlx5_0 (mlx5_core)"));
  EXPECT_EQ(CheckOffload("eth1", devices).result, Result::kOk);
  EXPECT_THAT(CheckOffload("eth1", devices).seen, HasSubstr("soft-RoCE"));
  EXPECT_THAT(CheckOffload("eth2", devices).seen, HasSubstr("no RDMA device"));
}

TEST_F(Doctor, CandidatesAreTheMostLikelyNics) {
  AddNic("lo", 65536);
  AddNic("veth0", 1500);
  const auto candidates = [&] { return CandidateNics(interfaces_, RdmaDevices(roots_, ports_)); };
  EXPECT_THAT(candidates(), ElementsAre("veth0"));
  AddNic("eth0", 1500, "up", /*on_bus=*/true);
  EXPECT_THAT(candidates(), ElementsAre("eth0"));
  AddRdma("rxe0", "veth0", "none");
  EXPECT_THAT(candidates(), ElementsAre("veth0"));
}

TEST_F(Doctor, RpFilterTakesTheStricterOfTwo) {
  EXPECT_EQ(CheckRpFilter(roots_, "eth0", 2).result, Result::kUnknown);
  AddNic("eth0", 1500);
  EXPECT_EQ(CheckRpFilter(roots_, "eth0", 2).result, Result::kOk);
  Write("proc/sys/net/ipv4/conf/all/rp_filter", "1\n");
  EXPECT_EQ(CheckRpFilter(roots_, "eth0", 2).result, Result::kWarn);
  EXPECT_EQ(CheckRpFilter(roots_, "eth0", 1).result, Result::kOk);
  Write("proc/sys/net/ipv4/conf/eth0/rp_filter", "2\n");
  EXPECT_EQ(CheckRpFilter(roots_, "eth0", 2).seen, "loose");
}

TEST_F(Doctor, OffloadsThatHidePacketsAreNamed) {
  Interface nic{.name = "eth0", .strips_vlan = true};
  EXPECT_EQ(CheckNicOffloads(nic).result, Result::kOk) << "no VLAN is on it";
  nic.vlans = {"eth0.100"};
  Check check = CheckNicOffloads(nic);
  EXPECT_EQ(check.result, Result::kWarn);
  EXPECT_THAT(check.seen, HasSubstr("eth0.100"));
  EXPECT_EQ(check.todo, "ethtool -K eth0 rxvlan off");
  nic.merges = true;
  EXPECT_EQ(CheckNicOffloads(nic).todo, "ethtool -K eth0 rxvlan off lro off");
}

TEST_F(Doctor, SaysWhetherAttachingStopsTheNic) {
  Interface nic{.name = "eth0", .driver = "veth"};
  EXPECT_EQ(CheckAttach(nic, false).result, Result::kOk);
  nic.driver = "bnxt_en";
  EXPECT_EQ(CheckAttach(nic, false).result, Result::kWarn);
  EXPECT_THAT(CheckAttach(nic, false).seen, HasSubstr("bnxt_xdp_set of Linux"));
  EXPECT_THAT(CheckAttach(nic, false).todo, HasSubstr("start and upgrade")) << "it does so at each exchange";
  EXPECT_EQ(CheckAttach(nic, true).result, Result::kOk) << "it is over";
}

TEST_F(Doctor, OfADriverThatNobodyReadNothingIsSaid) {
  const Interface nic{.name = "eth0", .driver = "newnic"};
  EXPECT_EQ(CheckAttach(nic, false).result, Result::kUnknown);
  EXPECT_THAT(CheckAttach(nic, false).seen, HasSubstr("whether newnic stops its queues"));
  EXPECT_EQ(CheckAttach(nic, true).result, Result::kOk);
}

TEST_F(Doctor, PacketsThatAreGatheredOrSentInOnePieceAreNamed) {
  Interface nic{.name = "eth0", .segments_udp = true, .gathers_udp = {"rx-gro-list"}};
  EXPECT_EQ(CheckNicOffloads(nic).result, Result::kOk) << "native XDP comes before the kernel gathers";
  EXPECT_THAT(CheckNicOffloads(nic).seen, HasSubstr("tx-udp-segmentation"));
  const Check generic = CheckNicOffloads(nic, /*generic=*/true);
  EXPECT_EQ(generic.result, Result::kWarn);
  EXPECT_EQ(generic.todo, "ethtool -K eth0 rx-gro-list off");
  const Check sent = CheckGsoFrames(7);
  EXPECT_EQ(sent.result, Result::kWarn);
  EXPECT_THAT(sent.seen, HasSubstr("7 frames to UDP 4791 left in one piece (GSO) since the counters began"));
  EXPECT_THAT(sent.todo, HasSubstr("UDP_SEGMENT"));
}

// The kernel under the test tells of its loopback.
TEST_F(Doctor, TheKernelTellsWhichFeaturesAreOn) {
  KernelProbe kernel;
  const absl::StatusOr<std::vector<Interface>> interfaces = kernel.Interfaces();
  ASSERT_TRUE(interfaces.ok()) << interfaces.status();
  const Interface* lo = FindInterface(*interfaces, "lo");
  ASSERT_NE(lo, nullptr);
  EXPECT_TRUE(lo->segments_udp) << "lo takes UDP in one piece since Linux 4.18";
}

class FakeKernel final : public LiveProbe {
 public:
  absl::StatusOr<std::vector<Interface>> Interfaces() override { return interfaces; }
  absl::StatusOr<std::vector<RdmaPort>> RdmaPorts() override { return ports; }
  absl::StatusOr<std::vector<AttachedProgram>> Programs(const std::string&) override { return programs; }
  absl::Status Realtime() override { return realtime; }
  absl::StatusOr<ClockDiscipline> Clock() override { return clock; }

  std::vector<Interface> interfaces;
  absl::StatusOr<std::vector<RdmaPort>> ports = std::vector<RdmaPort>();
  std::vector<AttachedProgram> programs;
  absl::Status realtime;
  ClockDiscipline clock = {true, 1500};
};

class WholeDoctor : public Doctor {
 protected:
  WholeDoctor() { AddNic("eth0", 4500); }

  std::map<std::string, Check> Examine() {
    kernel_.interfaces = interfaces_;
    if (kernel_.ports.ok()) kernel_.ports = ports_;
    std::map<std::string, Check> by_name;
    for (const Check& check : RunDoctor(roots_, kernel_, input_)) by_name[check.name] = check;
    return by_name;
  }

  FakeKernel kernel_;
  DoctorInput input_;
};

TEST_F(WholeDoctor, WithoutAnAgentSomeThingsAreUnknown) {
  std::map<std::string, Check> checks = Examine();
  EXPECT_EQ(checks["agent"].result, Result::kWarn);
  EXPECT_EQ(checks["xdp eth0"].result, Result::kUnknown);
  EXPECT_EQ(checks["fabric hashing"].result, Result::kUnknown);
  EXPECT_EQ(checks["fleet clock"].result, Result::kUnknown);
  EXPECT_EQ(checks["real time"].result, Result::kOk);
  EXPECT_EQ(checks["system clock"].result, Result::kOk);
}

TEST_F(WholeDoctor, TheAgentsFactsAreJudged) {
  input_.agent_runs = true;
  input_.nics = {{"eth0", "generic", "MTU too large for native"}, {"eth9", "none", ""}};
  input_.hashing = Hashing::kQpn;
  input_.clock_error_ns = 420;
  std::map<std::string, Check> checks = Examine();
  EXPECT_EQ(checks["agent"].result, Result::kOk);
  EXPECT_EQ(checks["xdp eth0"].result, Result::kWarn);
  EXPECT_EQ(checks["xdp eth0"].seen, "generic: MTU too large for native");
  EXPECT_EQ(checks["link eth9"].result, Result::kFail);
  EXPECT_EQ(checks.count("mtu eth9"), 0u);
  EXPECT_EQ(checks["fabric hashing"].result, Result::kWarn);
  EXPECT_EQ(checks["fleet clock"].seen, "likely error 0.42 µs");
  EXPECT_EQ(checks["real time"].result, Result::kWarn);  // it does not use it
  input_.nics[0] = {.name = "eth0", .ingress = "none", .note = "it offloads RoCE"};
  EXPECT_THAT(Examine()["xdp eth0"].todo, HasSubstr("nothing is measured"));
  input_.nics[0].probes = "probes by mlx5_0/qp0x11";
  EXPECT_EQ(Examine()["xdp eth0"].seen, "not attached: it offloads RoCE; probes by mlx5_0/qp0x11");
  EXPECT_THAT(Examine()["xdp eth0"].todo, HasSubstr("paths are measured"));
  input_.nics[0].renamed = "rail0 is now called eth0";
  EXPECT_EQ(Examine()["link eth0"].result, Result::kWarn);
  EXPECT_EQ(Examine()["link eth0"].seen, "rail0 is now called eth0");
  input_.nics[0].trouble = "address 10.0.0.1 is gone from eth0";
  EXPECT_EQ(Examine()["link eth0"].result, Result::kFail);
  EXPECT_EQ(Examine()["link eth0"].seen, "address 10.0.0.1 is gone from eth0");
  input_.nics[0].trouble = input_.nics[0].renamed = "";
  input_.nics[0].ingress = "native";
  input_.hashing = Hashing::kPorts;
  input_.prober_realtime = true;
  checks = Examine();
  EXPECT_EQ(checks["xdp eth0"].result, Result::kOk);
  EXPECT_EQ(checks["fabric hashing"].result, Result::kOk);
  EXPECT_EQ(checks["real time"].result, Result::kOk);
}

TEST_F(WholeDoctor, QueuePairsAreToldOrListed) {
  input_.agent_runs = true;
  EXPECT_EQ(Examine().count("queue pairs"), 0u) << "there is no RDMA device";
  AddRdma("mlx5_0", "eth0", "mlx5_core");
  kernel_.ports = ports_;
  EXPECT_EQ(Examine()["queue pairs"].result, Result::kOk);
  input_.no_qp_moments = "the types of the module ib_core are not there";
  EXPECT_EQ(Examine()["queue pairs"].result, Result::kWarn);
  EXPECT_THAT(Examine()["queue pairs"].seen, HasSubstr("lists every 2 s: the types of"));
  input_.agent_runs = false;
  EXPECT_EQ(Examine().count("queue pairs"), 0u);
  EXPECT_EQ(RdmaDriver(roots_, "mlx5_0"), "mlx5_core");
  EXPECT_EQ(RdmaDriver(roots_, "mlx5_7"), "");
  Write("sys/class/infiniband/rxe0/parent", "eth0\n");
  EXPECT_EQ(RdmaDriver(roots_, "rxe0"), "rdma_rxe");
}

TEST_F(WholeDoctor, OtherOwnersAreNamed) {
  kernel_.programs = {{"xdp native", "cw_xdp_ingress", 3, true}, {"tc egress", "cw_tc_egress", 4, true}};
  EXPECT_EQ(Examine()["programs eth0"].result, Result::kOk);
  kernel_.programs.push_back({"tc egress", "cil_to_netdev", 9, false});
  EXPECT_EQ(Examine()["programs eth0"].result, Result::kWarn);
  EXPECT_EQ(Examine()["programs eth0"].seen, "another owner's: tc egress \"cil_to_netdev\" (id 9)");
  kernel_.programs = {{"xdp native", "", 8, false}};
  EXPECT_EQ(Examine()["programs eth0"].result, Result::kUnknown) << "it could be anybody's";
  kernel_.programs = {{"xdp generic", "xdp_lb", 8, false}};
  EXPECT_EQ(Examine()["programs eth0"].result, Result::kFail);
}

TEST_F(WholeDoctor, RefusedRealTimeAndAnIdleClockAreWarnings) {
  kernel_.realtime = absl::PermissionDeniedError("SCHED_FIFO is refused");
  kernel_.clock.synchronised = false;
  std::map<std::string, Check> checks = Examine();
  EXPECT_EQ(checks["real time"].result, Result::kWarn);
  EXPECT_EQ(checks["system clock"].result, Result::kWarn);
}

TEST_F(WholeDoctor, RdmaThatCannotBeAskedForIsUnknown) {
  EXPECT_EQ(Examine()["rdma eth0"].result, Result::kOk);
  kernel_.ports = absl::InternalError("RDMA netlink: receive: no");
  EXPECT_EQ(Examine()["rdma eth0"].result, Result::kUnknown);
}

TEST_F(WholeDoctor, EveryComplaintTellsWhatToDo) {
  kernel_.programs = {{"xdp generic", "xdp_lb", 8, false}};
  kernel_.realtime = absl::PermissionDeniedError("no");
  kernel_.clock.synchronised = false;
  AddNic("eth0", 1500, "down");
  AddRdma("mlx5_0", "eth0", "mlx5_core");
  kernel_.interfaces = interfaces_;
  kernel_.ports = ports_;
  for (const Hashing hashing : {Hashing::kUnknown, Hashing::kQpn, Hashing::kTtl, Hashing::kSprayed}) {
    input_.hashing = hashing;
    input_.agent_runs = true;
    input_.nics = {{"eth0", "none", "offloads"}};
    for (const Check& check : RunDoctor(roots_, kernel_, input_)) {
      if (check.result == Result::kOk) continue;
      EXPECT_FALSE(check.todo.empty()) << check.name;
      EXPECT_FALSE(check.seen.empty()) << check.name;
    }
  }
  EXPECT_EQ(Worst(RunDoctor(roots_, kernel_, input_)), Result::kFail);
}

// A dump as the kernel sends it: one filter of kind bpf, then the end.
std::string Dump() {
  alignas(8) char buffer[256] = {};
  auto* message = reinterpret_cast<nlmsghdr*>(buffer);
  message->nlmsg_type = RTM_NEWTFILTER;
  size_t length = NLMSG_LENGTH(sizeof(tcmsg));
  auto add = [&](size_t at, unsigned short type, const void* data, size_t size) {
    auto* attribute = reinterpret_cast<rtattr*>(buffer + at);
    attribute->rta_type = type;
    attribute->rta_len = static_cast<unsigned short>(RTA_LENGTH(size));
    if (data != nullptr) std::memcpy(RTA_DATA(attribute), data, size);
    return at + RTA_ALIGN(attribute->rta_len);
  };
  length = add(length, TCA_KIND, "bpf", 4);
  const uint32_t id = 77;
  const size_t options = length;
  length = add(options + RTA_LENGTH(0), TCA_BPF_NAME, "foreign", 8);
  length = add(length, TCA_BPF_ID, &id, sizeof(id));
  add(options, TCA_OPTIONS, nullptr, length - options - RTA_LENGTH(0));
  message->nlmsg_len = static_cast<uint32_t>(length);
  auto* done = reinterpret_cast<nlmsghdr*>(buffer + NLMSG_ALIGN(length));
  done->nlmsg_type = NLMSG_DONE;
  done->nlmsg_len = NLMSG_LENGTH(4);
  return {buffer, NLMSG_ALIGN(length) + NLMSG_LENGTH(4)};
}

absl::StatusOr<bool> Parse(const std::string& text, std::vector<dataplane::TcProgram>& programs) {
  // On the heap at its exact size, so that a read behind the end is seen by the sanitizer.
  std::vector<char> bytes(text.begin(), text.end());
  return dataplane::ParseTcDump(bytes.data(), bytes.size(), programs);
}

TEST(TcDump, FindsBpfFilters) {
  std::vector<dataplane::TcProgram> programs;
  absl::StatusOr<bool> more = Parse(Dump(), programs);
  ASSERT_TRUE(more.ok());
  EXPECT_FALSE(*more);
  ASSERT_EQ(programs.size(), 1u);
  EXPECT_EQ(programs[0].name, "foreign");
  EXPECT_EQ(programs[0].id, 77u);
}

TEST(TcDump, SurvivesEveryTruncationAndEveryFlippedByte) {
  const std::string dump = Dump();
  for (size_t length = 0; length < dump.size(); ++length) {
    std::vector<dataplane::TcProgram> programs;
    (void)Parse(dump.substr(0, length), programs);
    EXPECT_LE(programs.size(), 1u);
  }
  for (size_t at = 0; at < dump.size(); ++at) {
    for (const char value : {'\0', '\1', '\x7f', '\xff'}) {
      std::string changed = dump;
      changed[at] = value;
      std::vector<dataplane::TcProgram> programs;
      (void)Parse(changed, programs);
      EXPECT_LE(programs.size(), 2u);
    }
  }
}

}  // namespace
}  // namespace cw::host
