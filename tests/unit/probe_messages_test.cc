// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/messages.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/unit/probe_fakes.h"
#include "userspace/probe/message_channel.h"
#include "userspace/probe/packet.h"

namespace cw::probe {
namespace {

ClockClaim ClaimExample() {
  sync::FleetClaim c;
  c.host_id = 0xfedcba9876543210;
  c.timeline = 0x0123456789abcdef;
  c.state = sync::SyncState::kFreeRunning;
  c.split = true;
  c.anchor_ns = 1'234'567'890'123'456;
  c.offset_ns = -1'000'000'000'123;
  c.slope_ppb = -98'765.432109;
  c.error_est_ns = 37;
  c.reference_id = 0xffffffffffffffff;
  c.width_ns = 5'210;
  c.hops = 3;
  c.tai_offset_ns = kMaxClaimNs;
  c.tai_bound_ns = 1'200'000;
  c.tai_hops = 2;
  c.rate_ppb = 12'345.678901;
  c.reference_seq = 0xfffffffe;
  c.anchor = {.anchor_id = 77,
              .offset_ns = -kMaxClaimNs,
              .bound_ns = 900'000,
              .drift_ppb = -0.125,
              .age_ns = 1'000'000'000,
              .hops = 4};
  return {c};
}

const ChunkArrival kArrival{.operation = 0xfedcba9876543210,
                            .qpn = 0xffffff,
                            .number = kMaxChunks - 1,
                            .posted = kMaxChunks,
                            .bound_ns = kMaxChunkBoundNs,
                            .fleet_ns = -kMaxClaimNs,
                            .bytes = 0xffffffffffffffff};

std::vector<Body> Examples() {
  SampleBatch samples;
  for (size_t i = 0; i < kMaxSamplesPerMessage; ++i) {
    samples.samples.push_back({static_cast<uint32_t>(0xffffff - i), static_cast<uint32_t>(i), i % 2 == 0, i % 3 == 0,
                               static_cast<int64_t>(i) * -1'000'000'007});
  }
  ClockBatch clock;
  for (size_t i = 0; i < kMaxClockPointsPerMessage; ++i) {
    clock.points.push_back({static_cast<uint8_t>(i % CW_MAX_SLOTS), INT64_MAX - static_cast<int64_t>(i), INT64_MIN});
  }
  return {samples,
          clock,
          Hello{"h0.example", "0.1.0"},
          SampleBatch{},
          ClockBatch{},
          Hello{},
          ClockClaim{},
          ClaimExample(),
          PathDeath{7, {1, 0xffffff}},
          PathDeath{},
          ClassQuestion{15, true, 0xfffffffe},
          ClassQuestion{},
          GapReport{true, {{0xffffff, true, UINT32_MAX}, {1, false, 0}}},
          GapReport{},
          GapReport{false, std::vector(kMaxGapsPerMessage, GapReport::Flow{.qpn = 7})},
          SizeReport{},
          NicMeasures{},
          NicMeasures{Addr::FromV4(0x0a000101), true},
          SizeReport{true, 15, 4160, UINT32_MAX, 4200, "enp129s0f0np0v1"},
          ChunkArrivals{},
          ChunkArrivals{7, std::vector(kMaxChunkArrivalsPerMessage, kArrival)}};
}

TEST(ProbeMessages, RoundTrip) {
  for (const Body& body : Examples()) {
    auto bytes = EncodeBody(body);
    ASSERT_TRUE(bytes.ok()) << bytes.status();
    EXPECT_LE(bytes->size(), size_t{CW_MSG_MAX});
    auto back = DecodeBody(*bytes);
    ASSERT_TRUE(back.ok()) << back.status();
    EXPECT_EQ(body, *back);
  }
}

TEST(ProbeMessages, BytesOfASample) {
  auto bytes = EncodeBody(SampleBatch{{{0x1a2b3c, 0x010203, true, false, 0x1122334455667788}}});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((std::vector<uint8_t>{1, 1, 0,    1,    0,    0x1a, 0x2b, 0x3c, 1,    1,
                                  2, 3, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88}),
            *bytes);
}

TEST(ProbeMessages, BytesOfAChunksArrival) {
  auto bytes = EncodeBody(ChunkArrivals{
      1, {{.operation = 2, .qpn = 3, .number = 4, .posted = 5, .bound_ns = 6, .fleet_ns = 7, .bytes = 8}}});
  ASSERT_TRUE(bytes.ok());
  const std::vector<uint8_t> expected = {11, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0,
                                         0,  4, 0, 0, 0, 5, 0, 0, 0, 6, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8};
  EXPECT_EQ(*bytes, expected);
  for (size_t at : {23, 27, 31, 35}) {  // QPN, number, posted, bound
    std::vector<uint8_t> wrong = expected;
    wrong[at] = at == 23 || at == 31 ? 0 : wrong[at];
    if (at == 27) wrong[at] = 5;
    if (at == 35) wrong[at - 3] = 0x40;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(wrong).status())) << at;
  }
  EXPECT_FALSE(EncodeBody(ChunkArrivals{0, std::vector(kMaxChunkArrivalsPerMessage + 1, kArrival)}).ok());
  EXPECT_FALSE(EncodeBody(ChunkArrivals{0, {ChunkArrival{}}}).ok());
}

TEST(ProbeMessages, EveryTruncationAndExtensionIsAnError) {
  for (const Body& body : Examples()) {
    auto bytes = EncodeBody(body);
    ASSERT_TRUE(bytes.ok());
    for (size_t cut = 0; cut < bytes->size(); ++cut) {
      EXPECT_FALSE(DecodeBody(absl::MakeConstSpan(*bytes).first(cut)).ok()) << cut;
    }
    bytes->push_back(0);
    EXPECT_FALSE(DecodeBody(*bytes).ok());
  }
}

TEST(ProbeMessages, RandomBytesNeverCrashAndWhatDecodesEncodesToTheSameBytes) {
  std::mt19937 random(11);
  int decoded = 0;
  for (int i = 0; i < 200'000; ++i) {
    std::vector<uint8_t> bytes(random() % 80);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(random() % (i % 2 == 0 ? 4 : 256));
    auto body = DecodeBody(bytes);
    if (!body.ok()) continue;
    ++decoded;
    auto again = EncodeBody(*body);
    ASSERT_TRUE(again.ok());
    EXPECT_EQ(bytes, *again);
  }
  EXPECT_GT(decoded, 0);
}

TEST(ProbeMessages, LimitsAndVersions) {
  EXPECT_FALSE(EncodeBody(SampleBatch{std::vector<SampleHalf>(kMaxSamplesPerMessage + 1)}).ok());
  EXPECT_FALSE(EncodeBody(SampleBatch{{{1u << 24, 0, false, false, 0}}}).ok());
  EXPECT_FALSE(EncodeBody(ClockBatch{std::vector<ClockPoint>(kMaxClockPointsPerMessage + 1)}).ok());
  EXPECT_FALSE(EncodeBody(Hello{std::string(300, 'a'), ""}).ok());
  auto bytes = EncodeBody(Hello{"a", "b"});
  (*bytes)[1] = kBodyVersion + 1;
  EXPECT_TRUE(absl::IsUnimplemented(DecodeBody(*bytes).status())) << "a newer agent's, no fault";
  (*bytes)[1] = kBodyVersion;
  (*bytes)[0] = 200;
  EXPECT_TRUE(absl::IsUnimplemented(DecodeBody(*bytes).status()));
  auto control = EncodeBody(Hello{"a\x1b[2J", "b"});
  ASSERT_TRUE(control.ok());
  EXPECT_FALSE(DecodeBody(*control).ok()) << "escape sequences reach terminals";
}

TEST(ProbeMessages, BytesOfAClaim) {
  auto bytes = EncodeBody(ClaimExample());
  ASSERT_TRUE(bytes.ok());
  ASSERT_EQ(bytes->size(), kBodyHeaderLen + kClockClaimLen);
  EXPECT_EQ((std::vector<uint8_t>{4, 1, 0, 1, 0xfe, 0xdc, 0xba, 0x98, 0x76, 0x54, 0x32, 0x10}),
            std::vector<uint8_t>(bytes->begin(), bytes->begin() + 12));
  EXPECT_EQ((*bytes)[kBodyHeaderLen + 16], 2) << "free-running";
}

TEST(ProbeMessages, TripsThatWouldOverflowAreRefused) {
  auto bytes = EncodeBody(TripBatch{.trips = {{1, 2, 3, 4}}});
  ASSERT_TRUE(bytes.ok());
  ASSERT_TRUE(DecodeBody(*bytes).ok());
  for (size_t at : {4, 12, 20, 28}) {
    auto far = *bytes;
    far[at] = 0x7f;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(far).status())) << at;
  }
}

