// SPDX-License-Identifier: Apache-2.0
// Bringing the agent up: each step opens one thing and says what is wrong in a sentence.
#include <net/if.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "maps/names.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/balance/window.h"
#include "userspace/agent/engine_mail.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_records.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/host_check.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/label_book.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/link_file.h"
#include "userspace/agent/log_output.h"
#include "userspace/agent/nic_address.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/nics/carry_kernel.h"
#include "userspace/agent/nics/nic_clocks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/losses.h"
#include "userspace/agent/paths/path_news.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/rdma_watch.h"
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/returns.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/ring_recorder.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/dataplane/link_news.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/dataplane/offload.h"
#include "userspace/dataplane/packet_injector.h"
#include "userspace/model/cpu_list.h"
#include "userspace/probe_verbs/verbs_host.h"
#include "userspace/rdma/qp_monitor.h"
#include "userspace/rights/rights.h"

namespace cw::agent {

const char kVersion[] = CW_VERSION;

namespace {

constexpr absl::Duration kMessagePeriod = absl::Milliseconds(100);
constexpr absl::Duration kClockPeriod = absl::Milliseconds(100);
constexpr absl::Duration kKernelQpPeriod = absl::Seconds(2);
constexpr int64_t kSettleNs = 2'000'000'000;  // flows that appear within this time of the start already ran

uint64_t MostDescriptors() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

std::string HostName(const config::Config& config) {
  if (!config.host_name.empty()) return config.host_name;
  char name[256] = {};
  gethostname(name, sizeof(name) - 1);
  return name;
}

// Devices without hardware behind them name a rate that means nothing.
double LinkRateBps(const config::NicConfig& nic) {
  if (nic.rate_mbps > 0) return static_cast<double>(nic.rate_mbps) * 1e6;
  const std::string folder = "/sys/class/net/" + nic.name;
  std::error_code error;
  double mbps = 0;
  if (!std::filesystem::exists(folder + "/device", error) || !(std::ifstream(folder + "/speed") >> mbps)) return 0;
  return std::max(mbps, 0.0) * 1e6;
}

// Half of the paths silent together is more likely a host that stands still than so many dead paths: with three misses
// 15 ms at least.
uint32_t HalfDeadFactor(absl::Duration active_interval) {
  constexpr uint32_t kLeast = 5;
  return std::max(kLeast, static_cast<uint32_t>(absl::Milliseconds(kLeast) / active_interval));
}

api::ServerOptions ApiOptions(const config::Config& config) {
  const config::ApiConfig& given = config.api;
  api::ServerOptions options{
      .socket_path = config.SocketPath(),
      .groups = {given.read_group, given.steer_group, given.admin_group},
      .tcp = given.listen,
      .tls = {.cert = given.tls_cert, .key = given.tls_key, .ca = given.tls_ca, .crl = given.tls_crl}};
  return options;
}

}  // namespace

Agent::Agent(AgentOptions options)
    : options_(std::move(options)),
      host_name_(HostName(options_.config)),
      journal_(LogEvent),
      session_(options_.config.StateDir() + "/" + SessionKeeper::kFile),
      drains_(options_.config.RunDir() + "/" + agent::Drains::kFile, Deadlines::BootId()),
      deadlines_(options_.config.RunDir() + "/" + Deadlines::kFile, Deadlines::BootId()) {
  const config::SteeringConfig& steering = options_.config.steering;
  labels_ = std::make_unique<LabelBook>();
  contention_ =
      std::make_unique<control::ContentionState>(ContentionRulesOf(steering), std::hash<std::string>()(host_name_));
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
  started_ns_ = MonotonicNs();
  NoteConfig();
  absl::StatusOr<std::unique_ptr<Loop>> loop = Loop::Create();
  if (!loop.ok()) return loop.status();
  loop_ = std::move(*loop);
  std::error_code error;
  std::filesystem::create_directories(options_.config.RunDir(), error);
  if (error)
    return absl::FailedPreconditionError(absl::StrCat("cannot make ", options_.config.RunDir(), ": ", error.message()));
  for (auto step :
       {&Agent::OpenEvents, &Agent::OpenDataplane, &Agent::OpenNics, &Agent::OpenKeys, &Agent::OpenVerbs,
        &Agent::OpenProbes, &Agent::OpenNicFailover, &Agent::OpenCarriers, &Agent::OpenSources, &Agent::OpenRdmaWatch,
        &Agent::OpenRings, &Agent::AdoptDeadlines, &Agent::AdoptDrains, &Agent::StartTimers}) {
    if (absl::Status status = (this->*step)(); !status.ok()) return status;
  }
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
  engine_.reset();  // its thread reads the pairs' records
}

void Agent::Run() {
  loop_->Run();
  link_flaps_->Keep();
  Log({.type = "agent", .text = "agent stopped; the dataplane goes on under its lease"});
}

absl::Status Agent::OpenDataplane() {
  const config::Config& config = options_.config;
  dataplane::Options options;
  options.instance = config.instance;
  options.max_pairs = static_cast<uint32_t>(config.limits.max_pairs);
  options.max_flows = static_cast<uint32_t>(config.limits.max_flows);
  options.max_tx_flows = static_cast<uint32_t>(config.limits.max_tx_flows);
  options.lab_clock = options_.lab_clock;
  options.lab_nic = options_.lab_nic;
  options.nic_failover = config.steering.nic_failover;
  absl::StatusOr<std::unique_ptr<dataplane::Dataplane>> opened = dataplane::Dataplane::Open(options);
  if (!opened.ok()) return opened.status();
  dataplane_ = std::move(*opened);
  records_ = std::make_unique<MapFlowRecords>(*dataplane_);
  for (const std::string& note : dataplane_->notes()) spdlog::info("{}", note);
  clock_ = std::make_shared<LineClock>(options_.clock, &dataplane_->local_clock()[0]);
  clock_->Look();
  absl::StatusOr<dataplane::Jiffies> jiffies = dataplane::Jiffies::Create();  // takes long enough to see a slew
  if (!jiffies.ok()) return jiffies.status();
  jiffies_ = std::make_unique<dataplane::Jiffies>(*jiffies);
  clock_->Look();
  clock_->set_on_change([this] {
    if (slew_posted_.exchange(true)) return;
    loop_->Post([this] {
      slew_posted_.store(false);
      clocks_->OnSlew();
    });
  });
  WriteControl();
  return absl::OkStatus();
}

void Agent::WriteControl() {
  const config::Config& config = options_.config;
  using maps::CtlView;
  cw_ctl& ctl = dataplane_->ctl()[0];
  BeginSession(CtlView::Load(ctl.session));
  CtlView::Store(ctl.abi_version, CW_ABI_VERSION);
  lease_ = std::make_unique<Lease>(ctl,
                                   Lease::Ticks{.at = [this](int64_t ns) { return jiffies_->AtNs(ns); },
                                                .ns = [this](uint64_t jiffies) { return jiffies_->ToNs(jiffies); }},
                                   monotonic_);
  lease_->SetBlindAfter(config.probe.idle_interval);
  WriteKnobs();
  // Adopted flows are known; only what the first agent finds running counts as old.
  const int64_t settle_ns = dataplane_->adopted() ? 0 : kSettleNs;
  CtlView::Store(ctl.assign_jiffies, config.steering.assign_new_flows ? jiffies_->AtNs(MonotonicNs() + settle_ns) : 0);
  if (dataplane_->adopted()) TellOfLease();
  lease_->Renew(config.steering.lease);
  modes_ = std::make_unique<Modes>(ctl, deadlines_, monotonic_, journal_);
  modes_->Begin(AllowedBy(config), Overrides(config.steering.allow), dataplane_->adopted());
}

// What the programs read anew for each packet.
void Agent::WriteKnobs() {
  const config::Config& config = options_.config;
  using maps::CtlView;
  cw_ctl& ctl = dataplane_->ctl()[0];
  CtlView::Store(ctl.sample_level_tx, static_cast<uint32_t>(config.samples.level_tx));
  CtlView::Store(ctl.sample_level_rx, static_cast<uint32_t>(config.samples.level_rx));
  CtlView::Store(ctl.miss_limit, static_cast<uint32_t>(config.liveness.misses));
  CtlView::Store(ctl.patience_ns, static_cast<uint32_t>(absl::ToInt64Nanoseconds(config.liveness.patience)));
  CtlView::Store(ctl.revive_limit, static_cast<uint32_t>(config.liveness.revive));
  CtlView::Store(ctl.move_gap_ns, static_cast<uint64_t>(absl::ToInt64Nanoseconds(config.steering.move_gap)));
  if (!config.steering.assign_new_flows) {
    CtlView::Store(ctl.assign_jiffies, uint64_t{0});
  } else if (CtlView::Load(ctl.assign_jiffies) == 0) {
    CtlView::Store(ctl.assign_jiffies, jiffies_->AtNs(MonotonicNs()));
  }
}

void Agent::BeginSession(uint32_t pinned) {
  const absl::Status kept = session_.Begin(pinned, absl::GetCurrentTimeNanos(), MonotonicNs());
  if (!kept.ok()) {
    spdlog::warn(
        "the session is not kept ({}): after a reboot with a clock that is behind, peers would refuse this host's "
        "probes as replayed until the clock is set; let the agent write state_dir ({})",
        std::string(kept.message()), options_.config.StateDir());
  }
  maps::CtlView::Store(dataplane_->ctl()[0].session, session_.session());
}

// A host that had booted with a clock that was behind, and knew no session before, is refused by its peers until now.
void Agent::RenewSession() {
  if (!session_.Due(absl::GetCurrentTimeNanos(), MonotonicNs())) return;
  // Where a peer answers it is believed as it is; a new session would cost every pair its history.
  const bool heard =
      std::any_of(pairs_.begin(), pairs_.end(), [](const auto& pair) { return pair.second->last_reply_ns != 0; });
  if (heard) return;
  BeginSession(session_.session());
  if (absl::Status status = engine_->SetSession(session_.session()); !status.ok()) {
    spdlog::error("new session: {}", std::string(status.message()));
  }
  Log({.type = "agent",
       .severity = telemetry::Severity::kNotice,
       .text = "the wall clock was set forward: a new session begins, so that no peer takes this host for an old one",
       .evidence = {{"session", absl::StrCat(session_.session())}}});
}

void Agent::TellOfLease() {
  const auto steered = [this] {
    size_t count = 0;
    (void)dataplane_->tx_flows().ForEach(
        [&](const cw_flow_key&, const cw_tx_flow& flow) { count += flow.port != 0 ? 1 : 0; });
    return count;
  };
  const auto went_home = [this] {
    const absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
    return sums.ok() ? sums->moves_lease : uint64_t{0};
  };
  lease_->TellOfFormer(options_.config.steering.lease, {.steered = steered, .went_home = went_home}, journal_);
}

absl::Status Agent::OpenNicFailover() {
  const bool on = options_.config.steering.nic_failover;
  carry_kernel_ = std::make_unique<RealCarryKernel>(*dataplane_);
  nic_failover_ = std::make_unique<NicFailover>(
      host_name_, pairs_, nics_, qps_, engine_->mesh(), *carry_kernel_, peer_names_, monotonic_, *mail_, *dry_run_,
      journal_,
      NicFailover::Asks{.allowed = [this] { return allowed(); },
                        .drained = [this](const Nic& nic) { return NicDrained(nic); },
                        .interval_ns = [this](uint32_t pair) { return engine_->IntervalNs(pair); },
                        .read_probes = [this] { ReadProbes(); },
                        .look_at_carrier = [this](Nic& nic) { carriers_->LookAt(nic); },
                        .carried = [this](uint32_t pair) { tails_->OnCarried(pair); }});
  const absl::Status status = nic_failover_->Open(on);
  if (!on || !status.ok()) return status;
  return loop_->AddTimer(NicFailover::kPeriod, [this] { nic_failover_->Watch(); });
}

absl::Status Agent::OpenCarriers() {
  carriers_ = std::make_unique<Carriers>(
      nics_, *link_flaps_, *clock_, monotonic_, journal_,
      Carriers::Asks{.read = metrics::ReadLink,
                     .ifindex_of = dataplane::IfindexOf,
                     .is_there = IsThere,
                     .helped = [this] { return nic_failover_->on() && modes_->Acts(Capability::kNic); },
                     .changed =
                         [this] {
                           if (nic_failover_->on()) nic_failover_->Watch();
                         },
                     .start_anew = [this](telemetry::Event why) { StartAnew(std::move(why)); }});
  carriers_->LookAtAll();
  absl::StatusOr<std::unique_ptr<dataplane::LinkNews>> news = dataplane::LinkNews::Open();
  if (!news.ok()) {
    spdlog::warn("carriers of NICs are looked at once a second only: {}", std::string(news.status().message()));
    return absl::OkStatus();
  }
  link_news_ = *std::move(news);
  return loop_->AddFd(link_news_->fd(), [this] { carriers_->OnNews(link_news_->Take()); });
}

// What the service's Restart= is for; programs, maps and flows stay as they are.
void Agent::StartAnew(telemetry::Event why) {
  if (starts_anew_) return;
  starts_anew_ = true;
  Log(std::move(why));
  loop_->Stop();
}

// With an address that the next start would find.
bool Agent::IsThere(const config::NicConfig& nic) {
  if (!dataplane::IfindexOf(nic.name).ok()) return false;
  if (nic.address == "auto") return FirstAddress(nic.name).ok();
  const absl::StatusOr<Addr> wanted = Addr::Parse(nic.address);
  return wanted.ok() && HasAddress(nic.name, *wanted);
}

absl::Status Agent::OpenNics() {
  const maps::NicLinesView& lines = dataplane_->nic_lines();
  nic_clocks_ = std::make_unique<NicClocks>(
      nics_, pairs_, clock_,
      NicClocks::Lines{
          .put = [&lines](uint32_t ifindex, const cw_nic_line& line) { return lines.Put(ifindex, line).ok(); },
          .erase = [&lines](uint32_t ifindex) { (void)lines.Delete(ifindex); }},
      [this](const Nic& nic) { return DeviceStamps(nic); }, options_.lab_nic_clock);
  for (const config::NicConfig& nic_config : options_.config.nics) {
    Nic nic{.config = nic_config};
    absl::StatusOr<uint32_t> ifindex = dataplane::IfindexOf(nic_config.name);
    if (!ifindex.ok()) return ifindex.status();
    nic.ifindex = *ifindex;
    absl::StatusOr<Addr> address =
        nic_config.address == "auto" ? FirstAddress(nic_config.name) : Addr::Parse(nic_config.address);
    if (!address.ok()) return address.status();
    nic.address = *address;
    nic.rate_bps = LinkRateBps(nic_config);
    if (absl::StatusOr<uint32_t> mtu = dataplane::MtuOf(nic_config.name); mtu.ok()) nic.mtu = *mtu;
    const config::Transport transport = config::TransportOf(nic_config, options_.config.probe);
    if (transport == config::Transport::kVerbs) {
      nic.note = "not attached: probes go by verbs";
      nic.offloads_roce = !dataplane::RoceOffloadDevice("/sys", nic_config.name).empty();
      // Where an agent before us had attached, its programs would take probes by verbs for data.
      if (absl::Status detached = dataplane_->Detach(nic.ifindex); !detached.ok()) return detached;
    } else if (nic_config.attach == config::Attach::kNone) {
      nic.note = "not attached: attach = \"none\"";
    } else {
      absl::StatusOr<dataplane::AttachInfo> attached =
          dataplane_->Attach(nic.ifindex, nic_config.rx_stamps == config::RxStamps::kHardware);
      if (attached.ok()) {
        nic.attach = *attached;
        nic.attached = true;
        nic.note = attached->warning;
        if (!nic.note.empty()) spdlog::warn("{}: {}", nic_config.name, nic.note);
      } else if (absl::IsFailedPrecondition(attached.status())) {
        nic.note = std::string(attached.status().message());
        nic.offloads_roce = true;
        spdlog::warn("{}: {}", nic_config.name, nic.note);
      } else {
        return attached.status();
      }
    }
    const bool may_choose = transport == config::Transport::kAuto || transport == config::Transport::kOffload;
    nic.by_verbs = transport == config::Transport::kVerbs || (may_choose && nic.offloads_roce && !nic.attached);
    nic.hears_verbs = transport == config::Transport::kAuto && nic.attached;
    nic_clocks_->Open(nic);
    nics_.push_back(std::move(nic));
  }
  if (nics_.empty()) return absl::InvalidArgumentError("the configuration names no NIC; add a [[nic]] table");
  return absl::OkStatus();
}

absl::Status Agent::OpenProbes() {
  const config::Config& config = options_.config;
  store_ = std::make_unique<probe::MapPairStore>(dataplane_->pair_index(), dataplane_->pairs(), dataplane_->keys());
  probe::EngineOptions options;
  const auto idle_ns = absl::ToInt64Nanoseconds(config.probe.idle_interval);
  options.mesh = {.session = session_.session(),
                  .miss_limit = static_cast<uint32_t>(config.liveness.misses),
                  .half_dead_factor = HalfDeadFactor(config.probe.active_interval),
                  .idle_interval_ns = static_cast<uint32_t>(idle_ns)};
  options.prober.cadence = {.active_interval_ns = absl::ToInt64Nanoseconds(config.probe.active_interval),
                            .idle_interval_ns = idle_ns,
                            .clock_interval_ns = absl::ToInt64Nanoseconds(config.probe.clock_interval),
                            .budget_pps = static_cast<double>(config.probe.budget_pps)};
  options.prober.fifo_priority = config.probe.realtime ? 20 : 0;
  const absl::StatusOr<std::vector<int>> cpus = ParseCpuList(config.probe.cpus);
  if (!cpus.ok()) return cpus.status();
  options.prober.cpus = *cpus;
  options.prober.keep_rights = ProbesByVerbs();
  options.prober.look = [this] { clock_->Look(); };
  if (verbs_ != nullptr) {
    options.transport_of = [this](int ifindex) { return verbs_->TransportOf(static_cast<uint32_t>(ifindex)); };
  }
  options.paths.per_switch_pps = static_cast<double>(config.probe.discovery_pps);
  probe::DiscoveryOptions& discovery = options.paths.discovery;
  discovery.max_ttl = config.probe.max_ttl;
  discovery.max_candidates = config.probe.ports;
  discovery.max_paths = config.probe.max_paths;
  discovery.first_port = static_cast<uint16_t>(config.probe.first_port);
  discovery.verify_interval_ns = absl::ToInt64Nanoseconds(config.probe.reverify_interval);
  discovery.seed = session_.session();
  absl::StatusOr<std::unique_ptr<probe::Engine>> engine = probe::Engine::Create(
      options, store_.get(), &keys_,
      {.on_table = [this](uint32_t pair, const probe::PathTable& table) { OnTable(pair, table); },
       .on_invalid = [this](uint32_t pair, const probe::DiscoveryEvent& event) { OnInvalid(pair, event); },
       .on_hashing = [this](uint32_t pair, probe::Hashing hashing) { OnHashing(pair, hashing); },
       .on_slots = [this](uint32_t pair, const probe::SlotUpdate& update) { OnSlotUpdate(pair, update); }});
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  mail_ = std::make_unique<EngineMail>(*engine_);
  OpenPaths();
  if (absl::Status status = ConfigurePairs(); !status.ok()) return status;
  OpenInsight();
  OpenViews();
  return loop_->AddFd(engine_->icmp_fd(), [this] {
    engine_->OnIcmpReadable(NowNs());
    ScheduleTick();
  });
}

Allowed Agent::allowed() const { return modes_->allowed(); }

const probe::Hops* Agent::HopsOf(uint32_t pair, uint8_t slot) const {
  const probe::Discovery* discovery = engine_->discovery(pair);
  const uint16_t port = engine_->mesh().slots(pair).port(slot);
  return discovery == nullptr || port == 0 ? nullptr : discovery->HopsOf(port);
}

// What pairs need from their first moment on.
void Agent::OpenPaths() {
  totals_ = std::make_unique<Totals>(nics_, peer_names_, pairs_, engine_->mesh(), *store_);
  const auto hops = [this](uint32_t pair, uint8_t slot) { return HopsOf(pair, slot); };
  dry_run_ = std::make_unique<DryRun>(pairs_, flows_, qps_, engine_->mesh(), peer_names_, monotonic_, journal_,
                                      DryRun::Asks{.hops = hops, .acts = [this] { return modes_->ActsAtAll(); }});
  const config::LogConfig& log = options_.config.log;
  dry_run_->Open(log.report_file, static_cast<uint64_t>(log.report_mib) << 20);
  link_flaps_ = std::make_unique<LinkFlaps>(
      options_.config.RunDir() + "/" + kLinkFile, Deadlines::BootId(), pairs_, engine_->mesh(), *clock_, monotonic_,
      journal_,
      LinkFlaps::Asks{
          .hops = hops,
          .interval_ns = [this](uint32_t pair) { return engine_->IntervalNs(pair); },
          .read_probes = [this] { ReadProbes(); },
          .damp_anew = [this] { damping_->UpdateAll(); },
          .after = [this](absl::Duration delay, std::function<void()> then) { loop_->After(delay, std::move(then)); }});
  damping_ = std::make_unique<Damping>(pairs_, engine_->mesh(), *link_flaps_, monotonic_,
                                       [this](uint32_t pair, uint16_t slots) { engine_->SetBlocked(pair, slots); });
  const auto send_in_class = [this](uint32_t pair, const probe::Body& body, uint16_t port, uint8_t dscp) {
    (void)engine_->SendMessageOn(pair, body, port, dscp);
  };
  const auto doubt = [this](const PairState& pair) {
    if (!pair.active) return;  // pairs without flows have time
    engine_->DoubtPaths(pair.index, NowNs());
    ScheduleTick();
  };
  path_news_ = std::make_unique<PathNews>(
      pairs_, engine_->mesh(), *link_flaps_, *damping_, path_lost_, monotonic_, *loop_, *mail_, *dry_run_, journal_,
      PathNews::Asks{
          .read_probes = [this] { ReadProbes(); },
          .send_in_class = send_in_class,
          .pause_dscp = [this] { return options_.config.probe.pause_dscp; },
          .own_link_lost = [this](const PairState& pair, const cw_ev_slot& v) { return carriers_->Lost(pair, v); },
          .doubt = doubt});
  losses_ = std::make_unique<Losses>(pairs_, flows_, qps_, engine_->mesh(), *damping_, path_lost_, monotonic_,
                                     *dry_run_, journal_, [this] { return allowed(); });
  OpenBalance();
  OpenMovers();
  OpenRecovery();
}

// Who moves flows: the kernel's program, and the libraries in the processes whose packets it does not see. What left a
// bad path by either comes back by it; where flows move for balance, that rule takes what recovered into use.
void Agent::OpenMovers() {
  const auto in_motion = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery != nullptr && discovery->InMotion();
  };
  const auto fold = [this](uint32_t pair, uint16_t port) { return engine_->discovery(pair)->Fold(port); };
  const auto watch = [this](uint32_t pair, uint16_t port) {
    const uint8_t slot = engine_->EnsureNative(pair, port, NowNs(), /*label=*/0);
    ScheduleTick();
    return slot;
  };
  unseen_ = std::make_unique<UnseenFlows>(
      pairs_, nics_, flows_, qps_, engine_->mesh(),
      UnseenFlows::Asks{
          .assigns = [this] { return options_.config.steering.assign_new_flows; },
          .fold = fold,
          .watch = watch,
          .release = [this](uint32_t pair, uint16_t port, const FlowKey& user) { ReleaseNative(pair, port, user); }});
  const auto left_to = [](std::unique_ptr<Returns>& returns) {
    return [&returns](const FlowKey& flow, uint32_t pair, control::ReturnPlace from, control::ReturnPlace to) {
      returns->Left(flow, pair, from, to);
    };
  };
  kernel_mover_ = std::make_unique<KernelMover>(pairs_, flows_, *records_, engine_->mesh(), journal_,
                                                KernelMover::Asks{.in_motion = in_motion, .left = left_to(returns_)});
  owner_mover_ = std::make_unique<OwnerMover>(
      pairs_, flows_, qps_, *unseen_, engine_->mesh(), peer_names_, monotonic_, journal_,
      OwnerMover::Asks{.allowed = [this] { return allowed(); },
                       .send = [this](const std::vector<rdma::MoveOrder>& orders) { return inproc_->Move(orders); },
                       .fold = fold,
                       .left = left_to(owner_returns_)});
  const absl::Duration step = options_.config.steering.return_step;
  returns_ = std::make_unique<Returns>(step, pairs_, engine_->mesh(), peer_names_, *kernel_mover_, journal_,
                                       [this] { return allowed().ActsAtAll() && !breaker_->MayBalance(); });
  owner_returns_ = std::make_unique<Returns>(step, pairs_, engine_->mesh(), peer_names_, *owner_mover_, journal_,
                                             [this] { return allowed().ActsAtAll(); });
}

