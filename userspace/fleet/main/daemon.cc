// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/daemon.h"

#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"
#include "userspace/api/grpc_clock.h"
#include "userspace/api/grpc_door.h"
#include "userspace/api/grpc_log.h"
#include "userspace/api/tls_server.h"
#include "userspace/commandline/command.h"
#include "userspace/commandline/log_lines.h"
#include "userspace/commandline/sd_notify.h"
#include "userspace/fleet/alerts/alerts.h"
#include "userspace/fleet/main/drainer.h"
#include "userspace/fleet/main/finder.h"
#include "userspace/fleet/main/fleet_metrics.h"
#include "userspace/fleet/main/fleetd_config.h"
#include "userspace/fleet/main/incident_service.h"
#include "userspace/fleet/main/incident_taker.h"
#include "userspace/fleet/main/keeper.h"
#include "userspace/fleet/main/kept_time.h"
#include "userspace/fleet/main/query_service.h"
#include "userspace/fleet/main/server_limits.h"
#include "userspace/fleet/main/service_discovery.h"
#include "userspace/fleet/main/uplink_service.h"
#include "userspace/fleet/rules/rules_file.h"
#include "userspace/fleet/store/sqlite/sqlite_store.h"
#include "userspace/http/server.h"
#include "userspace/model/regular_file.h"

