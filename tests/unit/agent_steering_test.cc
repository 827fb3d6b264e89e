// SPDX-License-Identifier: Apache-2.0
//
// What operators ask of flows: placements and locks by hand, and drains, by whoever moves them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "tests/unit/agent_fakes.h"
#include "tests/unit/time_units.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/steering.h"
#include "userspace/agent/flows/unseen.h"

namespace cw::agent {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

class Wishes : public ::testing::Test {
 protected:
  Wishes() {
    host_.AddPaths(ports_);
    host_.pair().table_seen = true;
    modes_.Begin(Mode::kProtect, {}, false);
  }
  ~Wishes() override { std::filesystem::remove_all(folder_); }

  static std::string MakeFolder() {
    char name[] = "/tmp/cw-wishes-XXXXXX";
    return mkdtemp(name);
  }
  // Three paths over spines of their own, found by traces; their ports.
  static std::vector<uint16_t> Find(probe::Discovery& discovery) {
    std::vector<uint16_t> ports;
    for (int64_t now_ns = 0; now_ns < 60 * kSecond && !discovery.table().valid; now_ns += kSecond / 1000) {
      for (const probe::TraceProbe& probe : discovery.Poll(now_ns, [](int) { return true; })) {
        const uint32_t spine = probe.port % 3u;
        if (probe.ttl > 3) continue;
        discovery.OnAnswer(probe.port, probe.ip_id,
                           Addr::FromV4(probe.ttl == 1 ? 0x0a000001u : 0x0a010000u + (spine << 8) + (probe.ttl == 3)),
                           now_ns + kSecond / 10'000);
      }
    }
    for (const probe::Path& path : discovery.table().paths) ports.push_back(path.port);
    return ports;
  }
  // A connected queue pair whose library moves it.
  FlowKey AddOwned(uint32_t qpn, uint16_t port) {
    const rdma::QpInfo qp{.lqpn = qpn,
                          .rqpn = qpn + 1000,
                          .laddr = host_.local,
                          .raddr = host_.remote,
                          .pid = 5,
                          .udp_sport = port,
                          .source = "inproc",
                          .owner = rdma::OwnerSums{.can = CW_INPROC_CAN_MOVE_PORT, .told_can = true}};
    qps_.Register(qp);
    return rdma::SentFlow(qp);
  }
  void Answer(const rdma::MoveOrder& order) {
    rdma::QpInfo qp = *qps_.ByReceivedFlow({.dst = order.laddr, .dqpn = order.lqpn});
    const rdma::QpInfo before = qp;
    qp.udp_sport = order.udp_sport;
    qps_.Register(qp);
    owners_.OnMoved(before, {.request = order.request});
  }
  // The kernel does what it was asked to.
  void Move(const FlowKey& key) {
    cw_tx_flow& record = records_.sent[key];
    record.slot = record.want_port == 0 ? uint8_t{CW_SLOT_NONE} : record.want_slot;
    record.port = record.want_port;
    record.want_slot = CW_SLOT_NONE;
    host_.flows.sent[key].tx = record;
  }
  absl::StatusOr<v1::ActionReply> SetPath(const FlowKey& key, uint32_t path, double for_s = 0) {
    v1::SteerSetRequest request;
    request.set_flow(key.Id().ToString());
    request.set_path(path);
    request.set_for_s(for_s);
    return steering_.Set({}, request);
  }
  absl::StatusOr<v1::ActionReply> Clear(const FlowKey& key) {
    v1::SteerClearRequest request;
    request.set_flow(key.Id().ToString());
    return steering_.Clear({}, request);
  }
  absl::StatusOr<v1::ActionReply> DrainPath(const std::string& what, bool now = false) {
    v1::DrainRequest request;
    request.set_kind(v1::DRAIN_KIND_PATH);
    request.set_what(what);
    request.set_now(now);
    return draining_.Begin({}, request);
  }
  absl::StatusOr<v1::ActionReply> Undrain(const std::string& what) {
    v1::UndrainRequest request;
    request.set_what(what);
    return draining_.End({}, request);
  }
  v1::PathsReply Paths() {
    v1::PathsReply reply;
    v1::Pair& pair = *reply.add_pairs();
    pair.set_index(host_.index);
    pair.set_peer("h2");
    pair.set_nic("eth0");
    pair.set_remote_address(host_.remote.ToString());
    for (uint8_t s = 0; s < 3; ++s) pair.add_paths()->set_slot(s);
    return reply;
  }

  const std::string folder_ = MakeFolder();
  probe::Discovery discovery_{probe::DiscoveryOptions{}, {}};
  const std::vector<uint16_t> ports_ = Find(discovery_);
  OnePair host_;
  MemoryFlows records_;
  rdma::QpRegistry qps_;
  ManualClock clock_{1000 * kSecond};
  std::vector<rdma::MoveOrder> orders_;
  cw_ctl ctl_{};
  Journal journal_{[](const telemetry::Event&) {}};
  Deadlines deadlines_{folder_ + "/deadlines.json", "boot"};
  Drains drains_{folder_ + "/drains.json", "boot"};
  Modes modes_{ctl_, deadlines_, clock_, journal_};
  UnseenFlows unseen_{host_.pairs,
                      host_.nics,
                      host_.flows,
                      qps_,
                      host_.mesh,
                      {.assigns = [] { return false; },
                       .fold = [](uint32_t, uint16_t) { return std::nullopt; },
                       .watch = [](uint32_t, uint16_t) { return uint8_t{CW_SLOT_NONE}; },
                       .release = [](uint32_t, uint16_t, const FlowKey&) {}}};
  OwnerMover owners_{host_.pairs,
                     host_.flows,
                     qps_,
                     unseen_,
                     host_.mesh,
                     host_.names,
                     clock_,
                     host_.events,
                     {.allowed = [] { return Allowed(Mode::kProtect); },
                      .send =
                          [this](const std::vector<rdma::MoveOrder>& orders) {
                            orders_.insert(orders_.end(), orders.begin(), orders.end());
                            return std::vector<uint32_t>();
                          },
                      .fold = [](uint32_t, uint16_t) { return std::nullopt; },
                      .left = [](const FlowKey&, uint32_t, control::ReturnPlace, control::ReturnPlace) {}}};
  KernelMover kernel_{host_.pairs,
                      host_.flows,
                      records_,
                      host_.mesh,
                      host_.names,
                      host_.events,
                      {.in_motion = [](uint32_t) { return false; },
                       .left = [](const FlowKey&, uint32_t, control::ReturnPlace, control::ReturnPlace) {},
                       .allowed = [] { return Allowed(Mode::kProtect); }}};
  Steering steering_{{&kernel_, &owners_}, host_.pairs, host_.mesh, host_.names, deadlines_, modes_, clock_, journal_};
  uint64_t overflows_ = 0, unplaced_ = 0;
  Draining draining_{drains_,
                     kernel_,
                     owners_,
                     unseen_,
                     host_.flows,
                     host_.pairs,
                     host_.nics,
                     host_.mesh,
                     modes_,
                     clock_,
                     journal_,
                     {.discovery = [this](uint32_t) { return &discovery_; },
                      .paths = [this] { return Paths(); },
                      .publish = [](PairState& pair) { pair.blocked = pair.drained; },
                      .nic_failover = [] { return false; },
                      .holds_a_job = [] { return false; },
                      .carried = [](const PairKey&) { return false; },
                      .overflows = [this] { return overflows_; },
                      .unplaced = [this] { return unplaced_; },
                      .untraced_s = [this](uint32_t) { return untraced_s_; },
                      .trace_soon = [this](uint32_t) { ++traced_; },
                      .has_qp = [this](const FlowKey& flow) { return qps_.BySentFlow(flow).has_value(); }}};
  double untraced_s_ = 1;
  int traced_ = 0;
};

TEST_F(Wishes, AFlowGoesWhereItIsPutAndBackWhenThatEnds) {
  const FlowKey key = host_.AddFlow(records_, 7, 1);
  const absl::StatusOr<v1::ActionReply> reply = SetPath(key, 2, /*for_s=*/10);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->effect(), HasSubstr(absl::StrFormat("goes to path 2, udp-port %d at the next pause", ports_[2])));
  EXPECT_EQ(reply->undo(), "steer clear " + key.Id().ToString());
  EXPECT_TRUE(reply->pending());
  EXPECT_EQ(records_.sent[key].want_slot, 2);
  EXPECT_EQ(records_.sent[key].flags, CW_STEER_MANUAL);
  Move(key);
  clock_.Advance(9 * kSecond);
  steering_.EndDue();
  EXPECT_EQ(records_.sent[key].want_slot, CW_SLOT_NONE);
  clock_.Advance(2 * kSecond);
  steering_.EndDue();
  EXPECT_EQ(records_.sent[key].want_slot, 1) << "where it was";
  EXPECT_EQ(records_.sent[key].flags, 0);
}

TEST_F(Wishes, AFlowThatIsThereStaysThere) {
  const FlowKey key = host_.AddFlow(records_, 7, 1);
  const absl::StatusOr<v1::ActionReply> reply = SetPath(key, 1);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->effect(), HasSubstr(absl::StrFormat("is on path 1, udp-port %d already", ports_[1])));
  EXPECT_FALSE(reply->pending());
  EXPECT_EQ(records_.sent[key].want_slot, CW_SLOT_NONE);
}

