// SPDX-License-Identifier: Apache-2.0
// The RC protocol over a simulated channel that loses, repeats, delays and reorders: no socket, no clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "tests/unit/time_units.h"
#include "userspace/lab/emulator_qp.h"

namespace cw::lab {
namespace {

constexpr int64_t kTimeoutUnit = 4096;

struct Recorder : QpObserver {
  struct Delivered {
    uint64_t va;
    uint64_t bytes;
  };
  std::vector<Delivered> delivered;
  std::vector<uint64_t> done;
  uint64_t in_order_bytes = 0;
  int64_t dead_ns = 0;
  int64_t longest_stall_ns = 0;
  int64_t last_ns = 0;

  void OnData(int64_t now, uint32_t, uint32_t bytes, bool in_order) override {
    EXPECT_GE(now, last_ns);
    last_ns = now;
    if (in_order) in_order_bytes += bytes;
  }
  void OnMessageDelivered(int64_t, uint64_t va, uint64_t bytes) override { delivered.push_back({va, bytes}); }
  void OnMessageDone(int64_t now, const Message& m, int64_t posted) override {
    EXPECT_GE(now, posted);
    done.push_back(m.id);
  }
  void OnProgress(int64_t, int64_t stall) override { longest_stall_ns = std::max(longest_stall_ns, stall); }
  void OnDead(int64_t now) override { dead_ns = now; }
};

struct Channel {
  double loss = 0;
  double repeat = 0;
  int64_t delay_ns = 50'000;
  int64_t jitter_ns = 0;  // beyond the packet spacing this reorders
  // Called for each packet; true: lost. Side 0 sends requests.
  std::function<bool(int side, const RocePacket&, int64_t now)> drop;
  std::function<bool(int side, const RocePacket&)> mark_ce;
};

// Two queue pairs and what is on the way between them; time is a number.
class Pair {
 public:
  Pair(QpConfig a, const Channel& channel, uint64_t seed) : channel_(channel), random_(seed) {
    a.qpn = 17;
    a.remote_qpn = 34;
    QpConfig b = a;
    std::swap(b.qpn, b.remote_qpn);
    std::swap(b.start_psn, b.remote_start_psn);
    qps_.push_back(std::make_unique<RcQp>(a, &seen[0]));
    qps_.push_back(std::make_unique<RcQp>(b, &seen[1]));
  }

  RcQp& qp(int side) { return *qps_[static_cast<size_t>(side)]; }
  int64_t now() const { return now_; }

  // Until nothing is left to happen, or `until`. Bounded by the number of steps.
  void RunUntil(int64_t until) {
    for (int step = 0; step < 3'000'000; ++step) {
      for (int side = 0; side < 2; ++side) {
        RocePacket packet;
        while (qp(side).PollTransmit(now_, &packet)) Carry(side, packet);
      }
      int64_t next = on_the_way_.empty() ? INT64_MAX : on_the_way_.begin()->first;
      for (auto& q : qps_) next = std::min(next, q->NextEventNs(now_));
      if (next > until || next == INT64_MAX) {
        now_ = std::max(now_, next == INT64_MAX ? now_ : until);
        return;
      }
      now_ = std::max(now_, next);
      while (!on_the_way_.empty() && on_the_way_.begin()->first <= now_) {
        const auto [to, packet, ce] = on_the_way_.begin()->second;
        on_the_way_.erase(on_the_way_.begin());
        EXPECT_EQ(packet.dest_qpn, qp(to).config().qpn);
        qp(to).Receive(packet, ce, now_);
      }
    }
    ADD_FAILURE() << "no end in sight";
  }

  Recorder seen[2];
  std::vector<RocePacket> carried[2];  // by sender, lost ones included

 private:
  struct Flight {
    int to;
    RocePacket packet;
    bool ce;
  };

  bool Chance(double p) { return p > 0 && std::uniform_real_distribution<>(0, 1)(random_) < p; }

