// SPDX-License-Identifier: Apache-2.0
//
// RDMA devices read from made-up file trees that are laid out as the drivers lay them out. Facts of all of them: Linux,
// Documentation/ABI/stable/sysfs-class-infiniband and drivers/infiniband/core/sysfs.c; each device says where its own
// are from. None was copied from a machine.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/host/hw_counter_names.h"
#include "userspace/host/rdma_findings.h"
#include "userspace/host/rdma_tree.h"

namespace cw::host {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Level = RdmaFinding::Level;

constexpr char kV1[] = "IB/RoCE v1", kV2[] = "RoCE v2";

class Rdma : public ::testing::Test {
 protected:
  Rdma() {
    char name[] = "/tmp/cw-rdma-XXXXXX";
    folder_ = mkdtemp(name);
    roots_ = {folder_ + "/proc", folder_ + "/sys"};
  }
  ~Rdma() override { fs::remove_all(folder_); }

  void Write(const std::string& path, const std::string& text) {
    const fs::path full = roots_.sys + "/" + path;
    fs::create_directories(full.parent_path());
    std::ofstream(full) << text << "\n";
  }
  void Link(const std::string& path, const std::string& target) {
    const fs::path full = roots_.sys + "/" + path;
    fs::create_directories(full.parent_path());
    fs::remove(full);
    fs::create_symlink(target, full);
  }

  void Netdev(const std::string& name, int mtu, const std::string& state = "up") {
    Write("class/net/" + name + "/mtu", absl::StrCat(mtu));
    Write("class/net/" + name + "/operstate", state);
  }

  static std::string Port(const std::string& device, int port) {
    return absl::StrCat("class/infiniband/", device, "/ports/", port);
  }

  // The bus device's folder, to which /sys/class/infiniband/DEVICE/device leads.
  std::string BusDevice(const std::string& device, const std::string& bus, const std::string& driver) {
    const std::string folder = "devices/pci0000:00/" + bus;
    fs::create_directories(roots_.sys + "/" + folder);
    Link("class/infiniband/" + device + "/device", "../../../" + folder);
    Link(folder + "/driver", "../../../bus/pci/drivers/" + driver);
    Write(folder + "/numa_node", "1");
    return folder;
  }

  void Device(const std::string& name, const std::string& firmware, const std::string& guid) {
    const std::string folder = "class/infiniband/" + name;
    Write(folder + "/node_type", "1: CA");
    Write(folder + "/fw_ver", firmware);
    Write(folder + "/node_guid", guid);
    Write(folder + "/sys_image_guid", guid);
  }

  void AddPort(const std::string& device, int port, const std::string& rate, const std::string& state = "4: ACTIVE",
               const std::string& physical = "5: LinkUp") {
    Write(Port(device, port) + "/state", state);
    Write(Port(device, port) + "/phys_state", physical);
    Write(Port(device, port) + "/link_layer", "Ethernet");
    Write(Port(device, port) + "/rate", rate);
  }