TEST_F(Wishes, AnOwnersQueuePairGoesAndComesBackByTheSameVerbs) {
  const FlowKey key = AddOwned(7, ports_[1]);
  const absl::StatusOr<v1::ActionReply> reply = SetPath(key, 2);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->effect(), HasSubstr("its owner's library was asked to move"));
  ASSERT_THAT(orders_, SizeIs(1));
  EXPECT_EQ(orders_[0].udp_sport, ports_[2]);
  Answer(orders_[0]);
  ASSERT_TRUE(Clear(key).ok());
  ASSERT_THAT(orders_, SizeIs(2));
  EXPECT_EQ(orders_[1].udp_sport, ports_[1]);
  EXPECT_THAT(Clear(key)->effect(), HasSubstr("was the agent's already"));
}

TEST_F(Wishes, NobodyIsPutOnADeadOrDrainedPathWhoeverMovesIt) {
  const FlowKey seen = host_.AddFlow(records_, 7, 1), owned = AddOwned(8, ports_[1]);
  host_.shared().slot[2].state = CW_SLOT_DEAD;
  host_.pair().drained = 1;
  for (const FlowKey& key : {seen, owned}) {
    EXPECT_THAT(std::string(SetPath(key, 2).status().message()), HasSubstr("path 2 is dead"));
    EXPECT_THAT(std::string(SetPath(key, 0).status().message()), HasSubstr("path 0 is drained"));
    EXPECT_THAT(std::string(SetPath(key, 9).status().message()), HasSubstr("no path 9 to h2; see cwctl paths"));
  }
  EXPECT_THAT(orders_, IsEmpty());
  EXPECT_EQ(records_.sent[seen].flags, 0);
}

