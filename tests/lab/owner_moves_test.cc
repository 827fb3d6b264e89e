// SPDX-License-Identifier: Apache-2.0
// A path dies or is drained, or an operator wishes so, and the library in the process that owns connected queue pairs
// moves them: libcwverbs in a process whose provider can (tests/unit/verbs/fake_mlx5.h), against the switches' own
// hashing. No packet of these queue pairs is ever seen, as with a NIC that offloads RoCE; the probes go through the
// kernel.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/lab/eventually.h"
#include "tests/lab/evidence.h"
#include "tests/unit/verbs/app_process.h"
#include "tests/unit/verbs/fake_mlx5.h"
#include "userspace/lab/monotonic.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

namespace v1 = api::v1;

constexpr int kSpines = 4, kQueuePairs = 16;
constexpr char kLocal[] = "10.0.0.10", kRemote[] = "10.0.1.10";  // of the library's fake and its program

class OwnerMoves : public ::testing::Test {
 protected:
  void SetUpMode(const std::string& mode) {
    TestbedSpec spec;
    spec.fabric = {.lab = "ownermoves", .leaves = 2, .spines = kSpines, .hosts_per_leaf = 1, .link_mbps = 200};
    spec.mode = mode;
    spec.adjust = [](int, config::Config& config) { config.steering.assign_new_flows = false; };
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed_ = *std::move(up);
    ASSERT_EQ(testbed_->fabric().PortAddress(0), kLocal);
    ASSERT_EQ(testbed_->fabric().PortAddress(1), kRemote);
    char name[] = "/tmp/cw_owner_moves_XXXXXX";
    const int fd = mkstemp(name);
    log_path_ = name;
    ASSERT_EQ(ftruncate(fd, sizeof(fake_mlx5_log)), 0);
    void* at = mmap(nullptr, sizeof(fake_mlx5_log), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    ASSERT_NE(at, MAP_FAILED);
    log_ = static_cast<fake_mlx5_log*>(at);
  }
  void TearDown() override {
    if (app_.running()) {
      EXPECT_EQ(app_.End(), 0);
    }
    if (log_ != nullptr) munmap(log_, sizeof(*log_));
    unlink(log_path_.c_str());
  }

  void StartApp(int queue_pairs, const std::string& environment = "") {
    const std::string socket = EmulatedHosts(testbed_->fabric(), true).hosts.at(0).agent_socket;
    app_.Start(absl::StrCat("timeout 110 env FAKE_PROVIDER=" CW_FAKE_MLX5 " FAKE_MLX5_LOG=", log_path_,
                            " LD_LIBRARY_PATH=" CW_FAKE_DIR " LD_PRELOAD=" CW_VERBS_LIB
                            " CWVERBS_DEADLINE_MS=1000 CWFABRIC_INPROC_SOCKET=",
                            socket, " ", environment, " " CW_VERBS_APP " stay ", queue_pairs));
    if (HasFatalFailure()) return;
    ASSERT_TRUE(Eventually([&] {
      const auto flows = Flows();
      return static_cast<int>(flows.size()) == queue_pairs &&
             std::all_of(flows.begin(), flows.end(),
                         [](const auto& f) { return f.owner().can_move() || f.owner().moves().own_failover(); });
    })) << testbed_->agent(0).Qps({})->DebugString();
  }

  // A path that fell silent because the machine stood still takes no queue pair: then they start anew, once it is up.
  void StartAppOnLivingPaths(const std::string& environment) {
    for (int attempt = 0; attempt < 3; ++attempt) {
      const absl::Status up = testbed_->WaitPathsUp(absl::Seconds(30));
      ASSERT_TRUE(up.ok()) << up;
      started_ns_ = MonotonicNs();
      ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs, environment));
      const std::vector<Testbed::PathDeath> died = testbed_->PathDeaths(started_ns_);
      if (died.empty()) return;
      for (const Testbed::PathDeath& death : died) std::printf("h%d: %s\n", death.host, death.text.c_str());
      EXPECT_EQ(app_.End(), 0);
      ASSERT_TRUE(Eventually([&] { return Flows().empty(); }));
    }
    FAIL() << "paths die while nothing is broken";
  }

  std::vector<v1::Flow> Flows() {
    const auto reply = testbed_->agent(0).Qps({});
    if (!reply.ok()) return {};
    return {reply->flows().begin(), reply->flows().end()};
  }
  int SpineOf(const v1::Flow& flow) {
    return testbed_->fabric().PathOf(kLocal, kRemote, static_cast<uint16_t>(flow.owner().udp_port())).value_or(-1);
  }
  int OnSpine(int spine) {
    const auto flows = Flows();
    return static_cast<int>(
        std::count_if(flows.begin(), flows.end(), [&](const auto& f) { return SpineOf(f) == spine; }));
  }
  void Cut(int spine) {
    ASSERT_TRUE(
        testbed_->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault::Drop(Fault::Match::kAll)).ok());
  }

  void Heal(int spine) { ASSERT_TRUE(testbed_->fabric().SetFault(LinkDirection::SpineToLeaf(spine, 1), Fault()).ok()); }
  void DrainSpine(int spine) {
    v1::DrainRequest request;
    request.set_kind(v1::DRAIN_KIND_SPINE);
    request.set_what(absl::StrCat("10.1.", spine, ".0"));
    const auto reply = testbed_->agent(0).Drain(request);
    ASSERT_TRUE(reply.ok()) << reply.status();
  }
  v1::Drain DrainState() {
    const auto reply = testbed_->agent(0).Drains();
    return reply.ok() && reply->drains_size() == 1 ? reply->drains(0) : v1::Drain();
  }
  void SetMode(v1::Mode mode) {
    v1::SetModeRequest request;
    request.set_mode(mode);
    ASSERT_TRUE(testbed_->agent(0).SetMode(request).ok());
  }
  size_t Moves(const std::string& why) {
    const std::vector<Mark> moves = testbed_->Events(0, "move");
    return static_cast<size_t>(
        std::count_if(moves.begin(), moves.end(), [&](const Mark& m) { return m.text.ends_with(": " + why); }));
  }

  int64_t started_ns_ = 0;  // when the process that is there began
  std::unique_ptr<Testbed> testbed_;
  std::string log_path_;
  fake_mlx5_log* log_ = nullptr;
  AppProcess app_;
};