  void Carry(int side, const RocePacket& packet) {
    carried[side].push_back(packet);
    if (channel_.drop && channel_.drop(side, packet, now_)) return;
    if (Chance(channel_.loss)) return;
    const bool ce = channel_.mark_ce && channel_.mark_ce(side, packet);
    for (int copies = Chance(channel_.repeat) ? 2 : 1; copies > 0; --copies) {
      const int64_t jitter = channel_.jitter_ns > 0 ? static_cast<int64_t>(random_() % channel_.jitter_ns) : 0;
      on_the_way_.emplace(now_ + channel_.delay_ns + jitter, Flight{1 - side, packet, ce});
    }
  }

  Channel channel_;
  std::mt19937_64 random_;
  int64_t now_ = 1'000'000'000;
  std::vector<std::unique_ptr<RcQp>> qps_;
  std::multimap<int64_t, Flight> on_the_way_;
};

QpConfig Config() {
  QpConfig c;
  c.rate = RateConfig::ForLine(1e9);
  c.timeout = 10;  // 4.2 ms
  return c;
}

// Posts messages of random sizes and checks that each came exactly once, in order and whole.
void TransferAndCheck(QpConfig config, const Channel& channel, uint64_t seed,
                      const std::vector<Operation>& operations) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed ^ 0xabcdef);
  config.start_psn = static_cast<uint32_t>((0xfffff0 + random() % 32) & kPsnMask);  // the PSNs wrap early
  config.remote_start_psn = random() & kPsnMask;
  Pair pair(config, channel, seed);
  std::vector<Message> posted;
  uint64_t total = 0;
  for (uint64_t i = 0; i < 20; ++i) {
    Message m;
    m.id = i;
    m.operation = operations[random() % operations.size()];
    m.va = m.operation == Operation::kSend ? 0 : 0x10000 * (i + 1);
    m.bytes = random() % 5 == 0 ? random() % 10 + 1 : random() % 200000 + 1;
    total += m.bytes;
    posted.push_back(m);
    pair.qp(0).Post(m, pair.now());
  }
  pair.RunUntil(INT64_MAX - 1);
  ASSERT_EQ(pair.seen[0].dead_ns, 0);
  ASSERT_EQ(pair.seen[0].done.size(), posted.size());
  for (size_t i = 0; i < posted.size(); ++i) ASSERT_EQ(pair.seen[0].done[i], i);
  std::vector<Recorder::Delivered> expected[2];  // READs are delivered at the requester
  for (const Message& m : posted) expected[m.operation == Operation::kRead ? 0 : 1].push_back({m.va, m.bytes});
  for (int side = 0; side < 2; ++side) {
    ASSERT_EQ(pair.seen[side].delivered.size(), expected[side].size());
    for (size_t i = 0; i < expected[side].size(); ++i) {
      ASSERT_EQ(pair.seen[side].delivered[i].va, expected[side][i].va);
      ASSERT_EQ(pair.seen[side].delivered[i].bytes, expected[side][i].bytes);
    }
  }
  ASSERT_EQ(pair.seen[0].in_order_bytes + pair.seen[1].in_order_bytes, total);
  ASSERT_EQ(pair.qp(0).counters().invalid + pair.qp(1).counters().invalid, 0u);
}

const std::vector<Operation> kWrites = {Operation::kWrite};
const std::vector<Operation> kSends = {Operation::kSend, Operation::kWriteImm};
const std::vector<Operation> kReads = {Operation::kRead};
const std::vector<Operation> kAll = {Operation::kWrite, Operation::kWriteImm, Operation::kSend, Operation::kRead};

