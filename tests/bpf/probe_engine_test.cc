// SPDX-License-Identifier: Apache-2.0
//
// The probe room on a real kernel: what leaves the socket, discovery through routers that answer, and two hosts whose
// BPF programs answer each other.
#include "userspace/probe/engine.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <bit>
#include <filesystem>
#include <functional>
#include <iostream>
#include <set>

#include "absl/strings/str_format.h"
#include "maps/ring_reader.h"
#include "maps/unique_fd.h"
#include "tests/bpf/probe_rig.h"
#include "tests/unit/time_units.h"
#include "userspace/dataplane/dataplane.h"
#include "userspace/model/clock.h"

namespace cw::probe {
namespace {

using test::ProbeRig;

Addr Parse(const char* text) { return *Addr::Parse(text); }

KeyRing Keys() {
  KeyRing ring;
  (void)ring.Set(0, *GroupSecret::FromBytes("a secret of at least sixteen bytes"));
  return ring;
}

// The next frame that begins like `packet` (addresses, ports) within a few seconds.
std::vector<uint8_t> Capture(int fd, absl::Span<const uint8_t> packet) {
  const int64_t end = MonotonicClock().NowNs() + 10 * kSecond;
  while (MonotonicClock().NowNs() < end) {
    pollfd p{fd, POLLIN, 0};
    if (poll(&p, 1, 100) <= 0) continue;
    std::vector<uint8_t> frame(2048);
    const ssize_t n = recv(fd, frame.data(), frame.size(), 0);
    if (n < static_cast<ssize_t>(ETH_HLEN + packet.size())) continue;
    frame.erase(frame.begin(), frame.begin() + ETH_HLEN);
    frame.resize(static_cast<size_t>(n) - ETH_HLEN);
    if (std::equal(packet.begin() + 12, packet.begin() + 24, frame.begin() + 12)) return frame;
  }
  return {};
}

TEST(ProbeWire, PacketsLeaveTheSocketByteForByte) {
  ProbeRig rig;
  maps::UniqueFd capture;
  rig.InR1([&] {
    capture = maps::UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, htons(ETH_P_IP)));
    sockaddr_ll at{};
    at.sll_family = AF_PACKET;
    at.sll_protocol = htons(ETH_P_IP);
    at.sll_ifindex = static_cast<int>(if_nametoindex("host"));
    ASSERT_EQ(0, bind(capture.get(), reinterpret_cast<sockaddr*>(&at), sizeof(at)));
  });
  std::shared_ptr<RawSocket> socket;
  rig.InA([&] {
    auto opened = RawSocket::Open(static_cast<int>(if_nametoindex(ProbeRig::kDevice)));
    ASSERT_TRUE(opened.ok()) << opened.status();
    socket = *opened;
  });
  PacketSpec spec;
  spec.local = Parse(ProbeRig::kA);
  spec.remote = Parse(ProbeRig::kB);
  spec.dscp = 26;
  spec.key = {{1, 2}};
  for (uint16_t port : {uint16_t{49152}, uint16_t{65535}, uint16_t{1}}) {
    spec.port = port;
    spec.ttl = static_cast<uint8_t>(port == 1 ? 1 : 64);
    auto request = ProbeTemplate::Make(port == 1 ? CW_PROBE_TRACE : CW_PROBE_REQUEST, spec);
    ASSERT_TRUE(request.ok());
    request->SetRound(port);
    ASSERT_TRUE(socket->Send(request->bytes()).ok());
    const std::vector<uint8_t> expected(request->bytes().begin(), request->bytes().end());
    EXPECT_EQ(expected, Capture(capture.get(), expected));
  }
  auto message = BuildMessage(spec, 3, std::vector<uint8_t>(CW_MSG_MAX, 0x5a));
  ASSERT_TRUE(message.ok());
  ASSERT_TRUE(socket->Send(*message).ok());
  EXPECT_EQ(*message, Capture(capture.get(), *message));
}

