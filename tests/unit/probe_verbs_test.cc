// SPDX-License-Identifier: Apache-2.0
// Probes by verbs: what needs no device. Payloads, what the GRH tells, the agents' hello, whom to ask.
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <set>
#include <vector>

#include "userspace/probe/keys.h"
#include "userspace/probe/packet.h"
#include "userspace/probe/packet_bytes.h"
#include "userspace/probe_verbs/hello.h"
#include "userspace/probe_verbs/packing.h"
#include "userspace/probe_verbs/peer_book.h"
#include "userspace/probe_verbs/soft_roce.h"
#include "userspace/probe_verbs/ud_packet.h"
#include "userspace/rdma/placement.h"

namespace cw::probe_verbs {
namespace {

const Addr kOurs = Addr::FromV4(0x0a000064), kPeer = Addr::FromV4(0x0a000164);
const Addr kOurs6 = *Addr::Parse("fd00::1"), kPeer6 = *Addr::Parse("fd00::2");

probe::PacketSpec Spec(const Addr& from, const Addr& to) {
  probe::PacketSpec spec;
  spec.local = from;
  spec.remote = to;
  spec.port = 49155;
  spec.slot = 3;
  spec.dscp = 26;
  spec.session = 7;
  spec.cookie = 5;
  spec.key = {{1, 2}};
  return spec;
}

// As the receiver's NIC would give it.
std::array<uint8_t, kGrhLen> GrhOf(absl::Span<const uint8_t> packet) {
  std::array<uint8_t, kGrhLen> grh;
  grh.fill(0xaa);
  const bool v4 = !probe::IsIp6(packet);
  std::copy_n(packet.begin(), v4 ? 20 : 40, grh.begin() + (v4 ? 20 : 0));
  return grh;
}

class Packing : public testing::TestWithParam<bool> {
 protected:
  Addr ours() const { return GetParam() ? kOurs6 : kOurs; }
  Addr peer() const { return GetParam() ? kPeer6 : kPeer; }
};

TEST_P(Packing, ARequestArrivesAsTheFrameThatItWouldHaveBeen) {
  auto request = probe::ProbeTemplate::Make(CW_PROBE_REQUEST, Spec(ours(), peer()));
  ASSERT_TRUE(request.ok()) << request.status();
  request->SetRound(42);
  const absl::Span<const uint8_t> packet = request->bytes();
  auto unpacked = Unpack(packet);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(unpacked->from, ours());
  EXPECT_EQ(unpacked->to, peer());
  EXPECT_EQ(unpacked->port, 49155);
  EXPECT_EQ(unpacked->traffic_class, 26 << 2 | 2);
  EXPECT_EQ(unpacked->type, CW_PROBE_REQUEST);
  EXPECT_EQ(unpacked->payload.size(), size_t{CW_PROBE_HDR_LEN});

  const auto arrival = ReadGrh(GrhOf(packet), !GetParam());
  ASSERT_TRUE(arrival);
  EXPECT_EQ(arrival->from, ours());
  EXPECT_EQ(arrival->to, peer());
  EXPECT_EQ(arrival->traffic_class, 26 << 2 | 2);
  Frame frame;
  const auto packed = PackFrame(*arrival, 49155, unpacked->payload, &frame);
  ASSERT_TRUE(packed);
  // The same but for the ICRC, which the programs do not look at.
  const absl::Span<const uint8_t> again = PacketOf(*packed);
  ASSERT_EQ(again.size(), packet.size());
  EXPECT_EQ(again.subspan(0, again.size() - CW_ICRC_LEN), packet.subspan(0, packet.size() - CW_ICRC_LEN));

  Frame plain;
  const auto framed = FrameOf(packet, &plain);
  ASSERT_TRUE(framed);
  EXPECT_EQ(PacketOf(*framed), packet);
  EXPECT_EQ((*framed)[12] << 8 | (*framed)[13], GetParam() ? 0x86dd : 0x0800);
}

TEST_P(Packing, AMessageKeepsItsBody) {
  const std::vector<uint8_t> body(CW_MSG_MAX, 0x5a);
  auto message = probe::BuildMessage(Spec(ours(), peer()), 9, body);
  ASSERT_TRUE(message.ok()) << message.status();
  auto unpacked = Unpack(*message);
  ASSERT_TRUE(unpacked.ok()) << unpacked.status();
  EXPECT_EQ(unpacked->type, CW_PROBE_MESSAGE);
  ASSERT_EQ(unpacked->payload.size(), kMaxPayload);
  auto view = probe::ParseMessage(unpacked->payload);
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_TRUE(probe::VerifyMessage(unpacked->payload, {{1, 2}}).ok());
  Frame frame;
  EXPECT_TRUE(PackFrame({.from = ours(), .to = peer(), .hop_limit = 64}, 49152, unpacked->payload, &frame));
}

INSTANTIATE_TEST_SUITE_P(Families, Packing, testing::Values(false, true),
                         [](const auto& family) { return family.param ? "IPv6" : "IPv4"; });

TEST(PackingRefuses, WhatIsNoProbe) {
  EXPECT_FALSE(Unpack({}).ok());
  std::vector<uint8_t> short_packet(60, 0);
  short_packet[0] = 0x45;
  EXPECT_FALSE(Unpack(short_packet).ok());
  auto request = probe::ProbeTemplate::Make(CW_PROBE_REQUEST, Spec(kOurs, kPeer));
  ASSERT_TRUE(request.ok());
  std::vector<uint8_t> other(request->bytes().begin(), request->bytes().end());
  other[28] = 0x64;  // another BTH opcode
  EXPECT_FALSE(Unpack(other).ok());
  Frame frame;
  const std::vector<uint8_t> payload(kMaxPayload + 1);
  const Arrival arrival = {.from = kOurs, .to = kPeer, .hop_limit = 64};
  EXPECT_FALSE(PackFrame(arrival, 49152, payload, &frame));
  EXPECT_FALSE(PackFrame(arrival, 49152, absl::MakeSpan(payload).subspan(0, CW_PROBE_HDR_LEN - 1), &frame));
  EXPECT_FALSE(PackFrame({.from = kOurs, .to = kPeer6, .hop_limit = 64}, 49152,
                         absl::MakeSpan(payload).subspan(0, CW_PROBE_HDR_LEN), &frame));
}

TEST(PackingRefuses, AGrhOfTheOtherFamily) {
  std::array<uint8_t, kGrhLen> grh{};
  EXPECT_FALSE(ReadGrh(grh, true));
  EXPECT_FALSE(ReadGrh(grh, false));
  EXPECT_FALSE(ReadGrh(absl::MakeSpan(grh).subspan(1), true));
}

// That these are the ports on the wire: tests/vm/verbs_probe_test.cc.
TEST(SoftRoce, PortsAreWithinTheRangeAndDiffer) {
  std::set<uint16_t> ports;
  for (uint32_t qpn = 17; qpn < 17 + 64; ++qpn) {
    EXPECT_GE(SoftRocePort(qpn), kFirstRocePort);
    ports.insert(SoftRocePort(qpn));
  }
  EXPECT_EQ(ports.size(), 64u);
}

TEST(FlowLabels, EveryPortThatSoftRoceHasCanBeALabels) {
  for (uint32_t qpn = 17; qpn < 1000; ++qpn) {
    const auto label = rdma::LabelOfPort(SoftRocePort(qpn));
    ASSERT_TRUE(label);
    EXPECT_EQ(rdma::PortOfLabel(*label), SoftRocePort(qpn));
  }
}

class Hellos : public testing::Test {
 protected:
  void SetUp() override {
    cw_pair_keys& k = sender_;
    k.tx[0][0] = receiver_.rx[0][0] = 11;
    k.tx[0][1] = receiver_.rx[0][1] = 12;
    k.rx[0][0] = receiver_.tx[0][0] = 21;
    k.rx[0][1] = receiver_.tx[0][1] = 22;
    k.valid = receiver_.valid = 1;
  }
  const Hello hello_ = {
      .type = Hello::Type::kAsk, .nonce = 0x1122334455667788, .qpn = 0xabcdef, .from = kOurs, .to = kPeer};
  cw_pair_keys sender_{}, receiver_{};
};

TEST_F(Hellos, ArriveWhole) {
  const HelloBytes bytes = EncodeHello(hello_, sender_);
  const auto got = DecodeHello(bytes, receiver_);
  ASSERT_TRUE(got);
  EXPECT_EQ(got->type, hello_.type);
  EXPECT_EQ(got->nonce, hello_.nonce);
  EXPECT_EQ(got->qpn, hello_.qpn);
  EXPECT_EQ(got->from, kOurs);
  EXPECT_EQ(got->to, kPeer);
}

TEST_F(Hellos, NoBitCanBeChanged) {
  const HelloBytes bytes = EncodeHello(hello_, sender_);
  for (size_t bit = 0; bit < 8 * kHelloLen; ++bit) {
    HelloBytes changed = bytes;
    changed[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_FALSE(DecodeHello(changed, receiver_)) << "bit " << bit;
  }
}

TEST_F(Hellos, NeitherAnotherKeyNorOnesOwnReflectedNorAKeyThatEnded) {
  const HelloBytes bytes = EncodeHello(hello_, sender_);
  EXPECT_FALSE(DecodeHello(bytes, sender_));
  cw_pair_keys other = receiver_;
  other.rx[0][1] ^= 1;
  EXPECT_FALSE(DecodeHello(bytes, other));
  receiver_.valid = 2;
  EXPECT_FALSE(DecodeHello(bytes, receiver_));
  EXPECT_FALSE(DecodeHello(absl::MakeSpan(bytes).subspan(1), receiver_));
}

class Book : public testing::Test {
 protected:
  static constexpr int64_t kStart = 1'000'000'000;
  std::vector<PeerBook::Question> Due(int64_t now_ns) {
    return book_.Due(now_ns, [this] { return ++nonce_; });
  }
  const PairKey pair_ = {.local = kOurs, .remote = kPeer};
  PeerBook book_;
  uint64_t nonce_ = 100;
};

TEST_F(Book, AsksUntilItKnowsAndThenSeldom) {
  book_.SetPairs({pair_}, {});
  EXPECT_FALSE(book_.Qpn(pair_));
  EXPECT_EQ(Due(kStart).size(), 1u);
  EXPECT_TRUE(Due(kStart + PeerBook::kAskUnknownNs - 1).empty());
  const auto again = Due(kStart + PeerBook::kAskUnknownNs);
  ASSERT_EQ(again.size(), 1u);
  ASSERT_TRUE(book_.Answered(pair_, again[0].nonce, 18));
  EXPECT_EQ(book_.Qpn(pair_), 18u);
  EXPECT_EQ(book_.known(), 1u);
  const int64_t next = kStart + 2 * PeerBook::kAskUnknownNs;
  ASSERT_EQ(Due(next).size(), 1u);
  EXPECT_TRUE(Due(next + PeerBook::kAskKnownNs - 1).empty());
  EXPECT_EQ(Due(next + PeerBook::kAskKnownNs).size(), 1u);
}

TEST_F(Book, TakesOnlyTheAnswerToItsLatestQuestionAndThatOnce) {
  book_.SetPairs({pair_}, {});
  const uint64_t old = Due(kStart)[0].nonce;
  const uint64_t latest = Due(kStart + PeerBook::kAskUnknownNs)[0].nonce;
  EXPECT_FALSE(book_.Answered(pair_, old, 18));
  EXPECT_FALSE(book_.Answered(pair_, 0, 18));
  EXPECT_FALSE(book_.Answered({.local = kOurs, .remote = kOurs}, latest, 18));
  EXPECT_TRUE(book_.Answered(pair_, latest, 18));
  EXPECT_FALSE(book_.Answered(pair_, latest, 19));
  EXPECT_EQ(book_.Qpn(pair_), 18u);
}

TEST_F(Book, KeepsWhatItKnowsOfPairsThatStay) {
  const PairKey other = {.local = kOurs, .remote = kOurs6};
  book_.SetPairs({pair_, other}, {});
  for (const auto& question : Due(kStart)) EXPECT_TRUE(book_.Answered(question.pair, question.nonce, 20));
  book_.SetPairs({pair_}, {});
  EXPECT_EQ(book_.Qpn(pair_), 20u);
  EXPECT_FALSE(book_.Qpn(other));
  EXPECT_FALSE(book_.Has(other));
  EXPECT_EQ(book_.pairs(), 1u);
  EXPECT_EQ(book_.known(), 1u);
}

// A NIC that the kernel serves, in a fleet without verbs: nobody is asked, nothing is sent.
TEST_F(Book, OfAKernelsNicAsksOnlyWhoAskedLately) {
  book_.SetPairs({}, {pair_});
  EXPECT_TRUE(Due(kStart).empty());
  EXPECT_EQ(book_.pairs(), 0u);
  book_.WasAsked(pair_, kStart);
  const auto question = Due(kStart);
  ASSERT_EQ(question.size(), 1u);
  EXPECT_EQ(book_.known(), 0u) << "a question may be an old one";
  ASSERT_TRUE(book_.Answered(pair_, question[0].nonce, 18));
  EXPECT_EQ(book_.Qpn(pair_), 18u);
  EXPECT_EQ(book_.KnownFrom(kOurs), 1u);
  EXPECT_EQ(book_.KnownFrom(kPeer), 0u);
  // As long as it asks it is known, and not much longer.
  book_.WasAsked(pair_, kStart + PeerBook::kAskKnownNs);
  Due(kStart + PeerBook::kAskedForNs);
  EXPECT_EQ(book_.known(), 1u);
  EXPECT_TRUE(Due(kStart + PeerBook::kAskKnownNs + PeerBook::kAskedForNs).empty());
  EXPECT_FALSE(book_.Qpn(pair_));
  EXPECT_EQ(book_.known(), 0u);
  EXPECT_EQ(book_.pairs(), 0u);
}

// A peer that went back to the kernel's way says so; a NIC by verbs sends to it by UD all the same.
TEST_F(Book, TwoKernelsNicsNeedNoQueuePair) {
  const PairKey by_verbs = {.local = kOurs6, .remote = kPeer6};
  book_.SetPairs({by_verbs}, {pair_});
  book_.WasAsked(pair_, kStart);
  for (const auto& question : Due(kStart)) ASSERT_TRUE(book_.Answered(question.pair, question.nonce, 18));
  EXPECT_EQ(book_.known(), 2u);
  const int64_t later = kStart + PeerBook::kAskKnownNs;
  for (const auto& question : Due(later)) ASSERT_TRUE(book_.Answered(question.pair, question.nonce, CW_BTH_QPN));
  EXPECT_FALSE(book_.Qpn(pair_));
  EXPECT_EQ(book_.Qpn(by_verbs), uint32_t{CW_BTH_QPN});
  EXPECT_EQ(book_.known(), 1u);
  EXPECT_EQ(Due(later + PeerBook::kAskKnownNs).size(), 1u) << "the other is asked no more";
}

class UdPackets : public Packing {
 protected:
  UdSend Send(absl::Span<const uint8_t> payload) const {
    return {.from = ours(),
            .to = peer(),
            .port = 0xc123,
            .traffic_class = 0x6a,
            .label = GetParam() ? 0x54321u : 0,
            .qpn = 0x11,
            .from_qpn = CW_BTH_QPN,
            .payload = payload};
  }
};

TEST_P(UdPackets, ArriveAsTheyWereSentWhateverFollows) {
  for (const size_t size : {size_t{CW_PROBE_HDR_LEN}, size_t{CW_PROBE_HDR_LEN + 9}, kMaxPayload}) {
    std::vector<uint8_t> payload(size);
    for (size_t i = 0; i < size; ++i) payload[i] = static_cast<uint8_t>(i * 7);
    UdPacket bytes;
    const auto packet = BuildUdSend(Send(payload), &bytes);
    ASSERT_FALSE(packet.empty());
    EXPECT_EQ(packet.size() % 4, 0u);
    const uint32_t icrc = probe::ComputeIcrc(packet.first(packet.size() - CW_ICRC_LEN));
    EXPECT_EQ(0, std::memcmp(&icrc, packet.data() + packet.size() - CW_ICRC_LEN, sizeof(icrc)));
    std::vector<uint8_t> padded(packet.begin(), packet.end());
    padded.resize(padded.size() + 6);
    const auto arrived = ParseUdSend(padded);
    ASSERT_TRUE(arrived) << size;
    EXPECT_EQ(arrived->from, ours());
    EXPECT_EQ(arrived->to, peer());
    EXPECT_EQ(arrived->port, 0xc123);
    EXPECT_EQ(arrived->traffic_class, 0x6a);
    EXPECT_EQ(arrived->label, GetParam() ? 0x54321u : 0u);
    EXPECT_EQ(arrived->qpn, 0x11u);
    EXPECT_EQ(arrived->from_qpn, uint32_t{CW_BTH_QPN});
    EXPECT_EQ(std::vector<uint8_t>(arrived->payload.begin(), arrived->payload.end()), payload);
  }
}

TEST_P(UdPackets, ThatAreCutOrSomebodyElsesAreNone) {
  const std::vector<uint8_t> payload(CW_PROBE_HDR_LEN, 7);
  UdPacket bytes;
  const auto packet = BuildUdSend(Send(payload), &bytes);
  for (size_t len = 0; len < packet.size(); ++len) EXPECT_FALSE(ParseUdSend(packet.first(len))) << len;
  const size_t ip = probe::IpLen(!GetParam());
  // Protocol, RoCE's port, UDP length, opcode, version, Q_Key.
  for (const size_t at : {GetParam() ? size_t{6} : size_t{9}, ip + 3, ip + 5, ip + 8, ip + 9, ip + 20}) {
    std::vector<uint8_t> other(packet.begin(), packet.end());
    other[at] ^= 1;
    EXPECT_FALSE(ParseUdSend(other)) << at;
  }
  EXPECT_TRUE(BuildUdSend(Send(std::vector<uint8_t>(CW_PROBE_HDR_LEN - 1)), &bytes).empty());
  EXPECT_TRUE(BuildUdSend(Send(std::vector<uint8_t>(kMaxPayload + 1)), &bytes).empty());
}

INSTANTIATE_TEST_SUITE_P(Families, UdPackets, testing::Values(false, true),
                         [](const auto& v) { return v.param ? "Ip6" : "Ip4"; });

}  // namespace
}  // namespace cw::probe_verbs
