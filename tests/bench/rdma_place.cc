// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/rdma_place.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "tests/vm/agents.h"
#include "tests/vm/perftest.h"
#include "tests/vm/rack.h"

namespace cw::bench {
namespace {

constexpr size_t kPlaceQueuePairs = 8;
constexpr char kLibrary[] = "/usr/lib/libcwverbs.so";
// As the test of placements (tests/vm/verbs_test.cc): the agent of an emulated machine answers late.
constexpr char kWithLibrary[] = "env LD_PRELOAD=/usr/lib/libcwverbs.so CWVERBS_DEADLINE_MS=1000 ib_write_bw";
constexpr absl::Duration kSettle = absl::Seconds(3), kPlaceLook = absl::Seconds(4);

struct Placed {
  double fullest = 0;           // queue pairs on the spine that has the most
  double spines = 0;            // that carry any
  double mb_per_s = 0;          // of all, 10^6 bytes
  double slowest_mb_per_s = 0;  // queue pair
};

std::map<uint32_t, uint64_t> Arrived(vm::Rack& rack) {
  std::map<uint32_t, uint64_t> bytes;
  const auto flows = rack.fabric().Flows();
  for (const lab::FlowCounters& flow : flows.ok() ? *flows : std::vector<lab::FlowCounters>()) {
    if (flow.link == lab::LinkDirection::LeafToHost(rack.port(1)) && !flow.probe &&
        flow.source == vm::Rack::FabricAddress(0))
      bytes[flow.dest_qpn] += flow.bytes;
  }
  return bytes;
}

absl::StatusOr<Placed> RunOnce(vm::Rack& rack, bool with_library) {
  vm::PerftestOptions options{.arguments = absl::StrCat("-q ", kPlaceQueuePairs, " -t 4 -s 65536 -u 20 -D 60")};
  if (with_library) options.tool = kWithLibrary;
  auto run = vm::Perftest::Start(rack, options);
  if (!run.ok()) return run.status();
  const auto pairs = vm::WaitForQueuePairs(rack.machine(0), kPlaceQueuePairs, absl::Seconds(60));
  if (!pairs.ok()) return pairs.status();
  absl::SleepFor(kSettle);
  const auto before = Arrived(rack);
  const absl::Time start = absl::Now();
  absl::SleepFor(kPlaceLook);
  const auto after = Arrived(rack);
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  const auto spines = rack.SpinesByQpn();
  if (!spines.ok()) return spines.status();
  Placed placed;
  std::map<int, int> per_spine;
  std::vector<double> rates;
  for (const vm::QueuePair& qp : *pairs) {
    const auto spine = spines->find(qp.rqpn);
    const auto now = after.find(qp.rqpn), then = before.find(qp.rqpn);
    if (spine == spines->end() || now == after.end()) return absl::InternalError("a queue pair sends nothing");
    ++per_spine[spine->second];
    rates.push_back(static_cast<double>(now->second - (then == before.end() ? 0 : then->second)) / 1e6 / seconds);
  }
  for (const auto& [spine, count] : per_spine) placed.fullest = std::max(placed.fullest, static_cast<double>(count));
  placed.spines = static_cast<double>(per_spine.size());
  for (const double rate : rates) placed.mb_per_s += rate;
  placed.slowest_mb_per_s = *std::min_element(rates.begin(), rates.end());
  return placed;
}

void AddPlaceRows(Report& report, const std::string& name, const std::string& system, const std::vector<Placed>& all) {
  const auto add = [&](const char* metric, const char* unit, double Placed::*value) {
    std::vector<double> samples;
    for (const Placed& placed : all) samples.push_back(placed.*value);
    report.Add(name, system, metric, unit, samples);
  };
  add("fullest_spine", "count", &Placed::fullest);
  add("spines", "count", &Placed::spines);
  add("throughput", "MB/s", &Placed::mb_per_s);
  add("throughput_min", "MB/s", &Placed::slowest_mb_per_s);
}

// The library alone decides: the agents' programs put no flow anywhere, and nothing moves later.
absl::StatusOr<std::unique_ptr<vm::Agents>> StartAgents(vm::Rack& rack) {
  config::Config config = vm::AgentConfig();
  config.mode = config::Mode::kProtect;
  config.steering.assign_new_flows = false;
  auto agents = vm::Agents::Start(rack, config);
  if (!agents.ok()) return agents.status();
  if (absl::Status status = (*agents)->WaitForPaths(absl::Seconds(120)); !status.ok()) return status;
  return agents;
}

}  // namespace

absl::Status MeasurePlaces(const std::string& kernel, int seeds, const Wanted& systems, Report& report) {
  vm::RackOptions options;
  options.lab = "benchplace";
  options.log_dir = CW_VM_LOG_DIR;
  options.image.kernel = kernel;
  options.image.files = vm::AgentFiles(CW_AGENTD, CW_CTL);
  options.image.files.push_back({CW_VERBS_LIB, kLibrary});
  auto rack = vm::Rack::Up(options);
  if (!rack.ok()) return rack.status();
  std::unique_ptr<vm::Agents> agents;  // after the rack: they end first
  for (const std::string system : {"ecmp", "cwfabric"}) {
    if (!systems.Has(system)) continue;
    if (system == "cwfabric") {
      auto started = StartAgents(**rack);
      if (!started.ok()) return started.status();
      agents = *std::move(started);
    }
    std::vector<Placed> all;
    for (int seed = 0; seed < seeds; ++seed) {
      absl::StatusOr<Placed> placed = RunOnce(**rack, system == "cwfabric");
      if (!placed.ok()) return placed.status();
      std::fprintf(stderr, "place, %s: %.0f on the fullest of %.0f spines, %.1f MB/s, the slowest %.2f\n",
                   system.c_str(), placed->fullest, placed->spines, placed->mb_per_s, placed->slowest_mb_per_s);
      all.push_back(*placed);
    }
    AddPlaceRows(report, absl::StrCat("place_", kernel), system, all);
  }
  return absl::OkStatus();
}

}  // namespace cw::bench