namespace cw::fleet {
namespace {

constexpr absl::Duration kEndPatience = absl::Milliseconds(500);
constexpr absl::Duration kLivePatience = absl::Seconds(3);
constexpr size_t kMostConnections = 200'000, kPart = 2;  // of the limit on open files

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  return 1;
}

absl::StatusOr<FleetFile> ReadFabric(const std::string& path) {
  if (path.empty()) return FleetFile{};
  const absl::StatusOr<std::string> text = ReadRegularFile(path);
  if (!text.ok()) return text.status();
  return ReadFleetFile(*text, path);
}

absl::StatusOr<Rules> ReadRulesOf(const std::string& path) {
  if (path.empty()) return Rules{};
  const absl::StatusOr<std::string> text = ReadRegularFile(path);
  if (!text.ok()) return text.status();
  return ReadRules(*text, path);
}

std::string InstanceName(const FleetdConfig& config) {
  if (!config.instance.empty()) return config.instance;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

IncidentOptions IncidentsOf(const FleetdConfig& config, const CauseRules& causes) {
  IncidentOptions options{.before = config.incident_before, .after = config.incident_after, .causes = causes};
  options.least.reset();
  if (config.incident_severity <= static_cast<size_t>(Severity::kCritical))
    options.least = static_cast<Severity>(config.incident_severity);
  options.version = CW_VERSION;
  // They were read before, so they are there.
  if (!config.rules_file.empty()) options.rules = ReadRegularFile(config.rules_file).value_or("");
  if (!config.fabric_file.empty()) options.fabric = ReadRegularFile(config.fabric_file).value_or("");
  return options;
}

tls::Files TlsOf(const FleetdConfig& config) {
  return {.cert = config.tls_cert, .key = config.tls_key, .ca = config.tls_ca, .crl = config.tls_crl};
}

// All that serves, in the order in which it is made; it goes the other way round.
class Service {
 public:
  static absl::StatusOr<std::unique_ptr<Service>> Start(const FleetdConfig& config) {
    if (absl::Status status = doors::EnoughDescriptors(); !status.ok()) return status;
    if (absl::Status status = ActsLog::Check(config.ActsFile()); !status.ok()) return status;
    absl::StatusOr<FleetFile> fabric = ReadFabric(config.fabric_file);
    if (!fabric.ok()) return fabric.status();
    const absl::StatusOr<Rules> rules = ReadRulesOf(config.rules_file);
    if (!rules.ok()) return rules.status();
    absl::StatusOr<std::unique_ptr<Store>> store = OpenSqliteStore(config.store);
    if (!store.ok()) return store.status();
    absl::StatusOr<DrainBook> drains = ReadDrains(**store, InstanceName(config));
    if (!drains.ok()) return drains.status();
    absl::StatusOr<std::unique_ptr<Shelf>> shelf =
        Shelf::Open(config.IncidentDir(), {.bytes = static_cast<uint64_t>(config.incident_gib) << 30},
                    [](const std::string& text) { spdlog::warn("{}", text); });
    if (!shelf.ok()) return shelf.status();
    auto service = std::unique_ptr<Service>(
        new Service(config, *std::move(store), *std::move(fabric), *std::move(drains), *rules, *std::move(shelf)));
    if (absl::Status status = service->Listen(config); !status.ok()) return status;
    if (absl::Status status = service->ServePages(config); !status.ok()) return status;
    return service;
  }

  ~Service() {
    pages_.reset();
    if (door_ != nullptr) door_->Close();
    if (server_ != nullptr) {
      server_->Shutdown(absl::ToChronoTime(absl::Now() + kEndPatience));
      server_->Wait();
    }
    finder_.reset();
    keeper_.reset();
  }

 private:
  Service(const FleetdConfig& config, std::unique_ptr<Store> store, FleetFile fabric, DrainBook drains,
          const Rules& rules, std::unique_ptr<Shelf> shelf)
      : store_(std::move(store)),
        callers_(TlsOf(config)),
        ingest_(*store_, InstanceName(config), IngestLimits{}),
        uplink_(ingest_, callers_),
        query_(*store_, InstanceName(config), fabric, [this](const auto& look) { uplink_.EachHost(look); }),
        jobs_(*store_, fabric, [this](const auto& look) { uplink_.EachHost(look); }),
        clock_(NewestTime(*store_)),
        drainer_(uplink_, query_, *store_, clock_, std::move(drains)),
        muter_(*store_, clock_),
        alerts_(config.alerts, {.rules = rules.findings.causes, .runbook_url = config.runbook_url}),
        incidents_(IncidentsOf(config, rules.findings.causes), std::move(shelf), uplink_, *store_, query_),
        acts_(config.ActsFile()),
        incident_service_(incidents_, callers_, calls_, acts_),
        queries_(query_, jobs_, uplink_, drainer_, muter_, alerts_, callers_, calls_, acts_),
        keeper_(std::make_unique<Keeper>(uplink_, *store_, clock_, config.KeepRules())),
        finder_(std::make_unique<Finder>(uplink_, *store_, alerts_, drainer_, muter_, incidents_, std::move(fabric),
                                         rules)) {
    uplink_.SetOrders(&drainer_);
    uplink_.SetRings(&incidents_);
  }

  absl::Status ServePages(const FleetdConfig& config) {
    const absl::StatusOr<config::Listen> listen = config::ParseListen(config.metrics_listen);
    if (!listen.ok()) return listen.status();
    if (listen->kind == config::Listen::Kind::kNone) return absl::OkStatus();
    const auto metrics = [this, store = config.store]() -> absl::StatusOr<std::string> {
      uint64_t bytes = 0;
      HostLosses losses;
      for (const auto& [host, lost] : store_->host_losses()) losses += lost;
      for (const char* end : {"", "-wal"}) {
        std::error_code none;
        const auto size = std::filesystem::file_size(store + end, none);
        if (!none) bytes += size;
      }
      HostNumbers hosts;
      uplink_.EachHost([&](const LiveHost& host) { hosts.Add(host); });
      return MetricsPage(hosts, finder_->numbers(), alerts_.counts(),
                         {.bytes = bytes,
                          .thinned = store_->thinned_bytes(),
                          .thinned_events = store_->thinned_events(),
                          .failures = keeper_->failures(),
                          .losses = losses});
    };
    const auto targets = [this]() -> absl::StatusOr<std::string> {
      return TargetsJson(uplink_.Facts(), finder_->racks());
    };
    absl::StatusOr<std::unique_ptr<http::Server>> server =
        http::Server::Start(*listen, {{"/metrics", http::kMetricsType, metrics},
                                      {"/sd", http::kJsonType, targets},
                                      {"/live", http::kMetricsType, [this] { return Live(); }}});
    if (!server.ok()) return server.status();
    pages_ = *std::move(server);
    return absl::OkStatus();
  }

  // Whom agents talk to, not only this page: the door accepts, and gRPC's threads answer, if only by a refusal.
  absl::StatusOr<std::string> Live() {
    if (!door_->Answers(kLivePatience)) return absl::UnavailableError("nobody accepts agents' connections");
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + kLivePatience));
    cwfabric::v1::FleetHostsReply reply;
    const auto stub = cwfabric::v1::Fleet::NewStub(server_->InProcessChannel({}));
    const grpc::Status status = stub->Hosts(&context, {}, &reply);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED ||
        status.error_code() == grpc::StatusCode::UNAVAILABLE)
      return absl::UnavailableError("gRPC does not answer");
    return std::string("live\n");
  }

  absl::Status Listen(const FleetdConfig& config) {
    absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> made =
        api::ReloadingCredentials(TlsOf(config), [](const api::ApiEvent& event) {
          event.alert ? spdlog::warn("{}", event.text) : spdlog::info("{}", event.text);
        });
    if (!made.ok()) return made.status();
    if (absl::Status status = callers_.revocations().Load(); !status.ok()) return status;
    credentials_ = *std::move(made);
    grpc::ServerBuilder builder;
    LimitServer(builder);
    door_ = std::make_unique<api::GrpcDoor>(builder, credentials_);
    callers_.SetDoor(door_.get());
    builder.RegisterService(&uplink_);
    builder.RegisterService(&queries_);
    builder.RegisterService(&incident_service_);
    server_ = builder.BuildAndStart();
    if (server_ == nullptr) return absl::UnavailableError("cannot start gRPC's server");
    return door_->Open(config.listen, {.each = static_cast<size_t>(config.connections_per_address),
                                       .all = doors::ShareOfDescriptors(kMostConnections, kPart)});
  }

  std::unique_ptr<Store> store_;
  Callers callers_;
  Ingest ingest_;
  UplinkService uplink_;
  Query query_;
  JobsQuery jobs_;
  OrderClock clock_;
  Drainer drainer_;
  Muter muter_;
  Alerts alerts_;
  IncidentTaker incidents_;
  ActsLog acts_;
  api::CallQueue calls_;
  IncidentService incident_service_;
  QueryService queries_;
  std::unique_ptr<Keeper> keeper_;
  std::unique_ptr<Finder> finder_;
  std::shared_ptr<grpc::ServerCredentials> credentials_;  // gRPC asks them for each connection
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<api::GrpcDoor> door_;
  std::unique_ptr<http::Server> pages_;
};