TEST(ProbeMessages, TripsByNicsTellTheirErrors) {
  const TripBatch batch{.trips = {{1, 2, 3, 4}, {5, 6, 7, 8}}, .by_nics = true, .error_ns = 30, .bound_ns = 700};
  auto bytes = EncodeBody(batch);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((*bytes)[0], 8) << "a kind of its own: an agent that does not know it must not take these for software's";
  auto body = DecodeBody(*bytes);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(std::get<TripBatch>(*body), batch);
  EXPECT_NE(std::get<TripBatch>(*body), (TripBatch{.trips = batch.trips}));
  for (size_t at : {4, 12}) {
    auto far = *bytes;
    far[at] = 1;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(far).status())) << at;
  }
  bytes->pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(*bytes).status()));
  EXPECT_FALSE(EncodeBody(TripBatch{.by_nics = true, .error_ns = 800, .bound_ns = 700}).ok());
  EXPECT_FALSE(EncodeBody(TripBatch{.by_nics = true, .bound_ns = kMaxNicErrorNs + 1}).ok());
  EXPECT_TRUE(EncodeBody(TripBatch{.trips = std::vector(kMaxTripsPerMessage, sync::Trip{}), .by_nics = true}).ok());
}

TEST(ProbeMessages, LinksGoAndComeAndImpossibleOnesAreRefused) {
  const LinkBatch batch{{{.host_id = 7, .disagreement_ns = -1500, .error_ns = 80}, {.host_id = UINT64_MAX}}};
  auto bytes = EncodeBody(batch);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->size(), kBodyHeaderLen + 2 * kLinkLen);
  auto body = DecodeBody(*bytes);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(std::get<LinkBatch>(*body), batch);
  for (size_t at : {12, 20}) {
    auto far = *bytes;
    far[at] = 0x7f;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(far).status())) << at;
  }
  bytes->pop_back();
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(*bytes).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeBody(LinkBatch{{{.error_ns = 0}}}).status()));
  LinkBatch many;
  many.links.resize(kMaxLinksPerMessage + 1);
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeBody(many).status()));
}

