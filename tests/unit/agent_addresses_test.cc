// SPDX-License-Identifier: Apache-2.0
// Where a NIC's address is: what the configuration's check says, and what the agent says while it runs.
#include "userspace/agent/nics/addresses.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/agent_fakes.h"
#include "userspace/agent/host_check.h"
#include "userspace/agent/nic_address.h"

namespace cw::agent {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr uint32_t kEth0 = OnePair::kIfindex, kEth1 = kEth0 + 1, kThirdDevice = kEth0 + 2;

// lo, eth0 with 10.0.0.1 and an alternative name, eth1 with 10.0.0.2.
HostNet TwoNics() {
  return {.links = {{.ifindex = 1, .name = "lo", .loopback = true},
                    {.ifindex = kEth0, .name = "eth0", .altnames = {"enp1s0f0", "enp1s0f0np0-in-the-first-slot"}},
                    {.ifindex = kEth1, .name = "eth1"}},
          .addresses = {{.ifindex = 1, .address = probe::TestAddr("127.0.0.1"), .label = "lo"},
                        {.ifindex = kEth0, .address = probe::TestAddr("10.0.0.1"), .label = "eth0"},
                        {.ifindex = kEth1, .address = probe::TestAddr("10.0.0.2"), .label = "eth1"}}};
}

std::string FaultOf(const HostNet& net, const std::string& name, const std::string& address = "auto") {
  return std::string(CheckNic(net, {.name = name, .address = address}).message());
}

TEST(NicAddress, AnAddressThatThisHostLacksIsRefusedWithThoseOfTheDevice) {
  const HostNet net = TwoNics();
  EXPECT_EQ(FaultOf(net, "eth0", "10.0.0.1"), "");
  EXPECT_EQ(FaultOf(net, "eth0"), "");
  EXPECT_EQ(FaultOf(net, "eth0", "10.0.0.9"),
            "NIC eth0: this host has no address 10.0.0.9; addresses of eth0: 10.0.0.1");
  EXPECT_EQ(FaultOf(net, "eth0", "10.0.0.2"), "NIC eth0: address 10.0.0.2 is on eth1 now; addresses of eth0: 10.0.0.1");
}

TEST(NicAddress, AnotherNameOfADeviceIsRefusedWithTheNameToWrite) {
  HostNet net = TwoNics();
  net.addresses.push_back({.ifindex = kEth0, .address = probe::TestAddr("10.0.0.5"), .label = "eth0:1"});
  EXPECT_EQ(FaultOf(net, "enp1s0f0"), "enp1s0f0 is an alternative name of eth0: write eth0");
  EXPECT_THAT(FaultOf(net, "enp1s0f0np0-in-the-first-slot"), HasSubstr("is an alternative name of eth0: write eth0"));
  EXPECT_EQ(FaultOf(net, "eth0:1"),
            "eth0:1 is a label of an address, not a device: write eth0 and address = \"10.0.0.5\"");
  EXPECT_EQ(FaultOf(net, "eth0:2"), "eth0:2 is no device, and no address of eth0 has that label: write eth0");
  EXPECT_EQ(FaultOf(net, "eth9"), "no interface eth9 in this network namespace");
  EXPECT_EQ(FaultOf(net, "eth0", "10.0.0.5"), "") << "a label takes no address from its device";
}

TEST(NicAddress, AnAddressWhosePacketsMayBeTheNicsIsFine) {
  HostNet net = TwoNics();
  const auto held_by = [&](const HostLink& holder) {
    HostNet with = net;
    with.links.push_back(holder);
    with.addresses.push_back({.ifindex = holder.ifindex, .address = probe::TestAddr("10.9.0.1")});
    return FaultOf(with, "eth0", "10.9.0.1");
  };
  EXPECT_EQ(held_by({.ifindex = kThirdDevice, .name = "dummy0", .kind = "dummy"}), "");
  EXPECT_EQ(held_by({.ifindex = kThirdDevice, .name = "eth0.7", .kind = "vlan", .lower = kEth0}), "");
  EXPECT_THAT(held_by({.ifindex = kThirdDevice, .name = "eth1.7", .kind = "vlan", .lower = kEth1}),
              HasSubstr("is on eth1.7"));
  EXPECT_THAT(held_by({.ifindex = kThirdDevice, .name = "v0", .kind = "veth", .lower = kEth0}), HasSubstr("is on v0"));
  EXPECT_THAT(held_by({.ifindex = kThirdDevice, .name = "bond0", .kind = "bond"}), HasSubstr("is on bond0"));
  net.links[1].master = kThirdDevice;
  EXPECT_EQ(held_by({.ifindex = kThirdDevice, .name = "bond0", .kind = "bond"}), "");
  net.addresses.push_back({.ifindex = 1, .address = probe::TestAddr("10.9.0.2")});
  EXPECT_EQ(FaultOf(net, "eth0", "10.9.0.2"), "") << "on lo";
}

TEST(NicAddress, TheFirstGlobalOneOfIpv4BeforeThoseOfIpv6) {
  HostNet net = TwoNics();
  net.addresses = {{.ifindex = kEth0, .address = probe::TestAddr("169.254.0.1")},
                   {.ifindex = kEth0, .address = probe::TestAddr("fe80::1")}};
  EXPECT_THAT(FaultOf(net, "eth0"), HasSubstr("NIC eth0 has no IPv4 or global IPv6 address"));
  net.addresses.push_back({.ifindex = kEth0, .address = probe::TestAddr("fd00::1")});
  EXPECT_EQ(FirstAddress(net, kEth0)->ToString(), "fd00::1");
  net.addresses.push_back({.ifindex = kEth0, .address = probe::TestAddr("10.0.0.1")});
  EXPECT_EQ(FirstAddress(net, kEth0)->ToString(), "10.0.0.1");
  EXPECT_EQ(AddressesOf(net, kEth0), "fd00::1, 10.0.0.1");
  EXPECT_EQ(AddressesOf(net, kEth1), "none");
}

class AddressesPart : public ::testing::Test {
 protected:
  AddressesPart() {
    addresses_.LookAtAll();
    EXPECT_THAT(host_.events.all, IsEmpty()) << "there since the start";
    EXPECT_EQ(links_read_, 0) << "only where one is not where it is expected";
  }
  // What the next look says; "" = nothing.
  std::string Said() {
    addresses_.LookAtAll();
    addresses_.LookAtAll();
    const std::vector<telemetry::Event> events = host_.events.Take();
    EXPECT_LE(events.size(), 1u) << "once";
    severity_ = events.empty() ? telemetry::Severity::kInfo : events[0].severity;
    return events.empty() ? "" : events[0].text;
  }
  const std::string& Trouble() { return trouble_ = host_.nics[0].Trouble(); }

