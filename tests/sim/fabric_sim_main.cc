// SPDX-License-Identifier: Apache-2.0
//
// cw_fabric_sim: the tables of docs/fabric-scale.md. Time and memory that a table took go to stderr.
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "tests/sim/discovery_sim.h"
#include "tests/sim/fabric_sim.h"
#include "tests/sim/recovery_sim.h"

namespace {

std::string Text(const cw::sim::Rates& r) { return absl::StrFormat("%.3f, %.3f, %.3f", r.mean, r.p1, r.least); }

std::string When(double s) { return s < 0 ? "never" : absl::StrFormat("%.2f", s); }

void PrintFabric(const cw::sim::FabricSimSpec& spec, const cw::sim::FabricSimResult& r, bool trace) {
  const double seconds = static_cast<double>(r.windows.size()) * r.window_s, late_s = seconds * 3 / 4;
  const cw::sim::WindowResult all = r.Sum(0, seconds), late = r.Sum(late_s, seconds);
  const double flows = r.flows, late_flow_s = flows * (seconds - late_s);
  const cw::sim::Rates &begin = r.windows.front().rates, &end = r.windows.back().rates;
  absl::PrintF("| %d | %d | %.0f %% | %d | %s | %s | %s | %s | %s | %s | %.2f | %.2f | %.0f %% | %.0f %% | %d |\n",
               r.nics, r.flows, spec.sending * 100, static_cast<int>(spec.seed), Text(r.hashed), Text(begin), Text(end),
               Text(r.central), When(r.ReachedS(0.95)), When(r.ReachedS(begin.mean + 0.95 * (end.mean - begin.mean))),
               all.moves / flows, late.moves / late_flow_s, 100.0 * all.undone / std::max(1, all.moves),
               100.0 * all.in_vain / std::max(1, all.moves), all.herd);
  std::fflush(stdout);
  for (size_t w = 0; trace && w < r.windows.size(); ++w) {
    const cw::sim::WindowResult& x = r.windows[w];
    absl::PrintF("%.3f s: rates %s moves %d undone %d in vain %d herd %d\n", static_cast<double>(w) * r.window_s,
                 Text(x.rates), x.moves, x.undone, x.in_vain, x.herd);
  }
}

void PrintFabrics(cw::sim::FabricSimSpec spec, int seeds, bool trace) {
  const cw::sim::LinkModel links(LinkOf(spec));
  absl::PrintF(
      "| NICs | flows | sending | seed | hashed: mean, worst 1 %%, least | begun | after | central | 0.95 of the best, "
      "s | 0.95 of the gain, s | moves per flow | late moves per flow and s | undone | in vain | herd |\n");
  for (int i = 0; i < seeds; ++i, ++spec.seed) PrintFabric(spec, cw::sim::SimulateFabric(spec, links), trace);
}

void PrintLinks(const cw::sim::FabricSimSpec& spec) {
  const cw::sim::LinkModel links(LinkOf(spec));
  absl::PrintF("| flows | queue us | of 10 ms: +- us | marked | busy |\n");
  for (const int n : {1, 2, 3, 4, 5, 6, 8, 12, 16}) {
    const cw::sim::LinkModel::Summary& s = links.Of(n);
    absl::PrintF("| %d | %.2f | %.2f | %.4f %% | %.1f %% |\n", n, s.wait_ns / 1e3, s.swing_ns / 1e3, 100 * s.mark_share,
                 100 * s.utilization);
  }
}

void PrintRecovery(cw::sim::RecoverySpec spec, const std::vector<int>& peers) {
  absl::PrintF(
      "| active peers | requests/s | Mbit/s each way, with answers to as many | round ms, active | idle | active: p50 "
      "ms "
      "| p99 | most | idle: p50 ms | p99 | most | wrong | missed |\n");
  for (const int active : peers) {
    spec.active_peers = active;
    const cw::sim::RecoveryResult r = cw::sim::SimulateRecovery(spec);
    absl::PrintF("| %d | %.0f (%.0f) | %.1f | %.1f | %.0f | %.1f | %.1f | %.1f | %.0f | %.0f | %.0f | %d | %d |\n",
                 active, r.probes_per_s, r.most_probes_per_s, 2 * r.probes_per_s * cw::sim::ProbeBits() / 1e6,
                 r.active_interval_s * 1e3, r.idle_interval_s * 1e3, r.active.p50_s * 1e3, r.active.p99_s * 1e3,
                 r.active.most_s * 1e3, r.idle.p50_s * 1e3, r.idle.p99_s * 1e3, r.idle.most_s * 1e3, r.wrong, r.missed);
    std::fflush(stdout);
  }
}

void PrintDiscovery(cw::sim::DiscoverySpec spec, const std::vector<int>& peers) {
  absl::PrintF(
      "| peers | of a job | first, s | half | 99 %% | all | the job's | traces per pair | most at a switch in a s | "
      "paths "
      "missed | oldest look, s | CPU s | share of a CPU then | MiB |\n");
  for (const int n : peers) {
    spec.peers = n;
    const cw::sim::DiscoveryResult r = cw::sim::SimulateDiscovery(spec);
    absl::PrintF("| %d | %d | %.1f | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f | %d | %.0f | %.2f | %.3f %% | %.1f |\n",
                 n, spec.job_peers, r.first_s, r.half_s, r.p99_s, r.all_s, r.job_s, r.traces_per_pair,
                 r.most_per_switch_s, r.missed, r.verified_age_s, r.build_cpu_s, r.kept_cpu_share * 100, r.mib);
    std::fflush(stdout);
  }
}

void PrintCost(std::chrono::steady_clock::time_point begun) {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const double wall_s = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  const double cpu_s = static_cast<double>(used.ru_utime.tv_sec) + static_cast<double>(used.ru_utime.tv_usec) / 1e6;
  absl::FPrintF(stderr, "%.1f s, %.1f s of a processor, %.0f MiB\n", wall_s, cpu_s,
                static_cast<double>(used.ru_maxrss) / 1024);
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Flow-level simulation of fat trees, driven by the production rules (docs/fabric-scale.md)");
  app.require_subcommand(1);
  cw::sim::FabricSimSpec fabric;
  bool trace = false, unmarked = false, virtual_queue = false;
  int seeds = 1;
  CLI::App* balance = app.add_subcommand("balance", "Moves for balance: herding, convergence, rates");
  CLI::App* links = app.add_subcommand("links", "Queues and marks of a link by the number of its flows");
  balance->add_option("--ports", fabric.ports, "Of a switch")->check(CLI::Range(4, 128));
  balance->add_option("--pods", fabric.pods, "0: as many as ports; pods x (ports/2)^2 NICs")->check(CLI::Range(0, 128));
  for (CLI::App* sub : {balance, links}) {
    sub->add_option("--flows", fabric.flows_per_nic, "Per NIC that sends")->check(CLI::Range(1, 64));
    sub->add_flag("--virtual-queue", virtual_queue, "Switches mark by a virtual queue: before they queue");
  }
  balance->add_option("--peers", fabric.peers, "To which they go in turn")->check(CLI::Range(1, 16));
  balance->add_option("--idle-peers", fabric.idle_peers, "Probed beside them")->check(CLI::Range(0, 4096));
  balance->add_option("--sending", fabric.sending, "Share of the NICs that send")->check(CLI::Range(0.001, 1.0));
  balance->add_flag("--placed", fabric.placed, "The kernel has put the flows on known paths in turn");
  balance->add_flag("--unmarked", unmarked, "Peers tell no marks");
  balance->add_flag("--port-rate", fabric.port_rate, "The rule is told the port's rate (agents let it learn it)");
  balance->add_option("--seconds", fabric.seconds, "Simulated time");
  balance->add_option("--budget", fabric.probe.budget_pps, "Requests per second of a host");
  balance->add_option("--seed", fabric.seed, "Of the first run");
  balance->add_option("--seeds", seeds, "Runs, one seed after the other")->check(CLI::Range(1, 100));
  balance->add_flag("--trace", trace, "Every window");
  cw::sim::RecoverySpec recovery;
  std::vector<int> peers = {8, 64, 512};
  CLI::App* recover = app.add_subcommand("recovery", "Time to the verdict on a switch that died silently");
  recover->add_option("--peers", peers, "That data goes to")->check(CLI::Range(1, 4096));
  recover->add_option("--idle-peers", recovery.idle_peers, "Probed beside them")->check(CLI::Range(0, 4096));
  recover->add_option("--budget", recovery.probe.budget_pps, "Requests per second of a host");
  recover->add_option("--slots", recovery.slots, "Paths per peer")->check(CLI::Range(2, 16));
  recover->add_flag("--lone", recovery.lone, "It dies for one pair alone");
  recover->add_option("--cuts", recovery.cuts, "One dead switch each")->check(CLI::Range(1, 10000));
  recover->add_option("--seed", recovery.seed, "Seed");
  cw::sim::DiscoverySpec discovery;
  std::vector<int> discovery_peers = {64, 1000};
  CLI::App* discover = app.add_subcommand("discovery", "Time until the paths to all peers are known, and its cost");
  discover->add_option("--peers", discovery_peers, "Of the host")->check(CLI::Range(1, 65536));
  discover->add_option("--job", discovery.job_peers, "That data go to")->check(CLI::Range(0, 65536));
  discover->add_option("--spines", discovery.spines, "Paths to a peer")->check(CLI::Range(1, 255));
  discover->add_option("--hosts-per-leaf", discovery.hosts_per_leaf, "Peers behind one switch")
      ->check(CLI::Range(1, 65536));
  discover->add_option("--lost", discovery.lost, "Share of answers")->check(CLI::Range(0.0, 0.9));
  discover->add_option("--budget", discovery.monitor.per_switch_pps, "Traces per second to a switch");
  discover->add_option("--seed", discovery.seed, "Seed");
  CLI11_PARSE(app, argc, argv);
  fabric.marks = !unmarked;
  if (virtual_queue) fabric.link.drain = 0.97;
  const auto begun = std::chrono::steady_clock::now();
  if (*balance) PrintFabrics(fabric, seeds, trace);
  if (*links) PrintLinks(fabric);
  if (*recover) PrintRecovery(recovery, peers);
  if (*discover) PrintDiscovery(discovery, discovery_peers);
  PrintCost(begun);
  return 0;
}
