// SPDX-License-Identifier: Apache-2.0
// What was asked of owners' libraries, and what came of it.
#include "userspace/rdma/move_book.h"
#include "tests/unit/time_units.h"

#include <gtest/gtest.h>

#include <cerrno>

#include "userspace/rdma/placement.h"

namespace cw::rdma {
namespace {

QpInfo Qp(uint32_t lqpn, uint16_t port, uint32_t can = CW_INPROC_CAN_MOVE_PORT) {
  QpInfo qp{.lqpn = lqpn, .rqpn = 0x77, .pid = 5, .udp_sport = port};
  qp.owner.emplace();
  qp.owner->can = can;
  qp.owner->told_can = true;
  return qp;
}

TEST(MoveBook, GoesWhereItWasAskedToUntilItIsAnswered) {
  MoveBook book;
  QpInfo qp = Qp(1, 50000);
  EXPECT_EQ(book.PortOf(qp), 50000);
  const MoveOrder order = book.Ask(qp, 50001, 0, MoveWhy::kDead, 0);
  EXPECT_EQ(order.lqpn, 1u);
  EXPECT_EQ(order.pid, 5u);
  EXPECT_EQ(order.udp_sport, 50001);
  EXPECT_EQ(book.PortOf(qp), 50001);
  EXPECT_FALSE(book.MayAsk(qp));
  qp.udp_sport = 50001;
  const auto asked = book.Answered(qp, {.request = order.request});
  ASSERT_TRUE(asked.has_value());
  EXPECT_EQ(asked->from_port, 50000);
  EXPECT_EQ(asked->why, MoveWhy::kDead);
  EXPECT_EQ(book.PortOf(qp), 50001);
  EXPECT_TRUE(book.MayAsk(qp));
  EXPECT_EQ(book.Of(qp).done, 1u);
}

TEST(MoveBook, AnAnswerToAnEarlierOrderIsNone) {
  MoveBook book;
  const QpInfo qp = Qp(1, 50000);
  const uint32_t first = book.Ask(qp, 50001, 0, MoveWhy::kDead, 0).request;
  const uint32_t second = book.Ask(qp, 50002, 0, MoveWhy::kDead, 0).request;
  EXPECT_FALSE(book.Answered(qp, {.request = first}));
  EXPECT_EQ(book.PortOf(qp), 50002);
  EXPECT_TRUE(book.Answered(qp, {.request = second, .error = EBUSY}));
  EXPECT_EQ(book.PortOf(qp), 50000);
  EXPECT_FALSE(book.Answered(Qp(2, 50000), {.request = second})) << "another queue pair's";
}

TEST(MoveBook, IsNotAskedForOverAndOver) {
  MoveBook book;
  QpInfo qp = Qp(1, 50000);
  for (int i = 0; i < MoveBook::kRefusals; ++i) {
    EXPECT_TRUE(book.MayAsk(qp));
    book.Answered(qp, {.request = book.Ask(qp, 50001, 0, MoveWhy::kDead, 0).request, .error = EBUSY});
  }
  EXPECT_FALSE(book.MayAsk(qp));
  EXPECT_EQ(book.Of(qp).last_error, EBUSY);
  book.Answered(qp, {.request = book.Ask(qp, 50001, 0, MoveWhy::kOperator, 0).request});
  EXPECT_TRUE(book.MayAsk(qp)) << "one that was done begins anew";
  EXPECT_EQ(book.Of(qp).last_error, EBUSY) << "the last refusal stays to be seen";
}

TEST(MoveBook, WaitsTenSecondsForAnAnswer) {
  MoveBook book;
  const QpInfo qp = Qp(1, 50000);
  book.Ask(qp, 50001, 0, MoveWhy::kDead, 0);
  book.ExpireOverdue(10 * kSecond - 1);
  EXPECT_FALSE(book.MayAsk(qp));
  book.ExpireOverdue(10 * kSecond);
  EXPECT_TRUE(book.MayAsk(qp));
  EXPECT_EQ(book.PortOf(qp), 50000);
  EXPECT_EQ(book.counts().unanswered, 1u);
}

TEST(MoveBook, RemembersWhereAnOperatorTookItFrom) {
  MoveBook book;
  QpInfo qp = Qp(1, 50000);
  book.SetManual(qp, true);
  book.Answered(qp, {.request = book.Ask(qp, 50001, 0, MoveWhy::kOperator, 0).request});
  qp.udp_sport = 50001;
  book.SetManual(qp, true);  // once more
  EXPECT_EQ(book.Of(qp).before_manual, 50000);
  book.Forget(qp);
  EXPECT_FALSE(book.Of(qp).manual);
}

TEST(MoveBook, TellsOfAProcessOnce) {
  MoveBook book;
  EXPECT_TRUE(book.FirstOfOwnFailover(7));
  EXPECT_FALSE(book.FirstOfOwnFailover(7));
  book.ProcessGone(7);
  EXPECT_TRUE(book.FirstOfOwnFailover(7));
}

TEST(MoveWhy, HasNamesAndOnlyBadPathsAreLeft) {
  for (const MoveWhy why : {MoveWhy::kDead, MoveWhy::kLossy, MoveWhy::kOperator, MoveWhy::kDrained, MoveWhy::kDrainOver,
                            MoveWhy::kRecovered}) {
    EXPECT_STRNE(MoveWhyName(why), "");
    EXPECT_EQ(LeavesBadPath(why), why == MoveWhy::kDead || why == MoveWhy::kLossy) << MoveWhyName(why);
  }
}

TEST(CannotMove, SaysWhy) {
  EXPECT_EQ(CannotMove(Qp(1, 1)), "");
  EXPECT_NE(CannotMove(Qp(1, 1, 0)), "");
  EXPECT_NE(CannotMove(Qp(1, 1, CW_INPROC_CAN_MOVE_LAG)), "");
  EXPECT_NE(CannotMove(Qp(1, 1, CW_INPROC_CAN_MOVE_PORT | CW_INPROC_OWN_LABEL)), "");
  EXPECT_NE(CannotMove(Qp(1, 1, CW_INPROC_CAN_MOVE_PORT | CW_INPROC_OWN_FAILOVER)), "");
  QpInfo silent = Qp(1, 1);
  silent.owner->told_can = false;
  EXPECT_NE(CannotMove(silent), "");
  silent.owner.reset();
  EXPECT_NE(CannotMove(silent), "");
}

TEST(PortOfQpns, IsTheKernels) {
  // rdma_calc_flow_label and rdma_flow_label_to_udp_sport, worked by hand for small numbers: no bits above 20.
  EXPECT_EQ(PortOfQpns(0x100, 0x77), PortOfLabel(0x7700));
}

}  // namespace
}  // namespace cw::rdma