TEST(RcQpTest, CleanChannelNeedsNoRetransmission) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Pair pair(Config(), Channel{}, seed);
    for (uint64_t i = 0; i < 50; ++i) pair.qp(0).Post({i, i, 50000, Operation::kWrite}, pair.now());
    pair.RunUntil(INT64_MAX - 1);
    const QpCounters& c = pair.qp(0).counters();
    EXPECT_EQ(c.data_packets, 50u * 13);
    EXPECT_EQ(c.retransmissions + c.timeouts + c.naks_received, 0u);
    EXPECT_EQ(pair.qp(1).counters().duplicates + pair.qp(1).counters().out_of_order, 0u);
    EXPECT_EQ(pair.qp(1).counters().acks_sent, 50u);  // each message's last packet; 13 packets are fewer than 16
    EXPECT_EQ(pair.seen[1].delivered.size(), 50u);
  }
}

TEST(RcQpTest, EverythingArrivesOnceInOrderUnderLoss) {
  Channel channel;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    channel.loss = seed % 3 == 0 ? 0.1 : seed % 3 == 1 ? 0.01 : 0.001;
    TransferAndCheck(Config(), channel, seed, kWrites);
    TransferAndCheck(Config(), channel, seed, kSends);
  }
}

TEST(RcQpTest, ReadsArriveOnceInOrderUnderLoss) {
  Channel channel;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    channel.loss = seed % 2 == 0 ? 0.05 : 0.005;
    TransferAndCheck(Config(), channel, seed, kReads);
  }
}

TEST(RcQpTest, MixedOperationsUnderLossRepetitionAndReordering) {
  Channel channel;
  channel.jitter_ns = 100'000;  // three packets at 1 Gbit/s
  channel.repeat = 0.02;
  QpConfig config = Config();
  config.timeout = 12;
  for (uint64_t seed = 1; seed <= 40; ++seed) {
    channel.loss = seed % 2 == 0 ? 0 : 0.01;
    TransferAndCheck(config, channel, seed, kSends);
    Channel ordered = channel;
    ordered.jitter_ns = 0;
    TransferAndCheck(config, ordered, seed, kAll);
  }
}

TEST(RcQpTest, OneLostPacketCostsOneNakAndGoesBackN) {
  Channel channel;
  bool lost = false;
  channel.drop = [&](int side, const RocePacket& p, int64_t) {
    const bool hit = side == 0 && p.psn == 40 && !lost;
    lost |= hit;
    return hit;
  };
  Pair pair(Config(), channel, 1);
  pair.qp(0).Post({0, 0, 100 * 4096, Operation::kWrite}, pair.now());
  pair.RunUntil(INT64_MAX - 1);
  EXPECT_EQ(pair.qp(1).counters().naks_sent, 1u);
  EXPECT_EQ(pair.qp(0).counters().naks_received, 1u);
  EXPECT_EQ(pair.qp(0).counters().timeouts, 0u);
  // Everything that was under way behind the gap is dropped, sent again, and nothing else is.
  EXPECT_GT(pair.qp(1).counters().out_of_order, 0u);
  EXPECT_EQ(pair.qp(0).counters().retransmissions, pair.qp(1).counters().out_of_order + 1);
  EXPECT_EQ(pair.seen[1].in_order_bytes, 100u * 4096);
  // The NAK carries the expected PSN.
  int naks = 0;
  for (const RocePacket& p : pair.carried[1]) {
    if (p.opcode != kAcknowledge || p.aeth_syndrome != kSyndromeNakSequence) continue;
    ++naks;
    EXPECT_EQ(p.psn, 40u);
  }
  EXPECT_EQ(naks, 1);
}

