// SPDX-License-Identifier: Apache-2.0
// How fast a dead path is left against how often a healthy one is called dead, for several settings of the rule: rounds
// that must be missed (liveness.misses) and the most that silences which came to nothing may teach (liveness.patience).
// For each: BENCH_CUTS (20) cuts of an idle fabric and as many at 90 % load; then BENCH_MINUTES (3) at 95 % load, half
// of them beside threads that leave agents and switches little of the processors. Nothing is cut then, so whatever a
// kernel calls dead is wrong. BENCH_POINTS picks settings, as "3/15ms,5/15ms".
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "tests/bench/failover_cases.h"
#include "tests/bench/liveness_soak_faults.h"
#include "userspace/config/config.h"
#include "userspace/lab/bench_result.h"
#include "userspace/lab/experiment_clock.h"
#include "userspace/lab/experiment_failover.h"
#include "userspace/lab/kernel_deaths.h"
#include "userspace/lab/testbed.h"

namespace {

using cw::lab::Testbed;

constexpr char kPoints[] = "2/15ms,3/0ms,3/4ms,3/15ms,3/30ms,5/15ms,8/15ms";
constexpr double kLoad = 0.95;
constexpr absl::Duration kTurn = absl::Seconds(15);

struct Point {
  int misses = 0;
  absl::Duration patience;
  std::string Name() const { return absl::StrFormat("%d/%s", misses, absl::FormatDuration(patience)); }
};

absl::StatusOr<std::vector<Point>> ParsePoints(const char* text) {
  std::vector<Point> points;
  for (absl::string_view each : absl::StrSplit(text == nullptr ? kPoints : text, ',')) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(each, absl::MaxSplits('/', 1));
    Point point;
    if (!absl::SimpleAtoi(parts.first, &point.misses) || point.misses < 2 ||
        !absl::ParseDuration(parts.second, &point.patience)) {
      return absl::InvalidArgumentError(
          absl::StrFormat("BENCH_POINTS: '%s' is no MISSES/PATIENCE such as 3/15ms, with two misses at least", each));
    }
    points.push_back(point);
  }
  return points;
}

absl::Duration SoakOfPoint() {
  const char* given = std::getenv("BENCH_MINUTES");
  double minutes = 0;
  return absl::Minutes(given != nullptr && absl::SimpleAtod(given, &minutes) && minutes > 0 ? minutes : 3);
}

void Set(const Point& point, cw::config::Config& config) {
  config.liveness.misses = point.misses;
  config.liveness.patience = point.patience;
}

absl::Status MeasureCuts(const Point& point, const char* name, const char* metric, cw::bench::Report& report) {
  const auto& cases = cw::bench::FailoverCases();
  const auto& systems = cw::bench::FailoverSystems();
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const auto& c) { return c.name == std::string(name); });
  const auto agents = std::find_if(systems.begin(), systems.end(), [](const auto& s) { return s.agents; });
  auto settings = cw::bench::Settings::FromEnvironment();
  if (!settings.ok()) return settings.status();
  if (settings->cuts == 0) settings->cuts = 20;
  cw::lab::FailoverSpec spec = SpecOf(*found, *agents, *settings);
  spec.testbed.adjust = [point](int, cw::config::Config& config) { Set(point, config); };
  const auto result = cw::lab::RunFailover(spec);
  if (!result.ok()) return result.status();
  report.Add(point.Name(), "cwfabric", metric, "ms", result->AllRecoveries());
  report.Add(point.Name(), "cwfabric", absl::StrCat(metric, "_not_recovered"), "count",
             {static_cast<double>(result->NotRecovered())});
  report.Add(point.Name(), "cwfabric", absl::StrCat(metric, "_wrong_deaths"), "count",
             {static_cast<double>(result->deaths_elsewhere)});
  return absl::OkStatus();
}

absl::Status MeasureWrong(const Point& point, absl::Duration length, cw::bench::Report& report) {
  cw::lab::TestbedSpec spec;
  spec.fabric = {.lab = "curve", .link_mbps = 200, .ecmp_seed = 1};
  spec.adjust = [point](int, cw::config::Config& config) { Set(point, config); };
  spec.mode = "observe";  // flows stay where kernel ECMP puts them, which is what loads all links alike
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  auto load = cw::lab::StartEvenLoad((*testbed)->fabric(), true, kLoad, 1, /*timeout=*/18);
  if (!load.ok()) return load.status();
  absl::SleepFor(absl::Seconds(3));
  auto kernels = cw::lab::KernelDeaths::Start((*testbed)->fabric());
  if (!kernels.ok()) return kernels.status();
  const int64_t since_ns = absl::GetCurrentTimeNanos();
  for (const absl::Time until = absl::Now() + length; absl::Now() < until;) {
    absl::SleepFor(kTurn);
    cw::bench::Starve(kTurn);
  }
  const double hours = static_cast<double>(absl::GetCurrentTimeNanos() - since_ns) / 3.6e12;
  const auto counts = (*kernels)->Counted();
  if (!counts.ok()) return counts.status();
  double paths = 0;
  for (int host = 0; host < (*testbed)->fabric().hosts(); ++host) {
    const auto status = (*testbed)->agent(host).Status();
    if (!status.ok()) return status.status();
    paths += status->paths().up() + status->paths().suspect() + status->paths().dead();
  }
  if (paths == 0) return absl::InternalError("no path is known");
  report.Add(point.Name(), "cwfabric", "wrong_deaths", "per_path_hour",
             {static_cast<double>(counts->died) / paths / hours});
  report.Add(point.Name(), "cwfabric", "wrong_told", "count",
             {static_cast<double>((*testbed)->PathDeaths((*testbed)->origin_ns()).size())});
  return absl::OkStatus();
}

absl::Status Measure(const Point& point, cw::bench::Report& report) {
  std::fprintf(stderr, "%s ...\n", point.Name().c_str());
  absl::Status status = MeasureCuts(point, "silent_forward", "idle", report);
  if (status.ok()) status = MeasureCuts(point, "silent_forward_90", "loaded", report);
  if (status.ok()) status = MeasureWrong(point, SoakOfPoint(), report);
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  const auto points = ParsePoints(std::getenv("BENCH_POINTS"));
  if (!points.ok()) {
    std::fprintf(stderr, "%s\n", std::string(points.status().message()).c_str());
    return 2;
  }
  cw::bench::Report report("curve");
  const std::string path = cw::bench::OutPath(argc, argv, "build/bench/curve.json");
  absl::Status status;
  for (const Point& point : *points) {
    status.Update(Measure(point, report));
    if (absl::Status written = report.Write(path); !written.ok()) status.Update(written);  // what is there so far
  }
  std::printf("%s", report.Table().c_str());
  if (status.ok()) return 0;
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}
