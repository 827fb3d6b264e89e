// SPDX-License-Identifier: Apache-2.0
// The emulated NIC of one host: sockets inside the host's network namespace that send and receive whole RoCEv2 packets.
//
// Sending: a raw socket with our own IP header, so that the IP ID that the ICRC covers is ours. Receiving: a packet
// ring (TPACKET_V2) behind a kernel filter, because the ICRC check needs the IP header. A third socket owns UDP port
// 4791 and takes nothing: without it the kernel answers every packet with ICMP port unreachable. Thread rule: one
// owner; Open may run on another thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "userspace/lab/roce_packet.h"

namespace cw::lab {

struct HostSpec {
  std::string name;
  std::string netns_path;  // for example /run/netns/x; empty: the caller's namespace
  std::string address;     // IPv4, dotted; or fd00::a.b.c.d, then all is IPv6
  std::string device = "eth0";
  std::string agent_socket;  // where the host's agent listens for queue pairs (cw_inproc.h); empty: none
  double line_bps = 0;       // all queue pairs of the host together; 0: as fast as each may
};

struct PortCounters {
  uint64_t sent = 0;
  uint64_t received = 0;
  uint64_t send_errors = 0;  // the kernel refused the packet: link down, no route, no buffer
  uint64_t icrc_errors = 0;  // wrong ICRC, dropped
  uint64_t unknown = 0;      // not a packet we understand, or not for this host
  uint64_t ring_drops = 0;   // the receive ring was full
};

class PacketSink {
 public:
  virtual ~PacketSink() = default;
  virtual void OnPacket(const RocePacket& packet) = 0;
  // A sampled packet left the host (sent: the kernel's stamp in veth or the driver) or came in. CLOCK_REALTIME ns.
  virtual void OnKernelStamp(const RocePacket& packet, bool sent, int64_t realtime_ns) = 0;
};

class HostPort {
 public:
  // `verify_every`: the ICRC of every n-th packet is checked. `stamp_every` > 0: payload packets whose PSN is a
  // multiple of it are stamped by the kernel at both ends. Errors name the host and the call.
  static absl::StatusOr<std::unique_ptr<HostPort>> Open(const HostSpec& host, uint32_t verify_every,
                                                        uint32_t stamp_every);
  ~HostPort();
  HostPort(const HostPort&) = delete;
  HostPort& operator=(const HostPort&) = delete;

  uint32_t address() const { return address_; }
  bool ip6() const { return ip6_; }
  int receive_fd() const { return receive_fd_; }
  const PortCounters& counters() const { return counters_; }

  // Hands at most `budget` packets with a right ICRC to the sink; returns how many frames were taken from the ring.
  size_t Receive(size_t budget, PacketSink* sink);
  // Kernel stamps of sent packets, when stamp_every > 0.
  void ReadSendStamps(PacketSink* sink);

  // Encodes the packet into the next send slot. Caller: HasRoom() first. Payload is a fixed pattern.
  bool HasRoom() const { return queued_ < kSlots; }
  void Queue(const RocePacket& packet);
  // Sends what is queued. Packets that the kernel refuses are lost and counted; those it has no room for stay queued.
  void Flush();

 private:
  static constexpr size_t kSlots = 64;
  struct Slot;
  struct PayloadCrc {
    uint32_t bytes = UINT32_MAX;
    uint32_t crc = 0;
    uint32_t zeros = 0;
  };

  HostPort(uint32_t address, bool ip6, uint32_t verify_every, uint32_t stamp_every);
  absl::Status OpenInside(const HostSpec& host);
  absl::Status OpenSender();
  absl::Status OpenReceiver(const std::string& device);
  absl::Status OpenSink();
  void TakeFrame(uint8_t* frame, PacketSink* sink);
  const PayloadCrc& CrcOfPayload(const uint8_t* data, uint32_t bytes, uint32_t pad);
  bool Stamped(const RocePacket& packet) const;

  uint32_t address_;
  bool ip6_;
  uint32_t verify_every_;
  uint32_t stamp_every_;
  int send_fd_ = -1;
  int receive_fd_ = -1;
  int sink_fd_ = -1;
  uint8_t* ring_ = nullptr;
  size_t ring_next_ = 0;
  uint32_t since_verified_ = 0;
  std::vector<Slot> slots_;
  size_t queued_ = 0;
  PayloadCrc payload_crc_[8];
  PortCounters counters_;
};

}  // namespace cw::lab