// A host with its programs, its engine and its rings.
class Host {
 public:
  Host(const char* name, const char* local, const char* remote, std::function<void(absl::FunctionRef<void()>)> in)
      : local_(local), remote_(remote), in_(std::move(in)), keys_(Keys()) {
    options_.instance = absl::StrFormat("test-%d-%s", getpid(), name);
    options_.run_root = absl::StrFormat("/tmp/cwtest-%d-run", getpid());
    options_.max_pairs = 64;
    options_.max_flows = 1024;
    options_.max_tx_flows = 256;
    in_([&] { OpenDataplane(); });
  }
  ~Host() {
    engine_.reset();
    messages_.reset();
    if (plane_ != nullptr) in_([&] { EXPECT_TRUE(plane_->DetachAllAndUnpin().ok()); });
    std::error_code ignored;
    std::filesystem::remove_all(options_.run_root, ignored);
  }

  // May be called again: the agent restarts.
  void StartEngine(uint32_t session, double budget_pps = 10'000) {
    engine_.reset();
    plane_->ctl().Store(plane_->ctl()[0].session, session);
    EngineOptions options;
    options.mesh.session = session;
    options.paths.per_switch_pps = 2000;
    options.paths.discovery.timeout_ns = kSecond / 10;
    options.prober.doubt_ns = 2 * kSecond;
    options.prober.cadence.budget_pps = budget_pps;
    EngineCallbacks callbacks;
    callbacks.on_table = [this](uint32_t, const PathTable&) { ++tables; };
    callbacks.on_invalid = [this](uint32_t, const DiscoveryEvent&) { ++invalid; };
    callbacks.on_slots = [this](uint32_t, const SlotUpdate& u) {
      natives.insert(natives.end(), u.natives.begin(), u.natives.end());
    };
    in_([&] {
      auto engine = Engine::Create(options, store_.get(), &keys_, callbacks);
      ASSERT_TRUE(engine.ok()) << engine.status();
      engine_ = *std::move(engine);
      auto result = engine_->Configure({Pair()});
      ASSERT_TRUE(result.ok()) << result.status();
      last_configure = *result;
    });
  }

  PairSpec Pair() const {
    return {Parse(local_), static_cast<int>(if_nametoindex(ProbeRig::kDevice)), Parse(remote_), "peer", 26};
  }
  // Besides the peer, so many that do not answer.
  void AddStrangers(int count) {
    in_([&] {
      std::vector<PairSpec> pairs = {Pair()};
      for (int i = 0; i < count; ++i) {
        pairs.push_back(Pair());
        pairs.back().remote = Parse(absl::StrFormat("10.98.3.%d", 100 + i).c_str());
      }
      auto result = engine_->Configure(pairs);
      ASSERT_TRUE(result.ok()) << result.status();
    });
  }

  void Turn() {
    engine_->Tick(clock_.NowNs());
    ASSERT_TRUE(messages_->Consume().ok());
  }

  Engine& engine() { return *engine_; }
  const cw_pair& pair() { return plane_->pairs()[0]; }
  uint8_t state(uint8_t slot) { return Load(pair().slot[slot].state); }
  cw_counters counters() { return *plane_->counters().Sum(); }

  int tables = 0;
  int invalid = 0;
  std::vector<NativeChange> natives;
  std::vector<Body> received;
  ConfigureResult last_configure;

 private:
  void OpenDataplane() {
    auto plane = dataplane::Dataplane::Open(options_);
    ASSERT_TRUE(plane.ok()) << plane.status();
    plane_ = *std::move(plane);
    cw_ctl& ctl = plane_->ctl()[0];
    plane_->ctl().Store(ctl.mode, CW_MODE_OBSERVE);
    plane_->ctl().Store(ctl.miss_limit, 3);
    plane_->ctl().Store(ctl.revive_limit, 8);
    plane_->ctl().Store(ctl.sample_level_tx, 32);
    plane_->ctl().Store(ctl.sample_level_rx, 32);
    auto attached = plane_->Attach(ProbeRig::kDevice);
    ASSERT_TRUE(attached.ok()) << attached.status();
    store_ = std::make_unique<MapPairStore>(plane_->pair_index(), plane_->pairs(), plane_->keys());
    auto ring = maps::RingReader::Create(plane_->msg_ring(), [this](absl::Span<const uint8_t> record) {
      auto message = maps::RecordAs<cw_ev_msg>(record);
      ASSERT_TRUE(message.has_value());
      auto body = engine_->ReceiveMessage(*message);
      ASSERT_TRUE(body.ok()) << body.status();
      received.push_back(*std::move(body));
    });
    ASSERT_TRUE(ring.ok()) << ring.status();
    messages_ = *std::move(ring);
  }

