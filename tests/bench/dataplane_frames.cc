// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/dataplane_frames.h"

#include <arpa/inet.h>
#include <zlib.h>

#include <cstring>

#include "maps/siphash.h"
#include "maps/wire.h"

namespace cw::bench {
namespace {

std::string Be(uint64_t value, int bytes) {
  std::string out;
  for (int i = bytes - 1; i >= 0; --i) out.push_back(static_cast<char>(value >> (8 * i)));
  return out;
}

constexpr uint32_t kHere = 0x0a000001, kThere = 0x0a000002;

std::string Ip4Header(bool from_here, size_t udp_len) {
  std::string ip = Be(0x4500, 2) + Be(20 + udp_len, 2) + Be(0x1234, 2) + Be(0x4000, 2) + Be(0x4011, 2) + Be(0, 2) +
                   Be(from_here ? kHere : kThere, 4) + Be(from_here ? kThere : kHere, 4);
  uint32_t sum = 0;
  for (size_t i = 0; i < ip.size(); i += 2) sum += static_cast<uint8_t>(ip[i]) << 8 | static_cast<uint8_t>(ip[i + 1]);
  while (sum >> 16) sum = (sum & 0xffff) + (sum >> 16);
  const std::string check = Be(~sum & 0xffff, 2);
  ip.replace(10, 2, check);
  return ip;
}

std::string Frame(bool from_here, uint16_t dport, const std::string& payload) {
  const std::string macs = from_here ? "\x02\x02\x02\x02\x02\x02\x02\x01\x01\x01\x01\x01"
                                     : "\x02\x01\x01\x01\x01\x01\x02\x02\x02\x02\x02\x02";
  const size_t udp_len = 8 + payload.size();
  return macs + Be(0x0800, 2) + Ip4Header(from_here, udp_len) + Be(kNativePort, 2) + Be(dport, 2) + Be(udp_len, 2) +
         Be(0, 2) + payload;
}

// Annex A17.3.3: CRC-32 over eight bytes of ones, then from the IP header with the fields that may change on the way as
// ones (type of service, TTL, checksums, the byte after the partition key), stored in little-endian order.
void PutIcrc(std::string& frame) {
  std::string covered = std::string(8, '\xff') + frame.substr(14, frame.size() - 14 - CW_ICRC_LEN);
  for (size_t at : {1, 8, 10, 11, 20 + 6, 20 + 7, 28 + 4}) covered[8 + at] = '\xff';
  const uint32_t crc = static_cast<uint32_t>(
      crc32(0, reinterpret_cast<const Bytef*>(covered.data()), static_cast<uInt>(covered.size())));
  std::memcpy(&frame[frame.size() - CW_ICRC_LEN], &crc, CW_ICRC_LEN);
}

std::string Bth(uint8_t opcode, uint32_t qpn, uint32_t psn) {
  return Be(opcode, 1) + Be(0, 1) + Be(0xffff, 2) + Be(qpn, 4) + Be(psn, 4);
}

}  // namespace

std::string RoceFrame(bool from_here, uint32_t qpn, uint32_t psn) {
  std::string frame =
      Frame(from_here, CW_ROCE_PORT, Bth(0x01, qpn, psn) + std::string(1024, '\x5a') + std::string(CW_ICRC_LEN, '\0'));
  PutIcrc(frame);
  return frame;
}

std::string OtherFrame(bool from_here) { return Frame(from_here, 53, std::string(1024, '\x5a')); }

std::string ProbeFrame(bool from_here, uint8_t type, uint32_t session, uint32_t round, const uint64_t key[2]) {
  cw_probe_hdr header = {};
  header.magic = htonl(CW_PROBE_MAGIC);
  header.version = CW_PROBE_VERSION;
  header.type = type;
  header.rslot = 0xff;
  header.session = htonl(session);
  header.round = htonl(round);
  __u64 words[CW_PROBE_MAC_OFFSET / 8];
  std::memcpy(words, &header, sizeof(words));
  const __u64 key_words[2] = {key[0], key[1]};
  const __u64 mac = cw_siphash24(key_words, words, CW_PROBE_MAC_OFFSET / 8);
  std::memcpy(header.mac, &mac, sizeof(header.mac));
  std::string frame =
      Frame(from_here, CW_ROCE_PORT,
            Bth(CW_BTH_OPCODE, CW_BTH_QPN, 0) + std::string(reinterpret_cast<const char*>(&header), sizeof(header)) +
                std::string(CW_ICRC_LEN, '\0'));
  PutIcrc(frame);
  return frame;
}

std::string RequestFrame(uint32_t session, uint32_t round, const uint64_t key[2]) {
  return ProbeFrame(false, CW_PROBE_REQUEST, session, round, key);
}

void HereAndThere(uint8_t here[16], uint8_t there[16]) {
  for (auto [out, address] : {std::pair{here, kHere}, std::pair{there, kThere}}) {
    std::memset(out, 0, 16);
    out[10] = out[11] = 0xff;
    const uint32_t be = htonl(address);
    std::memcpy(out + 12, &be, 4);
  }
}

}  // namespace cw::bench
