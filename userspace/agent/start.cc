// SPDX-License-Identifier: Apache-2.0
// Bringing the agent up: each step opens one thing and says what is wrong in a sentence. The steps: open_*.cc.
#include <unistd.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/balance/window.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/engine_mail.h"
#include "userspace/agent/engine_ticks.h"
#include "userspace/agent/events_file.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/draining.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/flow_samples.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/move_news.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/placer.h"
#include "userspace/agent/flows/qp_moments.h"
#include "userspace/agent/flows/steering.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/greeting.h"
#include "userspace/agent/host_check.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/intake.h"
#include "userspace/agent/label_book.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/link_file.h"
#include "userspace/agent/log_output.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nics/address_watch.h"
#include "userspace/agent/nics/addresses.h"
#include "userspace/agent/nics/blind_notes.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/nics/carry_kernel.h"
#include "userspace/agent/nics/hooks.h"
#include "userspace/agent/nics/nic_clocks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/nics/queues.h"
#include "userspace/agent/nics/verbs_probes.h"
#include "userspace/agent/pair_keeper.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/fabric_news.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/losses.h"
#include "userspace/agent/paths/path_news.h"
#include "userspace/agent/paths/probe_news.h"
#include "userspace/agent/paths/size_check.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/peer_watch.h"
#include "userspace/agent/rdma_watch.h"
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/reloader.h"
#include "userspace/agent/ring_tap.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/agent/views/status_view.h"
#include "userspace/agent/views/why_view.h"
#include "userspace/dataplane/link_news.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/offload.h"
#include "userspace/dataplane/packet_injector.h"
#include "userspace/model/boot_id.h"
#include "userspace/model/clock.h"
#include "userspace/model/cpu_list.h"
#include "userspace/rights/rights.h"

