// SPDX-License-Identifier: Apache-2.0
//
// cwctl, the binary, on a server of its own over a unix socket.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli_fake_agent.h"
#include "cli_run.h"
#include "userspace/api/server.h"

namespace cw::cli {

class Cwctl : public ::testing::Test {
 protected:
  Cwctl() {
    char name[] = "/tmp/cw-cli-XXXXXX";
    folder_ = mkdtemp(name);
    socket_ = folder_ + "/run/agent.sock";
    Start();
  }
  ~Cwctl() override {
    server_.reset();
    std::filesystem::remove_all(folder_);
  }

  void Start() {
    absl::StatusOr<std::unique_ptr<api::Server>> server = api::Server::Start(socket_, agent_);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }

  RunResult Run(std::vector<std::string> arguments) {
    return RunProgram(CWCTL_PATH, arguments, {{"CWFABRIC_SOCKET", socket_}});
  }

  nlohmann::json RunJson(std::vector<std::string> arguments, int exit_code = 0) {
    arguments.push_back("--json");
    const RunResult result = Run(arguments);
    EXPECT_EQ(result.exit_code, exit_code) << result.out << result.err;
    EXPECT_EQ(result.err, "");
    nlohmann::json parsed = nlohmann::json::parse(result.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << result.out;
    return parsed;
  }

  std::string folder_, socket_;
  api::FakeAgent agent_;
  std::unique_ptr<api::Server> server_;
};

}  // namespace cw::cli
