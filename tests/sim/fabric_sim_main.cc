// SPDX-License-Identifier: Apache-2.0
//
// cw_fabric_sim: the tables of docs/fabric-scale.md.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "tests/sim/fabric_sim.h"

namespace {

void PrintFabric(const cw::sim::FabricSimSpec& spec, bool trace) {
  const cw::sim::FabricSimResult r = cw::sim::SimulateFabric(spec);
  const cw::sim::WindowResult &first = r.windows.front(), &last = r.windows.back();
  int herd = 0;
  for (const cw::sim::WindowResult& w : r.windows) herd = &w == &first ? 0 : std::max(herd, w.herd);
  std::printf(
      "| NICs | flows | sending | mean before | p1 | least | mean after | p1 | least | settled s | moves per flow | "
      "late moves per flow and s | most onto one link in a window | probes/s of a host | of its link |\n");
  std::printf(
      "| %d | %d | %.0f %% | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.2f | %.2f | %.2f | %d | %.0f | %.5f %% |\n",
      r.nics, r.flows, spec.sending * 100, first.mean, first.p1, first.least, last.mean, last.p1, last.least,
      r.SettledS(spec.window_s), static_cast<double>(r.Moves()) / r.flows, r.LateMovesPerFlowS(spec.window_s), herd,
      r.probes_per_s, r.probe_share * 100);
  for (size_t w = 0; trace && w < r.windows.size(); ++w) {
    const cw::sim::WindowResult& x = r.windows[w];
    std::printf("%.3f s: mean %.4f p1 %.4f least %.4f moves %d herd %d\n", static_cast<double>(w) * spec.window_s,
                x.mean, x.p1, x.least, x.moves, x.herd);
  }
}

void PrintRecovery(cw::sim::RecoverySpec spec) {
  std::printf("| active peers | interval ms | p50 ms | p99 ms | most ms |\n");
  for (const int peers : {1, 8, 64, 512}) {
    spec.active_peers = peers;
    const cw::sim::RecoveryResult r = cw::sim::SimulateRecovery(spec);
    std::printf("| %d | %.1f | %.1f | %.1f | %.1f |\n", peers, r.interval_s * 1e3, r.p50_s * 1e3, r.p99_s * 1e3,
                r.most_s * 1e3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Flow-level simulation of fat trees, driven by the production rules (docs/fabric-scale.md)");
  app.require_subcommand(1);
  cw::sim::FabricSimSpec fabric;
  bool trace = false;
  CLI::App* balance = app.add_subcommand("balance", "Moves for balance: herding, convergence, probe load");
  balance->add_option("--ports", fabric.ports, "Of a switch; k^3/4 NICs (74: 101306)")->check(CLI::Range(4, 96));
  balance->add_option("--flows", fabric.flows_per_nic, "Per NIC that sends")->check(CLI::Range(1, 64));
  balance->add_option("--sending", fabric.sending, "Share of the NICs that send")->check(CLI::Range(0.001, 1.0));
  balance->add_option("--slots", fabric.slots, "Paths known of a pair")->check(CLI::Range(1, 16));
  balance->add_option("--window", fabric.window_s, "Seconds between decisions of a host");
  balance->add_option("--seconds", fabric.seconds, "Simulated time");
  balance->add_option("--budget", fabric.budget_pps, "Probes per second of a host");
  balance->add_option("--seed", fabric.seed, "Seed");
  balance->add_flag("--trace", trace, "Every window");
  cw::sim::RecoverySpec recovery;
  CLI::App* recover = app.add_subcommand("recovery", "Time to the verdict on a dead path, by number of active peers");
  recover->add_option("--budget", recovery.budget_pps, "Probes per second of a host");
  recover->add_option("--slots", recovery.slots, "Paths per peer")->check(CLI::Range(1, 16));
  recover->add_option("--faults", recovery.faults, "Number of cuts");
  CLI11_PARSE(app, argc, argv);
  if (*balance) PrintFabric(fabric, trace);
  if (*recover) PrintRecovery(recovery);
  return 0;
}
