// SPDX-License-Identifier: Apache-2.0
// Queue pairs that ask the agent for a path while they connect: where the labels that it gives lead, by the switches'
// own hashing.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "userspace/inproc/cw_inproc.h"
#include "userspace/lab/testbed.h"
#include "userspace/model/addr.h"
#include "userspace/rdma/placement.h"

namespace cw::lab {
namespace {

constexpr int kSpines = 4, kQueuePairs = 16;

// A process of host 0 that owns queue pairs to host 1.
class Owner {
 public:
  Owner(const std::string& socket_path, const std::string& from, const std::string& to)
      : local_(*Addr::Parse(from)), remote_(*Addr::Parse(to)) {
    fd_ = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::strncpy(at.sun_path, socket_path.c_str(), sizeof(at.sun_path) - 1);
    const timeval limit{.tv_sec = 10};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    if (connect(fd_, reinterpret_cast<sockaddr*>(&at), sizeof(at)) != 0) ADD_FAILURE() << socket_path;
  }
  ~Owner() { close(fd_); }

  cw_inproc_placement Ask(uint32_t lqpn) {
    cw_inproc_place_qp question{};
    question.qp.magic = CW_INPROC_MAGIC;
    question.qp.version = CW_INPROC_VERSION;
    question.qp.type = CW_INPROC_PLACE_QP;
    question.qp.lqpn = lqpn;
    question.qp.rqpn = lqpn + 0x1000;
    std::copy(local_.bytes.begin(), local_.bytes.end(), question.qp.laddr);
    std::copy(remote_.bytes.begin(), remote_.bytes.end(), question.qp.raddr);
    question.request = lqpn;
    EXPECT_EQ(send(fd_, &question, sizeof(question), MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(question)));
    cw_inproc_placement answer{};
    EXPECT_EQ(recv(fd_, &answer, sizeof(answer), 0), static_cast<ssize_t>(sizeof(answer)));
    EXPECT_EQ(answer.request, lqpn);
    return answer;
  }

 private:
  Addr local_, remote_;
  int fd_ = -1;
};

class PlacesOnFabric : public ::testing::Test {
 protected:
  void SetUpMode(const std::string& mode, bool assign, config::Attach attach = config::Attach::kAuto,
                 int hosts_per_leaf = 1) {
    TestbedSpec spec;
    spec.fabric = {
        .lab = "placestest", .leaves = 2, .spines = kSpines, .hosts_per_leaf = hosts_per_leaf, .link_mbps = 200};
    spec.mode = mode;
    spec.wait_paths = attach != config::Attach::kNone;
    spec.adjust = [=](int, config::Config& config) {
      config.steering.assign_new_flows = assign;
      for (config::NicConfig& nic : config.nics) nic.attach = attach;
    };
    spec.agent_binary = CWLAB_AGENTD_BINARY;
    absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec);
    ASSERT_TRUE(up.ok()) << up.status();
    testbed_ = *std::move(up);
  }
  std::string Address(int host) const { return testbed_->fabric().PortAddress(host); }
  std::string AgentSocket(size_t host = 0) const {
    return EmulatedHosts(testbed_->fabric(), true).hosts.at(host).agent_socket;
  }
  uint64_t Counter(const std::string& name) { return testbed_->CounterSum(name); }

