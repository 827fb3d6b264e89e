// SPDX-License-Identifier: Apache-2.0
// Writes the fuzzers' seed packets: one file per kind of frame that the parser distinguishes.
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

namespace {

using Bytes = std::string;

Bytes Hex(const char* text) {
  Bytes out;
  int high = -1;
  for (; *text; ++text) {
    if (*text == ' ') continue;
    const int digit = *text <= '9' ? *text - '0' : *text - 'a' + 10;
    if (high < 0) {
      high = digit;
    } else {
      out.push_back(static_cast<char>(high << 4 | digit));
      high = -1;
    }
  }
  return out;
}

Bytes Be16(unsigned v) { return {static_cast<char>(v >> 8), static_cast<char>(v)}; }

const Bytes kMacs = Hex("02000000000b 02000000000a");

Bytes Frame(const Bytes& ip, const Bytes& tags = "", unsigned type = 0x0800) { return kMacs + tags + Be16(type) + ip; }

// IPv4 and UDP around `roce` (BTH to ICRC).
Bytes Ip4(const Bytes& roce, const Bytes& options = "", unsigned fragment = 0) {
  const unsigned udp_len = static_cast<unsigned>(roce.size()) + 8;
  const unsigned ihl = 5 + static_cast<unsigned>(options.size()) / 4;
  return Bytes(1, static_cast<char>(0x40 | ihl)) + Bytes(1, '\x02') + Be16(ihl * 4 + udp_len) + Hex("1234") +
         Be16(fragment) + Hex("4011 0000 0a000001 0a000002") + options + Hex("c123 12b7") + Be16(udp_len) +
         Hex("0000") + roce;
}

// The same over IPv6. extension: headers in between, the first of this kind.
Bytes Ip6(const Bytes& roce, const Bytes& extension = "", unsigned kind = 17) {
  const unsigned udp_len = static_cast<unsigned>(roce.size()) + 8;
  return Hex("60212345") + Be16(static_cast<unsigned>(extension.size()) + udp_len) + Bytes(1, static_cast<char>(kind)) +
         Hex("40 fd000000000000000000000000000001 fd000000000000000000000000000002") + extension + Hex("c123 12b7") +
         Be16(udp_len) + Hex("0000") + roce;
}

Bytes Bth(unsigned opcode, const Bytes& rest) {
  return Bytes(1, static_cast<char>(opcode)) + Hex("40 ffff 00 001a2b 80 000010") + rest + Hex("11223344");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    fprintf(stderr, "usage: cw_make_corpus DIRECTORY\n");
    return 2;
  }
  std::filesystem::create_directories(argv[1]);
  const auto write = [&](const char* name, const Bytes& frame) {
    std::ofstream(std::string(argv[1]) + "/" + name, std::ios::binary) << frame;
  };
  const Bytes payload(32, '\x5a');
  const Bytes send = Bth(0x04, payload);
  // Captured from hardware, or computed by scapy's RoCE layer: with right ICRCs.
  write("cnp", Frame(Hex("45c2003c718c4000401191610a0011010a001201 000012b700280000 8100ffff4000011800000000"
                         "00000000000000000000000000000000 82fd002a")));
  write("uc_send_only_pad2",
        Frame(Hex("45010040047840004011b4d5c0a80007c0a80007 c00012b7002caca2 2460ffff000000d300cf1710"
                  "4630818be28935d90e9a95505401be885e500000 78f353f3")));
  write("rc_ack", Frame(Hex("4502003000004000401126b90a0000010a000002c12312b7001c00001140ffff00000012000000071f000003"
                            "91a6236a")));
  write("rc_ack_ipv6", Frame(Hex("60212345001c1140fd000000000000000000000000000001fd000000000000000000000000000002"
                                 "c12312b7001c00001140ffff00000012000000071f000003 a66348cd"),
                             "", 0x86dd));
  write("rc_send_only", Frame(Ip4(send)));
  write("rc_send_first", Frame(Ip4(Bth(0x00, Bytes(256, 'x')))));
  write("rc_write_only_imm", Frame(Ip4(Bth(0x0b, Bytes(20, '\1') + payload))));
  write("rc_read_request", Frame(Ip4(Bth(0x0c, Hex("0000000000001000 00000001 00010000")))));
  write("rc_read_response_last", Frame(Ip4(Bth(0x0f, Hex("1f000003") + payload))));
  write("rc_nak_sequence", Frame(Ip4(Bth(0x11, Hex("60000003")))));
  write("rc_atomic", Frame(Ip4(Bth(0x13, Bytes(28, '\2')))));
  write("ud_send_only", Frame(Ip4(Bth(0x64, Bytes(8, '\3') + payload))));
  write("opcode_unknown", Frame(Ip4(Bth(0x1f, payload))));
  write("bth_version", Frame(Ip4(Hex("0441ffff00001a2b80000010") + payload)));
  write("extended_header_cut", Frame(Ip4(Bth(0x0c, Hex("00000000")))));
  write("bth_cut", Frame(Ip4(Hex("0440ffff0000"))));
  write("vlan_1", Frame(Ip4(send), Hex("8100 0064")));
  write("vlan_2", Frame(Ip4(send), Hex("88a8 0064 8100 0065")));
  write("vlan_3", Frame(Ip4(send), Hex("88a8 0064 8100 0065 8100 0066")));
  write("ip_options", Frame(Ip4(send, Hex("01010101"))));
  write("ip_fragment", Frame(Ip4(send, "", 0x2000)));
  write("rocev1", Frame(Bytes(60, '\4'), "", 0x8915));
  write("arp", Frame(Bytes(28, '\5'), "", 0x0806));
  write("probe", Frame(Ip4(Hex("e740ffff0000cf0b00000000 43574650 01 01 03 ff 00000001 00000002 0007 00 00 00000000") +
                           Bytes(56, '\0') + Hex("55667788"))));
  const auto write6 = [&](const char* name, const Bytes& ip, const Bytes& tags = "") {
    write(name, Frame(ip, tags, 0x86dd));
  };
  write6("ip6_send_only", Ip6(send));
  write6("ip6_read_request", Ip6(Bth(0x0c, Hex("0000000000001000 00000001 00010000"))));
  write6("ip6_vlan_2", Ip6(send), Hex("88a8 0064 8100 0065"));
  write6("ip6_hop_by_hop", Ip6(send, Hex("11 00 010400000000"), 0));
  write6("ip6_destination", Ip6(send, Hex("11 01 010c000000000000000000000000"), 60));
  write6("ip6_fragment", Ip6(send, Hex("11 00 0001 00000007"), 44));
  write6("ip6_probe", Ip6(Hex("e740ffff0000cf0b00000000 43574650 01 01 03 ff 00000001 00000002 0007 00 00 00000000") +
                          Bytes(56, '\0') + Hex("55667788")));
  return 0;
}