TEST(RcQpTest, ALostTailWaitsForTheTimeout) {
  for (uint8_t timeout : {8, 10, 14}) {
    Channel channel;
    int losses = 0;
    channel.drop = [&](int side, const RocePacket& p, int64_t) { return side == 0 && p.psn == 9 && losses++ < 1; };
    QpConfig config = Config();
    config.timeout = timeout;
    Pair pair(config, channel, 1);
    const int64_t start = pair.now();
    pair.qp(0).Post({0, 0, 10 * 4096, Operation::kWrite}, start);
    pair.RunUntil(INT64_MAX - 1);
    EXPECT_EQ(pair.qp(0).counters().timeouts, 1u);
    EXPECT_EQ(pair.qp(1).counters().naks_sent, 0u);
    EXPECT_GE(pair.now() - start, kTimeoutUnit << timeout);
    EXPECT_LE(pair.now() - start, (kTimeoutUnit << timeout) + kMs);
    EXPECT_GE(pair.seen[0].longest_stall_ns, kTimeoutUnit << timeout);
    EXPECT_EQ(pair.seen[1].delivered.size(), 1u);
  }
}

TEST(RcQpTest, ALostAckIsMadeGoodByTheNextOne) {
  Channel channel;
  int acks = 0;
  channel.drop = [&](int side, const RocePacket& p, int64_t) {
    return side == 1 && p.opcode == kAcknowledge && acks++ == 0;
  };
  Pair pair(Config(), channel, 1);
  pair.qp(0).Post({0, 0, 40 * 4096, Operation::kWrite}, pair.now());
  pair.RunUntil(INT64_MAX - 1);
  EXPECT_EQ(pair.qp(0).counters().retransmissions, 0u);
  EXPECT_EQ(pair.seen[0].done.size(), 1u);
}

TEST(RcQpTest, DuplicatesAreAcknowledged) {
  Channel channel;
  int acks = 0;
  channel.drop = [&](int side, const RocePacket& p, int64_t) {
    return side == 1 && p.opcode == kAcknowledge && acks++ == 0;
  };
  Pair pair(Config(), channel, 1);
  pair.qp(0).Post({0, 0, 3 * 4096, Operation::kWrite}, pair.now());  // its only ACK is lost
  pair.RunUntil(INT64_MAX - 1);
  EXPECT_EQ(pair.qp(0).counters().timeouts, 1u);
  EXPECT_GE(pair.qp(1).counters().duplicates, 1u);
  EXPECT_EQ(pair.seen[0].done.size(), 1u);
  EXPECT_EQ(pair.seen[1].delivered.size(), 1u);
  EXPECT_EQ(pair.seen[1].in_order_bytes, 3u * 4096);
}

TEST(RcQpTest, RetriesAreCountedAndKillTheFlow) {
  for (int retry_cnt : {0, 1, 3, 7}) {
    Channel channel;
    const int64_t cut = 1'000'000'000 + 5 * kMs;
    channel.drop = [&](int, const RocePacket&, int64_t now) { return now >= cut; };
    QpConfig config = Config();
    config.retry_cnt = static_cast<uint8_t>(retry_cnt);
    Pair pair(config, channel, 1);
    for (uint64_t i = 0; i < 40; ++i) pair.qp(0).Post({i, i, 100000, Operation::kWrite}, pair.now());
    pair.RunUntil(INT64_MAX - 1);
    EXPECT_TRUE(pair.qp(0).dead());
    EXPECT_EQ(pair.qp(0).counters().timeouts, static_cast<uint64_t>(retry_cnt) + 1);
    const int64_t expected = (retry_cnt + 1) * (kTimeoutUnit << 10);
    EXPECT_GE(pair.seen[0].dead_ns - cut, expected - kMs);
    EXPECT_LE(pair.seen[0].dead_ns - cut, expected + 2 * kMs);
    EXPECT_LT(pair.seen[0].done.size(), 40u);
    RocePacket packet;
    EXPECT_FALSE(pair.qp(0).PollTransmit(pair.now() + 1000 * kMs, &packet));
    EXPECT_EQ(pair.qp(0).NextEventNs(pair.now()), INT64_MAX);
  }
}

