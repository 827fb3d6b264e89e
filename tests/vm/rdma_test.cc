// SPDX-License-Identifier: Apache-2.0
// Real soft-RoCE queue pairs across the lab's fabric.
#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/vm/perftest.h"
#include "tests/vm/rack.h"

namespace cw::vm {
namespace {

class RdmaTest : public testing::Test {
 protected:
  void SetUp() override {
    RackOptions options;
    options.log_dir = std::string(CW_VM_LOG_DIR "/") + testing::UnitTest::GetInstance()->current_test_info()->name();
    auto rack = Rack::Up(options);
    if (absl::IsUnavailable(rack.status())) GTEST_SKIP() << rack.status().message();
    ASSERT_TRUE(rack.ok()) << rack.status();
    rack_ = *std::move(rack);
  }

  // RoCE bytes that each spine has carried from leaf 0 to leaf 1.
  std::vector<uint64_t> SpineBytes() {
    std::vector<uint64_t> bytes;
    for (int spine = 0; spine < rack_->fabric().spec().spines; spine++) {
      bytes.push_back(rack_->fabric().Link(lab::LinkDirection::LeafToSpine(0, spine))->carried_bytes);
    }
    return bytes;
  }

  // Where packets can have been lost, for the message of a failed expectation.
  std::string LossReport() {
    std::string report;
    for (const lab::LinkCounters& link : rack_->fabric().Links()) {
      absl::StrAppendFormat(&report, "%s: offered %d, carried %d, fault drops %d\n", link.link.Name(),
                            link.offered_packets, link.carried_packets, link.fault_drops);
    }
    for (int i = 0; i < 2; i++) {
      auto queue = rack_->machine(i).Run(
          "tc -s qdisc show dev eth0; ip -s link show eth0; grep . "
          "/sys/class/infiniband/rxe0/ports/1/hw_counters/*err*");
      absl::StrAppend(&report, "machine ", i, ":\n", queue.ok() ? *queue : std::string(queue.status().message()));
    }
    return report;
  }

  std::unique_ptr<Rack> rack_;
};

TEST_F(RdmaTest, PerftestRunsAcrossTheFabric) {
  auto run = Perftest::Start(*rack_, {});
  ASSERT_TRUE(run.ok()) << run.status();
  auto pairs = WaitForQueuePairs(rack_->machine(0), 4, absl::Seconds(30));
  ASSERT_TRUE(pairs.ok()) << pairs.status();
  for (const QueuePair& pair : *pairs) {
    EXPECT_EQ(pair.comm, "ib_write_bw");
    EXPECT_GT(pair.pid, 0);
    EXPECT_NE(pair.rqpn, 0u);
  }

  auto result = (*run)->Wait(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u);

  // The wire: four flows towards machine 1, on spines only, and every byte that perftest claims crossed one.
  auto flows = rack_->fabric().Flows();
  ASSERT_TRUE(flows.ok()) << flows.status();
  std::set<uint32_t> qpns;
  for (const lab::FlowCounters& flow : *flows) {
    if (flow.source == Rack::FabricAddress(0) && flow.destination == Rack::FabricAddress(1)) qpns.insert(flow.dest_qpn);
  }
  for (const QueuePair& pair : *pairs) EXPECT_TRUE(qpns.count(pair.rqpn)) << "QPN " << pair.rqpn << " was not seen";
  uint64_t carried = 0;
  for (uint64_t bytes : SpineBytes()) carried += bytes;
  EXPECT_GT(carried, result->messages * result->message_bytes);

  auto sender = RxeCounters(rack_->machine(0)), receiver = RxeCounters(rack_->machine(1));
  ASSERT_TRUE(sender.ok() && receiver.ok()) << sender.status() << receiver.status();
  EXPECT_EQ(sender->at("rcvd_seq_err"), 0u) << LossReport();
  EXPECT_EQ(receiver->at("out_of_seq_request"), 0u);
  EXPECT_GT(receiver->at("rcvd_pkts"), carried / 4500);
}

}  // namespace
}  // namespace cw::vm