TEST(ProbeMessages, NicReportsRoundTripAndAreChecked) {
  const NicReports batch{{{.pair = {Addr::FromV4(0x0a000001), Addr::FromV4(0x0a000002)},
                           .carrier = {Addr::FromV4(0x0a000101), Addr::FromV4(0x0a000002)},
                           .tag = 3,
                           .silent = true},
                          {.restores = true}}};
  const auto bytes = EncodeBody(batch);
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ(bytes->size(), kBodyHeaderLen + 2 * kNicReportLen);
  const auto body = DecodeBody(*bytes);
  ASSERT_TRUE(body.ok()) << body.status();
  EXPECT_EQ(std::get<NicReports>(*body), batch);
  EXPECT_FALSE(EncodeBody(NicReports{{{.tag = 4}}}).ok());
  EXPECT_FALSE(EncodeBody(NicReports{std::vector<NicReport>(kMaxNicReportsPerMessage + 1)}).ok());
  for (const size_t at : {64, 65, 66, 67}) {  // tag, bits, reserved
    std::vector<uint8_t> bad = *bytes;
    bad[kBodyHeaderLen + at] = 0x80;
    EXPECT_FALSE(DecodeBody(bad).ok()) << at;
  }
  std::vector<uint8_t> cut = *bytes;
  cut.pop_back();
  EXPECT_FALSE(DecodeBody(cut).ok());
}

