// SPDX-License-Identifier: Apache-2.0
// What tests of agents in two machines share: one rack for all suites of a program that name the same lab, the suite's
// agents, a perftest that ends with its test. Without virtual machines the suite is skipped, with the reason.
//
//   class NakTest : public AgentsFixture {
//    protected:
//     static void SetUpTestSuite() { Begin({.lab = "vmnak"}, AgentConfig()); }
//   };
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "gtest/gtest.h"
#include "tests/lab/eventually.h"
#include "tests/vm/agents.h"
#include "tests/vm/perftest.h"
#include "tests/vm/rack.h"

namespace cw::vm {

class AgentsFixture : public testing::Test {
 protected:
  static void Begin(const RackOptions& options, const config::Config& config) {
    Begin(options, std::array{config, config});
  }
  static void Begin(const RackOptions& options, const std::array<config::Config, 2>& configs) {
    setup_ = absl::OkStatus();
    if (rack_ == nullptr || lab_ != options.lab) {
      BootRack(options);
    } else {
      for (int i = 0; i < 2; i++) setup_.Update(rack_->machine(i).Run("cwagentd --detach").status());
    }
    if (setup_.ok()) StartAgents(configs);
  }
  // Ends those that run.
  static void StartAgents(const config::Config& config) { StartAgents(std::array{config, config}); }
  static void StartAgents(const std::array<config::Config, 2>& configs) {
    agents_.reset();
    auto agents = Agents::Start(*rack_, configs);
    setup_ = agents.status();
    if (agents.ok()) agents_ = *std::move(agents);
  }
  static void TearDownTestSuite() { agents_.reset(); }

  void SetUp() override {
    if (absl::IsUnavailable(setup_)) GTEST_SKIP() << setup_.message();
    ASSERT_TRUE(setup_.ok()) << setup_;
  }
  void TearDown() override {
    run_.reset();
    if (rack_ != nullptr) {
      EXPECT_TRUE(rack_->fabric().ClearFaults().ok());
    }
  }

  static bool Eventually(const std::function<bool()>& done, absl::Duration limit = absl::Seconds(60),
                         absl::Duration pause = absl::Milliseconds(200)) {
    return lab::Eventually(done, limit, pause);
  }
  static std::string Logs() {
    return absl::StrCat("\nagent 0:\n", agents_->agent(0).output(), "\nagent 1:\n", agents_->agent(1).output());
  }

  static void BootRack(const RackOptions& options) {
    // The rack ends before the program does, as long as what it needs is there.
    struct EndRack : testing::Environment {
      void TearDown() override { rack_.reset(); }
    };
    if (lab_.empty()) testing::AddGlobalTestEnvironment(new EndRack);
    lab_ = options.lab;
    rack_.reset();
    auto rack = Rack::Up(options);
    setup_ = rack.status();
    if (rack.ok()) rack_ = *std::move(rack);
  }

  inline static absl::Status setup_;
  inline static std::string lab_;  // whose rack it is
  inline static std::unique_ptr<Rack> rack_;
  inline static std::unique_ptr<Agents> agents_;
  std::unique_ptr<Perftest> run_;
};

}  // namespace cw::vm
