// SPDX-License-Identifier: Apache-2.0
#include "tests/lab/late_packets.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/ethernet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <deque>
#include <vector>

#include "absl/time/clock.h"
#include "tests/lab/tc_program.h"
#include "userspace/lab/netns.h"

namespace cw::lab {
namespace {

constexpr char kTap[] = "late";
constexpr size_t kFrameMax = 16 << 10;

// Sends one packet of `every` that leaves by `device` to `other`.
absl::Status Divert(const std::string& device, int other, uint32_t every) {
  return AttachTc(device, BPF_TC_EGRESS,
                  OneOf(every, {{.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_1, .imm = other},
                                {.code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_2, .imm = 0},
                                {.code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect}}));
}

absl::Status BringUp(const char* device, int mtu) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ifreq request = {};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  request.ifr_mtu = mtu;
  bool ok = ioctl(fd, SIOCSIFMTU, &request) == 0;
  request.ifr_flags = IFF_UP;
  ok = ok && ioctl(fd, SIOCSIFFLAGS, &request) == 0;
  const absl::Status status = ok ? absl::OkStatus() : absl::ErrnoToStatus(errno, device);
  close(fd);
  return status;
}

}  // namespace

absl::Status LatePackets::Open(const std::string& device, uint32_t every) {
  tap_ = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  if (tap_ < 0) return absl::ErrnoToStatus(errno, "/dev/net/tun");
  ifreq request = {};
  request.ifr_flags = IFF_TAP | IFF_NO_PI;
  std::strncpy(request.ifr_name, kTap, IFNAMSIZ - 1);
  if (ioctl(tap_, TUNSETIFF, &request) != 0) return absl::ErrnoToStatus(errno, "TUNSETIFF");
  if (absl::Status up = BringUp(kTap, 9000); !up.ok()) return up;
  const auto port = static_cast<int>(if_nametoindex(device.c_str()));
  out_ = socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0);
  sockaddr_ll at = {};
  at.sll_family = AF_PACKET;
  at.sll_ifindex = port;
  if (out_ < 0 || bind(out_, reinterpret_cast<sockaddr*>(&at), sizeof at) != 0)
    return absl::ErrnoToStatus(errno, device);
  return Divert(device, static_cast<int>(if_nametoindex(kTap)), every);
}

absl::StatusOr<std::unique_ptr<LatePackets>> LatePackets::On(const std::string& netns, const std::string& device,
                                                             uint32_t every, absl::Duration late) {
  std::unique_ptr<LatePackets> self(new LatePackets);
  const absl::Status open = RunInNetns(netns, [&] { return self->Open(device, every); });
  if (!open.ok()) return open;
  self->carrier_ = std::thread(&LatePackets::Carry, self.get(), late);
  return self;
}

void LatePackets::Carry(absl::Duration late) {
  struct Held {
    absl::Time due;
    std::vector<char> frame;
  };
  std::deque<Held> held;
  std::vector<char> frame(kFrameMax);
  while (!end_) {
    pollfd wait = {.fd = tap_, .events = POLLIN, .revents = 0};
    (void)poll(&wait, 1, held.empty() ? 100 : 1);
    for (ssize_t n; (n = read(tap_, frame.data(), frame.size())) > 0;)
      held.push_back({absl::Now() + late, {frame.begin(), frame.begin() + n}});
    for (; !held.empty() && held.front().due <= absl::Now(); held.pop_front())
      (void)send(out_, held.front().frame.data(), held.front().frame.size(), 0);
  }
}

LatePackets::~LatePackets() {
  end_ = true;
  if (carrier_.joinable()) carrier_.join();
  if (tap_ >= 0) close(tap_);
  if (out_ >= 0) close(out_);
}

}  // namespace cw::lab