// Moves for balance, from what a window saw to the kernel's wish.
void Agent::OpenBalance() {
  const config::Config& config = options_.config;
  const auto may = [this] { return allowed(); };
  const auto paths_known = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery != nullptr && discovery->table().valid && probe::PortsSeenToChoose(discovery->hashing());
  };
  breaker_ = std::make_unique<Breaker>(config.steering.breaker, config.steering.breaker_hold, pairs_, flows_, *records_,
                                       peer_names_, monotonic_, journal_,
                                       Breaker::Asks{.allowed = may, .take_back = [this] { balance_->TakeBack(); }});
  const auto look = [this] { return LastLookWait(options_.config.probe.active_interval, Window()); };
  const auto hurry = [this](uint32_t pair, absl::Duration time) {
    engine_->Hurry(pair, absl::ToInt64Nanoseconds(time));
  };
  balance_ = std::make_unique<BalanceMoves>(
      pairs_, *records_, engine_->mesh(), *contention_, *breaker_, peer_names_, *clock_, monotonic_, *loop_, *dry_run_,
      journal_,
      BalanceMoves::Asks{
          .allowed = may, .paths_known = paths_known, .look = look, .hurry = hurry, .read_probes = [this] {
            ReadProbes();
          }});
  window_ = std::make_unique<ContentionWindow>(
      *contention_, pairs_, flows_, engine_->mesh(), peer_names_, *balance_, *dry_run_, journal_,
      ContentionWindow::Asks{.paths_known = paths_known,
                             .hops = [this](uint32_t pair, uint8_t slot) { return HopsOf(pair, slot); },
                             .path_bps = [this] { return options_.config.steering.path_gbps * 1e9; }});
  window_->Record(config.log.observations_file, static_cast<uint64_t>(config.log.observations_mib) << 20,
                  {.host = host_name_, .version = kVersion});
}