TEST(ProbeMessages, DeathsNameASlotAndQueuePairs) {
  auto bytes = EncodeBody(PathDeath{3, {0x1a2b3c}});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((std::vector<uint8_t>{7, 1, 0, 1, 3, 0, 0, 0, 0, 0x1a, 0x2b, 0x3c}), *bytes);
  for (size_t at : {4, 5, 8}) {
    auto bad = *bytes;
    bad[at] = 16;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(bad).status())) << at;
  }
  (*bytes)[9] = (*bytes)[10] = (*bytes)[11] = 0;
  EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(*bytes).status())) << "QPN 0";
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeBody(PathDeath{16, {}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeBody(PathDeath{0, {0}}).status()));
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeBody(PathDeath{0, {1u << 24}}).status()));
  EXPECT_TRUE(EncodeBody(PathDeath{0, std::vector<uint32_t>(kMaxQpnsPerMessage, 1)}).ok());
  EXPECT_TRUE(
      absl::IsInvalidArgument(EncodeBody(PathDeath{0, std::vector<uint32_t>(kMaxQpnsPerMessage + 1, 1)}).status()));
}

TEST(ProbeMessages, QuestionsInAnotherClass) {
  auto bytes = EncodeBody(ClassQuestion{3, true, 0x1a2b3c4d});
  ASSERT_TRUE(bytes.ok());
  EXPECT_EQ((std::vector<uint8_t>{10, 1, 0, 0, 3, 1, 0, 0, 0x1a, 0x2b, 0x3c, 0x4d}), *bytes);
  for (size_t at : {2, 4, 5, 6, 7}) {  // count, slot, answer, zeros
    auto bad = *bytes;
    bad[at] = 16;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(bad).status())) << at;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(EncodeBody(ClassQuestion{16, false, 0}).status()));
}

TEST(ProbeMessages, WhatASizeReportDoesNotMeanIsRefused) {
  const auto bytes = EncodeBody(SizeReport{.slot = 3, .bytes = 4160, .mtu = 4200, .nic = "eth0"});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (const size_t at : {2, 3, 4, 5, 17, 30}) {  // count, answer, slot, an unprintable name, one behind its end
    std::vector<uint8_t> bad = *bytes;
    bad[at] = at == 30 ? 'x' : 0x81;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(bad).status())) << at;
  }
}

TEST(ProbeMessages, AWordOnANicIsYesOrNo) {
  const auto bytes = EncodeBody(NicMeasures{.nic = Addr::FromV4(0x0a000101), .measures = true});
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  for (const size_t at : {2, 20, 21, 23}) {  // count, the word, zeros
    std::vector<uint8_t> bad = *bytes;
    bad[at] = 2;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(bad).status())) << at;
  }
}

TEST(ProbeMessages, ClaimsOutOfRangeAreNeitherSentNorTaken) {
  const auto bad = [](void (*change)(sync::FleetClaim&)) {
    ClockClaim body = ClaimExample();
    change(body.claim);
    return EncodeBody(body).status();
  };
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.anchor_ns = INT64_MAX; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.offset_ns = INT64_MIN; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.error_est_ns = -1; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.width_ns = -1; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.tai_bound_ns = -2; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.slope_ppb = 2e6; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.slope_ppb = NAN; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.hops = 1001; })));
  EXPECT_TRUE(absl::IsInvalidArgument(bad([](sync::FleetClaim& c) { c.anchor.age_ns = -1; })));
  // The same by bytes, as a faulty or hostile peer would send them: each field's first byte, set to its extremes.
  const auto good = EncodeBody(ClaimExample());
  ASSERT_TRUE(good.ok());
  for (size_t at : {20, 21, 29, 37, 45, 61, 69, 73, 81, 89, 93, 113, 121, 129, 137, 145}) {
    auto bytes = *good;
    bytes[at] = 0x7f;
    EXPECT_TRUE(absl::IsInvalidArgument(DecodeBody(bytes).status())) << at;
  }
  auto flags = *good;
  flags.back() = 2;
  EXPECT_FALSE(DecodeBody(flags).ok());
}

