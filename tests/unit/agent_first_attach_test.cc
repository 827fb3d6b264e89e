// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/first_attach.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace cw::agent {
namespace {

using ::testing::HasSubstr;

class Lists final : public rdma::QpLists {
 public:
  explicit Lists(std::vector<rdma::Qp> qps) : qps_(std::move(qps)) {}
  absl::StatusOr<std::vector<rdma::Link>> Links() override {
    return std::vector<rdma::Link>{{.device = "rxe0", .device_index = 1, .port = 1, .ifindex = 7, .netdev = "eth0"},
                                   {.device = "rxe1", .device_index = 2, .port = 1, .ifindex = 8, .netdev = "eth1"}};
  }
  absl::StatusOr<std::vector<rdma::Qp>> Qps() override { return qps_; }
  absl::StatusOr<std::vector<rdma::CmId>> CmIds() override { return std::vector<rdma::CmId>(); }
  absl::StatusOr<rdma::Qp> FindQp(const rdma::Link&, uint32_t) override { return absl::NotFoundError(""); }

 private:
  const std::vector<rdma::Qp> qps_;
};

std::string Why(const std::string& does, std::vector<rdma::Qp> qps) {
  return WhyNotYet(7, does, [&] { return std::make_unique<Lists>(qps); });
}

TEST(FirstAttach, WaitsForQueuePairsOfTheDeviceAlone) {
  const rdma::Qp management{.device_index = 1, .lqpn = 1, .type = 1}, data{.device_index = 1, .lqpn = 17, .type = 2},
      datagrams{.device_index = 1, .lqpn = 18, .type = 4}, elsewhere{.device_index = 2, .lqpn = 17, .type = 2};
  EXPECT_EQ(Why("adds clsact", {management, elsewhere}), "");
  EXPECT_EQ(Why("", {data}), "") << "a restart";
  EXPECT_THAT(Why("adds clsact", {management, data}), HasSubstr("adds clsact, and 1 queue pair uses it"));
  EXPECT_THAT(Why("adds clsact", {data, datagrams, elsewhere}), HasSubstr("2 queue pairs use it"));
}

TEST(FirstAttach, WhereNoQueuePairsAreListedItDoesNotWait) {
  EXPECT_EQ(WhyNotYet(7, "adds clsact", [] { return absl::UnimplementedError("no RDMA"); }), "");
}

}  // namespace
}  // namespace cw::agent
