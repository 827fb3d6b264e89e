// SPDX-License-Identifier: Apache-2.0
// cw_vm_ud NETDEV ADDRESS echo TO: in a machine with soft-RoCE, prints "qpn N" and sends back whatever comes, to the
// first queue pair of the other end, which the payload names. cw_vm_ud NETDEV ADDRESS ping TO QPN ROUNDS: sends to it
// from every source port, ROUNDS times, and prints for each port "port P sent N answered N", and a line "turn P50 P99"
// of the times to the answer, in ns. Both by the product's own endpoint (userspace/probe_verbs).
#include <net/if.h>
#include <poll.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include "absl/time/clock.h"
#include "userspace/model/clock.h"
#include "userspace/probe_verbs/ud_endpoint.h"

namespace {

using cw::probe_verbs::Datagram;
using cw::probe_verbs::Received;
using cw::probe_verbs::UdEndpoint;

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "cw_vm_ud: %s\n", std::string(status.message()).c_str());
  return 1;
}

struct Ping {
  uint32_t qpn;  // of the sender's end
  uint16_t port;
  int64_t sent_ns;
};

// Address handles take a moment.
absl::Status SendSoon(UdEndpoint& endpoint, const Datagram& datagram) {
  absl::Status status;
  for (int tries = 0; tries < 500; ++tries) {
    status = endpoint.Send(datagram);
    if (!absl::IsUnavailable(status)) return status;
    absl::SleepFor(absl::Milliseconds(10));
  }
  return status;
}

int Wait(UdEndpoint& endpoint, int timeout_ms) {
  pollfd ready = {.fd = endpoint.event_fd(), .events = POLLIN, .revents = 0};
  const int n = poll(&ready, 1, timeout_ms);
  if (n > 0) endpoint.TakeEvents();
  if (!endpoint.Arm().ok()) return -1;
  return n;
}

int Echo(UdEndpoint& endpoint, const cw::Addr& to) {
  std::printf("qpn %u\n", endpoint.qpn());
  std::fflush(stdout);
  uint32_t turn = 0;
  if (!endpoint.Arm().ok()) return 1;
  for (;;) {
    while (endpoint.Poll([&](const Received& received) {
      Ping ping;
      if (received.payload.size() != sizeof(ping)) return;
      std::memcpy(&ping, received.payload.data(), sizeof(ping));
      (void)SendSoon(endpoint, {.to = to,
                                .qpn = ping.qpn,
                                .port = endpoint.AnyPort(turn++),
                                .traffic_class = 0x6a,
                                .payload = received.payload});
    }) > 0) {
    }
    if (Wait(endpoint, -1) < 0) return 1;
  }
}

int Send(UdEndpoint& endpoint, const cw::Addr& to, uint32_t qpn, int rounds) {
  std::map<uint16_t, int> answered;
  std::vector<int64_t> times;
  const cw::MonotonicClock clock;
  if (!endpoint.Arm().ok()) return 1;
  for (int round = 0; round < rounds; ++round) {
    for (const uint16_t port : endpoint.ports()) {
      const Ping ping = {endpoint.qpn(), port, clock.NowNs()};
      const absl::Status sent =
          SendSoon(endpoint, {.to = to,
                              .qpn = qpn,
                              .port = port,
                              .traffic_class = 0x6a,
                              .payload = {reinterpret_cast<const uint8_t*>(&ping), sizeof(ping)}});
      if (!sent.ok()) return Fail(sent);
      bool came = false;
      while (!came && Wait(endpoint, 2000) > 0) {
        while (endpoint.Poll([&](const Received& received) {
          Ping pong;
          if (received.payload.size() != sizeof(pong)) return;
          std::memcpy(&pong, received.payload.data(), sizeof(pong));
          ++answered[pong.port];
          times.push_back(clock.NowNs() - pong.sent_ns);
          came |= pong.port == port;
        }) > 0) {
        }
      }
    }
  }
  for (const uint16_t port : endpoint.ports())
    std::printf("port %d sent %d answered %d\n", port, rounds, answered[port]);
  if (times.empty()) return 1;
  std::sort(times.begin(), times.end());
  std::printf("turn %lld %lld\n", static_cast<long long>(times[times.size() / 2]),
              static_cast<long long>(times[times.size() * 99 / 100]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const bool ping = argc == 7 && std::strcmp(argv[3], "ping") == 0;
  const bool echo = argc == 5 && std::strcmp(argv[3], "echo") == 0;
  if (!ping && !echo) {
    std::fprintf(stderr, "usage: cw_vm_ud NETDEV ADDRESS echo TO | ping TO QPN ROUNDS\n");
    return 2;
  }
  const auto address = cw::Addr::Parse(argv[2]), to = cw::Addr::Parse(argv[4]);
  if (!address.ok()) return Fail(address.status());
  if (!to.ok()) return Fail(to.status());
  auto endpoint = UdEndpoint::Open(
      {.ifindex = if_nametoindex(argv[1]), .netdev = argv[1], .address = *address, .soft_roce_ports = 32});
  if (!endpoint.ok()) return Fail(endpoint.status());
  if (echo) return Echo(**endpoint, *to);
  return Send(**endpoint, *to, static_cast<uint32_t>(std::strtoul(argv[5], nullptr, 0)), std::atoi(argv[6]));
}
