// SPDX-License-Identifier: Apache-2.0
// The emulator's smaller parts: the reaction to CNPs, measurements, job checks, announcements to agents.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/unit/time_units.h"
#include "userspace/lab/emulator_announce.h"
#include "userspace/lab/emulator_flow.h"
#include "userspace/lab/emulator_rate.h"
#include "userspace/lab/emulator_stats.h"
#include "userspace/lab/job.h"

namespace cw::lab {
namespace {

TEST(RateControllerTest, TheFirstCnpHalvesAndQuietTimeRestores) {
  RateController rate(RateConfig::ForLine(400e6));
  EXPECT_DOUBLE_EQ(rate.RateBps(0), 400e6);
  rate.OnCnp(kMs);
  EXPECT_DOUBLE_EQ(rate.RateBps(kMs), 200e6);
  double last = 200e6;
  for (int64_t ms = 2; ms < 60; ++ms) {
    const double now = rate.RateBps(ms * kMs);
    EXPECT_GE(now, last);
    last = now;
  }
  EXPECT_DOUBLE_EQ(last, 400e6);
}

TEST(RateControllerTest, CnpsInARowDecreaseToTheFloorAndNotBelow) {
  const RateConfig config = RateConfig::ForLine(400e6);
  RateController rate(config);
  double last = 400e6;
  for (int i = 1; i <= 100; ++i) {
    rate.OnCnp(i * kMs);
    EXPECT_LE(rate.RateBps(i * kMs), last);
    last = rate.RateBps(i * kMs);
    EXPECT_GE(last, config.min_bps);
  }
  EXPECT_DOUBLE_EQ(last, config.min_bps);
}

TEST(RateControllerTest, QuietPeriodsMakeTheNextCutGentler) {
  RateController rate(RateConfig::ForLine(400e6));
  rate.OnCnp(kMs);
  EXPECT_DOUBLE_EQ(rate.alpha(), 1.0);
  const double before = rate.RateBps(40 * kMs);
  EXPECT_LT(rate.alpha(), 0.2);
  rate.OnCnp(40 * kMs);
  EXPECT_GT(rate.RateBps(40 * kMs), 0.9 * before);
}

TEST(RateControllerTest, WithoutReactionNothingChanges) {
  RateConfig config = RateConfig::ForLine(400e6);
  config.reacts = false;
  RateController rate(config);
  for (int i = 0; i < 10; ++i) rate.OnCnp(i * kMs);
  EXPECT_DOUBLE_EQ(rate.RateBps(10 * kMs), 400e6);
}

// Flows that share one link, marked above a queue of 200 µs: the link stays busy, the queue short, the shares alike.
TEST(RateControllerTest, SharesALinkWithAShortQueue) {
  constexpr double kLink = 200e6;
  for (int flows : {2, 4, 8}) {
    std::vector<RateController> rates(static_cast<size_t>(flows), RateController(RateConfig::ForLine(kLink)));
    std::vector<double> sent(rates.size());
    std::vector<int64_t> last_cnp(rates.size(), 0);
    double queue_bits = 0, carried = 0, worst_queue = 0;
    constexpr int64_t kStep = 100'000, kEnd = 10'000 * kMs, kWarm = 1'000 * kMs;
    std::mt19937 random(1);
    for (int64_t t = 0; t < kEnd; t += kStep) {
      double in = 0;
      for (size_t i = 0; i < rates.size(); ++i) {
        const double bits = rates[i].RateBps(t) * kStep * 1e-9;
        in += bits;
        if (t > kWarm) sent[i] += bits;
        const double mark = std::clamp((queue_bits / kLink - 200e-6) / 800e-6, 0.0, 1.0);
        const bool ce = std::uniform_real_distribution<>(0, 1)(random) < mark;
        if (ce && t - last_cnp[i] >= 2 * kMs) last_cnp[i] = t, rates[i].OnCnp(t);
      }
      const double out = std::min(queue_bits + in, kLink * kStep * 1e-9);
      queue_bits += in - out;
      if (t > kWarm) carried += out, worst_queue = std::max(worst_queue, queue_bits / kLink);
    }
    EXPECT_GT(carried / ((kEnd - kWarm) * 1e-9), 0.9 * kLink) << flows;
    EXPECT_LT(worst_queue, 10e-3) << flows;
    const auto [least, most] = std::minmax_element(sent.begin(), sent.end());
    EXPECT_GT(*least / *most, 0.8) << flows;
  }
}

// Marks that hit both flows at once leave fairness to the additive increase alone.
TEST(RateControllerTest, SynchronousMarksStillEvenOutUnequalFlows) {
  constexpr double kLink = 200e6;
  RateController strong(RateConfig::ForLine(kLink)), weak(RateConfig::ForLine(kLink));
  for (int i = 0; i < 5; ++i) weak.OnCnp(i * 2 * kMs);
  ASSERT_LT(weak.RateBps(10 * kMs), 0.2 * strong.RateBps(10 * kMs));
  double queue_bits = 0, sent[2] = {0, 0};
  int64_t last_cnp = 0;
  for (int64_t t = 10 * kMs; t < 5000 * kMs; t += 100'000) {
    const double rates[2] = {strong.RateBps(t), weak.RateBps(t)};
    queue_bits = std::max(0.0, queue_bits + (rates[0] + rates[1] - kLink) * 1e-4);
    if (queue_bits > 500e-6 * kLink && t - last_cnp >= 2 * kMs) {
      last_cnp = t;
      strong.OnCnp(t);
      weak.OnCnp(t);
    }
    if (t < 2000 * kMs) continue;
    sent[0] += rates[0];
    sent[1] += rates[1];
  }
  EXPECT_GT(sent[1] / sent[0], 0.9);
}

TEST(LatencyHistogramTest, QuantilesAreWithinTheStatedError) {
  std::mt19937_64 random(1);
  for (double sigma : {0.1, 1.0, 3.0}) {
    LatencyHistogram h;
    std::lognormal_distribution<double> draw(12, sigma);
    std::vector<int64_t> all;
    for (int i = 0; i < 20000; ++i) {
      all.push_back(static_cast<int64_t>(draw(random)));
      h.Add(all.back());
    }
    std::sort(all.begin(), all.end());
    for (double q : {0.0, 0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
      const double exact = static_cast<double>(all[std::max<size_t>(1, std::ceil(q * 20000)) - 1]);
      EXPECT_NEAR(static_cast<double>(h.QuantileNs(q)), exact, 0.016 * exact + 1) << q;
    }
    EXPECT_EQ(h.QuantileNs(1), all.back());
    EXPECT_EQ(h.max_ns(), all.back());
  }
  EXPECT_EQ(LatencyHistogram().QuantileNs(0.5), 0);
}

TEST(ArrivalRingTest, FindsTheFirstArrivalsAndSaysWhenItForgot) {
  ArrivalRing ring(100);
  EXPECT_FALSE(ring.FirstAfter(0).any_ns);
  for (int64_t i = 1; i <= 90; ++i) ring.Add(10 * i, i % 7 == 0);
  auto after = ring.FirstAfter(101);
  EXPECT_EQ(after.any_ns, 110);
  EXPECT_EQ(after.in_order_ns, 140);
  EXPECT_TRUE(after.complete);
  EXPECT_EQ(ring.FirstAfter(900).any_ns, 900);
  EXPECT_FALSE(ring.FirstAfter(901).any_ns);
  for (int64_t i = 91; i <= 250; ++i) ring.Add(10 * i, true);
  EXPECT_TRUE(ring.FirstAfter(2000).complete);
  EXPECT_EQ(ring.FirstAfter(2000).any_ns, 2000);
  EXPECT_FALSE(ring.FirstAfter(100).complete);
  EXPECT_EQ(ring.FirstAfter(100).any_ns, 1510);  // the oldest kept
}

TEST(ReceiveStatsTest, BinsGapsAndTotals) {
  ReceiveStats stats(1000, 100, 5);
  stats.OnData(1010, 50, true);
  stats.OnData(1020, 50, false);  // arrives, is not delivered
  stats.OnData(1250, 70, true);
  stats.OnData(1260, 30, true);
  stats.OnData(9000, 10, true);  // beyond the last bin: counted, not binned
  EXPECT_EQ(stats.bins(), (std::vector<uint64_t>{50, 0, 100}));
  EXPECT_EQ(stats.bytes(), 160u);
  EXPECT_EQ(stats.packets(), 5u);
  EXPECT_EQ(stats.longest_gap().begin_ns, 1260);
  EXPECT_EQ(stats.longest_gap().Length(), 7740);
  EXPECT_EQ(stats.first_ns(), 1010);
}

JobSpec GoodJob() {
  JobSpec job;
  job.pairs = {{0, 1}, {1, 2}};
  job.messages = 1;
  return job;
}

TEST(JobTest, RefusesWhatCannotRunAndSaysWhy) {
  EXPECT_TRUE(CheckJob(GoodJob(), 3).ok());
  auto refused = [](auto change, const std::string& because) {
    JobSpec job = GoodJob();
    change(job);
    const absl::Status s = CheckJob(job, 3);
    EXPECT_FALSE(s.ok()) << because;
    EXPECT_NE(std::string(s.message()).find(because), std::string::npos) << s;
  };
  refused([](JobSpec& j) { j.messages = 0; }, "messages or a duration");
  refused([](JobSpec& j) { j.pairs = {{0, 3}}; }, "hosts 0 to 2");
  refused([](JobSpec& j) { j.pairs = {{1, 1}}; }, "cannot send to itself");
  refused([](JobSpec& j) { j.pairs.clear(); }, "no pair");
  refused([](JobSpec& j) { j.path_mtu = 9000; }, "path_mtu");
  refused([](JobSpec& j) { j.message_bytes = 0; }, "message_bytes");
  refused([](JobSpec& j) { j.timeout = 32; }, "timeout");
  refused([](JobSpec& j) { j.burst = absl::Seconds(1); }, "burst_period is at least burst");
  refused([](JobSpec& j) { j.outstanding = 0; }, "at least 1");
  refused([](JobSpec& j) { j.kind = JobKind::kAllToAll, j.messages = 0, j.duration = absl::Seconds(1); }, "per round");
}

// The sender's end of a flow in a job of bursts; nothing it sends is acknowledged.
struct BurstyEnd {
  BurstyEnd() {
    job.spec = GoodJob();
    job.spec.messages = 0;
    job.spec.duration = absl::Milliseconds(95);
    job.spec.outstanding = 2;
    job.spec.burst = absl::Milliseconds(10);
    job.spec.burst_period = absl::Milliseconds(30);
    job.start_ns = 1000 * kMs;
    job.unfinished = 1;
    EndpointSpec spec;
    spec.posts = true;
    spec.qp = QpConfigOf(job.spec);
    spec.arrivals = 16;
    end = std::make_unique<Endpoint>(spec, &job);
  }
  JobState job;
  std::unique_ptr<Endpoint> end;
};

TEST(EndpointTest, PostsInBurstsAndRestsInBetween) {
  BurstyEnd sends;
  sends.end->Drive(1000 * kMs);
  EXPECT_EQ(sends.end->send().messages_posted, 2u);

  BurstyEnd rests;
  rests.end->Drive(1012 * kMs);
  EXPECT_EQ(rests.end->send().messages_posted, 0u);
  EXPECT_FALSE(rests.end->finished()) << "it goes on with the next burst";
  EXPECT_EQ(rests.end->NextEventNs(1012 * kMs), 1030 * kMs);
  rests.end->Drive(1030 * kMs);
  EXPECT_EQ(rests.end->send().messages_posted, 2u);

  BurstyEnd late;
  late.end->Drive(1094 * kMs);
  EXPECT_EQ(late.end->send().messages_posted, 2u) << "4 ms into the fourth burst";
  BurstyEnd over;
  over.end->Drive(1100 * kMs);
  EXPECT_TRUE(over.end->finished());
  EXPECT_EQ(over.job.unfinished.load(), 0);
}

TEST(JobTest, FlowsOfPairsAndOfAllToAll) {
  JobSpec job = GoodJob();
  job.qps_per_pair = 3;
  EXPECT_EQ(FlowsOf(job).size(), 6u);
  job.kind = JobKind::kAllToAll;
  job.hosts = {0, 1, 2, 3};
  EXPECT_EQ(FlowsOf(job).size(), 36u);
}

// An agent's end of the announcement socket.
class FakeAgent {
 public:
  explicit FakeAgent(const std::string& path) : path_(path) {
    unlink(path.c_str());
    listen_fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, path.c_str(), sizeof(at.sun_path) - 1);
    EXPECT_EQ(bind(listen_fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)), 0);
    EXPECT_EQ(listen(listen_fd_, 4), 0);
  }
  ~FakeAgent() {
    if (fd_ >= 0) close(fd_);
    close(listen_fd_);
    unlink(path_.c_str());
  }
  void Accept() {
    SetLimit(listen_fd_);
    fd_ = accept(listen_fd_, nullptr, nullptr);
    ASSERT_GE(fd_, 0);
    SetLimit(fd_);
  }
  // The next message, or one with magic 0 when the connection ended.
  cw_inproc_register_qp Next() {
    cw_inproc_register_qp m{};
    const ssize_t n = recv(fd_, &m, sizeof(m), 0);
    EXPECT_TRUE(n == 0 || n == static_cast<ssize_t>(sizeof(m))) << n;
    return m;
  }