// Who looks after what was on a path that is lost, in this order.
void Agent::OpenRecovery() {
  const auto may = [this] { return allowed(); };
  tails_ = std::make_unique<Tails>(pairs_, *records_, qps_, engine_->mesh(), peer_names_, monotonic_, *loop_, *mail_,
                                   *dry_run_, journal_, Tails::Asks{.allowed = may, .deliver = OpenInjector()});
  const auto hashing = [this](uint32_t pair) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    return discovery == nullptr ? std::nullopt : std::make_optional(discovery->hashing());
  };
  rerolls_ = std::make_unique<Rerolls>(
      pairs_, *records_, engine_->mesh(), peer_names_, monotonic_, *loop_, journal_, std::random_device{}(),
      Rerolls::Asks{
          .allowed = may, .hashing = hashing, .rolled = [this](const FlowKey& flow) { tails_->OnRerolled(flow); }});
  path_lost_ = {
      [this](const PathLost& lost) { rerolls_->OnPathLost(lost); },
      // Before the flows go: what was under way is asked for again, by the path that they take.
      [this](const PathLost& lost) { tails_->OnPathLost(lost); },
      [this](const PathLost& lost) { kernel_mover_->OnPathLost(lost); },
      [this](const PathLost& lost) { owner_mover_->OnPathLost(lost); },
  };
}