  const char* local_;
  const char* remote_;
  std::function<void(absl::FunctionRef<void()>)> in_;
  KeyRing keys_;
  dataplane::Options options_;
  MonotonicClock clock_;
  std::unique_ptr<dataplane::Dataplane> plane_;
  std::unique_ptr<MapPairStore> store_;
  std::unique_ptr<maps::RingReader> messages_;
  std::unique_ptr<Engine> engine_;
};

class ProbeEngine : public testing::Test {
 protected:
  ProbeEngine()
      : a_("a", ProbeRig::kA, ProbeRig::kB, [this](auto run) { rig_.InA(run); }),
        b_("b", ProbeRig::kB, ProbeRig::kA, [this](auto run) { rig_.InB(run); }) {}

  // Both loops until the condition holds; false after a time far beyond what is expected.
  bool RunUntil(const std::function<bool()>& done, int64_t limit_ns = 20 * kSecond) {
    const int64_t end = clock_.NowNs() + limit_ns;
    while (clock_.NowNs() < end) {
      a_.Turn();
      b_.Turn();
      if (done()) return true;
      usleep(1000);
    }
    return false;
  }
  void RunFor(int64_t ns) {
    RunUntil([] { return false; }, ns);
  }
  bool BothPathsUp(Host& h) {
    return h.engine().table(0)->valid && h.engine().table(0)->paths.size() == 2 &&
           std::popcount(Load(h.pair().live_mask)) == 2;
  }
  void Start() {
    a_.StartEngine(1000);
    b_.StartEngine(2000);
    ASSERT_TRUE(RunUntil([&] { return BothPathsUp(a_) && BothPathsUp(b_); }));
  }

  MonotonicClock clock_;
  ProbeRig rig_;
  Host a_, b_;
};

TEST_F(ProbeEngine, DiscoversBothPathsAndTheKernelsAnswerEachOther) {
  Start();
  std::set<std::string> hops;
  for (const Path& p : a_.engine().table(0)->paths) {
    EXPECT_TRUE(p.known);
    hops.insert(HopsToString(p.hops));
  }
  EXPECT_EQ((std::set<std::string>{"10.98.1.1 10.98.2.2", "10.98.1.1 10.98.4.2"}), hops);
  a_.engine().SetActive(0, true);
  RunFor(kSecond);
  const cw_counters a = a_.counters(), b = b_.counters();
  EXPECT_GT(a.probe_replies, 200u);
  EXPECT_GT(b.trace_arrived, 0u);
  for (const cw_counters& c : {a, b}) {
    EXPECT_EQ(0u, c.probe_bad_mac);
    EXPECT_EQ(0u, c.probe_malformed);
    EXPECT_EQ(0u, c.probe_unknown_peer);
    EXPECT_EQ(0u, c.probe_bad_session);
    EXPECT_EQ(0u, c.slots_died);
  }
  EXPECT_EQ(1'000'000u, Load(a_.pair().interval_ns));
  const ProberStats s = a_.engine().prober_stats();
  EXPECT_EQ(0u, s.send_errors) << s.last_error;
  std::cout << "rounds " << s.rounds << " skipped " << s.skipped_rounds << ", lateness p50 " << s.lateness_p50_ns
            << " p99 " << s.lateness_p99_ns << " ns, " << s.cpu_ns / std::max<uint64_t>(s.probes, 1)
            << " ns of this thread per probe, real time " << s.realtime << "\n";
  EXPECT_EQ(0, a_.invalid);
}

