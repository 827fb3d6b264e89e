// SPDX-License-Identifier: Apache-2.0
// Nothing is broken: perftest's own traffic with its own timers on real soft-RoCE, first without agents, then with them
// in mode protect. Whatever they call dead, or move, is wrong. The table goes to healthy.json beside the consoles.
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "tests/vm/agents_fixture.h"

namespace cw::vm {
namespace {

constexpr int kSeconds = 6;  // of each run

class HealthyTest : public AgentsFixture {
 protected:
  static void SetUpTestSuite() {
    std::setvbuf(stdout, nullptr, _IOLBF, 0);  // an hour's news are read while it lasts, from a file, too
    RackOptions options;
    options.lab = "vmhealthy";
    options.memory_mib = 2048;  // sixteen queue pairs of soft-RoCE have filled 768, on 6.12 all that there is
    // Soft-RoCE has no rate control: over 100 Mbit/s its bursts fill a queue of a third of a second, and to leave such
    // a path is right. CW_HEALTHY_MBPS: to see that.
    const char* mbps = std::getenv("CW_HEALTHY_MBPS");
    options.link_mbps = mbps == nullptr ? 1000 : std::atof(mbps);
    options.log_dir = CW_VM_LOG_DIR "/healthy";
    options.image.files = AgentFiles(CW_AGENTD, CW_CTL);
    setup_ = absl::OkStatus();
    BootRack(options);
    table_ = nlohmann::json::array();
  }
  static void TearDownTestSuite() {
    std::ofstream(CW_VM_LOG_DIR "/healthy/healthy.json") << table_.dump(1) << "\n";
    AgentsFixture::TearDownTestSuite();
  }

  // MB/s; 0: it failed, or nothing came through. Without agents that is soft-RoCE's own affair.
  static double Run(const std::string& tool, const std::string& arguments, bool must = true) {
    auto run = Perftest::Start(*rack_, {.tool = tool, .arguments = arguments});
    EXPECT_TRUE(run.ok()) << run.status();
    if (!run.ok()) return 0;
    auto result = (*run)->Wait(absl::Seconds(30));
    EXPECT_TRUE(result.ok() || !must) << tool << " " << arguments << ": " << result.status();
    return result.ok() ? result->average_mb_per_s : 0;
  }

  // How often a kernel ran out of memory.
  static int OutOfMemory() {
    int times = 0;
    for (int i = 0; i < 2; ++i)
      times += std::atoi(rack_->machine(i).Run("dmesg | grep -c 'Out of memory' || true").value_or("").c_str());
    return times;
  }

  // Of both machines together, since the agents' start.
  static std::map<std::string, uint64_t> Counters() {
    std::map<std::string, uint64_t> sums;
    for (int i = 0; i < 2; ++i) {
      const auto reply = agents_->Ctl(i, "counters");
      EXPECT_TRUE(reply.ok()) << reply.status();
      if (!reply.ok()) continue;
      for (const auto& counter : reply->at("counters"))
        sums[counter.at("name").get<std::string>()] += counter.at("value").get<uint64_t>();
    }
    return sums;
  }
  // Texts of events of a type; of alerts alone, or of all.
  static std::vector<std::string> Told(const std::string& type, bool alerts) {
    std::vector<std::string> told;
    for (int i = 0; i < 2; ++i) {
      const auto events = agents_->Events(i, type);
      EXPECT_TRUE(events.ok()) << events.status();
      if (!events.ok()) continue;
      for (const nlohmann::json& event : *events) {
        if (!alerts || event.value("severity", "") == "alert")
          told.push_back(absl::StrCat("vm", i, ": ", event.at("text").get<std::string>()));
      }
    }
    return told;
  }
  // Processor seconds of its threads since they began, by name; the main thread's is the program's. Not by ticks: one
  // that wakes with them is charged with all of each.
  static std::map<std::string, double> ThreadsCpu(int i) {
    const auto lines = rack_->machine(i).Run(
        "for t in /proc/$(pidof cwagentd)/task/*; do echo $(cat $t/comm) $(cut -d' ' -f1 $t/schedstat); done");
    EXPECT_TRUE(lines.ok()) << lines.status();
    std::map<std::string, double> seconds;
    if (!lines.ok()) return seconds;
    for (const auto line : absl::StrSplit(*lines, '\n', absl::SkipWhitespace())) {
      const std::pair<std::string, std::string> name_ns = absl::StrSplit(line, absl::MaxSplits(' ', 1));
      seconds[name_ns.first] += std::strtod(name_ns.second.c_str(), nullptr) * 1e-9;
    }
    return seconds;
  }