namespace cw::agent {

const char kVersion[] = CW_VERSION;

namespace {

constexpr absl::Duration kRingPeriod = absl::Milliseconds(20);
constexpr absl::Duration kMailPeriod = absl::Milliseconds(100);
constexpr absl::Duration kClockPeriod = absl::Milliseconds(100);
constexpr absl::Duration kQueuesPeriod = absl::Seconds(3);

std::string HostName(const config::Config& config) {
  if (!config.host_name.empty()) return config.host_name;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

api::ServerOptions ApiOptions(const config::Config& config) {
  const config::ApiConfig& given = config.api;
  api::ServerOptions options{
      .socket_path = config.SocketPath(),
      .groups = {given.read_group, given.steer_group, given.admin_group},
      .tcp = given.listen,
      .tls = {.cert = given.tls_cert, .key = given.tls_key, .ca = given.tls_ca, .crl = given.tls_crl},
      .acts_file = config.ActsFile()};
  return options;
}

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      journal_(LogEvent),
      keys_(monotonic_, journal_),
      drains_(options_.config.RunDir() + "/" + agent::Drains::kFile, BootId()),
      deadlines_(options_.config.RunDir() + "/" + Deadlines::kFile, BootId()) {
  vitals_.host_name = HostName(options_.config);
  const config::SteeringConfig& steering = options_.config.steering;
  labels_ = std::make_unique<LabelBook>();
  ring_ = std::make_unique<RingTap>();
  contention_ = std::make_unique<control::ContentionState>(ContentionRulesOf(steering),
                                                           std::hash<std::string>()(vitals_.host_name));
}

// A start that fails leaves the kernel as it was: what an agent before left goes on, and what was made goes.
absl::StatusOr<std::unique_ptr<Agent>> Agent::Start(AgentOptions options) {
  if (absl::Status status = CheckHost(options.config); !status.ok()) return status;
  std::unique_ptr<Agent> agent(new Agent(std::move(options)));
  const absl::Status opened = agent->Open();
  if (opened.ok()) return agent;
  dataplane::Options what;
  what.instance = agent->options_.config.instance;
  // What the next try may heal (an address that comes up late) keeps the programs: to attach every second would cost
  // packets.
  const bool for_good = absl::IsInvalidArgument(opened) || absl::IsNotFound(opened);
  const bool made = for_good && agent->dataplane_ != nullptr && !agent->dataplane_->adopted();
  agent.reset();
  const absl::Status removed = made ? dataplane::Dataplane::Remove(what) : absl::OkStatus();
  if (!removed.ok())
    spdlog::warn("what was begun is left in the kernel ({}); cwagentd --detach removes it",
                 std::string(removed.message()));
  return opened;
}

absl::Status Agent::Open() {
  vitals_.started_ns = MonotonicNs();
  config_in_force_.Begin(options_.config, MonotonicNs());
  if (absl::Status status = keys_.Open(options_.config.keys); !status.ok()) return status;
  absl::StatusOr<std::unique_ptr<Loop>> loop = Loop::Create();
  if (!loop.ok()) return loop.status();
  loop_ = std::move(*loop);
  std::error_code error;
  std::filesystem::create_directories(options_.config.RunDir(), error);
  if (error)
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", options_.config.RunDir(), ": ", error.message()));
  events_file_ = std::make_unique<EventsFile>(options_.config.log.events_file, journal_);
  if (absl::Status status = events_file_->Open(); !status.ok()) return status;
  for (auto step :
       {&Agent::OpenDataplane, &Agent::OpenNics, &Agent::OpenVerbs, &Agent::OpenProbes, &Agent::OpenNicFailover,
        &Agent::OpenCarriers, &Agent::OpenAddresses, &Agent::OpenHooks, &Agent::OpenSources, &Agent::OpenRdmaWatch,
        &Agent::OpenIntake, &Agent::AdoptWishes, &Agent::StartTimers}) {
    if (absl::Status status = (this->*step)(); !status.ok()) return status;
  }
  OpenReloader();
  // Its threads, and those that gRPC makes later, read what clients send: they have no right of root's.
  absl::StatusOr<std::unique_ptr<api::Server>> server = absl::UnknownError("");
  const absl::Status without =
      rights::RunWithout([&] { server = api::Server::Start(ApiOptions(options_.config), *this); });
  if (!without.ok()) return without;
  if (!server.ok()) return server.status();
  server_ = std::move(*server);
  Log({.type = "agent",
       .text = absl::StrCat("agent ", kVersion, " started in mode ", modes_->allowed().ToString(),
                            dataplane_->adopted() ? ", adopted what was pinned" : "")});
  return absl::OkStatus();
}

Agent::~Agent() {
  server_.reset();
  engine_.reset();  // its thread reads the pairs' records, and sends the last probes
  if (!ran_) return;
  for (const auto& [index, pair] : pairs_) lease_->AwaitSuccessor(dataplane_->pairs()[index]);
}

void Agent::Run() {
  ran_ = true;
  loop_->Run();
  link_flaps_->Keep();
  Log({.type = "agent", .text = "agent stopped; the dataplane goes on under its lease"});
}

// What the service's Restart= is for; programs, maps and flows stay as they are.
void Agent::StartAnew(telemetry::Event why) {
  if (starts_anew_) return;
  starts_anew_ = true;
  Log(std::move(why));
  loop_->Stop();
}

absl::Status Agent::StartTimers() {
  window_->Begin(MonotonicNs());
  int rings = -1, window = -1;
  absl::Status status = loop_->AddTimer(
      kRingPeriod, [this] { Run(Round::kRings); }, &rings);
  status.Update(loop_->AddTimer(kMailPeriod, [this] { Run(Round::kMail); }));
  status.Update(loop_->AddTimer(kClockPeriod, [this] { clocks_->Round(); }));
  status.Update(loop_->AddTimer(
      Window(), [this] { Run(Round::kWindow); }, &window));
  // A new flow wakes the loop by its event.
  pace_.Begin(
      MonotonicNs(),
      {.most_cpu = CpuShare(options_.config.probe), .cpu_ns = ThreadCpuNs, .set = [this, rings, window](int stretch) {
         loop_->SetPeriod(rings, Pace::Stretched(kRingPeriod, stretch));
         loop_->SetPeriod(window, Pace::Stretched(Window(), stretch));
       }});
  status.Update(loop_->AddTimer(absl::Seconds(1), [this] { Run(Round::kSecond); }));
  const auto queues = [this] {
    LookAtQueues(nics_, pairs_, {.qdiscs = dataplane::QdiscsOf, .tell = [this](uint32_t pair, bool keeps) {
                                   maps::PairsView::Store(dataplane_->pairs()[pair].departs,
                                                          static_cast<uint32_t>(keeps));
                                 }});
  };
  queues();
  status.Update(loop_->AddTimer(kQueuesPeriod, queues));
  ticks_->Schedule();
  return status;
}

}  // namespace cw::agent