TEST_F(Wishes, WhatCannotBeIsRefusedWithWhatToDo) {
  const FlowKey seen = host_.AddFlow(records_, 7, 1, [](cw_tx_flow& record) { record.flags = CW_STEER_HARD_LOCKED; });
  EXPECT_THAT(std::string(SetPath(seen, 2).status().message()), HasSubstr("first: cwctl steer lock --none"));
  v1::SteerSetRequest request;
  request.set_flow(AddOwned(8, ports_[1]).Id().ToString());
  request.set_port(4000);
  EXPECT_THAT(std::string(steering_.Set({}, request).status().message()), HasSubstr("49152-65535"));
  request.clear_port();
  EXPECT_THAT(std::string(steering_.Set({}, request).status().message()), HasSubstr("say where to"));
  EXPECT_TRUE(absl::IsNotFound(SetPath(host_.FlowTo(99), 1).status()));
  modes_.Change({}, Mode::kProtect, Mode::kObserve, 0);
  EXPECT_THAT(std::string(SetPath(host_.FlowTo(7), 2).status().message()), HasSubstr("cwctl mode protect"));
}

TEST_F(Wishes, ALockHoldsUntilItsEnd) {
  const FlowKey key = host_.AddFlow(records_, 7, 1);
  v1::SteerLockRequest request;
  request.set_flow(key.Id().ToString());
  request.set_lock(v1::LOCK_HARD);
  request.set_for_s(10);
  const absl::StatusOr<v1::ActionReply> reply = steering_.Lock({}, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->undo(), "steer lock --none " + key.Id().ToString());
  EXPECT_EQ(records_.sent[key].flags, CW_STEER_LOCKED | CW_STEER_HARD_LOCKED);
  clock_.Advance(11 * kSecond);
  steering_.EndDue();
  EXPECT_EQ(records_.sent[key].flags, 0);
  request.set_flow(AddOwned(8, ports_[1]).Id().ToString());
  EXPECT_FALSE(steering_.Lock({}, request).ok()) << "locks hold in the kernel only";
}

