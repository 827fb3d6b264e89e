// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/queues.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/unit/agent_fakes.h"

namespace cw::agent {
namespace {

constexpr uint32_t kTcRoot = 0xffffffff;

TEST(QueueLook, TellsEachPairOfANicWhetherItKeepsDepartures) {
  OnePair host;
  std::vector<dataplane::Qdisc> qdiscs = {{.kind = "fq", .handle = 1, .parent = kTcRoot}};
  absl::Status readable = absl::OkStatus();
  std::map<uint32_t, bool> told;
  const QueueAsks asks{.qdiscs = [&](uint32_t ifindex) -> absl::StatusOr<std::vector<dataplane::Qdisc>> {
                         EXPECT_EQ(ifindex, OnePair::kIfindex);
                         if (!readable.ok()) return readable;
                         return qdiscs;
                       },
                       .tell = [&](uint32_t pair, bool keeps) { told[pair] = keeps; }};
  LookAtQueues(host.nics, host.pairs, asks);
  EXPECT_EQ(told, (std::map<uint32_t, bool>{{host.index, true}}));
  EXPECT_TRUE(host.nics[0].keeps_departures);

  qdiscs = {{.kind = "pfifo_fast", .handle = 0, .parent = kTcRoot}};
  LookAtQueues(host.nics, host.pairs, asks);
  EXPECT_FALSE(told.at(host.index));

  qdiscs = {{.kind = "fq", .handle = 1, .parent = kTcRoot}};
  readable = absl::InternalError("netlink");
  LookAtQueues(host.nics, host.pairs, asks);
  EXPECT_FALSE(told.at(host.index)) << "one that cannot be read keeps none";
}

TEST(QueueLook, LeavesPairsOfOtherNicsAlone) {
  OnePair host;
  host.pair().ifindex = OnePair::kIfindex + 1;
  LookAtQueues(host.nics, host.pairs,
               {.qdiscs = [](uint32_t) { return std::vector<dataplane::Qdisc>(); },
                .tell = [](uint32_t, bool) { ADD_FAILURE() << "no pair is of this NIC"; }});
}

}  // namespace
}  // namespace cw::agent