  // The same runs without agents, with them twice, and without them again in the other order: what the machine gives
  // drifts more than agents cost. A run that is not counted goes before those with agents: they have just begun, and
  // begin but once.
  // healthy: asked after the runs with agents; false: what was moved is not judged.
  void Try(
      const std::string& tool, const std::vector<std::string>& variants,
      const std::function<bool()>& healthy = [] { return true; }) {
    const std::vector<std::string> back(variants.rbegin(), variants.rend());
    std::map<std::string, Rates> rates;
    StopAgents();
    RunAll(tool, variants, /*agents=*/false, rates);
    StartAgents(AgentConfig());
    if (setup_.ok()) setup_ = agents_->WaitForPaths(absl::Seconds(60));
    ASSERT_TRUE(setup_.ok()) << setup_;
    const auto before = Counters();
    std::map<std::string, Rates> first = rates;
    RunAll(tool, {variants.front()}, /*agents=*/true, first);
    RunAll(tool, variants, /*agents=*/true, rates);
    RunAll(tool, back, /*agents=*/true, rates);
    if (healthy())
      JudgeMoves(tool, before);
    else
      std::printf("%s: the kernel ran out of memory: no healthy machine, nothing is judged\n", tool.c_str());
    StopAgents();
    RunAll(tool, back, /*agents=*/false, rates);
    Report(tool, variants, rates);
  }

  // MB/s of a variant's runs, those that came through.
  struct Rates {
    std::vector<double> without, with;
  };
  static double Mean(const std::vector<double>& values) {
    return values.empty() ? 0 : std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
  }

  static void StopAgents() {
    agents_.reset();
    for (int i = 0; i < 2; ++i) (void)rack_->machine(i).Run("cwagentd --detach");
  }

  // What does not come through without agents is not tried with them.
  static void RunAll(const std::string& tool, const std::vector<std::string>& variants, bool agents,
                     std::map<std::string, Rates>& rates) {
    for (const std::string& variant : variants) {
      Rates& of = rates[variant];
      if (agents && of.without.empty()) continue;
      const double rate = Run(tool, Arguments(variant), /*must=*/agents && !StopsByItself(variant));
      if (rate > 0) (agents ? of.with : of.without).push_back(rate);
    }
  }

  static void Report(const std::string& tool, const std::vector<std::string>& variants,
                     const std::map<std::string, Rates>& rates) {
    double without = 0, with = 0;
    for (const std::string& variant : variants) {
      const Rates& of = rates.at(variant);
      std::printf("%s %s: %.1f MB/s without agents (%zu runs), %.1f with (%zu)\n", tool.c_str(), variant.c_str(),
                  Mean(of.without), of.without.size(), Mean(of.with), of.with.size());
      table_.push_back({{"tool", tool}, {"arguments", variant}, {"without", of.without}, {"with", of.with}});
      if (StopsByItself(variant) || of.with.empty()) continue;
      without += Mean(of.without);
      with += Mean(of.with);
    }
    if (without == 0) return;
    table_.push_back({{"tool", tool}, {"share_with_agents", with / without}});
    std::printf("%s: %.0f %% with agents\n", tool.c_str(), 100 * with / without);
  }

  // With so many queue pairs soft-RoCE stops now and then without agents, too: what is moved there is judged, the
  // throughput is not.
  static bool StopsByItself(const std::string& variant) { return absl::StrContains(variant, "-q 16 "); }

  static std::string Arguments(const std::string& variant) { return absl::StrFormat("-D %d %s", kSeconds, variant); }

