// SPDX-License-Identifier: Apache-2.0
// What the agent costs: CPU (process and its BPF programs) by probe rate, and memory by number of paths. The peer is a
// second host of the lab for the rates; the paths' case has peers that do not exist, whose slots are probed all the same.
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/lab/bench_result.h"
#include "userspace/config/config.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/testbed.h"

namespace {

using cw::lab::Testbed;
using cw::lab::TestbedSpec;

// The programs' run time is counted by the kernel only while this switch is on; it is put back.
class BpfStats {
 public:
  BpfStats() {
    std::ifstream(kPath) >> before_;
    std::ofstream(kPath) << 1;
  }
  ~BpfStats() { std::ofstream(kPath) << before_; }

 private:
  static constexpr char kPath[] = "/proc/sys/kernel/bpf_stats_enabled";
  int before_ = 0;
};

struct Cost {
  double cpu_percent = 0, process_percent = 0, rate_pps = 0, rss_mib = 0;
};

absl::StatusOr<Cost> Measure(Testbed& testbed, absl::Duration duration) {
  absl::SleepFor(duration);
  absl::StatusOr<cw::api::v1::StatusReply> status = testbed.agent(0).Status();
  if (!status.ok()) return status.status();
  return Cost{status->cpu_percent(), status->cpu_process_percent(), status->prober().rate_pps(), static_cast<double>(status->rss_bytes()) / (1 << 20)};
}

absl::Status RunRate(cw::bench::Report& report, int pps) {
  TestbedSpec spec;
  spec.fabric = {.lab = "benchag", .link_mbps = 0};
  spec.mode = "protect";
  spec.probe_budget_pps = pps;
  // Idle pairs are probed at the idle interval: the budget's rate comes from making that interval short.
  spec.idle_interval = absl::Seconds(4.0 / pps);
  spec.active_interval = spec.idle_interval;
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  absl::StatusOr<Cost> cost = Measure(**testbed, absl::Seconds(20));
  if (!cost.ok()) return cost.status();
  const std::string name = absl::StrCat("probes_", pps);
  report.Add(name, "cwfabric", "rate", "1/s", {cost->rate_pps});
  report.Add(name, "cwfabric", "cpu", "percent", {cost->cpu_percent});
  report.Add(name, "cwfabric", "cpu_process", "percent", {cost->process_percent});
  report.Add(name, "cwfabric", "cpu_per_1000_probes", "percent", {cost->cpu_percent * 1000 / cost->rate_pps});
  report.Add(name, "cwfabric", "rss", "MiB", {cost->rss_mib});
  return absl::OkStatus();
}

absl::Status RunPaths(cw::bench::Report& report, int paths) {
  TestbedSpec spec;
  spec.fabric = {.lab = "benchag", .spines = 8, .link_mbps = 0};
  spec.mode = "protect";
  spec.probe_budget_pps = 4000;
  spec.extra_peers = paths / 8 - 1;  // besides the other host; 8 paths each
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return testbed.status();
  absl::StatusOr<Cost> cost = Measure(**testbed, absl::Seconds(40));
  if (!cost.ok()) return cost.status();
  absl::StatusOr<cw::api::v1::StatusReply> status = (*testbed)->agent(0).Status();
  if (!status.ok()) return status.status();
  double found = status->paths().new_() + status->paths().up() + status->paths().suspect() + status->paths().dead();
  const std::string name = absl::StrCat("paths_", paths);
  report.Add(name, "cwfabric", "paths", "count", {found});
  report.Add(name, "cwfabric", "cpu", "percent", {cost->cpu_percent});
  report.Add(name, "cwfabric", "rss", "MiB", {cost->rss_mib});
  return absl::OkStatus();
}

}  // namespace

int main(int argc, char** argv) {
  BpfStats stats;
  cw::bench::Report report("agent");
  absl::Status status;
  for (int pps : {100, 1000, 10000}) status.Update(RunRate(report, pps));
  for (int paths : {16, 256, 2560}) status.Update(RunPaths(report, paths));
  status.Update(report.Write(cw::bench::OutPath(argc, argv, "build/bench/agent.json")));
  std::printf("%s", report.Table().c_str());
  if (!status.ok()) std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return status.ok() ? 0 : 1;
}