  void AddGid(const std::string& device, int port, int index, const std::string& gid, const std::string& type,
              const std::string& netdev) {
    Write(absl::StrCat(Port(device, port), "/gids/", index), gid);
    Write(absl::StrCat(Port(device, port), "/gid_attrs/types/", index), type);
    Write(absl::StrCat(Port(device, port), "/gid_attrs/ndevs/", index), netdev);
  }
  static std::string V4(int a, int b, int c, int d) {
    return absl::StrFormat("0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x", a, b, c, d);
  }
  // As roce_gid_mgmt.c fills the table: link-local first, each address as v1 and as v2 where the device has both.
  void UsualGids(const std::string& device, int port, const std::string& netdev, int host, bool v1 = true) {
    int index = 0;
    for (const std::string& gid : {std::string("fe80:0000:0000:0000:966d:aeff:fea1:b2c0"), V4(10, 0, 0, host)}) {
      if (v1) AddGid(device, port, index++, gid, kV1, netdev);
      AddGid(device, port, index++, gid, kV2, netdev);
    }
    AddGid(device, port, index, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");  // an empty slot
  }

  // ConnectX-7: drivers/infiniband/hw/mlx5/main.c (hca_type "MT%d" of the PCI id 0x1021 = 4129, board_id the PSID,
  // firmware "%d.%d.%04d"), counters.c.
  void Mlx5(const std::string& name, const std::string& bus, const std::string& netdev, int host) {
    Device(name, "28.39.1002", "946d:ae03:00a1:b2c0");
    Write("class/infiniband/" + name + "/hca_type", "MT4129");
    Write("class/infiniband/" + name + "/board_id", "MT_0000000838");
    BusDevice(name, bus, "mlx5_core");
    AddPort(name, 1, "400 Gb/sec (4X NDR)");
    UsualGids(name, 1, netdev, host);
    Write(Port(name, 1) + "/hw_counters/out_of_sequence", "17");
    Write(Port(name, 1) + "/hw_counters/np_cnp_sent", "0");
    Write(Port(name, 1) + "/hw_counters/lifespan", "10");
    Netdev(netdev, 4500);
  }

  // mlx5 with both ports in a bond: mlx5_ib_stage_ib_reg_init names it mlx5_bond_%d, and its network device is the
  // bond's; Documentation/networking/bonding.rst for what is in bonding/.
  void Mlx5Bond() {
    Device("mlx5_bond_0", "16.35.2000", "b8ce:f603:0012:3456");
    Write("class/infiniband/mlx5_bond_0/hca_type", "MT4119");
    BusDevice("mlx5_bond_0", "0000:3b:00.0", "mlx5_core");
    AddPort("mlx5_bond_0", 1, "100 Gb/sec (4X EDR)");
    UsualGids("mlx5_bond_0", 1, "bond0", 20);
    Netdev("bond0", 9000);
    Write("class/net/bond0/bonding/mode", "802.3ad 4");
    Write("class/net/bond0/bonding/slaves", "ens1f0np0 ens1f1np1");
    Netdev("ens1f0np0", 9000);
    Netdev("ens1f1np1", 9000);
  }

  // Thor: drivers/infiniband/hw/bnxt_re/main.c (hca_type is the node description, firmware of four numbers, PCI driver
  // bnxt_en), hw_counters.c.
  void Bnxt() {
    Device("bnxt_re0", "227.0.133.0", "be97:e1ff:fe2a:bc10");
    Write("class/infiniband/bnxt_re0/hca_type", "BCM57504");
    BusDevice("bnxt_re0", "0000:41:00.0", "bnxt_en");
    AddPort("bnxt_re0", 1, "200 Gb/sec (4X HDR)");
    UsualGids("bnxt_re0", 1, "enp65s0", 30);
    Write(Port("bnxt_re0", 1) + "/hw_counters/seq_err_naks_rcvd", "5");
    Netdev("enp65s0", 4200);
  }

  // E810: drivers/infiniband/hw/irdma (irdma%d, firmware "%u.%u", neither hca_type nor board_id, the PCI driver is ice;
  // RoCE v2 alone, or iWARP with node type RNIC).
  void Irdma(bool iwarp) {
    Device("irdma0", "1.71", "b496:91ff:feab:cdef");
    if (iwarp) Write("class/infiniband/irdma0/node_type", "4: RNIC");
    BusDevice("irdma0", "0000:98:00.0", "ice");
    AddPort("irdma0", 1, "100 Gb/sec (4X EDR)");
    if (!iwarp) UsualGids("irdma0", 1, "ens5f0", 40, /*v1=*/false);
    Netdev("ens5f0", 4500);
  }

  // Soft-RoCE: drivers/infiniband/sw/rxe (attribute parent, no firmware, a made-up rate, RoCE v2 alone).
  void Rxe(int mtu) {
    Device("rxe0", "", "5054:00ff:fe12:3401");
    Write("class/infiniband/rxe0/parent", "eth0");
    BusDevice("rxe0", "virtio0", "virtio_net");
    AddPort("rxe0", 1, "2.5 Gb/sec (1X SDR)");
    UsualGids("rxe0", 1, "eth0", 10, /*v1=*/false);
    Write(Port("rxe0", 1) + "/hw_counters/sent_pkts", "1234");
    Netdev("eth0", mtu);
  }

  // ConnectX-3: drivers/infiniband/hw/mlx4/main.c (one function with two ports, told apart by dev_port; RoCE v1 alone
  // without MLX4_DEV_CAP_FLAG2_ROCE_V1_V2; firmware "%d.%d.%d").
  void Mlx4TwoPorts() {
    Device("mlx4_0", "2.42.5000", "f452:1403:0077:8890");
    Write("class/infiniband/mlx4_0/hca_type", "MT4099");
    Write("class/infiniband/mlx4_0/board_id", "MT_1090110023");
    const std::string bus = BusDevice("mlx4_0", "0000:05:00.0", "mlx4_core");
    Write(bus + "/net/ens2/dev_port", "0");
    Write(bus + "/net/ens2d1/dev_port", "1");
    AddPort("mlx4_0", 1, "40 Gb/sec (4X FDR10)");
    AddGid("mlx4_0", 1, 0, "fe80:0000:0000:0000:f652:14ff:fe77:8891", kV1, "ens2");
    AddGid("mlx4_0", 1, 1, V4(10, 0, 0, 50), kV1, "ens2");
    AddPort("mlx4_0", 2, "10 Gb/sec (1X FDR10)", "1: DOWN", "3: Disabled");
    Netdev("ens2", 1500);
    Netdev("ens2d1", 1500, "down");
  }

  RdmaTree Read() { return ReadRdmaTree(roots_); }
  static std::vector<std::string> Kinds(const RdmaTree& tree) {
    std::vector<std::string> kinds;
    for (const RdmaFinding& finding : JudgeRdma(tree)) kinds.push_back(finding.device + " " + finding.kind);
    return kinds;
  }

  std::string folder_;
  Roots roots_;
};

TEST_F(Rdma, AHostWithoutAnyHasNothingWrong) {
  EXPECT_THAT(Read().nics, IsEmpty());
  EXPECT_THAT(JudgeRdma(Read()), IsEmpty());
  EXPECT_EQ(PortStates(roots_), "");
}

TEST_F(Rdma, ConnectXWithOnePort) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  const RdmaTree tree = Read();
  ASSERT_EQ(tree.nics.size(), 1u);
  const RdmaTreeNic& nic = tree.nics[0];
  EXPECT_EQ(nic.name, "mlx5_0");
  EXPECT_EQ(nic.driver, "mlx5_core");
  EXPECT_EQ(nic.bus, "0000:c1:00.0");
  EXPECT_EQ(nic.firmware, "28.39.1002");
  EXPECT_EQ(nic.hca_type, "MT4129");
  EXPECT_EQ(nic.board_id, "MT_0000000838");
  EXPECT_EQ(nic.node_guid, "946d:ae03:00a1:b2c0");
  EXPECT_EQ(nic.numa_node, 1);
  EXPECT_FALSE(nic.software || nic.iwarp);
  ASSERT_EQ(nic.ports.size(), 1u);
  const RdmaTreePort& port = nic.ports[0];
  EXPECT_TRUE(port.active() && port.ethernet());
  EXPECT_EQ(port.physical_state, "LinkUp");
  EXPECT_EQ(port.rate_bps, 400e9);
  EXPECT_EQ(port.netdev, "eth0");
  ASSERT_EQ(port.gids.size(), 4u) << "the empty slot is none";
  EXPECT_EQ(port.gids[2].type, GidType::kRoceV1);
  EXPECT_EQ(port.gids[3].index, 3u);
  EXPECT_EQ(port.gids[3].type, GidType::kRoceV2);
  EXPECT_EQ(port.gids[3].address.ToString(), "10.0.0.10");
  EXPECT_EQ(GidText(port.gids[3].address), V4(10, 0, 0, 10));
  EXPECT_THAT(port.counters, ElementsAre(std::pair<std::string, uint64_t>("np_cnp_sent", 0),
                                         std::pair<std::string, uint64_t>("out_of_sequence", 17)));
  EXPECT_EQ(HwCounterMeaning("out_of_sequence"), "packets that arrived out of sequence");
  EXPECT_EQ(tree.netdevs.at("eth0").mtu, 4500);
  EXPECT_THAT(Kinds(tree), IsEmpty());
}

TEST_F(Rdma, BondIsOneDeviceOverBothPorts) {
  Mlx5Bond();
  RdmaTree tree = Read();
  EXPECT_EQ(tree.nics[0].ports[0].netdev, "bond0");
  EXPECT_EQ(tree.netdevs.at("bond0").bond_mode, "802.3ad");
  EXPECT_THAT(tree.netdevs.at("bond0").bond_members, ElementsAre("ens1f0np0", "ens1f1np1"));
  EXPECT_THAT(Kinds(tree), ElementsAre("mlx5_bond_0 lag"));
  Netdev("ens1f1np1", 9000, "down");
  const std::vector<RdmaFinding> findings = JudgeRdma(Read());
  ASSERT_EQ(findings.size(), 2u);
  EXPECT_EQ(findings[1].level, Level::kWarn);
  EXPECT_THAT(findings[1].text, HasSubstr("ens1f1np1 is not up"));
}

TEST_F(Rdma, ThorHasAllThatIsNeeded) {
  Bnxt();
  const RdmaTree tree = Read();
  EXPECT_EQ(tree.nics[0].driver, "bnxt_en");
  EXPECT_EQ(tree.nics[0].ports[0].rate_bps, 200e9);
  EXPECT_THAT(Kinds(tree), IsEmpty());
}

TEST_F(Rdma, E810SpeaksEither) {
  Irdma(/*iwarp=*/false);
  EXPECT_EQ(Read().nics[0].driver, "ice");
  EXPECT_EQ(Read().nics[0].hca_type, "");
  EXPECT_THAT(Kinds(Read()), IsEmpty());
  Irdma(/*iwarp=*/true);
  fs::remove_all(roots_.sys + "/" + Port("irdma0", 1) + "/gids");
  EXPECT_THAT(Kinds(Read()), ElementsAre("irdma0 iwarp"));
}

TEST_F(Rdma, SoftRoceTakesEightyBytesOff) {
  Rxe(4500);
  RdmaTree tree = Read();
  EXPECT_TRUE(tree.nics[0].software);
  EXPECT_EQ(tree.nics[0].bus, "");
  EXPECT_EQ(tree.nics[0].firmware, "");
  EXPECT_EQ(tree.nics[0].ports[0].rate_bps, 2.5e9);
  tree.nics[0].ports[0].active_mtu = 4096;
  EXPECT_THAT(Kinds(tree), IsEmpty());
  tree.netdevs["eth0"].mtu = 4180;  // 4096 and 80 fit, 4096 and 96 would not
  EXPECT_THAT(Kinds(tree), IsEmpty());
}

TEST_F(Rdma, OlderCardWithTwoPortsHasNoRoceV2) {
  Mlx4TwoPorts();
  const RdmaTree tree = Read();
  ASSERT_EQ(tree.nics[0].ports.size(), 2u);
  EXPECT_EQ(tree.nics[0].ports[0].netdev, "ens2");
  EXPECT_EQ(tree.nics[0].ports[1].netdev, "ens2d1") << "by its dev_port";
  EXPECT_THAT(Kinds(tree), ElementsAre("mlx4_0 only_roce_v1", "mlx4_0 port_down"));
  EXPECT_THAT(JudgeRdma(tree)[1].text, HasSubstr("mlx4_0 port 2 is DOWN, physically Disabled"));
}

TEST_F(Rdma, VirtualFunctionNamesItsCard) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  Mlx5("mlx5_4", "0000:c1:00.2", "eth4", 14);
  Write("devices/pci0000:00/0000:c1:00.0/sriov_numvfs", "4");
  Link("devices/pci0000:00/0000:c1:00.2/physfn", "../0000:c1:00.0");
  const RdmaTree tree = Read();
  EXPECT_EQ(tree.nics[0].virtual_functions, 4u);
  EXPECT_EQ(tree.nics[1].physical_function, "0000:c1:00.0");
  EXPECT_THAT(Kinds(tree), ElementsAre("mlx5_4 vf"));
  EXPECT_EQ(JudgeRdma(tree)[0].level, Level::kNote);
}

