// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "tests/unit/probe_fakes.h"
#include "userspace/probe/icmp.h"

namespace cw::probe {
namespace {

TEST(ParseTimeExceeded6, ReadsTheQuoteAndSurvivesAnyBytes) {
  PacketSpec spec;
  spec.local = TestAddr("fd00::1");
  spec.remote = TestAddr("fd00::2");
  spec.port = 0xc123;
  auto trace = ProbeTemplate::Make(CW_PROBE_TRACE, spec);
  ASSERT_TRUE(trace.ok()) << trace.status();
  trace->SetRound(0x8012);
  std::vector<uint8_t> p = {3, 0, 0, 0, 0, 0, 0, 0};
  p.insert(p.end(), trace->bytes().begin(), trace->bytes().end());
  const Addr router = TestAddr("fd00::77");
  const auto a = ParseTimeExceeded6(router, p);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ(router, a->router);
  EXPECT_EQ(spec.local, a->local);
  EXPECT_EQ(spec.remote, a->remote);
  EXPECT_EQ(0xc123, a->port);
  EXPECT_EQ(0x8012, a->ip_id);
  const size_t needed = 8 + 40 + 8 + 12 + 16;
  for (size_t cut = 0; cut <= p.size(); ++cut) {
    EXPECT_EQ(ParseTimeExceeded6(router, absl::MakeConstSpan(p).first(cut)).has_value(), cut >= needed) << cut;
  }
  p[1] = 1;  // fragment reassembly time exceeded
  EXPECT_FALSE(ParseTimeExceeded6(router, p));
  p[1] = 0;
  p[0] = 1;
  EXPECT_FALSE(ParseTimeExceeded6(router, p));
  p[0] = 3;
  p[8 + 40 + 3] ^= 1;  // another port than RoCE's
  EXPECT_FALSE(ParseTimeExceeded6(router, p));
  p[8 + 40 + 3] ^= 1;
  p[8 + 6] = 0;
  EXPECT_FALSE(ParseTimeExceeded6(router, p)) << "something between IP and UDP";
}

TEST(ParseTimeExceeded, ReadsTheQuoteAndSurvivesAnyBytes) {
  // Outer 10.1.2.0 > 10.0.0.10, ICMP 11/0, quoted 10.0.0.10 > 10.0.1.10, id 0x8012, UDP 0xc123 > 4791.
  const std::string raw = absl::HexStringToBytes(
      "4500003800010000400100000a0102000a00000a"
      "0b00000000000000"
      "456a007c80124000011100000a00000a0a00010a"
      "c12312b700680000");
  std::vector<uint8_t> p(raw.begin(), raw.end());
  auto a = ParseTimeExceeded(p);
  ASSERT_TRUE(a.has_value());
  EXPECT_EQ("10.1.2.0", a->router.ToString());
  EXPECT_EQ("10.0.0.10", a->local.ToString());
  EXPECT_EQ("10.0.1.10", a->remote.ToString());
  EXPECT_EQ(0xc123, a->port);
  EXPECT_EQ(0x8012, a->ip_id);
  for (size_t cut = 0; cut < p.size() - 4; ++cut) EXPECT_FALSE(ParseTimeExceeded(absl::MakeConstSpan(p).first(cut)));
  p[21] = 1;  // fragment reassembly time exceeded
  EXPECT_FALSE(ParseTimeExceeded(p));
  p[21] = 0;
  p[20] = 3;
  EXPECT_FALSE(ParseTimeExceeded(p));
  std::mt19937 random(2);
  for (int i = 0; i < 100'000; ++i) {
    std::vector<uint8_t> r(raw.begin(), raw.end());
    for (int k = 0; k < 4; ++k) r[random() % r.size()] = static_cast<uint8_t>(random());
    r.resize(random() % (r.size() + 1));
    (void)ParseTimeExceeded(r);
  }
}

}  // namespace
}  // namespace cw::probe
