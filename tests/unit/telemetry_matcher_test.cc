// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <random>
#include <vector>

#include "tests/unit/time_units.h"
#include "userspace/telemetry/sample_matcher.h"

namespace cw::telemetry {
namespace {

SampleKey Key(uint32_t psn, bool resp = false, uint32_t qpn = 7) {
  return {{Addr::FromV4(1), Addr::FromV4(2), qpn}, psn, resp};
}

std::vector<SampleMatcher::Match> Take(SampleMatcher& m, int64_t now_ns) {
  std::vector<SampleMatcher::Match> out;
  m.TakeMatches(now_ns, [&](const auto& x) { out.push_back(x); });
  m.TakeMatches(now_ns + SampleMatcher::kWaitNs, [&](const auto& x) { out.push_back(x); });
  return out;
}

TEST(SampleMatcher, MatchesInEitherOrderOnce) {
  SampleMatcher m;
  m.AddSent(Key(1), kSecond, 3, false);
  m.AddReceived(Key(1), kSecond + 5'000, false);
  m.AddReceived(Key(2), kSecond + 7'000, false);
  m.AddSent(Key(2), kSecond + 1'000, 4, false);
  const auto got = Take(m, kSecond + 10 * kMs);
  ASSERT_EQ(got.size(), 2u);
  EXPECT_EQ(got[0].OwdNs(), 5'000);
  EXPECT_EQ(got[0].slot, 3);
  EXPECT_EQ(got[1].OwdNs(), 6'000);
  EXPECT_EQ(m.stats().matched, 2u);
  EXPECT_TRUE(Take(m, kSecond + 200 * kMs).empty());
}

TEST(SampleMatcher, RequestsAndResponsesAndFlowsAreApart) {
  SampleMatcher m;
  m.AddSent(Key(1, false), kSecond, 0, false);
  m.AddReceived(Key(1, true), kSecond + 5'000, false);
  m.AddReceived(Key(1, false, 8), kSecond + 5'000, false);
  EXPECT_TRUE(Take(m, kSecond + 10 * kMs).empty());
}

TEST(SampleMatcher, APsnSeenTwiceAtEitherEndIsVoid) {
  const std::vector<std::function<void(SampleMatcher&)>> ways = {
      [](SampleMatcher& m) { m.AddSent(Key(1), kSecond + kMs, 0, true); },
      [](SampleMatcher& m) { m.AddSent(Key(1), kSecond + kMs, 0, false); },
      [](SampleMatcher& m) { m.AddReceived(Key(1), kSecond + kMs, true); },
      [](SampleMatcher& m) { m.AddReceived(Key(1), kSecond + kMs, false); }};
  for (size_t way = 0; way < ways.size(); ++way) {
    SampleMatcher m;
    m.AddSent(Key(1), kSecond, 0, false);
    m.AddReceived(Key(1), kSecond + 5'000, false);
    m.TakeMatches(kSecond + 10 * kMs, [](const auto&) { FAIL(); });
    ways[way](m);  // while the match is waiting
    EXPECT_TRUE(Take(m, kSecond + 20 * kMs).empty()) << way;
    EXPECT_EQ(m.stats().voided, 1u) << way;
  }
}

TEST(SampleMatcher, DuplicateFirstVoidsWhatFollows) {
  SampleMatcher m;
  m.AddSent(Key(1), kSecond, 0, true);
  m.AddReceived(Key(1), kSecond + 5'000, false);
  m.AddReceived(Key(2), kSecond, true);
  m.AddSent(Key(2), kSecond, 0, false);
  EXPECT_TRUE(Take(m, kSecond + 10 * kMs).empty());
  EXPECT_EQ(m.stats().voided, 2u);
}

TEST(SampleMatcher, PsnsThatWrappedAroundDoNotMeet) {
  SampleMatcher m;
  m.AddSent(Key(1), kSecond, 0, false);               // lost on its way
  m.AddReceived(Key(1), 5 * kSecond + 5'000, false);  // after a wrap
  m.AddSent(Key(1), 5 * kSecond, 0, false);
  const auto got = Take(m, 5 * kSecond + 10 * kMs);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].OwdNs(), 5'000);
  EXPECT_EQ(m.stats().unmatched, 1u);
}

TEST(SampleMatcher, ArrivalBeforeSendingIsNoMatch) {
  SampleMatcher m;
  m.AddReceived(Key(1), kSecond, false);  // of an earlier queue pair with this number
  m.AddSent(Key(1), kSecond + 300 * kMs, 0, false);
  m.AddReceived(Key(2), kSecond, false);  // within the clock's error
  m.AddSent(Key(2), kSecond + 200, 0, false);
  const auto got = Take(m, kSecond + 400 * kMs);
  ASSERT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].OwdNs(), -200);
  EXPECT_EQ(m.stats().voided, 1u);
}

TEST(SampleMatcher, LostRecordsVoidWhatIsOpen) {
  SampleMatcher m;
  m.AddSent(Key(1), kSecond, 0, false);
  m.VoidOpen();
  m.AddReceived(Key(1), kSecond + 5'000, false);
  EXPECT_TRUE(Take(m, kSecond + 10 * kMs).empty());
  EXPECT_EQ(m.stats().voided, 1u);
}

TEST(SampleMatcher, HalvesExpireAndMemoryIsBounded) {
  SampleMatcher m(1000);
  for (uint32_t p = 0; p < 1500; ++p) m.AddSent(Key(p), kSecond + p, 0, false);
  EXPECT_EQ(m.open(), 1000u);
  EXPECT_EQ(m.stats().dropped, 500u);
  m.TakeMatches(3 * kSecond, [](const auto&) { FAIL(); });
  EXPECT_EQ(m.open(), 0u);
  EXPECT_EQ(m.stats().unmatched, 1000u);
  m.AddSent(Key(1), 3 * kSecond, 0, false);
  EXPECT_EQ(m.open(), 1u);
}

TEST(SampleMatcher, AClockThatWasSetBackDoesNotJamIt) {
  SampleMatcher m(100);
  for (uint32_t p = 0; p < 100; ++p) m.AddSent(Key(p), 1000 * kSecond, 0, false);
  m.TakeMatches(5 * kSecond, [](const auto&) { FAIL(); });
  EXPECT_EQ(m.open(), 0u);
}

// What the wire does to packets, with the truth kept apart: PSNs wrap within seconds, packets are lost, reordered and
// sent again, halves are lost on their way to us and come late and out of order.
class Wire {
 public:
  struct Record {
    int64_t known_ns;  // when the matcher hears of it
    bool is_tx, duplicate;
    SampleKey key;
    int64_t ns;
    int copy;  // which transmission of that PSN, over all wraps: the truth
  };

  explicit Wire(uint64_t seed) : random_(seed) {}

  std::vector<Record> Run(int packets, uint32_t psn_space, double packet_loss, double half_loss) {
    int64_t t = kSecond;
    for (int i = 0; i < packets; ++i) {
      t += 50'000 + static_cast<int64_t>(random_() % 20'000);
      const SampleKey key = Key(static_cast<uint32_t>(i) % psn_space);
      Transmit(key, t, false, packet_loss, half_loss);
      // Go-back-N within milliseconds, or a timeout much later.
      if (Chance(packet_loss)) Transmit(key, t + (Chance(0.8) ? 2 : 400) * kMs, true, packet_loss, half_loss);
    }
    std::stable_sort(records_.begin(), records_.end(), [](auto& a, auto& b) { return a.known_ns < b.known_ns; });
    return records_;
  }

 private:
  bool Chance(double p) { return std::uniform_real_distribution<double>(0, 1)(random_) < p; }

  // The kernel flags what is not first in its PSN order; the tx half is known within a poll, the rx half by message.
  void Transmit(const SampleKey& key, int64_t tx, bool again, double packet_loss, double half_loss) {
    const int copy = copies_++;
    if (again || !Chance(half_loss)) records_.push_back({tx + Late(10), true, again, key, tx, copy});
    if (Chance(packet_loss)) return;
    const int64_t rx = tx + 5'000 + static_cast<int64_t>(random_() % 500'000);
    const bool duplicate = again && Chance(0.5);  // the first may have been lost: then this one is new to the receiver
    if (!Chance(half_loss)) records_.push_back({rx + 10 * kMs + Late(30), false, duplicate, key, rx, copy});
  }
  int64_t Late(int64_t ms) { return static_cast<int64_t>(random_() % static_cast<uint64_t>(ms * kMs)); }

  std::mt19937_64 random_;
  std::vector<Record> records_;
  int copies_ = 0;
};

TEST(SampleMatcher, NotOneMismatchUnderLossWrapAndRetransmission) {
  uint64_t matched = 0, packets = 0;
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Wire wire(seed);
    // 40,000 PSNs at some 60 µs: a wrap every 2.4 s.
    const auto records = wire.Run(100'000, 40'000, 0.05, 0.1);
    SampleMatcher m(1 << 20);
    int64_t polled = 0;
    absl::flat_hash_map<std::pair<uint32_t, int64_t>, int> by_tx, by_rx;
    for (const auto& r : records) (r.is_tx ? by_tx : by_rx)[{r.key.psn, r.ns}] = r.copy;
    const auto check = [&](const SampleMatcher::Match& x) {
      ASSERT_EQ(by_tx.at({x.key.psn, x.tx_ns}), by_rx.at({x.key.psn, x.rx_ns}));
    };
    for (const auto& r : records) {
      if (r.known_ns - polled > 10 * kMs) {
        polled = r.known_ns;
        m.TakeMatches(polled, check);
      }
      if (r.is_tx) {
        m.AddSent(r.key, r.ns, 0, r.duplicate);
      } else {
        m.AddReceived(r.key, r.ns, r.duplicate);
      }
    }
    matched += m.stats().matched;
    packets += 100'000;
    EXPECT_EQ(m.stats().dropped, 0u);
  }
  std::printf("%.1f %% of the samples matched\n", 100.0 * static_cast<double>(matched) / static_cast<double>(packets));
  EXPECT_GT(matched, packets / 2);
}

}  // namespace
}  // namespace cw::telemetry
