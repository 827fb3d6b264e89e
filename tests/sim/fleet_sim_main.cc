// SPDX-License-Identifier: Apache-2.0
//
// cw_fleet_sim: how well the fleet's findings name faults; the tables of docs/fleet.md.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/sim/fleet_shapes.h"
#include "tests/sim/fleet_sim.h"

int main(int argc, char** argv) {
  CLI::App app{"Faults that are known, and what the fleet's findings make of them", "cw_fleet_sim"};
  int faults = 200, healthy_s = 0, hosts = 0;
  uint64_t seed = 1;
  app.add_option("--faults", faults, "Of each kind")->capture_default_str();
  app.add_option("--seed", seed, "Of everything that is by chance")->capture_default_str();
  app.add_option("--healthy", healthy_s, "Instead: so many seconds without a fault");
  app.add_option("--hosts", hosts, "Instead of the small fabrics: one of three tiers with so many hosts, up to 100000");
  CLI11_PARSE(app, argc, argv);
  std::vector<cw::sim::FleetShape> shapes = cw::sim::SmallShapes();
  if (hosts > 0) shapes = {cw::sim::LargeShape(hosts)};
  cw::sim::FleetSimResult result = healthy_s > 0 ? cw::sim::SimulateHealthy(shapes[0], healthy_s, seed)
                                                 : cw::sim::SimulateFleet(shapes, faults, seed);
  for (const std::string& complaint : result.complaints) std::fprintf(stderr, "%s\n", complaint.c_str());
  std::printf("%s", result.Table().c_str());
  return 0;
}