TEST(RcQpTest, ProgressGivesTheRetriesBack) {
  Channel channel;
  // Dark for three timeouts of every four, so a budget of seven never runs out only if progress restores it.
  const int64_t period = 4 * (kTimeoutUnit << 10);
  channel.drop = [&](int, const RocePacket&, int64_t now) { return now % period > period / 4; };
  QpConfig config = Config();
  config.retry_cnt = 4;
  Pair pair(config, channel, 1);
  for (uint64_t i = 0; i < 40; ++i) pair.qp(0).Post({i, i, 400000, Operation::kWrite}, pair.now());
  pair.RunUntil(INT64_MAX - 1);
  EXPECT_EQ(pair.seen[0].done.size(), 40u);
  EXPECT_GT(pair.qp(0).counters().timeouts, 8u);
}

TEST(RcQpTest, WindowBoundsWhatIsUnacknowledged) {
  Channel channel;
  channel.drop = [](int side, const RocePacket&, int64_t) { return side == 1; };
  QpConfig config = Config();
  config.window = 37;
  config.timeout = 20;
  Pair pair(config, channel, 1);
  pair.qp(0).Post({0, 0, 1000 * 4096, Operation::kWrite}, pair.now());
  pair.RunUntil(pair.now() + 1000 * kMs);
  EXPECT_EQ(pair.carried[0].size(), 37u);
  EXPECT_TRUE(pair.carried[0].back().ack_req);  // otherwise both sides would wait for good
  int asked = 0;
  for (const RocePacket& p : pair.carried[0]) asked += p.ack_req;
  EXPECT_EQ(asked, 3);  // 16, 32, 37
}

TEST(RcQpTest, AWindowSmallerThanTheAckPeriodDoesNotStall) {
  QpConfig config = Config();
  config.window = 5;
  Pair pair(config, Channel{}, 1);
  pair.qp(0).Post({0, 0, 1000 * 4096, Operation::kWrite}, pair.now());
  pair.RunUntil(INT64_MAX - 1);
  EXPECT_EQ(pair.seen[0].done.size(), 1u);
  EXPECT_EQ(pair.qp(0).counters().timeouts, 0u);
}

TEST(RcQpTest, SegmentsOfEveryOperation) {
  auto opcodes = [](Operation op, bool response, uint64_t bytes) {
    std::vector<int> out;
    uint64_t sum = 0;
    for (uint64_t i = 0; i < PacketsOf(bytes, 1024); ++i) {
      const Segment s = SegmentOf(op, response, bytes, 1024, i);
      EXPECT_EQ(s.last, i + 1 == PacketsOf(bytes, 1024));
      EXPECT_TRUE(s.last || s.payload_bytes == 1024);
      out.push_back(s.opcode);
      sum += s.payload_bytes;
    }
    EXPECT_EQ(sum, bytes);
    return out;
  };
  using V = std::vector<int>;
  EXPECT_EQ(opcodes(Operation::kWrite, false, 3000), (V{6, 7, 8}));
  EXPECT_EQ(opcodes(Operation::kWriteImm, false, 3000), (V{6, 7, 9}));
  EXPECT_EQ(opcodes(Operation::kSend, false, 3000), (V{0, 1, 2}));
  EXPECT_EQ(opcodes(Operation::kRead, true, 3000), (V{0x0d, 0x0e, 0x0f}));
  EXPECT_EQ(opcodes(Operation::kWrite, false, 1024), (V{0x0a}));
  EXPECT_EQ(opcodes(Operation::kWriteImm, false, 1), (V{0x0b}));
  EXPECT_EQ(opcodes(Operation::kSend, false, 0), (V{4}));
  EXPECT_EQ(opcodes(Operation::kRead, true, 1024), (V{0x10}));
  EXPECT_EQ(opcodes(Operation::kWrite, false, 1025), (V{6, 8}));
}

