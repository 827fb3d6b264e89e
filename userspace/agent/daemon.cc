// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/daemon.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/host_check.h"
#include "userspace/agent/log_output.h"
#include "userspace/agent/memory_lock.h"
#include "userspace/agent/no_dumps.h"
#include "userspace/agent/uplink.h"
#include "userspace/commandline/command.h"
#include "userspace/commandline/sd_notify.h"
#include "userspace/config/change.h"
#include "userspace/doors/guests.h"
#include "userspace/metrics/exporter.h"
#include "userspace/model/boot_id.h"
#include "userspace/model/printable.h"
#include "userspace/rights/rights.h"

namespace cw::agent {
namespace {

constexpr int kStartAnew = 75;  // EX_TEMPFAIL: a failure to systemd, which starts the service again

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

int Check(const config::Config& config, const std::string& path) {
  if (absl::Status status = Together({CheckHost(config), CheckFleet(config)}); !status.ok()) return Fail(status);
  std::vector<std::string> skipped;
  config::LoadPeers(config, &skipped).IgnoreError();  // it was right above
  for (const std::string& line : skipped) std::fprintf(stderr, "%s\n", Printable(line).c_str());
  std::fputs(config::ToToml(config).c_str(), stdout);
  std::fprintf(stderr, "%s: no fault found; on standard output is what takes effect\n", path.c_str());
  return 0;
}

int Detach(const config::Config& config) {
  dataplane::Options options;
  options.instance = config.instance;
  if (absl::Status status = dataplane::Dataplane::Remove(options); !status.ok()) return Fail(status);
  std::printf("instance %s: programs detached, maps removed, every flow on its native port\n", config.instance.c_str());
  return 0;
}

// Null: none are wanted.
std::unique_ptr<metrics::Exporter> StartMetrics(const config::Config& config, Agent& agent) {
  metrics::ExporterOptions options{.listen = config.MetricsListen(),
                                   .worst_paths = static_cast<size_t>(config.metrics.worst_paths),
                                   .top_flows = static_cast<size_t>(config.metrics.top_flows),
                                   .run_dir = config.RunDir(),
                                   .boot = BootId()};
  if (options.listen.kind == config::Listen::Kind::kNone) return nullptr;
  for (const config::NicConfig& nic : config.nics) options.nics.push_back(nic.name);
  options.read_link = [ifindexes = agent.Ifindexes()](const std::string& nic) -> absl::StatusOr<metrics::LinkReading> {
    const auto at = ifindexes.find(nic);
    if (at == ifindexes.end()) return absl::NotFoundError(nic);
    return metrics::ReadLink(at->second);
  };
  std::unique_ptr<metrics::Exporter> exporter;
  const absl::Status status = rights::RunWithout(
      [&] { exporter = metrics::Exporter::Start(std::move(options), agent, [&agent] { return agent.PathTotals(); }); });
  if (!status.ok()) spdlog::warn("no metrics: {}", std::string(status.message()));
  return exporter;
}

// Null: none is wanted.
std::unique_ptr<Uplink> StartUplink(const config::Config& config, Agent& agent, uint64_t told) {
  if (config.fleet.endpoints.empty()) return nullptr;
  absl::StatusOr<std::unique_ptr<Uplink>> uplink;
  absl::Status status = rights::RunWithout([&] { uplink = Uplink::Start(config, agent, told); });
  if (status.ok()) status = uplink.status();
  if (status.ok()) return *std::move(uplink);
  agent.Tell({.type = "fleet",
              .alert = true,
              .text = "nothing is told to the fleet service: " + std::string(status.message()),
              .evidence = {}});
  return nullptr;
}

// What only loading and the prober's start needed goes, now that everything runs. The main loop posts probes by verbs,
// which the kernel takes with the rights alone with which the device was opened.
void KeepSteadyRights(const Agent& agent) {
  if (agent.ProbesByVerbs()) return;
  if (const absl::Status status = rights::KeepOnly(rights::kSteady); !status.ok())
    spdlog::warn("the agent keeps all the rights that it was started with: {}", std::string(status.message()));
}

// What serves beside the agent and is made anew when its part of the configuration changes.
struct Beside {
  std::mutex mutex;
  bool ended = false;
  std::unique_ptr<metrics::Exporter> metrics;
  std::unique_ptr<Uplink> uplink;
  uint64_t told = 0;  // the newest event that an uplink before this one told

