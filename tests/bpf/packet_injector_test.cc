// SPDX-License-Identifier: Apache-2.0
// What is delivered arrives as if it had come by the wire.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "maps/unique_fd.h"
#include "tests/bpf/veth_rig.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/packet_injector.h"
#include "userspace/probe/nak_packet.h"

namespace cw::test {
namespace {

TEST(PacketInjector, ASocketOfThisHostReceivesWhatIsDelivered) {
  VethRig rig;
  rig.InNear([] {
    auto injector = dataplane::PacketInjector::Create();
    ASSERT_TRUE(injector.ok()) << injector.status();
    maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    ASSERT_TRUE(fd.ok());
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_port = htons(4791);
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    const timeval limit{.tv_sec = 5, .tv_usec = 0};
    setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    const auto nak = probe::BuildSequenceNak(
        {.from = *Addr::Parse(VethRig::kFar), .to = *Addr::Parse(VethRig::kNear), .qpn = 0x1a2b, .psn = 77});
    ASSERT_TRUE(nak.ok());
    const auto ifindex = dataplane::IfindexOf(VethRig::kDevice);
    ASSERT_TRUE(ifindex.ok());
    for (int i = 0; i < 3; ++i) {
      const absl::Status sent = injector->Deliver(*ifindex, *nak);
      ASSERT_TRUE(sent.ok()) << sent;
      uint8_t got[64];
      sockaddr_in from{};
      socklen_t length = sizeof(from);
      const ssize_t n = recvfrom(fd.get(), got, sizeof(got), 0, reinterpret_cast<sockaddr*>(&from), &length);
      ASSERT_EQ(n, static_cast<ssize_t>(probe::kNakUdpLen - probe::kUdpLen));
      EXPECT_TRUE(std::equal(got, got + n, nak->begin() + probe::kIp4Len + probe::kUdpLen));
      EXPECT_EQ(Addr::FromV4(ntohl(from.sin_addr.s_addr)).ToString(), VethRig::kFar);
    }
  });
}

TEST(PacketInjector, RefusesWhatIsNoEthernetDeviceOrTooLong) {
  VethRig rig;
  rig.InNear([] {
    auto injector = dataplane::PacketInjector::Create();
    ASSERT_TRUE(injector.ok()) << injector.status();
    const std::vector<uint8_t> packet(dataplane::PacketInjector::kMaxPacket + 1);
    const auto ifindex = dataplane::IfindexOf(VethRig::kDevice);
    ASSERT_TRUE(ifindex.ok());
    EXPECT_TRUE(absl::IsInvalidArgument(injector->Deliver(*ifindex, packet)));
    EXPECT_TRUE(absl::IsFailedPrecondition(injector->Deliver(1, absl::MakeConstSpan(packet).first(48)))) << "loopback";
    EXPECT_TRUE(absl::IsNotFound(injector->Deliver(9999, absl::MakeConstSpan(packet).first(48))));
  });
}

}  // namespace
}  // namespace cw::test