TEST_F(Wishes, ClearTakesAllThatOperatorsSet) {
  const FlowKey placed = host_.AddFlow(records_, 7, 1), free = host_.AddFlow(records_, 8, 1);
  const FlowKey locked = host_.AddFlow(records_, 9, 1, [](cw_tx_flow& record) { record.flags = CW_STEER_LOCKED; });
  ASSERT_TRUE(SetPath(placed, 2).ok());
  v1::SteerClearRequest request;
  request.set_all(true);
  const absl::StatusOr<v1::ActionReply> reply = steering_.Clear({}, request);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->effect(), "2 flows are the agent's again");
  for (const FlowKey& key : {placed, free, locked}) EXPECT_EQ(records_.sent[key].flags, 0);
}

TEST_F(Wishes, AWishThatCameTrueByAnotherWayIsTakenBack) {
  const FlowKey key = host_.AddFlow(records_, 7, 1, [this](cw_tx_flow& record) {
    record.want_slot = 1;
    record.want_port = ports_[1];
  });
  kernel_.DropMetWishes();
  EXPECT_EQ(records_.sent[key].want_slot, CW_SLOT_NONE);
}

TEST_F(Wishes, SeenAndUnseenLeaveWhatIsDrainedAndComeBack) {
  const FlowKey seen = host_.AddFlow(records_, 7, 1);
  AddOwned(8, ports_[1]);
  const absl::StatusOr<v1::ActionReply> reply = DrainPath("h2/1");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->undo(), "undrain h2/1");
  EXPECT_THAT(reply->effect(), HasSubstr("1 more at once, by their owners' libraries"));
  EXPECT_EQ(host_.pair().drained, 1 << 1);
  EXPECT_NE(records_.sent[seen].want_slot, 1);
  ASSERT_THAT(orders_, SizeIs(1));
  EXPECT_NE(orders_[0].udp_sport, ports_[1]);
  Move(seen);
  Answer(orders_[0]);
  draining_.Look();
  draining_.LookAtUnseen();
  ASSERT_THAT(draining_.All().drains(), SizeIs(1));
  EXPECT_EQ(draining_.All().drains(0).flows(), 0u);
  EXPECT_EQ(draining_.All().drains(0).flows_moved(), 2u);
  const absl::StatusOr<v1::ActionReply> over = Undrain("h2/1");
  ASSERT_TRUE(over.ok()) << over.status();
  EXPECT_THAT(over->effect(), HasSubstr("2 flows go back"));
  EXPECT_EQ(records_.sent[seen].want_slot, 1);
  ASSERT_THAT(orders_, SizeIs(2));
  EXPECT_EQ(orders_[1].udp_sport, ports_[1]);
  EXPECT_EQ(host_.pair().drained, 0);
}

TEST_F(Wishes, WhatNobodyCanMoveStaysAndKeepsItFromBeingSafe) {
  const FlowKey locked = host_.AddFlow(records_, 7, 1, [](cw_tx_flow& record) { record.flags = CW_STEER_HARD_LOCKED; });
  const absl::StatusOr<v1::ActionReply> reply = DrainPath("h2/1");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->effect(), HasSubstr("1 stay"));
  ASSERT_THAT(draining_.All().drains(), SizeIs(1));
  ASSERT_THAT(ports_, SizeIs(3));
  EXPECT_THAT(draining_.All().drains(0).held(), ElementsAre(locked.Id().ToString()));
}

