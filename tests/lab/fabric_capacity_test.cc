// SPDX-License-Identifier: Apache-2.0
//
// What the fabric carries on this machine: reported, and only held against a tenth of what two cores are known to do.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstdio>
#include <ctime>
#include <thread>

#include "absl/time/clock.h"
#include "tests/lab/fabric_rig.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr int kBatch = 16, kPayload = 4096;
constexpr absl::Duration kRun = absl::Seconds(2);

int Socket(const Fabric& fabric, int host, uint16_t port) {
  auto fd = SocketInNetns(fabric.HostNetns(host), AF_INET, SOCK_DGRAM, 0);
  EXPECT_TRUE(fd.ok()) << fd.status();
  sockaddr_in local = {};
  local.sin_family = AF_INET;
  local.sin_port = htons(port);
  EXPECT_EQ(bind(*fd, reinterpret_cast<sockaddr*>(&local), sizeof(local)), 0);
  return *fd;
}

struct Batch {
  Batch() {
    for (int i = 0; i < kBatch; ++i) {
      parts[i] = {data[i].data(), data[i].size()};
      messages[i].msg_hdr.msg_iov = &parts[i];
      messages[i].msg_hdr.msg_iovlen = 1;
      data[i][0] = kRcWriteOnly;
    }
  }
  std::array<std::array<char, kPayload + kBth + 4>, kBatch> data = {};
  std::array<iovec, kBatch> parts = {};
  std::array<mmsghdr, kBatch> messages = {};
};

double CpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return now.tv_sec + now.tv_nsec * 1e-9;
}

struct Rate {
  double mbps = 0;               // of frames that arrived
  double cpu_us_per_packet = 0;  // of sender, fabric and receiver together: says more than mbps on a shared machine
};

// Sends as fast as it goes over all spines, from one thread, while another receives.
Rate Carried(const FabricSpec& spec) {
  std::unique_ptr<Fabric> fabric = UpOrDie(spec);
  const int receiver = Socket(*fabric, 1, 4791);
  const int buffer = 64 << 20;
  setsockopt(receiver, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof(buffer));
  timeval wait = {0, 100'000};
  setsockopt(receiver, SOL_SOCKET, SO_RCVTIMEO, &wait, sizeof(wait));
  std::atomic<bool> stop = false;
  uint64_t received = 0;
  std::thread thread([&] {
    Batch batch;
    while (!stop) {
      const int n = recvmmsg(receiver, batch.messages.data(), kBatch, MSG_WAITFORONE, nullptr);
      if (n > 0) received += n;
    }
  });
  std::vector<int> senders;
  sockaddr_in to = {};
  to.sin_family = AF_INET;
  to.sin_port = htons(4791);
  inet_pton(AF_INET, fabric->HostAddr(1).c_str(), &to.sin_addr);
  for (int s = 0; s < spec.spines; ++s) {
    senders.push_back(Socket(*fabric, 0, PortOver(*fabric, 0, 1, s)));
    EXPECT_EQ(connect(senders.back(), reinterpret_cast<sockaddr*>(&to), sizeof(to)), 0);
  }
  Batch batch;
  const absl::Time start = absl::Now();
  const double cpu = CpuSeconds();
  while (absl::Now() < start + kRun) {
    for (int fd : senders) sendmmsg(fd, batch.messages.data(), kBatch, 0);
  }
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  stop = true;
  thread.join();
  for (int fd : senders) close(fd);
  close(receiver);
  return {received * (kEthernet + kIp + kUdp + kPayload + kBth + 4) * 8 / seconds / 1e6,
          (CpuSeconds() - cpu) * 1e6 / static_cast<double>(received)};
}

TEST(FabricCapacity, FourSpinesCarryMoreThanATenthOfTheTarget) {
  FabricSpec spec = TestSpec();
  spec.link_mbps = 0;
  const Rate unshaped = Carried(spec);
  spec.link_mbps = 400;
  const Rate shaped = Carried(spec);
  std::printf("carried: %.0f Mbit/s unshaped (%.1f us CPU per packet), %.0f of 1600 Mbit/s shaped (%.1f us)\n",
              unshaped.mbps, unshaped.cpu_us_per_packet, shaped.mbps, shaped.cpu_us_per_packet);
  RecordProperty("unshaped_mbps", static_cast<int>(unshaped.mbps));
  RecordProperty("shaped_mbps", static_cast<int>(shaped.mbps));
  EXPECT_GE(unshaped.mbps, 150);
  EXPECT_GE(shaped.mbps, 150);
  EXPECT_LE(shaped.mbps, 1.05 * 1600);
}

}  // namespace
}  // namespace cw::lab