TEST_F(OwnerMoves, LeaveADeadPathForTheEmptiestOthers) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs));
  for (int spine = 0; spine < kSpines; ++spine) ASSERT_EQ(OnSpine(spine), kQueuePairs / kSpines);
  ASSERT_NO_FATAL_FAILURE(Cut(1));
  EXPECT_TRUE(Eventually([&] { return OnSpine(1) == 0; }));
  EXPECT_EQ(log_->changes, static_cast<uint64_t>(kQueuePairs / kSpines)) << "the others stay";
  for (int spine : {0, 2, 3}) {
    EXPECT_GE(OnSpine(spine), 5) << spine;
    EXPECT_LE(OnSpine(spine), 6) << spine;
  }
  for (const v1::Flow& flow : Flows()) {
    const uint16_t port = log_->port[flow.local_qpn() % FAKE_MLX5_QPNS];
    if (port != 0) {
      EXPECT_EQ(port, flow.owner().udp_port()) << "what the agent shows is what the device has";
    }
  }
  EXPECT_EQ(testbed_->CounterSum("qps_moved_by_owner"), static_cast<uint64_t>(kQueuePairs / kSpines));
  EXPECT_EQ(testbed_->Events(0, "move").size(), static_cast<size_t>(kQueuePairs / kSpines));
}