TEST_F(Rdma, GidsThatAreMissingOrElsewhere) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  Mlx5("mlx5_1", "0000:c2:00.0", "eth1", 11);
  Mlx5("mlx5_2", "0000:c3:00.0", "eth2", 12);
  EXPECT_THAT(Kinds(Read()), IsEmpty());
  // An address that came and went leaves its index to the next.
  AddGid("mlx5_1", 1, 3, V4(10, 9, 9, 9), kV1, "eth1");
  AddGid("mlx5_1", 1, 5, V4(10, 0, 0, 11), kV2, "eth1");
  const std::vector<RdmaFinding> drift = JudgeRdma(Read());
  ASSERT_EQ(drift.size(), 1u);
  EXPECT_EQ(drift[0].kind, "gid_index");
  EXPECT_EQ(drift[0].device, "mlx5_1");
  EXPECT_EQ(drift[0].text, "the RoCE v2 GID of IPv4 has index 5 on mlx5_1, and 3 on mlx5_0, mlx5_2");
  for (const int index : {2, 3, 5}) AddGid("mlx5_1", 1, index, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
  EXPECT_THAT(Kinds(Read()), ElementsAre("mlx5_1 no_ipv4_gid"));
  EXPECT_EQ(JudgeRdma(Read())[0].todo, "ip addr add ADDRESS dev eth1");
  AddGid("mlx5_1", 1, 2, "fd00:0000:0000:0000:0000:0000:0000:0001", kV2, "eth1");
  ASSERT_EQ(JudgeRdma(Read()).size(), 1u);
  EXPECT_EQ(JudgeRdma(Read())[0].level, Level::kNote) << "a fabric of IPv6";
}

