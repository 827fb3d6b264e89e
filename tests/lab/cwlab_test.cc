// SPDX-License-Identifier: Apache-2.0
//
// cwlab as its users run it: verbs, JSON, exit codes. CWLAB_BINARY is the program's path.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/lab/fabric_rig.h"
#include "userspace/lab/fabric.h"

namespace cw::lab {
namespace {

using nlohmann::json;

struct Outcome {
  int exit_code = -1;
  std::string out;  // stdout
};

class Cwlab : public testing::Test {
 protected:
  ~Cwlab() override { Fabric::Down(lab_).IgnoreError(); }

  Outcome Run(const std::string& arguments) {
    const std::string command = absl::StrCat(CWLAB_BINARY, " --lab ", lab_, " ", arguments, " 2>/dev/null");
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    for (size_t n; (n = fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) outcome.out.append(buffer.data(), n);
    outcome.exit_code = WEXITSTATUS(pclose(pipe));
    return outcome;
  }

  json RunJson(const std::string& arguments, int exit_code = 0) {
    const Outcome outcome = Run("--json " + arguments);
    EXPECT_EQ(outcome.exit_code, exit_code) << arguments << "\n" << outcome.out;
    json parsed = json::parse(outcome.out, nullptr, false);
    EXPECT_FALSE(parsed.is_discarded()) << arguments << ": not JSON:\n" << outcome.out;
    return parsed;
  }

  const std::string lab_ = TestLab("c");
};

TEST_F(Cwlab, TheLifeOfALab) {
  EXPECT_EQ(RunJson("status", 1)["error"]["code"], "NOT_FOUND");
  const json up = RunJson("up --spines 2 --hosts-per-leaf 2 --link-mbps 100");
  EXPECT_EQ(up["hosts"].size(), 4u);
  EXPECT_EQ(RunJson("up", 1)["error"]["code"], "ALREADY_EXISTS");

  EXPECT_EQ(Run("exec h3 -- ip -o -4 addr show dev eth0").exit_code, 0);
  EXPECT_NE(Run("exec h3 -- ip -o -4 addr show dev eth0").out.find("10.0.1.11/24"), std::string::npos);
  EXPECT_EQ(Run("exec h0 -- sh -c 'exit 7'").exit_code, 7);
  EXPECT_EQ(Run("exec h9 -- true").exit_code, 2);

  const json drop = RunJson("fault drop --leaf 0 --spine 1 --direction up --match data");
  ASSERT_EQ(drop["changes"].size(), 1u);
  EXPECT_GT(drop["changes"][0]["monotonic_ns"].get<int64_t>(), 0);
  RunJson("fault share --leaf 1 --spine 0 --direction both --percent 12.5");
  RunJson("fault rate --leaf 0 --spine 0 --direction up --mbps 10");
  RunJson("fault link down --leaf 1 --spine 1");
  std::map<std::string, json> links;
  const json broken = RunJson("status");
  for (const json& link : broken["links"]) links[link["link"]] = link;
  EXPECT_EQ(links["leaf0->spine1"]["condition"], "drop (data)");
  EXPECT_EQ(links["spine1->leaf0"]["condition"], "ok");
  EXPECT_EQ(links["spine0->leaf1"]["condition"], "share 12.5 %");
  EXPECT_EQ(links["leaf1->spine1"]["condition"], "down");
  EXPECT_EQ(links["leaf0->spine0"]["mbps"], 10.0);
  EXPECT_NE(Run("status").out.find("share 12.5 %"), std::string::npos);
  RunJson("fault clear");
  const json mended = RunJson("status");
  for (const json& link : mended["links"]) {
    EXPECT_EQ(link["condition"], "ok") << link;
    EXPECT_EQ(link.value("mbps", 100.0), 100.0) << link;
  }
  EXPECT_EQ(RunJson("down")["down"], json({lab_}));
  EXPECT_EQ(Run("down").exit_code, 0);
}

TEST_F(Cwlab, WrongUseIsExitCodeTwo) {
  EXPECT_EQ(Run("").exit_code, 2);
  EXPECT_EQ(Run("fly").exit_code, 2);
  EXPECT_EQ(Run("up --spines 99").exit_code, 2);
  EXPECT_EQ(Run("fault drop --leaf 0").exit_code, 2);
  EXPECT_EQ(RunJson("fault drop --leaf 0 --spine 0 --direction sideways", 2)["error"]["code"], "INVALID_ARGUMENT");
  EXPECT_EQ(Run("--help").exit_code, 0);
}

TEST_F(Cwlab, RunsAScenarioFile) {
  const std::string folder = testing::TempDir() + lab_;
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/cut.json") << R"({"title": "two cuts", "kind": "failover", "mode": "protect", "cuts": 2})";
  const json report = RunJson("run " + folder + "/cut.json --out " + folder);
  EXPECT_EQ(report["title"], "two cuts");
  EXPECT_FALSE(report["tables"].empty());
  EXPECT_GT(std::filesystem::file_size(folder + "/report.html"), 1000u);
  json result = json::parse(std::ifstream(folder + "/result.json"), nullptr, false);
  EXPECT_EQ(result["name"], "failover");
  std::ofstream(folder + "/wrong.json") << R"({"kind": "failover", "cutz": 2})";
  const json wrong = RunJson("run " + folder + "/wrong.json", 2);
  EXPECT_NE(wrong["error"]["message"].get<std::string>().find("\"cutz\""), std::string::npos) << wrong;
  EXPECT_EQ(RunJson("run " + folder + "/none.json", 1)["error"]["code"], "NOT_FOUND");
  std::filesystem::remove_all(folder);
}

TEST_F(Cwlab, AScenarioOfHiddenClocksPlotsTheFleetTimesErrors) {
  const std::string folder = testing::TempDir() + lab_;
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/clocks.json")
      << R"({"title": "two clocks", "kind": "clock", "mode": "observe", "drift_ppm": 20, "segment_s": 5, "seconds": 15})";
  const json report = RunJson("run " + folder + "/clocks.json --out " + folder);
  const json& phase = report["phases"][0];
  ASSERT_EQ(phase["charts"].size(), 2u) << "one host against the other, with each of its errors";
  for (const json& chart : phase["charts"]) {
    const json& series = chart["series"][0];
    EXPECT_GT(series["at_s"].size(), 100u);
    for (const char* key : {"values", "low", "high"}) EXPECT_EQ(series[key].size(), series["at_s"].size());
  }
  EXPECT_EQ(report["tables"][0]["rows"].size(), 1u);
  EXPECT_FALSE(phase["marks"].empty()) << "the drifts change";
  std::stringstream page;
  page << std::ifstream(folder + "/report.html").rdbuf();
  EXPECT_NE(page.str().find(phase["charts"][0]["title"].get<std::string>()), std::string::npos);
  std::filesystem::remove_all(folder);
}

TEST_F(Cwlab, UpStartsAnAgentPerHostThatCwctlCanAsk) {
  ASSERT_EQ(Run("up --mode protect").exit_code, 0);
  for (const char* host : {"h0", "h1"}) {
    EXPECT_TRUE(std::filesystem::exists(absl::StrCat("/run/cwlab/", lab_, "/", host, "/agent.sock")));
  }
  ASSERT_EQ(Run("down").exit_code, 0);
  EXPECT_FALSE(std::filesystem::exists(absl::StrCat("/sys/fs/bpf/cwfabric/v1/cwlab-", lab_, "-h0"))) << "pins are left";
}

TEST_F(Cwlab, UnsupportedIsExitCodeFour) {
  ASSERT_EQ(Run("up --no-agents --link-mbps 0").exit_code, 0);
  EXPECT_EQ(RunJson("fault pause --leaf 0 --spine 0", 4)["error"]["code"], "UNIMPLEMENTED");
  EXPECT_EQ(RunJson("hash spray")["hash"], "spray");
  EXPECT_EQ(Run("hash by-moonlight").exit_code, 2);
}

}  // namespace
}  // namespace cw::lab