TEST(ReplayWindow, EachMessageOnceInAnyOrderWithinTheWindow) {
  ReplayWindow w;
  EXPECT_TRUE(w.Accept(10, 5));
  EXPECT_FALSE(w.Accept(10, 5));
  EXPECT_TRUE(w.Accept(10, 7));
  EXPECT_TRUE(w.Accept(10, 6));
  EXPECT_FALSE(w.Accept(10, 6));
  EXPECT_TRUE(w.Accept(10, 70));
  EXPECT_FALSE(w.Accept(10, 6)) << "64 behind: too old to tell";
  EXPECT_TRUE(w.Accept(10, 8));
  EXPECT_FALSE(w.Accept(9, 1000)) << "an old session";
  EXPECT_TRUE(w.Accept(11, 1)) << "the peer restarted";
  EXPECT_FALSE(w.Accept(10, 71));
  EXPECT_TRUE(w.Accept(11, 0xffffffffu)) << "2 behind, modulo 2^32";
  EXPECT_TRUE(w.Accept(11, 1000));
  EXPECT_FALSE(w.Accept(11, 1));
}

TEST(ReplayWindow, RandomOrderAcceptsEachOnce) {
  std::mt19937 random(5);
  ReplayWindow w;
  std::vector<int> accepted(2000);
  for (int base = 0; base < 1990; ++base) {
    for (int i = 0; i < 3; ++i) {
      const uint32_t sequence = base + random() % 10;
      if (w.Accept(1, 0xfffffff0u + sequence)) ++accepted[sequence];
    }
  }
  for (int n : accepted) EXPECT_LE(n, 1);
  EXPECT_GT(std::count(accepted.begin(), accepted.end(), 1), 1500);
}

// Two meshes, each other's peer, with the datagrams carried by hand.
class Channel : public testing::Test {
 protected:
  struct End {
    End(const char* local, const char* remote, uint32_t session) : keys(TestKeys()) {
      MeshOptions options;
      options.session = session;
      mesh = std::make_unique<Mesh>(&store, &keys, options);
      EXPECT_TRUE(mesh->Configure({{TestAddr(local), 1, TestAddr(remote), "peer", 0}}).ok());
      mesh->slots(0).SetPaths({50000, 50001, 50002}, nullptr, 0);
      channel = std::make_unique<MessageChannel>(mesh.get(), [this](uint32_t, absl::Span<const uint8_t> p) {
        if (busy) return absl::UnavailableError("full");
        wire.emplace_back(p.begin(), p.end());
        return absl::OkStatus();
      });
    }
    MemoryPairStore store{4};
    KeyRing keys;
    std::unique_ptr<Mesh> mesh;
    std::unique_ptr<MessageChannel> channel;
    std::vector<std::vector<uint8_t>> wire;
    bool busy = false;
  };
  static cw_ev_msg Record(const std::vector<uint8_t>& packet) {
    cw_ev_msg r{};
    r.type = CW_EV_MSG;
    r.len = static_cast<uint16_t>(packet.size() - HdrOffset(true) - CW_ICRC_LEN);
    std::copy_n(packet.begin() + HdrOffset(true), r.len, r.packet);
    return r;
  }
  End a_{"10.0.0.10", "10.0.1.10", 1000};
  End b_{"10.0.1.10", "10.0.0.10", 1001};
};

TEST_F(Channel, DeliversOnceToTheRightPeerOnly) {
  for (const Body& body : Examples()) ASSERT_TRUE(a_.channel->Send(0, body).ok());
  ASSERT_EQ(Examples().size(), a_.wire.size());
  for (size_t i = 0; i < a_.wire.size(); ++i) {
    auto got = b_.channel->Receive(Record(a_.wire[i]));
    ASSERT_TRUE(got.ok()) << got.status();
    EXPECT_EQ(Examples()[i], *got);
    EXPECT_TRUE(absl::IsAlreadyExists(b_.channel->Receive(Record(a_.wire[i])).status()));
    EXPECT_TRUE(absl::IsUnauthenticated(a_.channel->Receive(Record(a_.wire[i])).status())) << "reflected";
  }
  EXPECT_EQ(Examples().size(), b_.channel->stats().rejected_replay);
  cw_ev_msg bad = Record(a_.wire[0]);
  bad.packet[CW_PROBE_HDR_LEN] ^= 1;
  EXPECT_TRUE(absl::IsUnauthenticated(b_.channel->Receive(bad).status()));
  bad.pair = 3;
  EXPECT_TRUE(absl::IsNotFound(b_.channel->Receive(bad).status()));
  bad.pair = 0;
  bad.len = sizeof(bad.packet) + 1;
  EXPECT_FALSE(b_.channel->Receive(bad).ok());
}

