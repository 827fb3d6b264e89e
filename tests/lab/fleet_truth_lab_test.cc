// SPDX-License-Identifier: Apache-2.0
// Is what the fleet service finds so? Real agents, one cwfleetd, and faults whose right answers an operator wrote down:
// one finding each, of the right cause and place, nothing beside it, and over when it is mended.
//
// CW_TRUTH_OUT=FILE  the rows as JSON, too
// CW_TRUTH_CASES=RE  only cases, or pairs ("one+other"), whose name this regular expression matches
// CW_TRUTH_QUIET=S   so many seconds between two cases
// CW_TRUTH_FLAPS=N   the cable that flaps under writes, so many times (1)
// CW_TRUTH_MINUTES=M of the healthy fabric on a busy machine (60)
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <regex>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tests/lab/fleet_truth_bed.h"
#include "tests/lab/fleet_truth_cases.h"

namespace cw::lab {
namespace {

constexpr absl::Duration kHealthy = absl::Seconds(20);
constexpr absl::Duration kStarved = absl::Seconds(15), kFed = absl::Seconds(15);
constexpr unsigned kLoad = 10;

std::string NameOf(const TruthPair& pair) {
  std::string name;
  for (const TruthCase* c : pair) absl::StrAppend(&name, name.empty() ? "" : "+", c->name);
  return name;
}

std::vector<TruthPair> Alone(std::initializer_list<const std::vector<TruthCase>*> lists) {
  std::vector<TruthPair> out;
  for (const auto* list : lists) {
    for (const TruthCase& c : *list) out.push_back({&c});
  }
  return out;
}

std::vector<TruthPair> Named(const std::vector<std::vector<std::string>>& names) {
  std::vector<TruthPair> out;
  for (const std::vector<std::string>& together : names) {
    TruthPair& pair = out.emplace_back();
    for (const std::string& name : together) pair.push_back(&CaseNamed(name));
  }
  return out;
}

int Given(const char* name, int otherwise) {
  const char* given = std::getenv(name);
  int number = 0;
  return given != nullptr && absl::SimpleAtoi(given, &number) && number > 0 ? number : otherwise;
}

bool Wanted(const std::string& name) {
  const char* wanted = std::getenv("CW_TRUTH_CASES");
  return wanted == nullptr || std::regex_search(name, std::regex(wanted));
}

class FleetTruth : public ::testing::Test {
 protected:
  // Nothing may be found, though one agent after the other gets a ninth of a processor for a while.
  void StayHealthy(const TruthBedSpec& spec, absl::Duration time) {
    const absl::StatusOr<std::unique_ptr<TruthBed>> bed = TruthBed::Up(spec);
    ASSERT_TRUE(bed.ok()) << bed.status();
    const absl::Time end = absl::Now() + time;
    TruthRow row;
    for (int host = 0; absl::Now() < end && row.wrong.empty(); host = (host + 1) % (*bed)->fabric().hosts()) {
      (*bed)->Starve(host);
      row = TryNothing(**bed, kStarved, spec.lab);
      (*bed)->Feed();
      if (row.wrong.empty()) row = TryNothing(**bed, kFed, spec.lab);
    }
    Note({row});
  }

  void TryAll(const TruthBedSpec& spec, const std::vector<TruthPair>& all, TruthPace pace) {
    pace.quiet = absl::Seconds(Given("CW_TRUTH_QUIET", static_cast<int>(absl::ToInt64Seconds(pace.quiet))));
    absl::StatusOr<std::unique_ptr<TruthBed>> bed = TruthBed::Up(spec);
    ASSERT_TRUE(bed.ok()) << bed.status();
    const std::string group = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    Note({TryNothing(**bed, kHealthy, group)});
    bool clean = true;
    for (const TruthPair& together : all) {
      if (!Wanted(NameOf(together))) continue;
      // What was told wrongly stays for minutes and comes back: the next fault is not to be blamed for it.
      if (!clean) bed->reset();
      if (!clean) bed = TruthBed::Up(spec);
      ASSERT_TRUE(bed.ok()) << bed.status();
      const std::vector<TruthRow> rows = Try(**bed, together, pace, group);
      clean = std::all_of(rows.begin(), rows.end(), [](const TruthRow& row) { return row.wrong.empty(); });
      Note(rows);
    }
    std::printf("\n%s\n%s\n", group.c_str(), TruthTable(rows_).c_str());
    Write();
  }

