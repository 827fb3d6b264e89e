// SPDX-License-Identifier: Apache-2.0
//
// What the fabric's tests share: labs with names of their own, and hosts that send and receive RoCE-like datagrams.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/lab/eventually.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {

constexpr int kEthernet = 14, kIp = 20, kUdp = 8, kBth = 12;
constexpr uint8_t kRcWriteOnly = 0x0A, kProbeOpcode = 0xE5;

// A name that no other test process uses. Labs of test processes that died are removed on the way.
std::string TestLab(const std::string& suffix = "");
std::unique_ptr<Fabric> UpOrDie(const FabricSpec& spec);
FabricSpec TestSpec(const std::string& suffix = "");

struct Datagram {
  uint8_t opcode = kRcWriteOnly;
  uint32_t dest_qpn = 1;
  uint32_t psn = 0;
  int payload = 64;  // bytes after the BTH
};
int FrameBytes(const Datagram& datagram);  // as the switches count it

// A connected UDP socket in a host's namespace, towards port 4791 of another host.
class Sender {
 public:
  Sender(const Fabric& fabric, int from, int to, uint16_t sport, int tos = 0, int ttl = 64);
  ~Sender();
  Sender(const Sender&) = delete;
  Sender& operator=(const Sender&) = delete;
  bool Send(const Datagram& datagram);
  // The address that answered with an ICMP error, waiting at most 20 s. "" when none came.
  std::string IcmpErrorFrom();

 private:
  int fd_ = -1;
};

struct Received {
  uint32_t dest_qpn = 0;
  uint32_t psn = 0;
  uint8_t opcode = 0;
  int tos = 0;
  uint16_t sport = 0;
  int flipped_bits = 0;  // behind the BTH, where a Sender puts zeros
};

// Port 4791 of a host.
class Receiver {
 public:
  Receiver(const Fabric& fabric, int host);
  ~Receiver();
  Receiver(const Receiver&) = delete;
  Receiver& operator=(const Receiver&) = delete;
  std::optional<Received> Next(absl::Duration wait);
  // Takes datagrams until `count` are there, or none came for a second (a loss is only certain after a quiet time).
  std::vector<Received> Take(size_t count);

 private:
  int fd_ = -1;
};

// A source port from 50000 on whose path from one host to another is that spine.
uint16_t PortOver(const Fabric& fabric, int from, int to, int spine, uint16_t first = 50000);

LinkCounters Counters(const Fabric& fabric, const LinkDirection& link);

}  // namespace cw::lab
