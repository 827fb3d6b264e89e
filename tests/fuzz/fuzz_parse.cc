// SPDX-License-Identifier: Apache-2.0
// Any bytes through the parser of the BPF programs: no read outside the packet (AddressSanitizer), and what it says of
// a packet is what stands in the packet, read here a second time by plain offsets.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "bpf/parse.h"

namespace {

void Require(bool holds) {
  if (!holds) abort();
}

uint32_t BigEndian(const uint8_t* at, int bytes) {
  uint32_t value = 0;
  for (int i = 0; i < bytes; ++i) value = value << 8 | at[i];
  return value;
}

void CheckFields(const uint8_t* frame, size_t size, const cw_packet& p) {
  Require(p.l3_off == 14 || p.l3_off == 18 || p.l3_off == 22);
  const uint8_t* ip = frame + p.l3_off;
  const bool six = cw_is_ip6(&p);
  const size_t ip_header = six ? 40 : 20;
  Require(p.l4_off == p.l3_off + ip_header && p.l3_off + p.ip_len <= size);
  if (six) {
    Require(BigEndian(ip - 2, 2) == 0x86dd && ip[0] >> 4 == 6 && ip[6] == 17);
    Require(p.ip_len == BigEndian(ip + 4, 2) + 40);
    Require(p.tos == (BigEndian(ip, 2) >> 4 & 0xff) && p.label == (BigEndian(ip, 4) & 0xfffff));
    Require(memcmp(p.key.saddr, ip + 8, 32) == 0);
  } else {
    Require(BigEndian(ip - 2, 2) == 0x0800 && ip[0] == 0x45 && ip[9] == 17);
    Require(p.ip_len == BigEndian(ip + 2, 2));
    Require(p.tos == ip[1] && p.label == 0);
    Require(cw_address_is_v4(p.key.saddr) && memcmp(p.key.saddr + 12, ip + 12, 4) == 0);
    Require(cw_address_is_v4(p.key.daddr) && memcmp(p.key.daddr + 12, ip + 16, 4) == 0);
  }
  const uint8_t* udp = ip + ip_header;
  Require(p.sport == BigEndian(udp, 2) && BigEndian(udp + 2, 2) == 4791 && p.udp_len == BigEndian(udp + 4, 2));
  Require(p.udp_len + ip_header == p.ip_len);
  const uint8_t* bth = udp + 8;
  Require(p.opcode == bth[0] && (bth[1] & 15) == 0);
  Require(p.key.dqpn == BigEndian(bth + 5, 3) && p.psn == BigEndian(bth + 9, 3));
  // Everything that the lengths promise lies inside the UDP datagram.
  Require(8u + 12u + (p.op & CW_OP_EXT) + p.payload + 4u <= p.udp_len);
  if (p.op & CW_OP_READ)
    Require(p.dma_len == BigEndian(bth + 12 + 12, 4));
  else if (p.op & CW_OP_AETH)
    Require(p.syndrome == bth[12]);
}

// A copy that ends where the bytes end, so that one byte too far is seen.
int ParseExactly(const uint8_t* frame, size_t size, cw_packet* p) {
  std::unique_ptr<uint8_t[]> exact(new uint8_t[size]);
  std::copy(frame, frame + size, exact.get());
  const int result = cw_parse(exact.get(), static_cast<uint32_t>(size), p);
  Require(result >= CW_PARSE_OTHER && result < CW_COUNT_END);
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 9216) return 0;
  cw_packet whole = {};
  const int result = ParseExactly(data, size, &whole);
  if (result != CW_PARSE_ROCE) return 0;
  CheckFields(data, size, whole);
  // Cut anywhere before its end, it is no RoCE packet any more; the cut is drawn from the bytes themselves.
  uint32_t hash = 2166136261u;
  for (size_t i = 0; i < size; ++i) hash = (hash ^ data[i]) * 16777619u;
  cw_packet cut = {};
  Require(ParseExactly(data, hash % (whole.l3_off + whole.ip_len), &cut) != CW_PARSE_ROCE);
  return 0;
}