  std::unique_ptr<Testbed> testbed_;
};

TEST_F(PlacesOnFabric, EvenOverTheSpinesByTheSwitchesHashing) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect", false));
  std::map<int, int> per_spine;
  {
    Owner owner(AgentSocket(), Address(0), Address(1));
    for (uint32_t i = 0; i < kQueuePairs; ++i) {
      const cw_inproc_placement answer = owner.Ask(0x100 + i);
      ASSERT_EQ(answer.verdict, CW_INPROC_PLACED);
      EXPECT_EQ(rdma::PortOfLabel(answer.flow_label), answer.udp_sport);
      ++per_spine[testbed_->fabric().PathOf(Address(0), Address(1), answer.udp_sport).value_or(-1)];
    }
    for (int spine = 0; spine < kSpines; ++spine) EXPECT_EQ(per_spine[spine], kQueuePairs / kSpines) << spine;
    EXPECT_EQ(Counter("qps_placed"), static_cast<uint64_t>(kQueuePairs));
    // They are shown though no packet of theirs was seen, on the paths that they will take.
    const auto reply = testbed_->agent(0).Qps({});
    ASSERT_TRUE(reply.ok()) << reply.status();
    ASSERT_EQ(reply->flows_size(), kQueuePairs);
    for (const api::v1::Flow& flow : reply->flows()) {
      EXPECT_TRUE(flow.owner().placed());
      EXPECT_FALSE(flow.owner().packets_seen());
      EXPECT_GE(flow.slot(), 0);
    }
  }
  // One that goes makes room: a second process finds all paths empty again.
  per_spine.clear();
  for (int tries = 0; tries < 100 && testbed_->agent(0).Qps({})->flows_size() > 0; ++tries) usleep(100'000);
  Owner second(AgentSocket(), Address(0), Address(1));
  for (uint32_t i = 0; i < kSpines; ++i) {
    ++per_spine[testbed_->fabric().PathOf(Address(0), Address(1), second.Ask(0x300 + i).udp_sport).value_or(-1)];
  }
  for (int spine = 0; spine < kSpines; ++spine) EXPECT_EQ(per_spine[spine], 1) << spine;
}

// Hosts that know nothing of each other's queue pairs, with one each.
TEST_F(PlacesOnFabric, NeighboursBeginOnDifferentSpines) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect", false, config::Attach::kAuto, kSpines));
  std::set<int> spines;
  for (int host = 0; host < kSpines; ++host) {
    Owner owner(AgentSocket(static_cast<size_t>(host)), Address(host), Address(kSpines + host));
    const cw_inproc_placement answer = owner.Ask(0x100);
    ASSERT_EQ(answer.verdict, CW_INPROC_PLACED);
    const absl::StatusOr<int> spine =
        testbed_->fabric().PathOf(Address(host), Address(kSpines + host), answer.udp_sport);
    ASSERT_TRUE(spine.ok()) << spine.status();
    spines.insert(*spine);
  }
  EXPECT_EQ(spines.size(), static_cast<size_t>(kSpines));
}

// As on a NIC that offloads RoCE: no program sees a packet, so no probe is answered, and discovery alone knows the
// paths.
TEST_F(PlacesOnFabric, EvenWhereNothingIsAttached) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect", true, config::Attach::kNone));
  Owner owner(AgentSocket(), Address(0), Address(1));
  std::map<int, int> per_spine;
  for (uint32_t i = 0; i < kQueuePairs; ++i) {
    cw_inproc_placement answer = owner.Ask(0x100 + i);
    for (int tries = 0; tries < 300 && answer.verdict == CW_INPROC_NO_PATHS; ++tries) {
      usleep(100'000);
      answer = owner.Ask(0x100 + i);
    }
    ASSERT_EQ(answer.verdict, CW_INPROC_PLACED);
    ++per_spine[testbed_->fabric().PathOf(Address(0), Address(1), answer.udp_sport).value_or(-1)];
  }
  for (int spine = 0; spine < kSpines; ++spine) EXPECT_EQ(per_spine[spine], kQueuePairs / kSpines) << spine;
}

TEST_F(PlacesOnFabric, AnotherProcessCannotSpeakForAQueuePair) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect", false));
  Owner owner(AgentSocket(), Address(0), Address(1));
  ASSERT_EQ(owner.Ask(0x100).verdict, CW_INPROC_PLACED);
  const pid_t child = fork();
  if (child == 0) {
    Owner(AgentSocket(), Address(0), Address(1)).Ask(0x100);
    _exit(0);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  // Neither what it said nor its end changed anything.
  ASSERT_EQ(owner.Ask(0x101).verdict, CW_INPROC_PLACED);
  const auto reply = testbed_->agent(0).Qps({});
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->flows_size(), 2);
  for (const api::v1::Flow& flow : reply->flows()) EXPECT_EQ(flow.pid(), static_cast<uint32_t>(getpid()));
}

TEST_F(PlacesOnFabric, ObservesWithoutActing) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("observe", false));
  Owner owner(AgentSocket(), Address(0), Address(1));
  const cw_inproc_placement answer = owner.Ask(0x100);
  EXPECT_EQ(answer.verdict, CW_INPROC_NOT_ACTING);
  EXPECT_EQ(answer.flow_label, 0u);
  EXPECT_EQ(testbed_->Events(0, "place").size(), 1u) << "it says what it would have done";
  Owner stranger(AgentSocket(), Address(0), "10.99.0.1");
  EXPECT_EQ(stranger.Ask(0x101).verdict, CW_INPROC_NO_PATHS);
}

TEST_F(PlacesOnFabric, LeavesThemToTheProgramThatPutsNewFlowsOnPaths) {
  ASSERT_NO_FATAL_FAILURE(SetUpMode("protect", true));
  Owner owner(AgentSocket(), Address(0), Address(1));
  EXPECT_EQ(owner.Ask(0x100).verdict, CW_INPROC_BY_KERNEL);
}

}  // namespace
}  // namespace cw::lab