TEST_F(Rdma, MtusThatDoNotAgree) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  RdmaTree tree = Read();
  tree.nics[0].ports[0].active_mtu = 4096;
  EXPECT_THAT(Kinds(tree), IsEmpty());
  tree.netdevs["eth0"].mtu = 1500;
  ASSERT_THAT(Kinds(tree), ElementsAre("mlx5_0 mtu"));
  EXPECT_EQ(JudgeRdma(tree)[0].level, Level::kFail);
  tree.nics[0].ports[0].active_mtu = 1024;
  EXPECT_THAT(Kinds(tree), IsEmpty()) << "small, but one: cwctl doctor tells it";
  tree.netdevs["eth0"].mtu = 9000;
  EXPECT_EQ(JudgeRdma(tree)[0].level, Level::kWarn);
}

TEST_F(Rdma, OneOfManyAtHalfTheRate) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  Mlx5("mlx5_1", "0000:c2:00.0", "eth1", 11);
  Bnxt();  // another kind: no comparison
  Write(Port("mlx5_1", 1) + "/rate", "200 Gb/sec (2X NDR)");
  EXPECT_THAT(Kinds(Read()), ElementsAre("mlx5_1 rate"));
}

TEST_F(Rdma, KernelsOwnViewOfInterfacesCountsForMore) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  fs::remove_all(roots_.sys + "/" + Port("mlx5_0", 1) + "/gids");
  RdmaTree tree = Read();
  EXPECT_EQ(tree.nics[0].ports[0].netdev, "");
  AddInterfaces({{"eth0", "no carrier", 1500, true}, {"eth9", "up", 9000, true}}, {{"mlx5_0", "eth0"}}, tree);
  EXPECT_EQ(tree.nics[0].ports[0].netdev, "eth0");
  EXPECT_EQ(tree.netdevs.at("eth0").mtu, 1500);
  EXPECT_EQ(tree.netdevs.at("eth0").state, "no carrier");
  EXPECT_FALSE(tree.netdevs.contains("eth9"));
}

