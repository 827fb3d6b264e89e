// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/flood_frames.h"

#include <gtest/gtest.h>

#include <set>

#include "maps/wire.h"
#include "tests/bpf/frame.h"

namespace cw::bench {
namespace {

constexpr size_t kProbe = 14 + 20 + 8 + CW_BTH_LEN;

std::string FrameOf(uint8_t type, uint32_t from, uint32_t to) {
  test::Frame frame;
  frame.saddr = from;
  frame.daddr = to;
  frame.opcode = CW_BTH_OPCODE;
  frame.dqpn = CW_BTH_QPN;
  frame.payload = test::Bytes(CW_PROBE_HDR_LEN, 0x5a);
  test::Store32(frame.payload, 0, CW_PROBE_MAGIC);
  frame.payload[4] = CW_PROBE_VERSION;
  frame.payload[5] = type;
  const test::Bytes bytes = test::Build(frame);
  return {bytes.begin(), bytes.end()};
}

GenuineProbes Genuine() {
  return {.request = FrameOf(CW_PROBE_REQUEST, 0x0a000001, 0x0a000002),
          .reply = FrameOf(CW_PROBE_REPLY, 0x0a000001, 0x0a000002),
          .own = FrameOf(CW_PROBE_REQUEST, 0x0a000002, 0x0a000001)};
}

std::set<size_t> Differences(const std::string& a, const std::string& b) {
  EXPECT_EQ(a.size(), b.size());
  std::set<size_t> at;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    if (a[i] != b[i]) at.insert(i);
  }
  return at;
}

TEST(FloodFrames, AreToldFromWhatIsNoProbe) {
  const GenuineProbes genuine = Genuine();
  EXPECT_EQ(KindOf(genuine.request), ProbeKind::kRequest);
  EXPECT_EQ(KindOf(genuine.reply), ProbeKind::kReply);
  EXPECT_EQ(KindOf(FrameOf(CW_PROBE_MESSAGE, 1, 2)), std::nullopt);
  EXPECT_EQ(KindOf(MakeBad(BadProbe::kMalformed, genuine)), std::nullopt);
  EXPECT_EQ(KindOf(genuine.request.substr(0, 100)), std::nullopt);
  EXPECT_EQ(KindOf(""), std::nullopt);
  EXPECT_TRUE(IsFrom(genuine.request, "10.0.0.1"));
  EXPECT_FALSE(IsFrom(genuine.request, "10.0.0.2"));
  EXPECT_TRUE(IsTo(genuine.request, "10.0.0.2"));
}

TEST(FloodFrames, DifferFromGenuineOnesWhereTheyShall) {
  const GenuineProbes genuine = Genuine();
  const auto changed = [&](BadProbe kind) { return Differences(genuine.request, MakeBad(kind, genuine)); };
  EXPECT_EQ(changed(BadProbe::kMalformed), std::set<size_t>{kProbe});
  EXPECT_EQ(changed(BadProbe::kWrongKey), std::set<size_t>{kProbe + 18});
  EXPECT_EQ(changed(BadProbe::kWrongMac), std::set<size_t>{kProbe + offsetof(cw_probe_hdr, round)});
  EXPECT_TRUE(changed(BadProbe::kReplayed).empty());
  EXPECT_EQ(MakeBad(BadProbe::kStaleReply, genuine), genuine.reply);
  const std::string unknown = MakeBad(BadProbe::kUnknownPeer, genuine);
  EXPECT_TRUE(IsFrom(unknown, "10.254.254.254"));
  EXPECT_EQ(unknown.substr(34), genuine.request.substr(34)) << "behind the IP header";
}

TEST(FloodFrames, AReflectedOneComesFromThePeerAsItSeems) {
  const std::string reflected = MakeBad(BadProbe::kReflected, Genuine());
  EXPECT_TRUE(IsFrom(reflected, "10.0.0.1"));
  EXPECT_TRUE(IsTo(reflected, "10.0.0.2"));
  EXPECT_EQ(KindOf(reflected), ProbeKind::kRequest);
}

TEST(FloodFrames, AllHaveARightIpChecksumANameAndACounter) {
  std::set<std::string> names;
  for (const BadProbe kind : kBadProbes) {
    EXPECT_TRUE(IpChecksumIsRight(MakeBad(kind, Genuine()))) << NameOf(kind);
    EXPECT_FALSE(CountersOf(kind).empty());
    for (const std::string& counter : CountersOf(kind)) EXPECT_EQ(counter.substr(0, 6), "probe_");
    names.insert(NameOf(kind));
  }
  EXPECT_EQ(names.size(), std::size(kBadProbes));
  std::string wrong = Genuine().request;
  wrong[20] = static_cast<char>(wrong[20] ^ 1);
  EXPECT_FALSE(IpChecksumIsRight(wrong));
}

}  // namespace
}  // namespace cw::bench