  static void JudgeMoves(const std::string& tool, const std::map<std::string, uint64_t>& before) {
    auto after = Counters();
    nlohmann::json row = {{"tool", tool}};
    std::string text = tool + ":";
    for (const char* name : {"slots_died", "moves_dead", "moves_forced", "moves_blind"}) {
      const uint64_t count = after[name] - before.at(name);
      row[name] = count;
      absl::StrAppend(&text, " ", name, " ", count, ",");
    }
    // That a whole machine was silent is no verdict on a path, and true where soft-RoCE leaves its agent no time.
    std::vector<std::string> told;
    for (const std::string& alert : Told("path", /*alerts=*/true))
      if (!absl::StrContains(alert, "no path is blamed")) told.push_back(alert);
    row["told"] = told;
    table_.push_back(row);
    std::printf("%s told %zu\n", text.c_str(), told.size());
    for (int i = 0; i < 2; ++i)
      if (const auto status = agents_->Ctl(i, "status"); status.ok())
        std::printf("vm%d's prober and main loop: %s\n", i, status->at("prober").dump().c_str());

    EXPECT_TRUE(told.empty()) << told[0];
    const std::string moves = absl::StrCat(absl::StrJoin(Told("move", /*alerts=*/false), "\n"), "\n",
                                           absl::StrJoin(Told("path", /*alerts=*/false), "\n"));
    EXPECT_EQ(row["moves_forced"], 0) << moves;
    EXPECT_EQ(row["moves_dead"], 0) << moves;
    EXPECT_EQ(row["moves_blind"], 0) << moves;
  }