TEST_F(Rdma, WhatChangesIsTold) {
  Mlx5("mlx5_0", "0000:c1:00.0", "eth0", 10);
  const RdmaTree before = Read();
  const std::string states = PortStates(roots_);
  EXPECT_THAT(CompareRdma(before, Read()), IsEmpty());

  AddPort("mlx5_0", 1, "400 Gb/sec (4X NDR)", "1: DOWN", "2: Polling");
  EXPECT_NE(PortStates(roots_), states);
  const RdmaTree down = Read();
  std::vector<RdmaChange> changes = CompareRdma(before, down);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].text, "port of mlx5_0 (eth0) went from ACTIVE to DOWN, physically Polling");
  EXPECT_EQ(changes[0].severity, RdmaChange::Severity::kAlert);
  changes = CompareRdma(down, before);
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].text, "port of mlx5_0 (eth0) is active again");

  AddPort("mlx5_0", 1, "200 Gb/sec (2X NDR)");
  AddGid("mlx5_0", 1, 3, V4(10, 0, 0, 77), kV2, "eth0");
  changes = CompareRdma(before, Read());
  ASSERT_EQ(changes.size(), 2u);
  EXPECT_EQ(changes[0].text, "mlx5_0 runs at 200 Gb/sec (2X NDR), before at 400 Gb/sec (4X NDR)");
  EXPECT_EQ(changes[1].text,
            "GIDs of mlx5_0 changed: gone: 10.0.0.10 (RoCE v2, index 3); new: 10.0.0.77 (RoCE v2, index 3)");

  changes = CompareRdma(before, RdmaTree());
  ASSERT_EQ(changes.size(), 1u);
  EXPECT_EQ(changes[0].text, "RDMA device mlx5_0 is gone");
  EXPECT_EQ(CompareRdma(RdmaTree(), before)[0].text, "RDMA device mlx5_0 appeared");
}

}  // namespace
}  // namespace cw::host
