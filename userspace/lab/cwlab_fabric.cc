// SPDX-License-Identifier: Apache-2.0
//
// cwlab up, down, status, exec.
#include <sys/wait.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/lab/cwlab_cli.h"
#include "userspace/lab/fabric.h"
#include "userspace/lab/fabric_process.h"
#include "userspace/lab/netns.h"
#include "userspace/lab/testbed.h"

namespace cw::lab {
namespace {

using nlohmann::json;

json ToJson(const LinkCounters& c) {
  return {{"link", c.link.Name()},
          {"offered_packets", c.offered_packets},
          {"offered_bytes", c.offered_bytes},
          {"carried_packets", c.carried_packets},
          {"carried_bytes", c.carried_bytes},
          {"fault_drops", c.fault_drops},
          {"fault_drop_bytes", c.fault_drop_bytes},
          {"ce_marks", c.ce_marks},
          {"probe_packets", c.probe_packets}};
}

const char* KindName(Fault::Kind kind) {
  switch (kind) {
    case Fault::Kind::kDrop:
      return "drop";
    case Fault::Kind::kShare:
      return "share";
    case Fault::Kind::kCorrupt:
      return "corrupt";
    case Fault::Kind::kPause:
      return "pause";
    case Fault::Kind::kNone:
      break;
  }
  return "none";
}

// What is the matter with a link: "ok", "down", or the fault.
std::string Condition(const Fabric& fabric, const LinkDirection& link) {
  absl::StatusOr<Fault> fault = fabric.GetFault(link);
  if (!fault.ok()) return "unknown";
  if (link.tier == LinkDirection::Tier::kSpine) {
    if (absl::StatusOr<bool> up = fabric.IsLinkUp(link.leaf, link.spine); up.ok() && !*up) return "down";
  }
  if (fault->kind == Fault::Kind::kNone) return "ok";
  std::string words = KindName(fault->kind);
  const bool share = fault->kind == Fault::Kind::kShare || fault->kind == Fault::Kind::kCorrupt;
  if (share) absl::StrAppendFormat(&words, " %g %%", fault->drop_share * 100);
  if (fault->match == Fault::Match::kRoceData) words += " (data)";
  if (fault->match == Fault::Match::kProbes) words += " (probes)";
  return words;
}

json Describe(const Fabric& fabric) {
  json hosts = json::array(), links = json::array();
  for (int h = 0; h < fabric.hosts(); ++h) {
    hosts.push_back({{"host", h},
                     {"leaf", fabric.HostLeaf(h)},
                     {"address", fabric.HostAddr(h)},
                     {"management", fabric.HostMgmtAddr(h)},
                     {"netns", fabric.HostNetns(h)}});
  }
  for (const LinkCounters& counters : fabric.Links()) {
    json link = ToJson(counters);
    link["condition"] = Condition(fabric, counters.link);
    if (counters.link.tier == LinkDirection::Tier::kSpine) link["mbps"] = *fabric.LinkRateMbps(counters.link);
    links.push_back(std::move(link));
  }
  const FabricSpec& spec = fabric.spec();
  return {{"lab", spec.lab},          {"leaves", spec.leaves},
          {"spines", spec.spines},    {"hosts_per_leaf", spec.hosts_per_leaf},
          {"mtu", spec.mtu},          {"hosts", std::move(hosts)},
          {"links", std::move(links)}};
}

std::string FabricTable(const Fabric& fabric) {
  const FabricSpec& spec = fabric.spec();
  std::string text = absl::StrFormat("lab %s: %d leaves, %d spines, %d hosts, MTU %d\n\n%-5s %-5s %-12s %-16s %s\n",
                                     spec.lab, spec.leaves, spec.spines, fabric.hosts(), spec.mtu, "HOST", "LEAF",
                                     "ADDRESS", "MANAGEMENT", "NAMESPACE");
  for (int h = 0; h < fabric.hosts(); ++h) {
    absl::StrAppendFormat(&text, "h%-4d %-5d %-12s %-16s cwlab-%s-h%d\n", h, fabric.HostLeaf(h), fabric.HostAddr(h),
                          fabric.HostMgmtAddr(h), spec.lab, h);
  }
  absl::StrAppendFormat(&text, "\n%-16s %10s %12s %14s %10s %10s  %s\n", "LINK", "MBIT/S", "PACKETS", "BYTES",
                        "DROPPED", "CE MARKS", "CONDITION");
  for (const LinkCounters& c : fabric.Links()) {
    const bool fabric_link = c.link.tier == LinkDirection::Tier::kSpine;
    const double mbps = fabric_link ? *fabric.LinkRateMbps(c.link) : spec.host_link_mbps;
    absl::StrAppendFormat(&text, "%-16s %10s %12d %14d %10d %10d  %s\n", c.link.Name(),
                          mbps > 0 ? absl::StrFormat("%g", mbps) : std::string("-"), c.carried_packets, c.carried_bytes,
                          c.fault_drops, c.ce_marks, Condition(fabric, c.link));
  }
  return text;
}

struct UpOptions {
  bool agents = true;
  std::string mode = "observe";
  FabricSpec spec;
  double ecn_drain_percent = 97;
  bool no_ecn = false;
};

void RunUp(Cli& cli, UpOptions& options) {
  options.spec.lab = cli.lab;
  options.spec.ecn = !options.no_ecn;
  options.spec.ecn_drain = options.ecn_drain_percent / 100;
  const absl::Time start = absl::Now();
  TestbedSpec spec{.fabric = options.spec, .agents = options.agents, .mode = options.mode, .all_hosts = true};
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(spec);
  if (!testbed.ok()) return cli.Finish(testbed.status(), {}, "");
  (*testbed)->Release();
  const Fabric& fabric = (*testbed)->fabric();
  json result = Describe(fabric);
  result["seconds"] = absl::ToDoubleSeconds(absl::Now() - start);
  std::string text =
      absl::StrFormat("lab %s is up: %d hosts%s in %.1f s (undo: cwlab down --lab %s)\n", cli.lab, fabric.hosts(),
                      options.agents ? ", an agent on each," : "", absl::ToDoubleSeconds(absl::Now() - start), cli.lab);
  if (options.agents) absl::StrAppend(&text, "try: cwctl --socket ", fabric.HostRunDir(0), "/agent.sock paths\n");
  cli.Finish(absl::OkStatus(), result, text);
}

void RunDown(Cli& cli, bool all) {
  const std::vector<std::string> labs = all ? Fabric::List() : std::vector<std::string>{cli.lab};
  absl::Status status;
  std::string text;
  const std::vector<std::string> up = Fabric::List();
  for (const std::string& lab : labs) {
    const bool was_up = std::find(up.begin(), up.end(), lab) != up.end();
    status.Update(Fabric::Down(lab));  // also what an interrupted `up` has left
    absl::StrAppend(&text, "lab ", lab, was_up ? " is down" : " was not up", "\n");
    if (!was_up && !up.empty()) absl::StrAppend(&text, "up: ", absl::StrJoin(up, ", "), "\n");
  }
  cli.Finish(status, {{"down", labs}}, text);
}

void RunStatus(Cli& cli, bool lab_given) {
  if (!lab_given) {
    const std::vector<std::string> labs = Fabric::List();
    if (labs.size() != 1) {
      std::string text = labs.empty() ? "no lab is up\n" : "labs (choose one with --lab):\n";
      for (const std::string& lab : labs) absl::StrAppend(&text, "  ", lab, "\n");
      return cli.Finish(absl::OkStatus(), {{"labs", labs}}, text);
    }
    cli.lab = labs[0];
  }
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  cli.Finish(absl::OkStatus(), Describe(**fabric), FabricTable(**fabric));
}

absl::StatusOr<std::string> NetnsOf(const Fabric& fabric, const std::string& where) {
  const std::string name = absl::StrCat("/run/netns/cwlab-", fabric.spec().lab, "-", where);
  const std::vector<std::pair<const char*, int>> kinds = {
      {"h", fabric.hosts()}, {"leaf", fabric.spec().leaves}, {"spine", fabric.spec().spines}};
  for (const auto& [prefix, count] : kinds) {
    int number = 0;
    if (absl::StartsWith(where, prefix) && absl::SimpleAtoi(where.substr(std::string(prefix).size()), &number) &&
        number >= 0 && number < count && where == absl::StrCat(prefix, number)) {
      return name;
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("no \"", where, "\" in lab ", fabric.spec().lab, ": use h0.., leaf0.., spine0.."));
}

// The command's exit code becomes ours; with --json its output is its own, nothing is added.
void RunExec(Cli& cli, const std::string& where, const std::vector<std::string>& command) {
  absl::StatusOr<std::unique_ptr<Fabric>> fabric = Fabric::Attach(cli.lab);
  if (!fabric.ok()) return cli.Finish(fabric.status(), {}, "");
  absl::StatusOr<std::string> netns = NetnsOf(**fabric, where);
  if (!netns.ok()) return cli.Finish(netns.status(), {}, "");
  ProcessId process;
  absl::Status status = RunInNetns(*netns, [&] {
    absl::StatusOr<ProcessId> started = StartProcess(command, "");
    if (started.ok()) process = *started;
    return started.status();
  });
  if (!status.ok()) return cli.Finish(status, {}, "");
  (*fabric)->RecordProcess(process.pid, absl::StrCat("exec ", where)).IgnoreError();  // it may have ended already
  int wait_status = 0;
  while (waitpid(process.pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  (*fabric)->ForgetProcess(process.pid);
  cli.exit_code = WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

}  // namespace

void AddFabricVerbs(CLI::App& app, Cli& cli) {
  CLI::App* up = app.add_subcommand("up", "build a lab; it stays until cwlab down");
  auto options = std::make_shared<UpOptions>();
  FabricSpec& spec = options->spec;
  up->add_option("--leaves", spec.leaves, "leaf switches (1-4)")->capture_default_str();
  up->add_option("--spines", spec.spines, "spine switches (1-8)")->capture_default_str();
  up->add_option("--hosts-per-leaf", spec.hosts_per_leaf, "hosts on each leaf (1-4)")->capture_default_str();
  up->add_option("--link-mbps", spec.link_mbps, "leaf-spine links, Mbit/s (0: unshaped)")->capture_default_str();
  up->add_option("--host-link-mbps", spec.host_link_mbps, "host links, Mbit/s (0: unshaped)")->capture_default_str();
  up->add_option("--mtu", spec.mtu, "MTU of every port")->capture_default_str();
  up->add_option("--queue-bytes", spec.queue_bytes, "leaf-spine queue limit (0: 10 ms at the link's rate)");
  up->add_option("--ecn-drain", options->ecn_drain_percent, "virtual queue's drain rate, % of the link's")
      ->capture_default_str();
  up->add_option("--ecn-min-bytes", spec.ecn_min_bytes, "virtual queue where marking begins")->capture_default_str();
  up->add_option("--ecn-max-bytes", spec.ecn_max_bytes, "virtual queue above which every packet is marked")
      ->capture_default_str();
  up->add_flag("--no-ecn", options->no_ecn, "mark no CE");
  up->add_flag("--agents,!--no-agents", options->agents, "an agent on each host (cwlab-agentd)")->capture_default_str();
  up->add_option("--mode", options->mode, "of the agents: observe, protect or optimize")
      ->capture_default_str()
      ->check(CLI::IsMember({"observe", "protect", "optimize"}));
  up->add_flag("--ipv6", spec.ipv6, "Hosts are known by IPv6 addresses; leaves hash flow labels as well");
  up->add_option("--ecmp-seed", spec.ecmp_seed, "ECMP hash seed, for repeatable paths (kernel 6.11 or later)");
  up->callback([&cli, options] { RunUp(cli, *options); });

  CLI::App* down = app.add_subcommand("down", "remove a lab, or what a crash left of it");
  auto all = std::make_shared<bool>(false);
  down->add_flag("--all", *all, "every lab on this machine");
  down->callback([&cli, all] { RunDown(cli, *all); });

  CLI::App* status = app.add_subcommand("status", "hosts, links, faults and counters");
  status->callback([&cli, &app] { RunStatus(cli, app.count("--lab") > 0); });

  CLI::App* exec = app.add_subcommand("exec", "run a command inside a host or switch: cwlab exec h0 -- CMD");
  auto where = std::make_shared<std::string>();
  auto command = std::make_shared<std::vector<std::string>>();
  exec->add_option("where", *where, "h0.., leaf0.., spine0..")->required();
  exec->add_option("command", *command, "the command and its arguments, after --")->required();
  exec->callback([&cli, where, command] { RunExec(cli, *where, *command); });
}

}  // namespace cw::lab
