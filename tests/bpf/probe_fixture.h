// SPDX-License-Identifier: Apache-2.0
// What the tests of probes share: probes as the wire format describes them, signed by the peer of a pair.
#ifndef CW_TESTS_BPF_PROBE_FIXTURE_H
#define CW_TESTS_BPF_PROBE_FIXTURE_H

#include <gtest/gtest.h>
#include <linux/bpf.h>

#include "maps/siphash.h"
#include "tests/bpf/prog_rig.h"

namespace cw::test {

inline constexpr size_t kHdr = 14 + kIpLen + 8 + 12;  // of the probe header in an untagged frame

struct Probe {
  uint8_t type = CW_PROBE_REQUEST;
  uint8_t slot = 1;
  uint8_t rslot = 0;
  uint32_t session = 4000;
  uint32_t round = 100;
  uint16_t cookie = 9;
  uint8_t key_id = 0;
  uint8_t flags = 0;
  uint32_t responder_session = 0;
  uint64_t t1 = 0, t2 = 0, t3 = 0;
  uint16_t bitmap[8] = {};
  uint64_t t2_nic = 0;
};

inline uint64_t Mac(const __u64* key, const Bytes& bytes, size_t from, size_t len) {
  std::vector<__u64> words((len + 7) / 8);
  memcpy(words.data(), bytes.data() + from, len);
  return cw_siphash24(key, words.data(), static_cast<__u32>(words.size()));
}

inline Bytes Header(const Probe& p, const __u64* key) {
  Bytes b(CW_PROBE_HDR_LEN, 0);
  Store32(b, 0, CW_PROBE_MAGIC);
  b[4] = CW_PROBE_VERSION;
  b[5] = p.type;
  b[6] = p.slot;
  b[7] = p.rslot;
  Store32(b, 8, p.session);
  Store32(b, 12, p.round);
  Store16(b, 16, p.cookie);
  b[18] = p.key_id;
  b[19] = p.flags;
  Store32(b, 20, p.responder_session);
  Store64(b, 24, p.t1);
  Store64(b, 32, p.t2);
  Store64(b, 40, p.t3);
  for (size_t i = 0; i < 8; ++i) Store16(b, 48 + 2 * i, p.bitmap[i]);
  Store64(b, 64, p.t2_nic);
  uint64_t mac = Mac(key, b, 0, CW_PROBE_MAC_OFFSET);
  memcpy(b.data() + CW_PROBE_MAC_OFFSET, &mac, sizeof(mac));
  return b;
}

class Probes : public ::testing::Test {
 protected:
  Probes() : Probes(ProgRig::Options()) {}
  explicit Probes(const ProgRig::Options& options) : rig_(options) {
    rig_.AddPair(0, 0x0a000009, kPeer, 2);
    rig_.AddPair(3, kOurs, kPeer, 4);
    keys_ = rig_.keys(3);
  }

  // From the peer to us, signed with the peer's key.
  Frame FrameOf(const Probe& p) {
    Frame f;
    f.saddr = kPeer;
    f.daddr = kOurs;
    f.sport = static_cast<uint16_t>(50100 + p.slot);
    f.opcode = CW_BTH_OPCODE;
    f.dqpn = CW_BTH_QPN;
    f.tos = 0x6a;
    f.payload = Header(p, keys_.rx[p.key_id & 1]);
    return f;
  }
  Bytes Build(const Probe& p) { return test::Build(FrameOf(p)); }

  std::string Run(const Bytes& frame, int verdict) {
    last_ = rig_.Xdp(frame);
    EXPECT_EQ(last_.verdict, verdict);
    if (verdict != XDP_TX) {
      EXPECT_EQ(last_.frame, frame);
    }
    return rig_.CounterChanges();
  }
  std::string Run(const Probe& p, int verdict) { return Run(Build(p), verdict); }

  ProgRig rig_;
  cw_pair_keys keys_;
  RunResult last_;
};

}  // namespace cw::test

#endif