// Empty: not wanted, or the kernel cannot.
std::function<absl::Status(uint32_t, absl::Span<const uint8_t>)> Agent::OpenInjector() {
  if (!options_.config.steering.repair_tails) return {};
  absl::StatusOr<dataplane::PacketInjector> opened = dataplane::PacketInjector::Create();
  if (opened.ok()) {
    const auto injector = std::make_shared<const dataplane::PacketInjector>(*std::move(opened));
    return
        [injector](uint32_t ifindex, absl::Span<const uint8_t> packet) { return injector->Deliver(ifindex, packet); };
  }
  Log({.type = "repair",
       .severity = telemetry::Severity::kNotice,
       .text =
           "what dies with a path waits for its queue pair's own timer: " + std::string(opened.status().message())});
  return {};
}

// Answers to those who ask.
void Agent::OpenViews() {
  flows_view_ = std::make_unique<FlowsView>(
      flows_, pairs_, nics_, qps_, datagram_qps_, *owner_mover_, causes_->book(), *gaps_, *labels_, deadlines_,
      engine_->mesh(), peer_names_, monotonic_,
      FlowsView::Asks{.acts = [this] { return modes_->ActsAtAll(); },
                      .at_ns = [this](uint64_t jiffies) { return jiffies_->ToNs(jiffies); }});
  paths_view_ = std::make_unique<PathsView>(
      pairs_, nics_, flows_, engine_->mesh(), *store_, *link_flaps_, *clock_, monotonic_,
      PathsView::Asks{.discovery = [this](uint32_t pair) { return engine_->discovery(pair); },
                      .interval_ns = [this](uint32_t pair) { return engine_->IntervalNs(pair); },
                      .acts = [this] { return modes_->ActsAtAll(); },
                      .dscp_configured = [this] { return options_.config.probe.dscp.has_value(); }});
}