  void End() {
    std::lock_guard lock(mutex);
    ended = true;
    metrics.reset();
    uplink.reset();
  }
};

bool AnyOf(const std::vector<config::Change>& changes, absl::string_view table) {
  return std::any_of(changes.begin(), changes.end(),
                     [&](const config::Change& change) { return absl::StartsWith(change.key, table); });
}

// SIGHUP.
void Reload(config::Config& running, const std::string& path, Agent& agent, Beside& beside) {
  if (const absl::Status status = agent.ReopenEvents(); !status.ok())
    agent.Tell({.type = "agent", .alert = true, .text = std::string(status.message())});
  absl::StatusOr<config::Config> fresh = config::LoadConfig(path);
  if (!fresh.ok()) {
    agent.Tell({.type = "config",
                .alert = true,
                .text = "nothing is changed, the configuration is wrong: " + std::string(fresh.status().message())});
    return;
  }
  // What was wrong with it before holds up nothing else.
  const bool other_fleet = AnyOf(config::Changes(running, *fresh), "fleet.");
  const absl::Status fleet = other_fleet ? CheckFleet(*fresh) : absl::OkStatus();
  if (const absl::Status status = Together({CheckNewNics(running, *fresh), fleet}); !status.ok()) {
    agent.Tell({.type = "config",
                .alert = true,
                .text = "nothing is changed, this host lacks what the file names: " + std::string(status.message())});
    return;
  }
  const absl::StatusOr<config::Config> taken = agent.Reload(*fresh);
  if (!taken.ok()) return;  // it has said so
  const std::vector<config::Change> changes = config::Changes(running, *taken);
  SetLogLevel(taken->log.level);
  std::lock_guard lock(beside.mutex);
  if (beside.ended) return;
  if (AnyOf(changes, "metrics.")) {
    beside.metrics.reset();
    beside.metrics = StartMetrics(*taken, agent);
  }
  if (AnyOf(changes, "fleet.") || AnyOf(changes, "metrics.listen")) {  // the service is told where metrics are
    if (beside.uplink != nullptr) beside.told = beside.uplink->End();
    beside.uplink.reset();  // its spool is the next one's
    beside.uplink = StartUplink(*taken, agent, beside.told);
    if (taken->fleet.endpoints.empty()) GiveBackFleetDrains(*taken, agent);
  }
  running = *taken;
}

int Serve(const config::Config& config, const std::string& path, const TimeSourceFn& time_source) {
  doors::RaiseDescriptors();
  if (const absl::Status enough = doors::EnoughDescriptors(); !enough.ok()) return Fail(enough);
  std::signal(SIGPIPE, SIG_IGN);  // a service that closes its end while we write to it ends no agent
  commandline::SdNotify("STATUS=starting");
  NoMemoryDumps();
  if (config.probe.lock_memory) LockMemory();
  const char* journal = std::getenv("JOURNAL_STREAM");
  OpenLog(ChooseLogOutput(config.log.format, journal == nullptr ? "" : journal), config.log.level);
  // Signals are taken by a thread of their own; every later thread inherits the mask.
  sigset_t signals;
  sigemptyset(&signals);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  absl::StatusOr<TimeSource> time = time_source(config, path);
  if (!time.ok()) return Fail(time.status());
  absl::StatusOr<std::unique_ptr<Agent>> agent = Agent::Start({.config = config,
                                                               .clock = time->clock,
                                                               .lab_clock = time->lab_clock,
                                                               .kernel_time = time->kernel,
                                                               .lab_nic = time->lab_nic,
                                                               .lab_nic_clock = time->lab_nic_clock});
  if (!agent.ok()) return Fail(agent.status());
  Beside beside{.metrics = StartMetrics(config, **agent), .uplink = StartUplink(config, **agent, 0)};
  std::thread waiter([&, running = config]() mutable {
    rights::KeepOnly(rights::kNone).IgnoreError();  // it reads files
    if (running.fleet.endpoints.empty()) GiveBackFleetDrains(running, **agent);
    int signal = 0;
    while (sigwait(&signals, &signal) == 0 && signal == SIGHUP) Reload(running, path, **agent, beside);
    (*agent)->Stop();
  });
  KeepSteadyRights(**agent);
  commandline::SdNotify("READY=1\nSTATUS=running");
  (*agent)->Run();
  beside.End();
  commandline::SdNotify("STOPPING=1");
  const bool starts_anew = (*agent)->starts_anew();
  if (starts_anew) kill(getpid(), SIGTERM);  // for the waiter
  waiter.join();
  return starts_anew ? kStartAnew : 0;
}

std::string ProgramPage(const CLI::App& app) {
  return commandline::ManualPage(
      commandline::Describe(app),
      {.section = 8,
       .version = kVersion,
       .summary = "agent of a RoCEv2 fabric: fleet time, delays, steering",
       .parts = {
           {"SIGNALS",
            "SIGTERM and SIGINT end the agent; the programs in the kernel go on under their lease. SIGHUP: the "
            "configuration "
            "and the secrets' files are read again. What can change while the agent runs takes effect at once, all of "
            "it "
            "or nothing; what cannot is named in the log and in cwctl status."},
           {"EXIT STATUS",
            "0 ended as asked, 1 failed, 2 usage, 75 to be started anew: a NIC was removed and is there again (systemd "
            "does so)."},
           {"SEE ALSO", ".BR cwagentd.toml (5),\n.BR cwctl (1)"}}});
}

std::string ConfigPage() {
  return absl::StrFormat(
      ".TH CWAGENTD.TOML 5 \"\" \"cwfabric %s\" \"cwfabric\"\n.SH NAME\ncwagentd.toml \\- configuration of cwagentd\n"
      ".SH DESCRIPTION\nOne TOML file. Durations are texts with a unit, such as \"1ms\" or \"30s\".\n.SH OPTIONS\n%s"
      ".SH SEE ALSO\n.BR cwagentd (8)\n",
      kVersion, config::ReferenceRoff());
}

// Options that print and end, for the packages; true when one was given.
struct Printouts {
  bool example = false, page = false, config_page = false;