TEST_F(OwnerMoves, StayWhereADeviceRefuses) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kSpines, "FAKE_MLX5_ERRNO=16"));
  ASSERT_NO_FATAL_FAILURE(Cut(1));
  // Asked for again once per second, three times in all.
  EXPECT_TRUE(Eventually([&] { return testbed_->CounterSum("qps_moves_refused") == 3; }));
  EXPECT_TRUE(AfterLooks(*testbed_, 2));
  EXPECT_EQ(testbed_->CounterSum("qps_moves_refused"), 3u);
  EXPECT_EQ(OnSpine(1), 1);
  for (const v1::Flow& flow : Flows()) {
    if (SpineOf(flow) != 1) continue;
    EXPECT_EQ(flow.owner().moves().refused(), 3u);
    EXPECT_EQ(flow.owner().last_refusal(), "Device or resource busy (errno 16)");
    v1::WhyRequest request;
    request.set_what(flow.id());
    const auto why = testbed_->agent(0).Why(request);
    ASSERT_TRUE(why.ok()) << why.status();
    EXPECT_TRUE(
        std::any_of(why->holds().begin(), why->holds().end(), [](const auto& h) { return h.kind() == "refused"; }));
  }
}

TEST_F(OwnerMoves, GoWhereAnOperatorWishesAndBack) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(1));
  const v1::Flow before = Flows().at(0);
  v1::SteerSetRequest set;
  set.set_flow(before.id());
  set.set_path(static_cast<uint32_t>((before.slot() + 1) % kSpines));
  auto reply = testbed_->agent(0).SteerSet(set);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(Eventually([&] { return Flows().at(0).slot() == static_cast<int>(set.path()); }));
  EXPECT_TRUE(Flows().at(0).owner().moves().manual());
  v1::SteerClearRequest clear;
  clear.set_flow(before.id());
  reply = testbed_->agent(0).SteerClear(clear);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(Eventually([&] { return Flows().at(0).owner().udp_port() == before.owner().udp_port(); }));
  EXPECT_FALSE(Flows().at(0).owner().moves().manual());
  set.set_port(1234);
  EXPECT_FALSE(testbed_->agent(0).SteerSet(set).ok());
  set.set_path(0);
  set.set_lag_port(2);
  EXPECT_FALSE(testbed_->agent(0).SteerSet(set).ok()) << "no bond";
}

TEST_F(OwnerMoves, AreNcclsOwnWhereItMovesThem) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartAppOnLivingPaths("NCCL_IB_RESILIENCY_PORT_FAILOVER=1"));
  for (int spine = 0; spine < kSpines; ++spine) EXPECT_EQ(OnSpine(spine), kQueuePairs / kSpines) << "they are placed";
  EXPECT_EQ(testbed_->Events(started_ns_, "place").size(), static_cast<size_t>(kQueuePairs + 1))
      << "said once for all of them";
  const int64_t cut_ns = MonotonicNs();
  ASSERT_NO_FATAL_FAILURE(Cut(1));
  ASSERT_TRUE(Eventually([&] { return !testbed_->PathDeaths(cut_ns).empty(); }));
  EXPECT_TRUE(AfterLooks(*testbed_, 2));  // at what is still there
  EXPECT_EQ(OnSpine(1), kQueuePairs / kSpines);
  EXPECT_EQ(log_->changes, 0u);
  v1::WhyRequest request;
  request.set_what(Flows().at(0).id());
  const auto why = testbed_->agent(0).Why(request);
  ASSERT_TRUE(why.ok()) << why.status();
  EXPECT_EQ(why->placement(), "owner_placed");
  ASSERT_GE(why->holds_size(), 1);
  EXPECT_EQ(why->holds(0).kind(), "own_failover");
}

TEST_F(OwnerMoves, AreOnlyToldOfInObserve) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs));
  ASSERT_NO_FATAL_FAILURE(SetMode(v1::MODE_OBSERVE));
  ASSERT_NO_FATAL_FAILURE(Cut(1));
  EXPECT_TRUE(Eventually([&] { return testbed_->Events(0, "move").size() == kQueuePairs / kSpines; }));
  EXPECT_EQ(OnSpine(1), kQueuePairs / kSpines);
  EXPECT_EQ(log_->changes, 0u);
}