 private:
  void Note(const std::vector<TruthRow>& rows) {
    for (const TruthRow& row : rows) {
      std::printf("%s", TruthTable({row}).substr(TruthTable({}).size()).c_str());
      EXPECT_TRUE(row.wrong.empty()) << row.name << ": " << row.wrong
                                     << ". Found: " << (row.found.empty() ? "nothing right" : row.found)
                                     << (row.others.empty() ? "" : "; beside it: ") << row.others;
      rows_.push_back(row);
    }
    std::fflush(stdout);
    Write();
  }
  // Tests of one run add theirs to the same file.
  void Write() const {
    const char* path = std::getenv("CW_TRUTH_OUT");
    if (path == nullptr) return;
    static auto& written = *new std::map<std::string, nlohmann::json>;
    nlohmann::json& mine = written[::testing::UnitTest::GetInstance()->current_test_info()->name()];
    mine = nlohmann::json::array();
    for (const TruthRow& row : rows_) mine.push_back(ToJson(row));
    nlohmann::json all = nlohmann::json::array();
    for (const auto& [group, rows] : written) all.insert(all.end(), rows.begin(), rows.end());
    std::ofstream(path) << nlohmann::json{{"rows", all}}.dump(1) << "\n";
  }

  std::vector<TruthRow> rows_;
};

// What happens most, in four minutes: what does not disturb another is done at once.
TEST_F(FleetTruth, TheCommonFaultsAreOneFindingEach) {
  TryAll({}, Named({{"host_without_power"}, {"leaf_silent"}, {"nic_silent", "uplink_one_direction"}, {"spine_silent"}}),
         {.quiet = absl::Seconds(3), .lasts = 0.7});
}

using FleetTruthWhole = FleetTruth;  // each with a fabric of its own name

TEST_F(FleetTruthWhole, EachFaultAloneIsOneFinding) {
  TryAll({.lab = "truthalone"}, Alone({&HostFaults(), &TrafficFaults(), &FabricFaults()}), {});
}
TEST_F(FleetTruthWhole, EachFaultAloneOnABusyMachine) {
  const BusyMachine busy(2);
  TryAll({.lab = "truthbusy"}, Alone({&HostFaults(), &TrafficFaults(), &FabricFaults()}), {});
}
TEST_F(FleetTruthWhole, WhereAgentsOnlyObserve) {
  TryAll({.lab = "truthobserve", .mode = "observe"},
         Named({{"host_without_power"}, {"agent_frozen"}, {"nic_silent"}, {"leaf_silent"}, {"spine_silent"}}), {});
}
TEST_F(FleetTruthWhole, OfHostsWithTwoNics) {
  TryAll({.lab = "truthrails", .spines = 2, .two_nics = true}, Alone({&RailFaults()}), {});
}
TEST_F(FleetTruthWhole, OfHostsWithTwoNicsOnABusyMachine) {
  const BusyMachine busy(2);
  TryAll({.lab = "truthrailsbusy", .spines = 2, .two_nics = true}, Alone({&RailFaults()}), {});
}
TEST_F(FleetTruthWhole, TwoAtOnceAreTwoFindings) { TryAll({.lab = "truthpairs"}, TruthPairs(), {}); }
TEST_F(FleetTruthWhole, TwoAtOnceOnABusyMachine) {
  const BusyMachine busy(2);
  TryAll({.lab = "truthpairsbusy"}, TruthPairs(), {});
}

TEST_F(FleetTruthWhole, ACableThatFlapsUnderWritesIsOneFinding) {
  // What flaps stays open: each time a fabric of its own.
  for (int i = Given("CW_TRUTH_FLAPS", 1); i > 0; --i) TryAll({.lab = "truthflaps"}, {{&FlapsUnderWrites()}}, {});
}
TEST_F(FleetTruthWhole, AHealthyFabricOnAMachineAtLoadTen) {
  const absl::Duration time = absl::Minutes(Given("CW_TRUTH_MINUTES", 60));
  const unsigned processors = std::max(1U, std::thread::hardware_concurrency());
  const BusyMachine busy(static_cast<int>((kLoad + processors - 1) / processors), time + absl::Minutes(5));
  StayHealthy({.lab = "truthload"}, time);
}

}  // namespace
}  // namespace cw::lab