// Fleet time, by the name that the peers know this host by.
void Agent::OpenClocks() {
  const config::Config& config = options_.config;
  const ClockKeeperOptions options{
      .host = host_name_,
      .session = session_.session(),
      .anchor = config.clock.anchor,
      .anchor_bound = config.clock.anchor_bound,
      .kernel_time = options_.kernel_time,
      .output = {.page = config.ClockPage(),
                 .pin = absl::StrCat(CW_PIN_ROOT, "/", config.instance, "/", CW_MAP_FLEET_CLOCK),
                 .clock = clock_,
                 .tai_minus_utc = config.clock.tai_minus_utc,
                 .chrony = config.clock.chrony}};
  const auto set_pace = [this](uint32_t pair, probe::ClockPace pace) {
    engine_->SetClock(pair, pace);
    if (pace == probe::ClockPace::kYoung) busy_ns_ = MonotonicNs();  // the newest probes are needed
  };
  const auto before_round = [this] {
    nic_clocks_->Look();
    if (!busy_) ReadProbes();  // the newest count, and the ring's own turn may come later
  };
  clocks_ = std::make_unique<ClockKeeper>(options, clock_, monotonic_, pairs_, nics_, *mail_, journal_,
                                          ClockKeeper::Probing{.set_pace = set_pace, .before_round = before_round});
}

