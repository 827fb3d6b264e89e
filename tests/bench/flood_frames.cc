// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/flood_frames.h"

#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "maps/wire.h"

namespace cw::bench {
namespace {

constexpr size_t kIp = 14, kChecksum = kIp + 10, kSource = kIp + 12, kDestination = kIp + 16;
constexpr size_t kUdp = kIp + 20, kBth = kUdp + 8, kProbe = kBth + CW_BTH_LEN;
constexpr char kNoPeer[] = "10.254.254.254";

uint8_t At(const std::string& frame, size_t at) { return static_cast<uint8_t>(frame[at]); }
uint16_t Load16(const std::string& frame, size_t at) {
  return static_cast<uint16_t>(At(frame, at) << 8 | At(frame, at + 1));
}

// RFC 1071, over the header as it is.
uint16_t Sum(const std::string& frame) {
  uint32_t sum = 0;
  for (size_t at = kIp; at < kUdp; at += 2) sum += Load16(frame, at);
  while (sum >> 16 != 0) sum = (sum & 0xffff) + (sum >> 16);
  return static_cast<uint16_t>(sum);
}

void SetChecksum(std::string& frame) {
  frame[kChecksum] = frame[kChecksum + 1] = 0;
  const auto value = static_cast<uint16_t>(~Sum(frame));
  frame[kChecksum] = static_cast<char>(value >> 8);
  frame[kChecksum + 1] = static_cast<char>(value);
}

bool HasAddress(const std::string& frame, size_t at, const std::string& address) {
  in_addr wanted{};
  return frame.size() >= kUdp && inet_pton(AF_INET, address.c_str(), &wanted) == 1 &&
         std::memcmp(frame.data() + at, &wanted, sizeof(wanted)) == 0;
}

void Flip(std::string& frame, size_t at, uint8_t bit = 1) { frame[at] = static_cast<char>(frame[at] ^ bit); }

}  // namespace

std::string NameOf(BadProbe kind) {
  switch (kind) {
    case BadProbe::kMalformed:
      return "malformed";
    case BadProbe::kUnknownPeer:
      return "unknown_peer";
    case BadProbe::kWrongKey:
      return "wrong_key";
    case BadProbe::kWrongMac:
      return "wrong_mac";
    case BadProbe::kReplayed:
      return "replayed";
    case BadProbe::kStaleReply:
      return "stale_reply";
    case BadProbe::kReflected:
      return "reflected";
  }
  return "";
}

std::vector<std::string> CountersOf(BadProbe kind) {
  switch (kind) {
    case BadProbe::kMalformed:
      return {"probe_malformed"};
    case BadProbe::kUnknownPeer:
      return {"probe_unknown_peer"};
    case BadProbe::kReplayed:
      return {"probe_replayed"};
    case BadProbe::kStaleReply:
      return {"probe_stale"};
    case BadProbe::kWrongKey:
    case BadProbe::kWrongMac:
      return {"probe_bad_mac"};
    case BadProbe::kReflected:
      return {"probe_bad_mac", "probe_replayed"};
  }
  return {};
}

std::optional<ProbeKind> KindOf(const std::string& frame) {
  if (frame.size() < kProbe + CW_PROBE_HDR_LEN || Load16(frame, 12) != 0x0800 || At(frame, kIp) != 0x45) return {};
  if (At(frame, kIp + 9) != 17 || Load16(frame, kUdp + 2) != CW_ROCE_PORT || At(frame, kBth) != CW_BTH_OPCODE)
    return {};
  cw_probe_hdr header;
  std::memcpy(&header, frame.data() + kProbe, sizeof(header));
  if (ntohl(header.magic) != CW_PROBE_MAGIC) return {};
  if (header.type == CW_PROBE_REQUEST) return ProbeKind::kRequest;
  if (header.type == CW_PROBE_REPLY) return ProbeKind::kReply;
  return {};
}

bool IsFrom(const std::string& frame, const std::string& address) { return HasAddress(frame, kSource, address); }
bool IsTo(const std::string& frame, const std::string& address) { return HasAddress(frame, kDestination, address); }

std::string MakeBad(BadProbe kind, const GenuineProbes& genuine) {
  std::string frame = genuine.request;
  switch (kind) {
    case BadProbe::kMalformed:
      Flip(frame, kProbe + offsetof(cw_probe_hdr, magic));
      break;
    case BadProbe::kUnknownPeer:
      inet_pton(AF_INET, kNoPeer, frame.data() + kSource);
      SetChecksum(frame);
      break;
    case BadProbe::kWrongKey:
      Flip(frame, kProbe + offsetof(cw_probe_hdr, key_id));
      break;
    case BadProbe::kWrongMac:
      Flip(frame, kProbe + offsetof(cw_probe_hdr, round), 0x40);
      break;
    case BadProbe::kReplayed:
      break;
    case BadProbe::kStaleReply:
      frame = genuine.reply;
      break;
    case BadProbe::kReflected:
      frame = genuine.request.substr(0, kIp) + genuine.own.substr(kIp);  // the checksum does not know their order
      std::swap_ranges(frame.begin() + kSource, frame.begin() + kDestination, frame.begin() + kDestination);
      break;
  }
  return frame;
}

bool IpChecksumIsRight(const std::string& frame) { return frame.size() >= kUdp && Sum(frame) == 0xffff; }

}  // namespace cw::bench