TEST_F(ProbeEngine, ACutIsFoundAndItsEndToo) {
  Start();
  a_.engine().SetActive(0, true);
  RunFor(kSecond / 5);
  uint8_t cut = CW_SLOT_NONE, other = CW_SLOT_NONE;
  for (const Path& p : a_.engine().table(0)->paths) {
    const uint8_t slot = *a_.engine().mesh().slots(0).SlotOfPort(p.port);
    (p.hops[1].ToString() == "10.98.2.2" ? cut : other) = slot;
  }
  ASSERT_NE(CW_SLOT_NONE, cut);
  ASSERT_NE(CW_SLOT_NONE, other);
  rig_.SetForwardCut(1, true);
  EXPECT_TRUE(RunUntil([&] { return a_.state(cut) == CW_SLOT_DEAD; }));
  EXPECT_NE(CW_SLOT_DEAD, a_.state(other));
  EXPECT_EQ(0u, Load(a_.pair().live_mask) >> cut & 1);
  EXPECT_EQ(0u, b_.counters().slots_died) << "the way back is whole";
  rig_.SetForwardCut(1, false);
  EXPECT_TRUE(RunUntil([&] { return a_.state(cut) == CW_SLOT_UP; }));
  EXPECT_EQ(0, a_.invalid) << "a silent path is no changed path";
}

// One path dies, then it is whole again in the moment in which the only other one dies. That one has no witness, so it
// counts as live at both ends, and replies that took it would never arrive.
TEST_F(ProbeEngine, APathThatIsWholeAgainIsFoundThoughTheOtherDiedInThatMoment) {
  Start();
  for (Host* host : {&a_, &b_}) host->engine().SetActive(0, true);
  RunFor(kSecond / 5);
  const auto cut = [&](int link, bool is_cut) {
    rig_.SetForwardCut(link, is_cut);
    rig_.SetBackwardCut(link, is_cut);
  };
  const auto dead = [](Host& host) { return (host.state(0) == CW_SLOT_DEAD) + (host.state(1) == CW_SLOT_DEAD); };
  cut(1, true);
  ASSERT_TRUE(RunUntil([&] { return dead(a_) == 1 && dead(b_) == 1; }));
  const uint8_t a_first = a_.state(0) == CW_SLOT_DEAD ? 0 : 1, b_first = b_.state(0) == CW_SLOT_DEAD ? 0 : 1;
  cut(2, true);
  cut(1, false);
  EXPECT_TRUE(RunUntil([&] { return a_.state(a_first) == CW_SLOT_UP && b_.state(b_first) == CW_SLOT_UP; }));
  EXPECT_TRUE(RunUntil([&] { return a_.state(1 - a_first) == CW_SLOT_DEAD && b_.state(1 - b_first) == CW_SLOT_DEAD; }))
      << "it has a witness now";
  cut(2, false);
  EXPECT_TRUE(RunUntil([&] { return dead(a_) == 0 && dead(b_) == 0; }));
}