int Serve(const FleetdConfig& config) {
  constexpr mode_t kNotForOthers = 0027;
  umask(umask(0) | kNotForOthers);
  commandline::SdNotify("STATUS=starting");
  doors::RaiseDescriptors();
  spdlog::set_default_logger(spdlog::stderr_logger_mt("cwfleetd"));
  commandline::LogLines("%Y-%m-%dT%H:%M:%S.%e %l %*");
  api::LimitGrpc();
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&signals, signal);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);  // every later thread inherits it
  std::signal(SIGPIPE, SIG_IGN);
  absl::StatusOr<std::unique_ptr<Service>> service = Service::Start(config);
  if (!service.ok()) return Fail(service.status());
  api::WatchClockForGrpc();
  spdlog::info("serving on {}, keeping in {}", absl::StrJoin(config.listen, ", "), config.store);
  commandline::SdNotify("READY=1\nSTATUS=running");
  int signal = 0;
  while (sigwait(&signals, &signal) != 0 || signal == SIGHUP) {
    if (signal == SIGHUP) spdlog::info("SIGHUP: certificates are read again by themselves; all else takes a restart");
  }
  commandline::SdNotify("STOPPING=1");
  service->reset();
  return 0;
}

int Check(const FleetdConfig& config, const std::string& path) {
  if (const absl::StatusOr<FleetFile> fabric = ReadFabric(config.fabric_file); !fabric.ok())
    return Fail(fabric.status());
  if (const absl::StatusOr<Rules> rules = ReadRulesOf(config.rules_file); !rules.ok()) return Fail(rules.status());
  if (const absl::Status place = CheckPlaceOfFile(config.store); !place.ok()) return Fail(place);
  if (const absl::Status acts = ActsLog::Check(config.ActsFile()); !acts.ok()) return Fail(acts);
  if (const auto tls = tls::Load(TlsOf(config)); !tls.ok()) return Fail(tls.status());
  tls::Revocations revocations(TlsOf(config));
  if (const absl::Status status = revocations.Load(); !status.ok()) return Fail(status);
  std::fprintf(stderr, "%s: no fault found\n", path.c_str());
  return 0;
}