TEST_F(Wishes, NothingSentForTenSecondsIsToldAsSafe) {
  const FlowKey key = host_.AddFlow(records_, 7, 1);
  ASSERT_TRUE(DrainPath("h2/1", /*now=*/true).ok());
  EXPECT_EQ(records_.sent[key].want_force, 1);
  Move(key);
  host_.flows.sent[key].window_bytes = 1000;  // sent over it since the last look
  draining_.Look();
  host_.flows.sent[key].window_bytes = 0;
  const auto look = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(kSecond);
      draining_.Look();
    }
  };
  look(9);
  EXPECT_FALSE(draining_.All().drains(0).safe());
  look(2);
  EXPECT_TRUE(draining_.All().drains(0).safe());
  EXPECT_THAT(journal_.log().After(0, 100).back().text, HasSubstr("it is safe to pull"));
}

// An agent that was stopped, or whose program somebody took away, does not know what was sent meanwhile.
TEST_F(Wishes, ATimeInWhichNobodyLookedIsNoSilence) {
  const FlowKey key = host_.AddFlow(records_, 7, 1);
  ASSERT_TRUE(DrainPath("h2/1", /*now=*/true).ok());
  Move(key);
  const auto look = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(kSecond);
      draining_.Look();
    }
    return draining_.All().drains(0).safe();
  };
  EXPECT_FALSE(look(6));
  clock_.Advance(6 * kSecond);
  EXPECT_FALSE(look(1));
  EXPECT_FALSE(look(8));
  EXPECT_TRUE(look(3));
  host_.nics[0].settling = 1;
  EXPECT_FALSE(look(1));
  host_.nics[0].settling = 0;
  EXPECT_FALSE(look(9));
  EXPECT_TRUE(look(2));
}

// Quiet for ten seconds each time; what is in the way otherwise.
TEST_F(Wishes, SilenceAloneIsNotSafe) {
  const FlowKey locked = host_.AddFlow(records_, 7, 1, [](cw_tx_flow& record) { record.flags = CW_STEER_HARD_LOCKED; });
  v1::DrainRequest request;
  request.set_kind(v1::DRAIN_KIND_SPINE);
  request.set_what("10.1.1.0");
  request.set_now(true);
  ASSERT_TRUE(draining_.Begin({}, request).ok());
  const auto obstacle = [&]() -> std::string {
    for (int i = 0; i < 12; ++i) {
      clock_.Advance(kSecond);
      draining_.LookAtOthers();
      draining_.Look();
    }
    const v1::Drain drain = draining_.All().drains(0);
    EXPECT_EQ(drain.safe(), drain.obstacles().empty());
    return absl::StrJoin(drain.obstacles(), "; ");
  };
  EXPECT_EQ(obstacle(), "") << "a flow whose queue pair nobody lists is over";
  qps_.Register({.lqpn = 1, .rqpn = 7, .laddr = host_.local, .raddr = host_.remote, .pid = 5, .source = "inproc"});
  ASSERT_TRUE(qps_.BySentFlow(locked));
  EXPECT_THAT(obstacle(), HasSubstr("1 queue pair remains on it")) << "a job that pauses goes on later";
  host_.flows.sent.erase(locked);
  EXPECT_EQ(obstacle(), "");

  overflows_ = 1;
  EXPECT_THAT(obstacle(), HasSubstr("table of flows was full"));
  overflows_ = 0;

  const FlowKey flow = host_.AddFlow(records_, 10, 1);
  untraced_s_ = 20;
  EXPECT_THAT(obstacle(), HasSubstr("paths to 1 NIC were not traced"));
  const int traced = traced_;
  draining_.LookAtOthers();
  EXPECT_EQ(traced_, traced + 1);
  untraced_s_ = 1;
  host_.flows.sent.erase(flow);
  for (int i = 0; i < 6; ++i) (void)obstacle();
  const auto soon = [&] {
    clock_.Advance(kSecond);
    draining_.LookAtOthers();
    draining_.Look();
    return draining_.All().drains(0);
  };
  unplaced_ = 7;
  EXPECT_THAT(soon().obstacles(), ElementsAre(HasSubstr("GSO frames")));
  EXPECT_EQ(obstacle(), "") << "none for ten seconds";
  const FlowKey unlisted = host_.AddFlow(records_, 9, 1);
  host_.flows.sent[unlisted].tx.flags = CW_STEER_HARD_LOCKED;
  host_.flows.sent[unlisted].window_bytes = 1000;
  EXPECT_FALSE(soon().safe());
  host_.flows.sent[unlisted].window_bytes = 0;
  EXPECT_THAT(obstacle(), HasSubstr("1 flow without a known queue pair")) << "a message every 14 s";
  for (int i = 0; i < 4; ++i) (void)obstacle();
  EXPECT_EQ(obstacle(), "");
  host_.flows.sent.erase(unlisted);
  host_.nics[0].attached = true;
  host_.nics[0].hooks_trouble = "NIC eth0: its program is gone";
  EXPECT_THAT(obstacle(), HasSubstr("its program is gone"));
  EXPECT_THAT(draining_.All().obstacles(0), HasSubstr("its program is gone"));
  host_.nics[0].hooks_trouble = "";
}