 private:
  static void SetLimit(int fd) {
    const timeval limit{20, 0};
    EXPECT_EQ(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit)), 0);
  }
  std::string path_;
  int listen_fd_ = -1;
  int fd_ = -1;
};

TEST(AnnouncerTest, AgentsHearOfQueuePairsAndHearAgainAfterARestart) {
  const std::string path = absl::StrFormat("%s/announcer-%d.sock", ::testing::TempDir(), getpid());
  unlink(path.c_str());
  Announcer announcer({path, ""});
  announcer.Start();
  QpAnnouncement qp;
  qp.lqpn = 0x123456;
  qp.rqpn = 0x42;
  qp.local_address = 0x0a000001;
  qp.remote_address = 0x0a000102;
  qp.source_port = 49153;
  qp.path_mtu = 4096;
  qp.label = "a label longer than the thirty-one bytes that fit";
  announcer.Add(0, qp);  // nobody listens yet
  announcer.Add(1, qp);  // a host without an agent
  {
    FakeAgent agent(path);
    agent.Accept();
    const cw_inproc_register_qp m = agent.Next();
    EXPECT_EQ(m.magic, CW_INPROC_MAGIC);
    EXPECT_EQ(m.version, CW_INPROC_VERSION);
    EXPECT_EQ(m.type, CW_INPROC_REGISTER_QP);
    EXPECT_EQ(m.lqpn, 0x123456u);
    EXPECT_EQ(m.rqpn, 0x42u);
    const uint8_t local[16] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 10, 0, 0, 1};
    EXPECT_EQ(std::memcmp(m.laddr, local, 16), 0);
    EXPECT_EQ(m.raddr[15], 2);
    EXPECT_EQ(m.pid, static_cast<uint32_t>(getpid()));
    EXPECT_EQ(m.udp_sport, 49153);
    EXPECT_EQ(std::string(m.label), qp.label.substr(0, 31));
    qp.lqpn = 0x77;
    announcer.Add(0, qp);
    EXPECT_EQ(agent.Next().lqpn, 0x77u);
    announcer.Remove(0, 0x123456);
    const cw_inproc_register_qp gone = agent.Next();
    EXPECT_EQ(gone.type, CW_INPROC_UNREGISTER_QP);
    EXPECT_EQ(gone.lqpn, 0x123456u);
  }
  FakeAgent again(path);
  again.Accept();
  EXPECT_EQ(again.Next().lqpn, 0x77u);
  announcer.Stop();
  EXPECT_EQ(again.Next().magic, 0u);  // the connection ended
}

}  // namespace
}  // namespace cw::lab