// The window is gone with the agent that kept it; the maps are not.
TEST_F(Channel, WhatWasRecordedBeforeARestartIsRefusedAfterIt) {
  a_.store.pairs[0].responder_session = 1001;
  b_.store.pairs[0].peer_session = 1000;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(a_.channel->Send(0, Hello{"a", "b"}).ok());
  for (size_t i : {0, 1}) ASSERT_TRUE(b_.channel->Receive(Record(a_.wire[i])).ok());

  End again("10.0.1.10", "10.0.0.10", 1002);
  again.store.pairs = b_.store.pairs;
  for (const auto& packet : a_.wire) {
    EXPECT_TRUE(absl::IsAlreadyExists(again.channel->Receive(Record(packet)).status()));
  }
  EXPECT_EQ(again.channel->stats().rejected_replay, 3u);
  a_.store.pairs[0].responder_session = 1002;  // the first probe's answer says so
  ASSERT_TRUE(a_.channel->Send(0, Hello{"a", "b"}).ok());
  EXPECT_TRUE(again.channel->Receive(Record(a_.wire.back())).ok());
}

TEST_F(Channel, MessagesOfAnEarlierSessionThanThePeersProbesAreRefused) {
  End before("10.0.0.10", "10.0.1.10", 999);
  ASSERT_TRUE(before.channel->Send(0, Hello{"a", "b"}).ok());
  b_.store.pairs[0].peer_session = 1000;
  EXPECT_TRUE(absl::IsAlreadyExists(b_.channel->Receive(Record(before.wire[0])).status()));
  ASSERT_TRUE(a_.channel->Send(0, Hello{"a", "b"}).ok());
  EXPECT_TRUE(b_.channel->Receive(Record(a_.wire[0])).ok()) << "one that does not say whom it is for";
}

TEST_F(Channel, ANewerAgentsMessagesArePassedOverAndCounted) {
  // What EncodeBody of a newer agent might make: a kind of its own, in an authenticated datagram.
  auto packet = BuildMessage(a_.mesh->Packet(0, 0, 50000), 1, std::vector<uint8_t>{200, 1, 0, 1, 0xaa, 0xbb});
  ASSERT_TRUE(packet.ok()) << packet.status();
  EXPECT_TRUE(absl::IsUnimplemented(b_.channel->Receive(Record(*packet)).status()));
  EXPECT_EQ(b_.channel->stats().passed_over, 1u);
  EXPECT_EQ(b_.channel->stats().rejected_malformed, 0u);
  ASSERT_TRUE(a_.channel->Send(0, Hello{"a", "b"}).ok());
  EXPECT_TRUE(absl::IsAlreadyExists(b_.channel->Receive(Record(a_.wire[0])).status())) << "number 1 was taken";
  ASSERT_TRUE(a_.channel->Send(0, ClaimExample()).ok());
  EXPECT_TRUE(b_.channel->Receive(Record(a_.wire[1])).ok());
}

TEST_F(Channel, TakesLivePathsInTurn) {
  a_.store.pairs[0].live_mask = 0b101;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(a_.channel->Send(0, Hello{"a", "b"}).ok());
  std::vector<int> ports;
  for (const auto& p : a_.wire) ports.push_back(p[20] << 8 | p[21]);
  std::sort(ports.begin(), ports.end());
  EXPECT_EQ((std::vector<int>{50000, 50000, 50002, 50002}), ports);
}

TEST_F(Channel, QueueIsBoundedAndFlushes) {
  a_.busy = true;
  int queued = 0;
  while (a_.channel->Send(0, Hello{"a", "b"}).ok() && queued < 10'000) ++queued;
  EXPECT_EQ(256, queued);
  EXPECT_EQ(1u, a_.channel->stats().queue_dropped);
  EXPECT_TRUE(a_.wire.empty());
  a_.busy = false;
  a_.channel->Flush();
  EXPECT_EQ(256u, a_.wire.size());
  EXPECT_TRUE(a_.channel->queue_empty());
  EXPECT_TRUE(absl::IsNotFound(a_.channel->Send(2, Hello{})));
}

}  // namespace
}  // namespace cw::probe