TEST_F(OwnerMoves, GoBackToAPathThatRecovered) {
  constexpr size_t kOfOne = kQueuePairs / kSpines;
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs));
  ASSERT_NO_FATAL_FAILURE(Cut(1));
  ASSERT_TRUE(Eventually([&] { return OnSpine(1) == 0; }));
  ASSERT_NO_FATAL_FAILURE(Heal(1));
  EXPECT_TRUE(Eventually([&] { return OnSpine(1) == static_cast<int>(kOfOne); }));
  for (int spine = 0; spine < kSpines; ++spine) EXPECT_EQ(OnSpine(spine), static_cast<int>(kOfOne)) << spine;
  EXPECT_EQ(log_->changes, 2 * kOfOne) << "the others stay";
  EXPECT_EQ(testbed_->Events(0, "return").size(), kOfOne);
  EXPECT_EQ(Moves("recovered"), kOfOne);
  // The contention rule, where it acts, takes what recovered into use for flows that are seen only.
  ASSERT_NO_FATAL_FAILURE(SetMode(v1::MODE_OPTIMIZE));
  ASSERT_NO_FATAL_FAILURE(Cut(3));
  ASSERT_TRUE(Eventually([&] { return OnSpine(3) == 0; }));
  ASSERT_NO_FATAL_FAILURE(Heal(3));
  EXPECT_TRUE(Eventually([&] { return OnSpine(3) == static_cast<int>(kOfOne); }));
}

TEST_F(OwnerMoves, LeaveADrainedSpineAndComeBackAfterIt) {
  constexpr uint32_t kOfOne = kQueuePairs / kSpines;
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs));
  ASSERT_NO_FATAL_FAILURE(DrainSpine(2));
  EXPECT_TRUE(Eventually([&] { return OnSpine(2) == 0; }));
  EXPECT_EQ(log_->changes, kOfOne) << "the others stay";
  EXPECT_EQ(Moves("drained"), kOfOne);
  EXPECT_TRUE(Eventually([&] { return DrainState().safe(); })) << DrainState().DebugString();
  EXPECT_EQ(DrainState().flows(), 0u);
  EXPECT_EQ(DrainState().flows_moved(), kOfOne);
  // A path that fails now is no reason to go there.
  ASSERT_NO_FATAL_FAILURE(Cut(1));
  EXPECT_TRUE(Eventually([&] { return OnSpine(1) == 0; }));
  EXPECT_EQ(OnSpine(2), 0);
  ASSERT_NO_FATAL_FAILURE(Heal(1));
  v1::UndrainRequest undrain;
  undrain.set_all(true);
  ASSERT_TRUE(testbed_->agent(0).Undrain(undrain).ok());
  EXPECT_TRUE(Eventually([&] { return OnSpine(2) > 0 && OnSpine(1) > 0; }));
  EXPECT_GT(Moves("drain over"), 0u);
}

// What is not moved is counted, so that nobody pulls the cable: that of a device which refuses, and NCCL's own.
TEST_F(OwnerMoves, ThatStayKeepADrainFromBeingSafe) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kSpines, "FAKE_MLX5_ERRNO=16"));
  ASSERT_NO_FATAL_FAILURE(DrainSpine(2));
  EXPECT_TRUE(Eventually([&] { return testbed_->CounterSum("qps_moves_refused") == 3; }));
  EXPECT_TRUE(Eventually([&] { return DrainState().held_size() == 1; })) << DrainState().DebugString();
  ASSERT_TRUE(Eventually([&] { return DrainState().age_s() > 12; }));
  const v1::Drain state = DrainState();
  EXPECT_FALSE(state.safe()) << state.DebugString();
  EXPECT_EQ(state.flows(), 1u);
  EXPECT_EQ(state.flows_moved(), 0u);
  EXPECT_EQ(OnSpine(2), 1);
  for (const v1::Flow& flow : Flows()) {
    if (SpineOf(flow) != 2) continue;
    EXPECT_EQ(flow.id(), state.held(0));
    v1::WhyRequest request;
    request.set_what(flow.id());
    const auto why = testbed_->agent(0).Why(request);
    ASSERT_TRUE(why.ok()) << why.status();
    for (const char* kind : {"drained", "refused"}) {
      EXPECT_TRUE(std::any_of(why->holds().begin(), why->holds().end(), [&](const auto& h) {
        return h.kind() == kind;
      })) << kind;
    }
  }
}