// Rounds are far apart where a budget has to do for many peers. One missed round, and the next ones come soon.
TEST_F(ProbeEngine, APathInDoubtIsAskedSoonHoweverManyPeersThereAre) {
  constexpr int kStrangers = 40;
  a_.StartEngine(1000, 1000);
  b_.StartEngine(2000);
  ASSERT_TRUE(RunUntil([&] { return BothPathsUp(a_) && BothPathsUp(b_); }));
  a_.AddStrangers(kStrangers);
  for (uint32_t pair = 0; pair <= kStrangers; ++pair) a_.engine().SetActive(pair, true);
  RunFor(2 * kSecond);
  // On a machine that is late a path may be in doubt already.
  ASSERT_TRUE(RunUntil([&] { return a_.engine().IntervalNs(0) > kSecond / 20; }));
  const int64_t interval_ns = a_.engine().IntervalNs(0);
  EXPECT_EQ(static_cast<uint32_t>(interval_ns), Load(a_.pair().interval_ns));
  int64_t least_ns = interval_ns;
  const uint64_t dead = a_.counters().slots_died;
  const int64_t cut_ns = clock_.NowNs();
  rig_.SetForwardCut(1, true);
  EXPECT_TRUE(RunUntil([&] {
    least_ns = std::min(least_ns, a_.engine().IntervalNs(0));
    return a_.counters().slots_died > dead;
  }));
  EXPECT_LT(least_ns, interval_ns / 8);
  std::cout << "rounds every " << interval_ns / 1'000'000 << " ms, in doubt " << least_ns / 1'000'000 << "; dead after "
            << (clock_.NowNs() - cut_ns) / 1'000'000 << " ms\n";
  EXPECT_EQ(a_.counters().slots_died, dead + 1) << "the other path is whole";
  rig_.SetForwardCut(1, false);
  EXPECT_TRUE(RunUntil([&] { return a_.engine().IntervalNs(0) > interval_ns / 2; })) << "doubt has an end";
}

TEST_F(ProbeEngine, MessagesArrive) {
  Start();
  const SampleBatch samples{{{0x1234, 77, false, true, -5}, {0x1235, 78, true, false, 5}}};
  const ClockBatch points{{{1, 100, 200}}};
  ASSERT_TRUE(a_.engine().SendMessage(0, samples).ok());
  ASSERT_TRUE(a_.engine().SendMessage(0, points).ok());
  ASSERT_TRUE(b_.engine().SendMessage(0, Hello{"b", "1"}).ok());
  ASSERT_TRUE(RunUntil([&] { return b_.received.size() == 2 && a_.received.size() == 1; }));
  // The two may have come over different paths, so in any order.
  EXPECT_TRUE((b_.received == std::vector<Body>{samples, points}) ||
              (b_.received == std::vector<Body>{points, samples}));
  EXPECT_EQ(Body(Hello{"b", "1"}), a_.received[0]);
}

TEST_F(ProbeEngine, ANativePortFoldsOntoItsPath) {
  Start();
  const uint8_t own = a_.engine().EnsureNative(0, 0xd123, clock_.NowNs());
  ASSERT_NE(CW_SLOT_NONE, own);
  ASSERT_TRUE(RunUntil([&] {
    const auto slot = a_.engine().mesh().slots(0).NativeSlot(0xd123);
    return slot.has_value() && a_.engine().mesh().slots(0).is_path(*slot);
  }));
  ASSERT_FALSE(a_.natives.empty());
  EXPECT_EQ(0xd123, a_.natives.back().port);
  EXPECT_EQ(0, a_.engine().mesh().slots(0).port(own)) << "its own slot is free again";
  EXPECT_EQ(2, std::popcount(a_.engine().mesh().slots(0).used_mask()));
}

TEST_F(ProbeEngine, ARestartedAgentKeepsSlotsAndStates) {
  Start();
  std::vector<uint16_t> ports;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) ports.push_back(a_.engine().mesh().slots(0).port(s));
  const uint32_t round = Load(a_.pair().cur_round);
  a_.StartEngine(1001);
  EXPECT_EQ((std::vector<uint32_t>{0}), a_.last_configure.adopted);
  EXPECT_EQ(2, std::popcount(Load(a_.pair().live_mask))) << "live all the time";
  const uint64_t replies = a_.counters().probe_replies;
  ASSERT_TRUE(RunUntil([&] { return BothPathsUp(a_) && a_.counters().probe_replies > replies + 4; }));
  std::vector<uint16_t> again;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) again.push_back(a_.engine().mesh().slots(0).port(s));
  EXPECT_EQ(ports, again);
  EXPECT_GT(Load(a_.pair().cur_round), round);
  EXPECT_EQ(0u, a_.counters().slots_died);
  EXPECT_EQ(0u, b_.counters().probe_replayed);
}

}  // namespace
}  // namespace cw::probe