// Parts that tell why flows are slow, and what they carry.
void Agent::OpenInsight() {
  const config::SteeringConfig& steering = options_.config.steering;
  const auto received = [this](const FlowKey& key) { return dataplane_->flows().Lookup(ToMap(key)); };
  const auto path_facts = [this](uint32_t pair, uint8_t slot) {
    const probe::Discovery* discovery = engine_->discovery(pair);
    const probe::Hops* hops = discovery->HopsOf(engine_->mesh().slots(pair).port(slot));
    Gaps::PathFacts facts{.ports_choose = probe::PortsChoosePaths(discovery->hashing())};
    if (hops != nullptr) facts.hops = hops->size();
    return facts;
  };
  const auto job_of = [this](const FlowKey& flow) -> std::string {
    const std::optional<rdma::QpInfo> qp = qps_.BySentFlow(flow);
    if (!qp) return "";
    api::v1::Flow named;
    flows_view_->AddLabel(*qp, named);
    return named.label().empty() ? qp->comm : named.label();
  };
  const auto locate = [this](const rdma::QpInfo& qp, api::v1::CollectiveQp& out) { Locate(qp, out); };
  causes_ = std::make_unique<Causes>(flows_, pairs_, nics_, engine_->mesh(), *store_, received, job_of, peer_names_,
                                     *mail_, journal_);
  causes_->SetRules(steering.find_causes, CauseRulesOf(steering));
  gaps_ = std::make_unique<Gaps>(flows_, pairs_, nics_, engine_->mesh(), path_facts, causes_->book(), peer_names_,
                                 journal_);
  jobs_ =
      std::make_unique<Jobs>(ProfileOptionsOf(options_.config.profile), qps_, *labels_, locate, monotonic_, journal_);
  chunks_ = std::make_unique<Chunks>(jobs_->profiles(), qps_, clocks_->fleet(), *clock_, monotonic_, pairs_,
                                     engine_->mesh(), *mail_);
}