TEST_F(Wishes, RoceWithWhoeverIsNoPeerMayCrossAnything) {
  v1::DrainRequest request;
  request.set_kind(v1::DRAIN_KIND_SPINE);
  request.set_what("10.1.1.0");
  ASSERT_TRUE(draining_.Begin({}, request).ok());
  const FlowKey sent{.src = host_.local, .dst = probe::TestAddr("10.9.9.9"), .dqpn = 5};
  host_.flows.received[{.src = host_.remote, .dst = host_.local, .dqpn = 6}].last_bytes = 1;  // a peer's
  const auto look = [&](int seconds) {
    for (int i = 0; i < seconds; ++i) {
      clock_.Advance(kSecond);
      draining_.LookAtOthers();
      draining_.Look();
    }
    return draining_.All().drains(0);
  };
  for (int i = 0; i < 12; ++i) {
    ++host_.flows.received[sent].last_bytes;  // as the reader fills it
    (void)look(1);
  }
  EXPECT_FALSE(look(0).safe());
  ASSERT_EQ(look(0).obstacles_size(), 1);
  EXPECT_THAT(look(0).obstacles(0), AllOf(HasSubstr("10.9.9.9"), Not(HasSubstr(host_.remote.ToString()))));
  EXPECT_TRUE(look(11).safe()) << "it has ended";
}

TEST_F(Wishes, TheLastPathIsNotDrainedUnlessThatIsMeant) {
  host_.AddFlow(records_, 7, 1);
  for (const uint8_t s : {0, 2}) host_.shared().slot[s].state = CW_SLOT_DEAD;
  EXPECT_THAT(std::string(DrainPath("h2/1").status().message()), HasSubstr("--now drains h2/1 nevertheless"));
  EXPECT_TRUE(DrainPath("h2/1", /*now=*/true).ok());
}

TEST_F(Wishes, ADrainEndsInTimeAndTheNextAgentKeepsIt) {
  v1::DrainRequest request;
  request.set_kind(v1::DRAIN_KIND_NIC);
  request.set_what("eth0");
  request.set_now(true);
  request.set_for_s(10);
  ASSERT_TRUE(draining_.Begin({}, request).ok());
  EXPECT_TRUE(draining_.IsDrained(host_.nics[0]));
  Drains next(folder_ + "/drains.json", "boot");
  ASSERT_TRUE(next.Load().ok());
  EXPECT_THAT(next.entries(), SizeIs(1));
  clock_.Advance(11 * kSecond);
  draining_.EndDue();
  EXPECT_FALSE(draining_.IsDrained(host_.nics[0]));
}

}  // namespace
}  // namespace cw::agent
