// SPDX-License-Identifier: Apache-2.0
// The programs on a real device, for what BPF_PROG_TEST_RUN cannot make: paged packets and frames in several buffers.
#include <arpa/inet.h>
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_link.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "maps/unique_fd.h"
#include "tests/bpf/prog_rig.h"
#include "tests/bpf/veth_rig.h"

namespace cw::test {
namespace {

constexpr uint32_t kNear = 0x0a630001, kFar = 0x0a630002, kQpn = 0x31;
constexpr uint16_t kNativePort = 49999;

// A socket that sees every frame that arrives on the far device.
maps::UniqueFd Sniffer() {
  maps::UniqueFd fd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP)));
  sockaddr_ll on = {};
  on.sll_family = AF_PACKET;
  on.sll_protocol = htons(ETH_P_IP);
  on.sll_ifindex = static_cast<int>(if_nametoindex(VethRig::kDevice));
  timeval patience = {.tv_sec = 10, .tv_usec = 0};
  EXPECT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&on), sizeof(on)), 0);
  return fd;
}

// The next RoCE frame, empty when none comes.
Bytes NextFrame(int fd) {
  for (;;) {
    Bytes frame(20000);
    ssize_t n = recv(fd, frame.data(), frame.size(), 0);
    if (n <= 0) return {};
    frame.resize(static_cast<size_t>(n));
    if (frame.size() > 42 && Load16(frame, 36) == CW_ROCE_PORT) return frame;
  }
}

// An RDMA WRITE middle with some ICRC, from the native port.
Bytes Datagram(uint32_t psn, size_t payload) {
  Bytes b(12 + payload + 4, static_cast<uint8_t>(psn + 1));
  b[0] = 0x07;
  b[1] = 0;
  Store16(b, 2, 0xffff);
  Store32(b, 4, kQpn);
  Store32(b, 8, psn);
  return b;
}

void SendFromNear(const Bytes& datagram) {
  maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  int on = 1;
  ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_NO_CHECK, &on, sizeof(on)), 0);
  sockaddr_in at = {};
  at.sin_family = AF_INET;
  at.sin_port = htons(kNativePort);
  ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
  at.sin_port = htons(CW_ROCE_PORT);
  at.sin_addr.s_addr = htonl(kFar);
  ASSERT_EQ(sendto(fd.get(), datagram.data(), datagram.size(), 0, reinterpret_cast<sockaddr*>(&at), sizeof(at)),
            static_cast<ssize_t>(datagram.size()));
}

class Wire : public ::testing::Test {
 protected:
  Wire() : veth_(9600) {
    prog_.AddPair(0, kNear, kFar, 4);
    prog_.ctl().mode = CW_MODE_PROTECT;
    prog_.ctl().assign_jiffies = 1;
    veth_.InNear([&] {
      LIBBPF_OPTS(bpf_tc_hook, hook, .ifindex = static_cast<int>(if_nametoindex(VethRig::kDevice)),
                  .attach_point = BPF_TC_EGRESS);
      LIBBPF_OPTS(bpf_tc_opts, opts, .prog_fd = bpf_program__fd(prog_.skeleton()->progs.cw_tc_egress));
      EXPECT_EQ(bpf_tc_hook_create(&hook), 0);
      EXPECT_EQ(bpf_tc_attach(&hook, &opts), 0);
    });
  }

  VethRig veth_;  // takes the attachments with it
  ProgRig prog_;
};

TEST_F(Wire, PagedPacketsAreRewrittenExactly) {
  maps::UniqueFd sniffer;
  veth_.InFar([&] { sniffer = Sniffer(); });
  uint32_t psn = 0;
  for (size_t payload : {4, 256, 1024, 2048, 4096, 8192, 9100}) {
    Bytes sent = Datagram(++psn, payload);
    veth_.InNear([&] { SendFromNear(sent); });
    Bytes frame = NextFrame(sniffer.get());
    ASSERT_EQ(frame.size(), 14 + 20 + 8 + sent.size()) << payload;
    uint16_t port = Load16(frame, 34);
    EXPECT_GE(port, 50000) << payload;
    EXPECT_LE(port, 50003) << payload;
    // All as sent, but the ICRC: wrong by as much as it was with the native port, because a CRC is linear.
    EXPECT_EQ(Bytes(frame.begin() + 42, frame.end() - 4), Bytes(sent.begin(), sent.end() - 4)) << payload;
    uint32_t wrong_by = StoredIcrc(frame) ^ Icrc(frame);
    Store16(frame, 34, kNativePort);
    uint32_t native_icrc = __builtin_bswap32(Load32(sent, sent.size() - 4));
    EXPECT_EQ(wrong_by, native_icrc ^ Icrc(frame)) << payload;
  }
  cw_tx_flow flow = prog_.TxFlow(FlowKeyOf(kNear, kFar, kQpn)).value();
  EXPECT_EQ(flow.flow.packets, 7u);
  EXPECT_EQ(flow.flow.req.gaps, 0u);
  EXPECT_EQ(flow.flow.mtu, 9100u);
}

TEST_F(Wire, FramesLongerThanTheTableLeaveUnchanged) {
  maps::UniqueFd sniffer;
  veth_.InFar([&] { sniffer = Sniffer(); });
  Bytes sent = Datagram(1, 9400);
  prog_.CounterChanges();
  veth_.InNear([&] { SendFromNear(sent); });
  Bytes frame = NextFrame(sniffer.get());
  ASSERT_EQ(frame.size(), 42 + sent.size());
  EXPECT_EQ(Load16(frame, 34), kNativePort);
  EXPECT_EQ(Bytes(frame.begin() + 42, frame.end()), sent);
  EXPECT_EQ(prog_.CounterChanges(), "rewrite_too_long=1 flows_assigned=1");
}

TEST_F(Wire, NativeXdpSeesFramesInSeveralBuffers) {
  veth_.InNear([&] {
    int device = static_cast<int>(if_nametoindex(VethRig::kDevice));
    ASSERT_EQ(
        bpf_xdp_attach(device, bpf_program__fd(prog_.skeleton()->progs.cw_xdp_ingress), XDP_FLAGS_DRV_MODE, nullptr),
        0);
    // A socket that takes them: what passes arrives.
    maps::UniqueFd fd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    timeval patience = {.tv_sec = 10, .tv_usec = 0};
    ASSERT_EQ(setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience)), 0);
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(CW_ROCE_PORT);
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    for (size_t payload : {64, 4096, 9000}) {
      veth_.SendRoce(true, kQpn, 5, 1, payload);
      Bytes got(20000);
      EXPECT_EQ(recv(fd.get(), got.data(), got.size(), 0), static_cast<ssize_t>(12 + payload + 4));
    }
  });
  cw_flow flow = prog_.Flow(FlowKeyOf(kFar, kNear, kQpn)).value();
  EXPECT_EQ(flow.packets, 3u);
  EXPECT_EQ(flow.bytes, 3u * (20 + 8 + 12 + 4) + 64 + 4096 + 9000);
  EXPECT_EQ(prog_.CounterChanges().find("truncated"), std::string::npos);
}

}  // namespace
}  // namespace cw::test