absl::Status Agent::OpenSources() {
  const auto told_before = [this](const rdma::QpInfo& qp) {
    std::optional<rdma::QpInfo> known = qps_.ByReceivedFlow({.dst = qp.laddr, .dqpn = qp.lqpn});
    return known && known->source == qp.source ? known : std::nullopt;
  };
  // A process speaks for its own queue pairs: rdma/qp_claim.h.
  const auto registered = [this, told_before](const rdma::QpInfo& qp) {
    const std::optional<rdma::QpInfo> known = told_before(qp);
    const bool anew = qps_.TellAnew(qp);
    if (!anew && !qps_.Claim(qp, KernelWordOn(qp))) {
      if (known && known->pid == qp.pid) owner_mover_->OnOwnerGone(*known);
      return;
    }
    owner_mover_->OnOwner(qp, anew && known && known->owner && qp.owner && qp.owner->messages > known->owner->messages);
  };
  const auto unregistered = [this, told_before](const rdma::QpInfo& qp) {
    const std::optional<rdma::QpInfo> known = told_before(qp);
    if (!known || known->pid != qp.pid) return;
    qps_.Unregister(qp);
    owner_mover_->OnOwnerGone(qp);
  };
  const config::InprocConfig& limits = options_.config.inproc;
  absl::StatusOr<std::unique_ptr<rdma::InprocServer>> inproc = rdma::InprocServer::Listen(
      options_.config.RunDir() + "/inproc.sock",
      {.registered = registered,
       .unregistered = unregistered,
       .place = [this](const rdma::QpInfo& qp, const rdma::Requester& who) { return PlaceQp(qp, who); },
       .profiler =
           [this](const rdma::InprocServer::Peer& peer, absl::Span<const uint8_t> message) {
             jobs_->OnProfiler(peer, message, [this, &peer](const auto& answer, int fd) {
               return inproc_->Give(peer.connection, answer, fd);
             });
           },
       .closed = [this](const rdma::InprocServer::Peer& peer) { jobs_->OnClosed(peer); },
       .strange = [this](const rdma::InprocServer::Peer& peer) { jobs_->OnStranger(peer); },
       .moved = [this](const rdma::QpInfo& qp, const rdma::MoveResult& result) { owner_mover_->OnMoved(qp, result); }},
      rdma::Within({.max_qps = static_cast<size_t>(limits.max_qps),
                    .messages_per_second = static_cast<double>(limits.messages_per_second)},
                   MostDescriptors()));
  if (!inproc.ok()) return inproc.status();
  inproc_ = std::move(*inproc);
  absl::Status status = loop_->AddFd(inproc_->fd(), [this] { inproc_->Poll(); });
  status.Update(loop_->AddTimer(kQuietPeriod, [this] {
    if (jobs_->Read()) chunks_->Read();
  }));
  if (!status.ok()) return status;
  return loop_->AddTimer(kKernelQpPeriod, [this] { ReadKernelQps(); });
}

