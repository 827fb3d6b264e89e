// SPDX-License-Identifier: Apache-2.0
// A probe that came by verbs, shown to the programs: what they make of it is what they make of the same probe on a
// netdev.
#include <bpf/bpf.h>
#include <gtest/gtest.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <net/if.h>

#include <cerrno>
#include <cstring>

#include "maps/arrival.h"
#include "tests/bpf/probe_fixture.h"
#include "tests/bpf/veth_rig.h"
#include "userspace/probe/packet.h"
#include "userspace/probe_verbs/responder.h"

namespace cw::test {
namespace {

using probe_verbs::Turn;
using probe_verbs::Turned;

const Addr kOursAddr = Addr::FromV4(kOurs), kPeerAddr = Addr::FromV4(kPeer);

class VerbsTurn : public Probes {
 protected:
  Turned TurnOf(const Probe& p, const probe_verbs::Arrival& arrival) {
    const Bytes payload = Header(p, keys_.rx[p.key_id & 1]);
    return Turn(runner_, arrival, 50007, payload, &frame_);
  }
  const probe_verbs::Arrival arrival_ = {.from = kPeerAddr, .to = kOursAddr, .traffic_class = 0x6a, .hop_limit = 61};
  dataplane::ProgramRunner runner_{bpf_program__fd(rig_.skeleton()->progs.cw_xdp_ingress),
                                   bpf_program__fd(rig_.skeleton()->progs.cw_tc_egress)};
  probe_verbs::Frame frame_;
};

TEST_F(VerbsTurn, ARequestIsAnsweredAsOnANetdev) {
  const Probe request{.slot = 1, .round = 100};
  const uint64_t before = MonotonicNs();
  const Turned turned = TurnOf(request, arrival_);
  ASSERT_TRUE(turned.accepted);
  ASSERT_TRUE(turned.reply);
  EXPECT_EQ(turned.reply->from, kOursAddr);
  EXPECT_EQ(turned.reply->to, kPeerAddr);
  EXPECT_EQ(turned.reply->type, CW_PROBE_REPLY);
  EXPECT_EQ(turned.reply->traffic_class, 0x6a);
  const auto reply = As<cw_probe_hdr>(Bytes(turned.reply->payload.begin(), turned.reply->payload.end()));
  EXPECT_EQ(turned.reply->port, rig_.pair(3).slot[reply.rslot].port);
  const uint64_t t2 = __builtin_bswap64(reply.t2), t3 = __builtin_bswap64(reply.t3);
  EXPECT_GE(t2, before);
  EXPECT_GE(t3, t2);
  EXPECT_LE(t3, MonotonicNs());
  EXPECT_EQ(reply.t2_nic, 0u);
  EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 peer_restarts=1");
  // Replayed, it is known.
  EXPECT_FALSE(TurnOf(request, arrival_).reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_replayed=1");
}

TEST_F(VerbsTurn, CongestionOnTheWayIsTold) {
  probe_verbs::Arrival marked = arrival_;
  marked.traffic_class |= 3;
  const Turned turned = TurnOf({.slot = 1, .round = 101}, marked);
  ASSERT_TRUE(turned.reply);
  const auto reply = As<cw_probe_hdr>(Bytes(turned.reply->payload.begin(), turned.reply->payload.end()));
  EXPECT_EQ(reply.flags, CW_PROBE_CE | CW_PROBE_ECT);
  EXPECT_EQ(turned.reply->traffic_class, 0x6a);
}

TEST_F(VerbsTurn, WithNoLivePathTheAnswerTakesThePortThatIsAskedFor) {
  rig_.pair(3).live_mask = 0;
  const Turned turned = TurnOf({.slot = 1, .round = 100}, arrival_);
  ASSERT_TRUE(turned.reply);
  EXPECT_EQ(turned.reply->port, 50007);
}

TEST_F(VerbsTurn, OtherAddressesOrAWrongMacAreRefused) {
  probe_verbs::Arrival other = arrival_;
  other.from = Addr::FromV4(kPeer + 1);
  EXPECT_FALSE(TurnOf({.slot = 1, .round = 100}, other).reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_unknown_peer=1");
  keys_.rx[0][0] ^= 1;
  EXPECT_FALSE(TurnOf({.slot = 1, .round = 100}, arrival_).reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_bad_mac=1");
  const Bytes noise(CW_PROBE_HDR_LEN, 7);
  EXPECT_FALSE(Turn(runner_, arrival_, 50007, noise, &frame_).accepted);
  EXPECT_EQ(rig_.CounterChanges(), "probe_malformed=1");
  EXPECT_FALSE(Turn(runner_, arrival_, 50007, Bytes(20, 7), &frame_).accepted);
}

// Our own request leaves, and its answer is matched with it.
TEST_F(VerbsTurn, TheEgressProgramNotesWhenARequestLeaves) {
  probe::PacketSpec spec;
  spec.local = kOursAddr;
  spec.remote = kPeerAddr;
  spec.port = 50001;
  spec.slot = 1;
  spec.session = 77;
  spec.cookie = 3;
  spec.slots = 15;
  memcpy(spec.key.k, keys_.tx[0], sizeof(spec.key.k));
  auto request = probe::ProbeTemplate::Make(CW_PROBE_REQUEST, spec);
  ASSERT_TRUE(request.ok()) << request.status();
  request->SetRound(200);
  const auto seen = probe_verbs::FrameOf(request->bytes(), &frame_);
  ASSERT_TRUE(seen);
  const uint64_t before = MonotonicNs();
  ASSERT_TRUE(runner_.Egress(*seen).ok());
  EXPECT_EQ(rig_.CounterChanges(), "probe_sent=1");
  Probe reply{.type = CW_PROBE_REPLY, .slot = 1, .rslot = 2, .session = 77, .round = 200, .cookie = 3};
  reply.responder_session = 4000;
  reply.t2 = MonotonicNs();
  reply.t3 = reply.t2 + 10;
  reply.bitmap[0] = 2;
  const Turned turned = TurnOf(reply, arrival_);
  EXPECT_TRUE(turned.accepted);
  EXPECT_FALSE(turned.reply);
  EXPECT_EQ(rig_.CounterChanges(), "probe_replies=1");
  const std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  const auto ev = As<cw_ev_probe>(records[0]);
  EXPECT_GE(ev.t1, before);
  EXPECT_LE(ev.t1, reply.t2);
  EXPECT_GE(ev.t4, reply.t3 - 10);
}

class VerbsStamps : public VerbsTurn {
 protected:
  // The arrival of a new round's request as the reply tells it; 0: by no device.
  uint64_t T2ByNic(const Turned& turned) {
    EXPECT_TRUE(turned.reply);
    if (!turned.reply) return 0;
    return __builtin_bswap64(
        As<cw_probe_hdr>(Bytes(turned.reply->payload.begin(), turned.reply->payload.end())).t2_nic);
  }
  uint64_t T2ByNic(uint64_t stamp_ns) {
    probe_verbs::Arrival arrival = arrival_;
    arrival.ns = static_cast<int64_t>(stamp_ns);
    return T2ByNic(TurnOf({.slot = 1, .round = ++round_}, arrival));
  }
  // The same with metadata as it stands, from an interface; 0: what BPF_PROG_RUN takes.
  uint64_t T2OfShown(const Bytes& metadata, uint32_t ifindex) {
    const Bytes payload = Header({.slot = 1, .round = ++round_}, keys_.rx[0]);
    const auto packed = probe_verbs::PackFrame(arrival_, 50007, payload, &frame_);
    EXPECT_TRUE(packed);
    Bytes shown = metadata;
    shown.insert(shown.end(), packed->begin(), packed->end());
    xdp_md context = {};
    context.data = static_cast<__u32>(metadata.size());
    context.data_end = static_cast<__u32>(shown.size());
    context.ingress_ifindex = ifindex;
    LIBBPF_OPTS(bpf_test_run_opts, run, .data_in = shown.data(), .data_out = shown.data(),
                .data_size_in = context.data_end, .data_size_out = context.data_end, .ctx_in = &context,
                .ctx_size_in = sizeof(context), .repeat = 1);
    const int fd = bpf_program__fd(rig_.skeleton()->progs.cw_xdp_ingress);
    EXPECT_EQ(bpf_prog_test_run_opts(fd, &run), 0) << strerror(errno);
    EXPECT_EQ(run.retval, static_cast<__u32>(XDP_TX));
    const Bytes header(shown.begin() + static_cast<long>(metadata.size() + kHdr), shown.end());
    return __builtin_bswap64(As<cw_probe_hdr>(header).t2_nic);
  }
  static Bytes Metadata(uint64_t magic, uint64_t ns) {
    const cw_arrival arrival = {.magic = magic, .ns = ns};
    Bytes bytes(sizeof(arrival));
    memcpy(bytes.data(), &arrival, sizeof(arrival));
    return bytes;
  }

 private:
  uint32_t round_ = 100;
};

TEST_F(VerbsStamps, ARequestsArrivalIsAsTheDeviceStampedIt) {
  const uint64_t stamp = MonotonicNs() - 30'000;
  EXPECT_EQ(T2ByNic(stamp), stamp);
  EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 peer_restarts=1 nic_stamps=1");
  // Nothing else of the answer differs: the program's own T2 is beside it, and later.
  const auto answer = As<cw_probe_hdr>(Bytes(frame_.begin() + kHdr, frame_.end()));
  EXPECT_GE(__builtin_bswap64(answer.t2), stamp + 30'000);
  EXPECT_EQ(answer.type, CW_PROBE_REPLY);
  uint64_t mac = 0;
  memcpy(&mac, answer.mac, sizeof(mac));
  EXPECT_EQ(mac, Mac(keys_.tx[0], Bytes(frame_.begin() + kHdr, frame_.end()), 0, CW_PROBE_MAC_OFFSET));
}

TEST_F(VerbsStamps, ItIsToldInLocalTime) {
  cw_local_clock clock = {};
  clock.copy[0].ahead_ns = 7'000'000;
  rig_.SetLocalClock(clock);
  const uint64_t stamp = MonotonicNs() - 30'000;
  EXPECT_EQ(T2ByNic(stamp), stamp + 7'000'000);
}

TEST_F(VerbsStamps, ARepliesArrivalIsAsTheDeviceStampedIt) {
  cw_probe_tx tx = {};
  tx.round[1][200 & (CW_TX_ROUNDS - 1)] = 200;
  tx.t1[1][200 & (CW_TX_ROUNDS - 1)] = MonotonicNs();
  rig_.SetProbeTx(3, tx);
  Probe reply{.type = CW_PROBE_REPLY, .slot = 1, .rslot = 2, .session = 77, .round = 200, .cookie = 3};
  reply.responder_session = 4000;
  reply.t2 = MonotonicNs();
  reply.t3 = reply.t2 + 10;
  reply.t2_nic = reply.t2 - 5;
  probe_verbs::Arrival arrival = arrival_;
  arrival.ns = static_cast<int64_t>(MonotonicNs());
  EXPECT_TRUE(TurnOf(reply, arrival).accepted);
  const std::vector<Bytes> records = rig_.Probes();
  ASSERT_EQ(records.size(), 1u);
  const auto ev = As<cw_ev_probe>(records[0]);
  EXPECT_EQ(ev.t2_nic, reply.t2_nic);
  EXPECT_EQ(ev.t4_nic, static_cast<uint64_t>(*arrival.ns));
  EXPECT_GT(ev.t4, ev.t4_nic);
}

TEST_F(VerbsStamps, WhatIsTooOldOrOfTheFutureIsNoStamp) {
  EXPECT_NE(T2ByNic(MonotonicNs() - CW_ARRIVAL_OLDEST_NS / 10), 0u);
  EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 peer_restarts=1 nic_stamps=1");
  const uint64_t hour_ns = 3'600'000'000'000;
  for (const uint64_t stamp :
       {MonotonicNs() - CW_ARRIVAL_OLDEST_NS, MonotonicNs() + hour_ns, uint64_t{0}, ~uint64_t{0}}) {
    EXPECT_EQ(T2ByNic(stamp), 0u) << stamp;
    EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 nic_stamps_off=1");
  }
}

TEST_F(VerbsStamps, OtherMetadataIsNoStamp) {
  const auto now = [] { return MonotonicNs() - 1000; };
  EXPECT_NE(T2OfShown(Metadata(CW_ARRIVAL_MAGIC, now()), 0), 0u);
  EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 peer_restarts=1 nic_stamps=1");
  EXPECT_EQ(T2OfShown(Metadata(CW_ARRIVAL_MAGIC ^ 1, now()), 0), 0u);
  Bytes half = Metadata(CW_ARRIVAL_MAGIC, now());
  half.resize(sizeof(cw_arrival) - 4);
  EXPECT_EQ(T2OfShown(half, 0), 0u);
  EXPECT_EQ(T2OfShown({}, 0), 0u);
  EXPECT_EQ(rig_.CounterChanges(), "probe_requests=3");
}

// Another XDP program may have written it, from the packet even.
TEST_F(VerbsStamps, APacketOfANicHasNoStampWhateverStandsInFrontOfIt) {
  const VethRig veth;
  veth.InNear([&] {
    const auto ifindex = static_cast<int>(if_nametoindex(VethRig::kDevice));
    const int fd = bpf_program__fd(rig_.skeleton()->progs.cw_xdp_ingress);
    ASSERT_EQ(bpf_xdp_attach(ifindex, fd, XDP_FLAGS_DRV_MODE, nullptr), 0);  // its queues are known to XDP only then
    EXPECT_EQ(T2OfShown(Metadata(CW_ARRIVAL_MAGIC, MonotonicNs() - 1000), static_cast<uint32_t>(ifindex)), 0u);
    EXPECT_EQ(rig_.CounterChanges(), "probe_requests=1 peer_restarts=1");
    EXPECT_NE(T2OfShown(Metadata(CW_ARRIVAL_MAGIC, MonotonicNs() - 1000), 0), 0u);
    EXPECT_EQ(bpf_xdp_detach(ifindex, XDP_FLAGS_DRV_MODE, nullptr), 0);
  });
}

}  // namespace
}  // namespace cw::test
