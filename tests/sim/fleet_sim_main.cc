// SPDX-License-Identifier: Apache-2.0
//
// cw_fleet_sim: how well the fleet's findings name faults; the tables of docs/fleet.md.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "tests/sim/fleet_shapes.h"
#include "tests/sim/fleet_sim.h"

int main(int argc, char** argv) {
  CLI::App app{"Faults that are known, and what the fleet's findings make of them", "cw_fleet_sim"};
  int faults = 200, healthy_s = 0, hosts = 0;
  uint64_t seed = 1;
  double least = 0;
  app.add_option("--faults", faults, "Of each kind")->capture_default_str();
  app.add_option("--seed", seed, "Of everything that is by chance")->capture_default_str();
  app.add_option("--healthy", healthy_s, "Instead: so many seconds without a fault");
  app.add_option("--hosts", hosts, "Instead of the small fabrics: one of three tiers with so many hosts, up to 100000");
  app.add_option("--least", least, "Fail where less of a kind is found, or of a cause is right: 0.97");
  std::vector<int> kinds;
  std::string shape;
  app.add_option("--kinds", kinds, "Only these, by number");
  app.add_option("--fabric", shape, "Only this one, by name");
  CLI11_PARSE(app, argc, argv);
  std::vector<cw::sim::FleetShape> shapes = cw::sim::SmallShapes();
  if (hosts > 0) shapes = {cw::sim::LargeShape(hosts)};
  if (!shape.empty()) std::erase_if(shapes, [&](const cw::sim::FleetShape& s) { return s.name != shape; });
  if (shapes.empty()) return std::fprintf(stderr, "no such fabric: %s\n", shape.c_str()), 2;
  cw::sim::FleetSimResult result = healthy_s > 0 ? cw::sim::SimulateHealthy(shapes[0], healthy_s, seed)
                                                 : cw::sim::SimulateFleet(shapes, faults, seed, kinds);
  for (const std::string& complaint : result.complaints) std::fprintf(stderr, "%s\n", complaint.c_str());
  const double recall = result.LeastRecall(), precision = result.LeastPrecision();
  const bool good = recall >= least && precision >= least;
  std::printf("%sseed %llu: at least %.1f %% of each kind found, at least %.1f %% of each cause right: %s\n",
              result.Table().c_str(), static_cast<unsigned long long>(seed), 100 * recall, 100 * precision,
              good ? "passed" : "failed");
  return good ? 0 : 1;
}
