// SPDX-License-Identifier: Apache-2.0
//
// cwlab as its users run it: verbs, JSON, exit codes. CWLAB_BINARY is the program's path.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

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

  Outcome Run(const std::string& arguments) { return RunIn(lab_, arguments); }

  static Outcome RunIn(const std::string& lab, const std::string& arguments) {
    return Shell(absl::StrCat(CWLAB_BINARY, " --lab ", lab, " ", arguments, " 2>/dev/null"));
  }

  static Outcome Shell(const std::string& command) {
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

  json Cwctl(const std::string& host, const std::string& arguments) {
    const Outcome outcome = Shell(absl::StrCat(CWCTL_BINARY, " --socket /run/cwlab/", lab_, "/", host,
                                               "/agent.sock --json ", arguments, " 2>/dev/null"));
    const json parsed = json::parse(outcome.out, nullptr, false);
    return outcome.exit_code == 0 && !parsed.is_discarded() ? parsed : json::object();
  }

  const std::string lab_ = TestLab("c");
};

// Files and folders that carry the lab's name, or belong to one of its namespaces.
std::vector<std::string> TracesOf(const std::string& lab, const std::vector<uint64_t>& namespaces) {
  std::vector<std::string> traces;
  for (const char* folder : {"/run/cwlab", "/run/cwfabric", "/run/netns", "/run", "/tmp", "/sys/fs/bpf/cwfabric/v1",
                             "/sys/fs/bpf/cwlab", "/sys/fs/bpf", "/dev/shm", "/var/lib/cwfabric"}) {
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
      const std::string name = entry.path().filename();
      bool ours = name.find(lab) != std::string::npos;
      for (const uint64_t inode : namespaces) ours |= name.rfind(absl::StrCat("nic-", inode, "-"), 0) == 0;
      if (ours) traces.push_back(entry.path());
    }
  }
  return traces;
}

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

TEST_F(Cwlab, DownLeavesNothingOfALabNorOfAgentsThatWereKilled) {
  ASSERT_EQ(Run("up").exit_code, 0);
  std::vector<uint64_t> namespaces;
  for (const char* host : {"h0", "h1"}) {
    struct stat inode;
    ASSERT_EQ(stat(absl::StrCat("/run/netns/cwlab-", lab_, "-", host).c_str(), &inode), 0);
    namespaces.push_back(inode.st_ino);
  }
  EXPECT_FALSE(TracesOf(lab_, namespaces).empty());
  const int pid = Cwctl("h1", "status").at("pid").get<int>();
  ASSERT_EQ(kill(pid, SIGKILL), 0);
  ASSERT_EQ(Run("down").exit_code, 0);
  EXPECT_THAT(TracesOf(lab_, namespaces), testing::IsEmpty());
}

TEST_F(Cwlab, AFreshLabHasLostNoProbe) {
  ASSERT_EQ(Run("up").exit_code, 0);
  int judged = 0;
  EXPECT_TRUE(Eventually([&] {
    judged = 0;
    for (const json& pair : Cwctl("h0", "paths").value("pairs", json::array())) {
      for (const json& path : pair.value("paths", json::array())) {
        for (const json& window : path.value("windows", json::array())) {
          if (window.value("seconds", 0) != 10 || window.value("sent", 0) < 10) continue;
          ++judged;
          EXPECT_LT(window.value("loss", 0.0), 0.05) << path;
        }
      }
    }
    return judged >= 2;
  }));
}

TEST_F(Cwlab, TrafficIsSeenByCwctlAndEndsByItself) {
  EXPECT_EQ(RunJson("traffic", 1)["error"]["code"], "NOT_FOUND");
  ASSERT_EQ(Run("up").exit_code, 0);
  json totals;
  std::thread traffic([&] { totals = RunJson("traffic --for 2s"); });
  size_t seen = 0;
  EXPECT_TRUE(Eventually([&] { return (seen = Cwctl("h0", "qps").value("flows", json::array()).size()) >= 2; }))
      << seen;
  traffic.join();
  EXPECT_GE(totals["seconds"].get<double>(), 2);
  EXPECT_GT(totals["bytes"].get<uint64_t>(), 0u);
  EXPECT_EQ(totals["queue_pairs"].size(), 4u) << "two each way";
  EXPECT_NE(RunJson("traffic --pairs h0-h5", 2)["error"]["message"].get<std::string>().find("h0 to h1"),
            std::string::npos);
}

TEST_F(Cwlab, ASignalAndTheEndOfTheLabEndTraffic) {
  ASSERT_EQ(Run("up --no-agents").exit_code, 0);
  const Outcome stopped = Shell(absl::StrCat("timeout --signal INT 2 ", CWLAB_BINARY, " --lab ", lab_, " traffic"));
  EXPECT_NE(stopped.out.find("delivered"), std::string::npos) << stopped.out;
  Outcome taken_down;
  std::thread traffic([&] { taken_down = Run("traffic"); });
  const std::string pids = absl::StrCat("/run/cwlab/", lab_, "/pids");
  EXPECT_TRUE(Eventually([&] { return !std::filesystem::is_empty(pids); }));
  EXPECT_EQ(Run("down").exit_code, 0);
  traffic.join();
  EXPECT_EQ(taken_down.exit_code, 0);
  EXPECT_NE(taken_down.out.find("delivered"), std::string::npos) << taken_down.out;
}

TEST_F(Cwlab, AScenarioRunsBesideALabOfAnotherNameAndRefusesOneOfItsOwn) {
  const std::string folder = testing::TempDir() + lab_ + "b", other = lab_ + "b";
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/cut.json") << R"({"title": "one cut", "kind": "failover", "mode": "protect", "cuts": 1})";
  ASSERT_EQ(Run("up").exit_code, 0);
  const std::string run = absl::StrCat("run ", folder, "/cut.json --out ", folder);
  const json refused = RunJson(run, 1);
  EXPECT_EQ(refused["error"]["code"], "ALREADY_EXISTS");
  EXPECT_NE(refused["error"]["message"].get<std::string>().find("--lab NAME"), std::string::npos) << refused;
  const Outcome beside = RunIn(other, run);
  EXPECT_EQ(beside.exit_code, 0) << beside.out;
  EXPECT_EQ(Cwctl("h0", "status").value("host_name", std::string()), "h0") << "the lab is as it was";
  EXPECT_THAT(TracesOf(other, {}), testing::ElementsAre(folder));
  std::filesystem::remove_all(folder);
}

TEST_F(Cwlab, UnsupportedIsExitCodeFour) {
  ASSERT_EQ(Run("up --no-agents --link-mbps 0").exit_code, 0);
  EXPECT_EQ(RunJson("fault pause --leaf 0 --spine 0", 4)["error"]["code"], "UNIMPLEMENTED");
  EXPECT_EQ(RunJson("hash spray")["hash"], "spray");
  EXPECT_EQ(Run("hash by-moonlight").exit_code, 2);
}

}  // namespace
}  // namespace cw::lab
