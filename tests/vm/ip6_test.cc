// SPDX-License-Identifier: Apache-2.0
// The product on real soft-RoCE over IPv6: queue pairs of fd00:: GIDs across a fabric that hashes addresses, ports and
// flow labels, agents that know nothing but fd00:: addresses.
#include <algorithm>
#include <array>
#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "gtest/gtest.h"
#include "tests/vm/agents_fixture.h"
#include "userspace/lab/fabric_layout.h"

namespace cw::vm {
namespace {

class Ip6Test : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    RackOptions options;
    options.lab = "vmip6";
    options.ipv6 = true;
    options.log_dir = CW_VM_LOG_DIR "/ip6";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    std::array<config::Config, 2> configs = {AgentConfig(), AgentConfig()};
    for (size_t i = 0; i < 2; i++) {
      configs[i].nics[0].address = Rack::FabricAddress6(static_cast<int>(i));
      for (config::Config& config : configs) config.peers[i].addresses = {Rack::FabricAddress6(static_cast<int>(i))};
    }
    Begin(options, configs);
  }

  void SetUp() override {
    AgentsFixture::SetUp();
    if (!setup_.ok()) return;
    const auto spines = static_cast<size_t>(rack_->fabric().spec().spines);
    ASSERT_TRUE(Eventually([&] { return PathsBySpine(0).size() == spines && PathsBySpine(1).size() == spines; },
                           absl::Seconds(120)))
        << agents_->CtlText(0, "paths").value_or("cwctl paths failed") << Logs();
  }

  // Live paths by the spine that answered on the way, fd00::10.1.SPINE.0.
  std::map<int, int> PathsBySpine(int i) {
    std::map<int, int> paths;
    auto reply = agents_->Ctl(i, "paths");
    if (!reply.ok()) return paths;
    for (const auto& pair : reply->at("pairs")) {
      for (const auto& path : pair.at("paths")) {
        if (!path.at("assignable").get<bool>() || path.at("state") != "up" || path.at("hops").size() != 3) continue;
        for (int spine = 0; spine < rack_->fabric().spec().spines; ++spine) {
          if (path.at("hops").at(1) == lab::Address6(absl::StrCat("10.1.", spine, ".0")))
            paths.emplace(spine, path.at("slot"));
        }
      }
    }
    return paths;
  }

  // Of the GID that soft-RoCE made of the fabric's IPv6 address.
  std::string GidIndex(int i) {
    const std::string find =
        absl::StrCat("cd /sys/class/infiniband/rxe0/ports/1/gids; for g in *; do case $(cat $g) in fd00:*",
                     i == 0 ? "0064" : "0164", ") echo $g;; esac; done");
    auto index = rack_->machine(i).Run(find);
    return index.ok() ? std::string(absl::StripAsciiWhitespace(*index)) : "";
  }

  int SpineOf(uint32_t remote_qpn) {
    auto spines = rack_->SpinesByQpn();
    return spines.ok() && spines->count(remote_qpn) ? spines->at(remote_qpn) : -1;
  }

  std::vector<SentFlow> flows_;
};

TEST_F(Ip6Test, QueuePairsAreSeenMovedAndLeaveADeadSpine) {
  const std::string gid = GidIndex(0);
  ASSERT_FALSE(gid.empty());
  ASSERT_EQ(gid, GidIndex(1)) << "perftest takes one index for both ends";
  auto before = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(before.ok()) << before.status();
  auto run = Perftest::Start(*rack_, {.arguments = "-q 4 -D 400 -s 65536 -u 18 -x " + gid});
  ASSERT_TRUE(run.ok()) << run.status();
  run_ = *std::move(run);
  ASSERT_TRUE(Eventually(
      [&] {
        flows_ = agents_->SentFlows().value_or(std::vector<SentFlow>());
        return flows_.size() == 4 && std::all_of(flows_.begin(), flows_.end(),
                                                 [](const SentFlow& f) { return f.slot >= 0 && f.owd_samples > 0; });
      },
      absl::Seconds(60), absl::Seconds(2)))
      << agents_->CtlText(0, "qps").value_or("cwctl qps failed") << Logs();
  for (const SentFlow& flow : flows_) EXPECT_EQ(flow.process, "ib_write_bw");

  const std::map<int, int> paths = PathsBySpine(0);
  const int to = (SpineOf(flows_[0].remote_qpn) + 1) % rack_->fabric().spec().spines;
  ASSERT_TRUE(paths.contains(to));
  EXPECT_TRUE(Eventually([&] {
    auto set = agents_->Ctl(0, absl::StrCat("steer set ", flows_[0].id, " --path ", paths.at(to), " --force"));
    return SpineOf(flows_[0].remote_qpn) == to || !run_->running();
  })) << Logs();
  EXPECT_EQ(SpineOf(flows_[0].remote_qpn), to);

  const lab::LinkDirection dead = lab::LinkDirection::SpineToLeaf(to, 1);
  ASSERT_TRUE(rack_->fabric().SetFault(dead, lab::Fault::Drop()).ok());
  EXPECT_TRUE(Eventually([&] {
    return std::all_of(flows_.begin(), flows_.end(), [&](const SentFlow& f) { return SpineOf(f.remote_qpn) != to; });
  })) << Logs();
  EXPECT_TRUE(run_->running()) << "perftest ended before the queue pairs had left";
  auto result = run_->Finish(absl::Seconds(90));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_GT(result->messages, 0u) << result->output << Logs();
  EXPECT_GT(rack_->fabric().Link(dead)->fault_drops, 0u) << "the fault hit nothing";
  auto after = RxeCounters(rack_->machine(0));
  ASSERT_TRUE(after.ok()) << after.status();
  for (const char* broken : {"retry_exceeded_err", "retry_rnr_exceeded_err", "send_err"}) {
    EXPECT_EQ(after->at(broken), before->at(broken)) << broken;
  }
}

}  // namespace
}  // namespace cw::vm