int TestRules(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadRegularFile(path);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<Rules> rules = ReadRules(*text, path);
  if (!rules.ok()) return Fail(rules.status());
  const std::vector<std::string> wrong = RunRuleTests(*rules);
  for (const std::string& line : wrong) std::fprintf(stderr, "%s\n", line.c_str());
  std::fprintf(stderr, "%s: %zu of %zu tests are as expected\n", path.c_str(), rules->tests.size() - wrong.size(),
               rules->tests.size());
  return wrong.empty() ? 0 : 1;
}

std::string ProgramPage(const CLI::App& app) {
  return commandline::ManualPage(
      commandline::Describe(app),
      {.section = 8,
       .version = CW_VERSION,
       .summary = "fleet service of cwfabric: all hosts' paths and events in one place",
       .parts = {
           {"SIGNALS", "SIGTERM and SIGINT end it; what it acknowledged is in the store. SIGHUP changes nothing."},
           {"EXIT STATUS", "0 ended as asked, 1 failed (a test of rules, too), 2 usage."},
           {"SEE ALSO", ".BR cwagentd (8),\n.BR cwctl (1)"}}});
}

}  // namespace

int DaemonMain(int argc, char** argv) {
  CLI::App app{"cwfabric's fleet service: one for all hosts", "cwfleetd"};
  std::string path, test_rules;
  bool check = false, example = false, rules = false, page = false;
  app.add_option("--config", path, "The TOML file")->type_name("FILE");
  app.add_flag("--check-config", check, "Check the file, and what it names, and end");
  app.add_flag("--default-config", example, "Print a configuration file that describes every option, and end");
  app.add_flag("--default-rules", rules, "Print a file of rules that describes every rule, with tests, and end");
  app.add_option("--test-rules", test_rules, "Run the tests that stand in this file of rules, and end")
      ->type_name("FILE");
  app.add_flag("--manual", page, "Print cwfleetd(8) in roff, and end")->group("");
  app.set_version_flag("--version", CW_VERSION);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
  if (example) std::fputs(ExampleFleetdToml().c_str(), stdout);
  if (rules) std::fputs(DefaultRulesToml().c_str(), stdout);
  if (page) std::fputs(ProgramPage(app).c_str(), stdout);
  if (example || rules || page) return 0;
  if (!test_rules.empty()) return TestRules(test_rules);
  if (path.empty()) {
    std::fprintf(stderr, "--config is required: the TOML file; cwfleetd --default-config prints one to begin with\n");
    return 2;
  }
  const absl::StatusOr<std::string> text = ReadRegularFile(path);
  if (!text.ok()) return Fail(text.status());
  const absl::StatusOr<FleetdConfig> config = ParseFleetdConfig(*text, path);
  if (!config.ok()) return Fail(config.status());
  return check ? Check(*config, path) : Serve(*config);
}

}  // namespace cw::fleet