TEST(RcQpTest, AReadTakesItsWholeRangeOfPsns) {
  QpConfig config = Config();
  config.start_psn = 0xfffffe;
  Pair pair(config, Channel{}, 1);
  pair.qp(0).Post({0, 0x1000, 5 * 4096, Operation::kRead}, pair.now());
  pair.qp(0).Post({1, 0x2000, 100, Operation::kWrite}, pair.now());
  pair.RunUntil(INT64_MAX - 1);
  ASSERT_EQ(pair.carried[0].size(), 2u);
  EXPECT_EQ(pair.carried[0][0].opcode, kReadRequest);
  EXPECT_EQ(pair.carried[0][0].psn, 0xfffffeu);
  EXPECT_EQ(pair.carried[0][1].psn, 3u);  // 0xfffffe + 5
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(pair.carried[1][i].psn, PsnAdd(0xfffffe, i));
  EXPECT_EQ(pair.seen[0].done.size(), 2u);
  EXPECT_EQ(pair.qp(0).counters().timeouts, 0u);
}

TEST(RcQpTest, PacingKeepsIntervalsAndBurstsSmall) {
  QpConfig config = Config();
  config.packet_interval_ns = 500'000;
  Recorder seen;
  RcQp paced(config, &seen);
  paced.Post({0, 0, 1000 * 4096, Operation::kWrite}, 0);
  RocePacket packet;
  int64_t now = 10 * kMs;
  auto burst = [&] {
    int n = 0;
    while (paced.PollTransmit(now, &packet)) ++n;
    return n;
  };
  EXPECT_EQ(burst(), 4);  // late by much: burst_packets at most
  EXPECT_EQ(paced.NextEventNs(now), now + 500'000);
  now += 499'999;
  EXPECT_EQ(burst(), 0);
  now += 1;
  EXPECT_EQ(burst(), 1);
  now += 2'000'000;
  EXPECT_EQ(burst(), 4);
}

TEST(RcQpTest, CeMakesOneCnpPerIntervalAndTheSenderSlowsDown) {
  Channel channel;
  channel.mark_ce = [](int side, const RocePacket&) { return side == 0; };
  Pair pair(Config(), channel, 1);
  pair.qp(0).Post({0, 0, 100000 * 4096ull, Operation::kWrite}, pair.now());
  const int64_t start = pair.now();
  pair.RunUntil(start + 20 * kMs);
  const QpCounters& receiver = pair.qp(1).counters();
  EXPECT_GT(receiver.ce_packets, 0u);
  EXPECT_GE(receiver.cnps_sent, 4u);
  EXPECT_LT(receiver.cnps_sent, receiver.ce_packets);
  EXPECT_LE(receiver.cnps_sent, 51u);  // 20 ms in intervals of 0.4 ms
  EXPECT_GE(pair.qp(0).counters().cnps_received, 4u);
  EXPECT_LT(pair.qp(0).RateBps(pair.now()), 0.05e9);
  for (const RocePacket& p : pair.carried[1]) {
    if (p.opcode != kCnp) continue;
    EXPECT_TRUE(p.becn);
    EXPECT_EQ(p.dest_qpn, 17u);
    EXPECT_EQ(p.psn, 0u);
    EXPECT_EQ(p.payload_bytes, 16u);
  }
}

TEST(RcQpTest, StaleAndForeignAcksChangeNothing) {
  Recorder seen;
  RcQp qp(Config(), &seen);
  qp.Post({0, 0, 10 * 4096, Operation::kWrite}, 0);
  RocePacket packet;
  while (qp.PollTransmit(kMs, &packet)) {
  }
  RocePacket ack;
  ack.opcode = kAcknowledge;
  ack.aeth_syndrome = kSyndromeAck;
  for (uint32_t psn : {0xffffffu, 0x800000u, 10u, 5000u}) {  // below the first, half a cycle off, never sent
    ack.psn = psn;
    qp.Receive(ack, false, kMs);
    EXPECT_TRUE(seen.done.empty()) << psn;
  }
  ack.aeth_syndrome = kSyndromeNakSequence;
  ack.psn = 5000;
  qp.Receive(ack, false, kMs);
  EXPECT_EQ(qp.counters().retransmissions, 0u);
}

}  // namespace
}  // namespace cw::lab