  void AddTo(CLI::App& app) {
    app.add_flag("--default-config", example, "Print a configuration file that describes every option, and end");
    app.add_flag("--manual", page, "Print cwagentd(8) in roff, and end")->group("");
    app.add_flag("--config-manual", config_page, "Print cwagentd.toml(5) in roff, and end")->group("");
  }
  bool Print(const CLI::App& app) const {
    if (example) std::fputs(config::ExampleToml().c_str(), stdout);
    if (page) std::fputs(ProgramPage(app).c_str(), stdout);
    if (config_page) std::fputs(ConfigPage().c_str(), stdout);
    return example || page || config_page;
  }
};

}  // namespace

int DaemonMain(int argc, char** argv, const char* name, const TimeSourceFn& time_source) {
  CLI::App app{"cwfabric's agent: one per host", name};
  std::string path;
  bool check = false, detach = false;
  app.add_option("--config", path, "The TOML file, cwagentd.toml(5)")->type_name("FILE");
  app.add_flag("--check-config", check, "Check the file, print the effective configuration, and end");
  app.add_flag("--detach", detach,
               "Detach and remove what the instance has in the kernel, and end; refused while its agent runs. Without "
               "--config: the instance \"default\"")
      ->excludes("--check-config");
  Printouts printouts;
  printouts.AddTo(app);
  app.set_version_flag("--version", std::string(kVersion));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    const int code = app.exit(error);
    return code == 0 ? 0 : 2;
  }
  if (printouts.Print(app)) return 0;
  if (path.empty()) {
    if (detach) return Detach(config::Config());  // the default instance: what a package's removal knows
    std::fprintf(stderr, "--config is required: the TOML file; %s --default-config prints one to begin with\n", name);
    return 2;
  }
  absl::StatusOr<config::Config> config = config::LoadConfig(path);
  if (!config.ok()) return Fail(config.status());
  if (check) return Check(*config, path);
  if (detach) return Detach(*config);
  return Serve(*config, path, time_source);
}

}  // namespace cw::agent