absl::Status Agent::OpenRings() {
  auto open = [](const maps::BpfMap& map, maps::RingReader::Callback callback,
                 std::unique_ptr<maps::RingReader>* out) -> absl::Status {
    absl::StatusOr<std::unique_ptr<maps::RingReader>> reader = maps::RingReader::Create(map, std::move(callback));
    if (!reader.ok()) return reader.status();
    *out = std::move(*reader);
    return absl::OkStatus();
  };
  absl::Status status = open(
      dataplane_->probe_ring(), [this](auto record) { OnProbeRecord(record); }, &probe_reader_);
  status.Update(open(
      dataplane_->event_ring(), [this](auto record) { OnEventRecord(record); }, &event_reader_));
  status.Update(open(
      dataplane_->msg_ring(), [this](auto record) { OnMessageRecord(record); }, &message_reader_));
  if (!status.ok()) return status;
  status.Update(loop_->AddFd(event_reader_->epoll_fd(), [this] { (void)event_reader_->Consume(); }));
  status.Update(loop_->AddFd(message_reader_->epoll_fd(), [this] { (void)message_reader_->Consume(); }));
  return status;
}

absl::Status Agent::OpenEvents() {
  const std::string& file = options_.config.log.events_file;
  const absl::Status status = file.empty() ? absl::OkStatus() : journal_.log().OpenFile(file);
  return status;
}

absl::Status Agent::StartTimers() {
  busy_ns_ = MonotonicNs();
  window_->Begin(busy_ns_);
  absl::Status status = loop_->AddTimer(
      kRingPeriod, [this] { ConsumeRings(); }, &ring_timer_);
  status.Update(loop_->AddTimer(kMessagePeriod, [this] { SendMessages(); }));
  status.Update(loop_->AddTimer(kClockPeriod, [this] { clocks_->Round(); }));
  status.Update(loop_->AddTimer(
      Window(), [this] { Run(Round::kWindow); }, &window_timer_));
  status.Update(loop_->AddTimer(absl::Seconds(1), [this] { Run(Round::kSecond); }));
  LookAtQueues();
  status.Update(loop_->AddTimer(kQueuesPeriod, [this] { LookAtQueues(); }));
  ScheduleTick();
  return status;
}

}  // namespace cw::agent
