// SPDX-License-Identifier: Apache-2.0
// A held move through the kernel's own fq: run in virtual machines, whose kernels have one (tests/vm/kernels_test.cc).
#include <arpa/inet.h>
#include <linux/errqueue.h>
#include <sys/socket.h>
#include <time.h>

#include <vector>

#include "maps/unique_fd.h"
#include "maps/wire.h"
#include "tests/bpf/dataplane_fixture.h"
#include "userspace/dataplane/qdiscs.h"

namespace cw::test {
namespace {

constexpr uint32_t kHeldQpn = 0x1a2b, kPair = 5;
constexpr uint16_t kOldPort = 50001, kNewPort = 50002;
// Slot 1's path is 10 ms longer, and both were seen to jump by 1.5 ms.
constexpr int64_t kLongerNs = 10'000'000, kJumpNs = 1'500'000;

struct Arrival {
  uint32_t psn = 0;
  uint16_t port = 0;
  int64_t ns = 0;  // CLOCK_REALTIME, the kernel's
};

class HeldInFq : public DataplaneTest {
 protected:
  void SetUp() override {
    Open();
    Attach();
    rig_.NearShell("tc qdisc replace dev nic0 root fq");
    rig_.InFar([&] { Listen(); });
    cw_pair pair = {};
    const cw_flow_key key = Key();
    std::copy(key.saddr, key.saddr + 16, pair.key.local);
    std::copy(key.daddr, key.daddr + 16, pair.key.remote);
    for (const int s : {1, 2}) {
      pair.slot[s].port = s == 1 ? kOldPort : kNewPort;
      pair.slot[s].state = CW_SLOT_UP;
      pair.slot[s].raw_ns = 7'000'000'000 + (s == 1 ? kLongerNs : 0);
      pair.slot[s].jump_ns = kJumpNs;
    }
    pair.live_mask = 6;
    pair.interval_ns = 1'000'000;
    pair.departs = 1;
    plane_->pairs().Write(kPair, pair);
    ASSERT_TRUE(plane_->pair_index().Insert(pair.key, kPair).ok());
    maps::CtlView::Store(plane_->ctl()[0].mode, static_cast<uint32_t>(CW_MODE_PROTECT));
  }

  static cw_flow_key Key() { return FlowKey(VethRig::kNear, VethRig::kFar, kHeldQpn); }

  void Listen() {
    socket_ = maps::UniqueFd(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_in at = {};
    at.sin_family = AF_INET;
    at.sin_port = htons(CW_ROCE_PORT);
    ASSERT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    const int on = 1;
    const timeval wait = {2, 0};
    ASSERT_EQ(setsockopt(socket_.get(), SOL_SOCKET, SO_TIMESTAMPNS, &on, sizeof(on)), 0);
    ASSERT_EQ(setsockopt(socket_.get(), SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait)), 0);
  }

  Arrival Receive() {
    uint8_t bytes[2048] = {};
    alignas(cmsghdr) char control[256];
    sockaddr_in from = {};
    iovec part = {bytes, sizeof(bytes)};
    msghdr message = {};
    message.msg_name = &from;
    message.msg_namelen = sizeof(from);
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t n = recvmsg(socket_.get(), &message, 0);
    EXPECT_GE(n, 12) << "a packet is missing";
    Arrival arrival{.psn = static_cast<uint32_t>(bytes[9] << 16 | bytes[10] << 8 | bytes[11]),
                    .port = ntohs(from.sin_port)};
    for (cmsghdr* c = CMSG_FIRSTHDR(&message); c != nullptr; c = CMSG_NXTHDR(&message, c)) {
      if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_TIMESTAMPNS) continue;
      timespec t;
      memcpy(&t, CMSG_DATA(c), sizeof(t));
      arrival.ns = static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
    }
    return arrival;
  }

  maps::UniqueFd socket_;
};

TEST_F(HeldInFq, TheKernelIsSeenToKeepDepartures) {
  rig_.InNear([&] {
    const auto qdiscs = dataplane::QdiscsOf(if_nametoindex(VethRig::kDevice));
    ASSERT_TRUE(qdiscs.ok()) << qdiscs.status();
    EXPECT_TRUE(dataplane::KeepsDepartures(*qdiscs));
  });
}

TEST_F(HeldInFq, PacketsWaitTogetherAndKeepTheirOrder) {
  rig_.SendRoce(false, kHeldQpn, 1, 1);
  std::vector<Arrival> arrivals = {Receive()};  // waited for: the neighbour is asked for its address first
  ASSERT_TRUE(plane_->flow_editor().Place(Key(), 1, kOldPort).ok());
  rig_.SendRoce(false, kHeldQpn, 2, 3);
  ASSERT_TRUE(plane_->flow_editor().Want(Key(), 2, kNewPort, false).ok());
  rig_.SendRoce(false, kHeldQpn, 5, 4);  // held …
  rig_.SendRoce(false, kHeldQpn, 9, 2);  // … with these, if they are sent in time
  timespec later = {0, 60'000'000};
  nanosleep(&later, nullptr);
  rig_.SendRoce(false, kHeldQpn, 11, 2);
  for (int i = 1; i < 12; ++i) arrivals.push_back(Receive());
  for (uint32_t i = 0; i < 12; ++i) {
    EXPECT_EQ(arrivals[i].psn, i + 1) << "packets overtook each other";
    if (i > 0) {
      EXPECT_EQ(arrivals[i].port, i < 4 ? kOldPort : kNewPort) << "PSN " << i + 1;
    }
  }
  EXPECT_GE(arrivals[4].ns - arrivals[3].ns, kLongerNs + 2 * kJumpNs);
  const auto counters = plane_->counters().Sum();
  ASSERT_TRUE(counters.ok()) << counters.status();
  EXPECT_EQ(counters->moves_held, 1u);
}

}  // namespace
}  // namespace cw::test