TEST_F(OwnerMoves, AreNotDrainedWhereNcclMovesThem) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs, "NCCL_IB_RESILIENCY_PORT_FAILOVER=1"));
  ASSERT_NO_FATAL_FAILURE(DrainSpine(2));
  EXPECT_EQ(DrainState().flows(), static_cast<uint32_t>(kQueuePairs / kSpines)) << DrainState().DebugString();
  EXPECT_EQ(DrainState().held_size(), kQueuePairs / kSpines);
  EXPECT_TRUE(AfterLooks(*testbed_, 2));
  EXPECT_EQ(OnSpine(2), kQueuePairs / kSpines);
  EXPECT_EQ(log_->changes, 0u);
}

TEST_F(OwnerMoves, StayOnADrainedNicUntilTheirJobEnds) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(StartApp(kSpines));
  const auto status = testbed_->agent(0).Status();
  ASSERT_TRUE(status.ok() && status->nics_size() == 1);
  v1::DrainRequest request;
  request.set_kind(v1::DRAIN_KIND_NIC);
  request.set_what(status->nics(0).name());
  request.set_now(true);
  ASSERT_TRUE(testbed_->agent(0).Drain(request).ok());
  EXPECT_EQ(DrainState().flows(), static_cast<uint32_t>(kSpines)) << DrainState().DebugString();
  EXPECT_EQ(DrainState().held_size(), kSpines);
  EXPECT_EQ(log_->changes, 0u);
  EXPECT_EQ(app_.End(), 0);
  EXPECT_TRUE(Eventually([&] { return DrainState().flows() == 0; })) << DrainState().DebugString();
}

// They connect on ports that nobody chose for them, where not even a switch answers any more.
TEST_F(OwnerMoves, LeavePortsThatNeverAnswered) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_TRUE(testbed_->fabric().SetFault(LinkDirection::LeafToSpine(0, 1), Fault::Drop(Fault::Match::kAll)).ok());
  ASSERT_TRUE(Eventually([&] { return !testbed_->PathDeaths(0).empty(); }));
  ASSERT_NO_FATAL_FAILURE(SetMode(v1::MODE_OBSERVE));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs));
  const int on_dead = OnSpine(1);
  ASSERT_GT(on_dead, 0) << "their numbers are always the same";
  ASSERT_NO_FATAL_FAILURE(SetMode(v1::MODE_PROTECT));
  EXPECT_TRUE(Eventually([&] { return OnSpine(1) == 0; }));
  EXPECT_EQ(log_->changes, static_cast<uint64_t>(on_dead)) << "the others stay";
}

// Nothing put them on a path: their ports are found out for them.
TEST_F(OwnerMoves, LeavePortsOfTheirOwn) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect"));
  ASSERT_NO_FATAL_FAILURE(DrainSpine(2));
  ASSERT_NO_FATAL_FAILURE(SetMode(v1::MODE_OBSERVE));
  ASSERT_NO_FATAL_FAILURE(StartApp(kQueuePairs));
  const int on_drained = OnSpine(2);
  ASSERT_GT(on_drained, 0) << "their numbers are always the same";
  EXPECT_TRUE(Eventually([&] { return DrainState().flows() == static_cast<uint32_t>(on_drained); }))
      << DrainState().DebugString();
  EXPECT_TRUE(Eventually([&] { return Moves("drained") == static_cast<size_t>(on_drained); })) << "would be moved";
  EXPECT_EQ(log_->changes, 0u);
  ASSERT_NO_FATAL_FAILURE(SetMode(v1::MODE_PROTECT));
  EXPECT_TRUE(Eventually([&] { return OnSpine(2) == 0; }));
  EXPECT_TRUE(Eventually([&] { return log_->changes == static_cast<uint64_t>(on_drained); }));
  const int spine = SpineOf(Flows().at(0));
  ASSERT_NO_FATAL_FAILURE(Cut(spine));
  EXPECT_TRUE(Eventually([&] { return OnSpine(spine) == 0; }));
}

}  // namespace
}  // namespace cw::lab