  OnePair host_;  // eth0 with 10.0.0.1
  HostNet net_ = TwoNics();
  bool known_ = true;
  int links_read_ = 0;
  std::string trouble_;
  telemetry::Severity severity_ = telemetry::Severity::kInfo;
  Addresses addresses_{host_.nics,
                       host_.events,
                       {.addresses = [this]() -> absl::StatusOr<std::vector<HostAddress>> {
                          if (!known_) return absl::UnavailableError("");
                          return net_.addresses;
                        },
                        .links = [this]() -> absl::StatusOr<std::vector<HostLink>> {
                          ++links_read_;
                          return net_.links;
                        }}};
};

TEST_F(AddressesPart, OneThatIsRemovedIsAnAlertAndItsReturnANotice) {
  const HostAddress own = net_.addresses[1];
  net_.addresses.erase(net_.addresses.begin() + 1);
  EXPECT_EQ(Said(), "NIC eth0: address 10.0.0.1 is gone from eth0");
  EXPECT_EQ(severity_, telemetry::Severity::kAlert);
  EXPECT_EQ(Trouble(), "address 10.0.0.1 is gone from eth0");
  net_.addresses.push_back(own);
  EXPECT_EQ(Said(), "NIC eth0: address 10.0.0.1 is there again");
  EXPECT_EQ(severity_, telemetry::Severity::kNotice);
  EXPECT_EQ(Trouble(), "");
}

TEST_F(AddressesPart, OneThatMovedNamesTheDeviceAndOneThatMovedToLoopbackIsFine) {
  net_.addresses[1].ifindex = kEth1;
  EXPECT_EQ(Said(), "NIC eth0: address 10.0.0.1 is on eth1 now");
  net_.addresses[1].ifindex = 1;
  EXPECT_EQ(Said(), "NIC eth0: address 10.0.0.1 is there again");
}

TEST_F(AddressesPart, WhatIsNotKnownOrWentWithItsDeviceIsNotSaid) {
  known_ = false;
  net_.addresses.clear();
  EXPECT_EQ(Said(), "");
  known_ = true;
  host_.nics[0].removed = true;
  EXPECT_EQ(Said(), "") << "the device went";
  host_.nics[0].removed = false;
  host_.nics[0].device = "rail0";
  EXPECT_EQ(Said(), "NIC eth0: address 10.0.0.1 is gone from rail0");
}

}  // namespace
}  // namespace cw::agent