  inline static nlohmann::json table_;
};

// What of it is the programs' work, and what the agent's: the programs alone, with agents that stand still, cost
// little.
TEST_F(HealthyTest, WhatAnAgentCosts) {
  const std::string arguments = Arguments("-q 4 -s 65536");
  const auto signal = [](const std::string& name) {
    for (int i = 0; i < 2; ++i)
      EXPECT_TRUE(rack_->machine(i).Run(absl::StrCat("kill -", name, " $(pidof cwagentd)")).ok());
  };
  for (const config::Mode mode : {config::Mode::kObserve, config::Mode::kProtect}) {
    StopAgents();
    const double without = Run("ib_write_bw", arguments);
    config::Config config = AgentConfig();
    config.mode = mode;
    StartAgents(config);
    if (setup_.ok()) setup_ = agents_->WaitForPaths(absl::Seconds(60));
    ASSERT_TRUE(setup_.ok()) << setup_;
    Run("ib_write_bw", arguments);
    const auto cpu_before = ThreadsCpu(0);
    const absl::Time begun = absl::Now();
    const double with = Run("ib_write_bw", arguments);
    const auto cpu_after = ThreadsCpu(0);
    const double took = absl::ToDoubleSeconds(absl::Now() - begun);
    std::map<std::string, double> cpu;
    for (const char* thread : {"cwagentd", "cw-prober"}) {
      ASSERT_TRUE(cpu_before.contains(thread) && cpu_after.contains(thread)) << thread;
      cpu[thread] = (cpu_after.at(thread) - cpu_before.at(thread)) / took;
    }
    if (const auto status = agents_->Ctl(0, "status"); status.ok())
      std::printf("prober and main loop: %s\n", status->at("prober").dump().c_str());
    signal("STOP");
    const double programs_alone = Run("ib_write_bw", arguments);
    signal("CONT");
    const std::string name(config::ToString(mode));
    table_.push_back({{"mode", name},
                      {"without", without},
                      {"with", with},
                      {"main_cpu", cpu["cwagentd"]},
                      {"prober_cpu", cpu["cw-prober"]},
                      {"programs_alone", programs_alone}});
    std::printf("%s: %s\n", name.c_str(), table_.back().dump().c_str());
    EXPECT_GE(programs_alone, without / 2) << name;
  }
}

TEST_F(HealthyTest, Writes) {
  Try("ib_write_bw", {"-q 1 -s 65536", "-q 4 -s 65536", "-q 16 -s 65536", "-q 4 -s 65536 -b", "-q 4 -s 4096"});
}
TEST_F(HealthyTest, Sends) { Try("ib_send_bw", {"-q 1 -s 65536", "-q 4 -s 65536", "-q 4 -s 65536 -b"}); }
TEST_F(HealthyTest, Reads) {
  Try("ib_read_bw", {"-q 1 -s 65536", "-q 4 -s 65536", "-q 16 -s 65536", "-q 4 -s 65536 -b"});
}
TEST_F(HealthyTest, Atomics) { Try("ib_atomic_bw", {"-q 1", "-q 4", "-q 4 -b"}); }
TEST_F(HealthyTest, Datagrams) { Try("ib_send_bw", {"-c UD -q 1 -s 2048", "-c UD -q 4 -s 2048"}); }
TEST_F(HealthyTest, Unreliable) {
  Try("ib_write_bw", {"-c UC -q 1 -s 65536", "-c UC -q 4 -s 65536", "-c UC -q 4 -s 65536 -b"});
}

// Everything in turn while agents run on, for CW_HEALTHY_MINUTES (2; make nightly: 60).
TEST_F(HealthyTest, Mixed) {
  const char* given = std::getenv("CW_HEALTHY_MINUTES");
  const double minutes = given == nullptr ? 2 : std::atof(given);
  ASSERT_GT(minutes, 0) << "CW_HEALTHY_MINUTES: '" << given << "' is no number of minutes";
  const std::pair<const char*, const char*> runs[] = {
      {"ib_write_bw", "-q 4 -s 65536"},   {"ib_send_bw", "-q 4 -s 65536"},      {"ib_read_bw", "-q 4 -s 65536"},
      {"ib_atomic_bw", "-q 4"},           {"ib_send_bw", "-c UD -q 4 -s 2048"}, {"ib_write_bw", "-c UC -q 4 -s 65536"},
      {"ib_send_bw", "-q 4 -s 65536 -b"}, {"ib_read_bw", "-q 4 -s 65536 -b"},   {"ib_write_bw", "-q 1 -s 65536"},
      {"ib_write_bw", "-q 4 -s 4096"},    {"ib_read_bw", "-q 1 -s 65536"}};
  StopAgents();
  StartAgents(AgentConfig());
  if (setup_.ok()) setup_ = agents_->WaitForPaths(absl::Seconds(60));
  ASSERT_TRUE(setup_.ok()) << setup_;
  const auto before = Counters();
  const absl::Time begun = absl::Now();
  int carried = 0, all = 0;
  std::map<std::string, size_t> known;  // events of a type and a machine that were printed
  while (absl::Now() - begun < absl::Minutes(minutes)) {
    const auto& [tool, variant] = runs[static_cast<size_t>(all++) % std::size(runs)];
    const double rate = Run(tool, Arguments(variant), /*must=*/false);
    carried += rate > 0;
    if (rate == 0) std::printf("%s %s: did not end\n", tool, variant);
    std::map<std::string, size_t> all_news;
    for (const std::string type : {"path", "move"}) {
      for (const std::string& text : Told(type, /*alerts=*/false)) {
        const std::string from = type + text.substr(0, text.find(':'));
        if (++all_news[from] > known[from]) std::printf("%s %s, %.1f MB/s: %s\n", tool, variant, rate, text.c_str());
      }
    }
    known = all_news;
  }
  std::printf("%d runs in %.0f minutes, %d of them to their end\n", all, absl::ToDoubleMinutes(absl::Now() - begun),
              carried);
  JudgeMoves("mixed", before);
  EXPECT_GT(carried, all / 2);
}

// Of these soft-RoCE of 6.12 keeps what it cannot receive, until the machine has no memory left, and that of
// 6.1 does not always come back: without agents, too. So these are the last.
TEST_F(HealthyTest, SixteenSends) {
  const int before = OutOfMemory();
  Try("ib_send_bw", {"-q 16 -s 65536"}, [before] { return OutOfMemory() == before; });
}

}  // namespace
}  // namespace cw::vm
