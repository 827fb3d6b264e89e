// SPDX-License-Identifier: Apache-2.0
// Probes, and what is made of them: paths, clocks, answers to those who ask.
#include "absl/strings/str_cat.h"
#include "maps/names.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/balance/moves.h"
#include "userspace/agent/control_record.h"
#include "userspace/agent/engine_mail.h"
#include "userspace/agent/engine_ticks.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/flows/flow_ends.h"
#include "userspace/agent/flows/flow_samples.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/native_ports.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/flows/qp_moments.h"
#include "userspace/agent/flows/unseen.h"
#include "userspace/agent/greeting.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/link_file.h"
#include "userspace/agent/modes.h"
#include "userspace/agent/nics/blind_notes.h"
#include "userspace/agent/nics/carriers.h"
#include "userspace/agent/nics/nic_clocks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/nics/rounds_seen.h"
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
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/ring_tap.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/scopes.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/agent/views/status_view.h"
#include "userspace/agent/views/why_view.h"
#include "userspace/dataplane/netdev.h"
#include "userspace/model/boot_id.h"
#include "userspace/model/cpu_list.h"

namespace cw::agent {
absl::Status Agent::OpenProbes() {
  const config::Config& config = options_.config;
  store_ = std::make_unique<probe::MapPairStore>(dataplane_->pair_index(), dataplane_->pairs(), dataplane_->keys());
  probe::EngineOptions options;
  options.mesh = {.session = control_->session(),
                  .miss_limit = static_cast<uint32_t>(config.liveness.misses),
                  .half_dead_factor = HalfDeadFactor(config.probe.active_interval),
                  .idle_interval_ns = static_cast<uint32_t>(absl::ToInt64Nanoseconds(config.probe.idle_interval))};
  options.prober.cadence = CadenceOf(config.probe);
  options.prober.fifo_priority = config.probe.realtime ? 20 : 0;
  const absl::StatusOr<std::vector<int>> cpus = ParseCpuList(config.probe.cpus);
  if (!cpus.ok()) return cpus.status();
  options.prober.cpus = *cpus;
  options.prober.most_cpu = CpuShare(config.probe);
  options.prober.stretched = [this](int64_t longest_ns) {
    loop_->Post([this, longest_ns] { lease_->ProberSlows(absl::Nanoseconds(longest_ns)); });
  };
  options.prober.keep_rights = ProbesByVerbs();
  options.prober.look = [this] { clock_->Look(); };
  if (probe_verbs::VerbsHost* host = verbs_->host(); host != nullptr) {
    options.transport_of = [host](int ifindex) { return host->TransportOf(static_cast<uint32_t>(ifindex)); };
  }
  options.paths.per_switch_pps = static_cast<double>(config.probe.discovery_pps);
  probe::DiscoveryOptions& discovery = options.paths.discovery;
  discovery.max_ttl = config.probe.max_ttl;
  discovery.max_candidates = config.probe.ports;
  discovery.max_paths = config.probe.max_paths;
  discovery.first_port = static_cast<uint16_t>(config.probe.first_port);
  discovery.verify_interval_ns = absl::ToInt64Nanoseconds(config.probe.reverify_interval);
  discovery.seed = control_->session();
  absl::StatusOr<std::unique_ptr<probe::Engine>> engine = probe::Engine::Create(
      options, store_.get(), &keys_.ring(),
      {.on_table = [this](uint32_t pair, const probe::PathTable& table) { fabric_news_->OnTable(pair, table); },
       .on_invalid = [this](uint32_t pair,
                            const probe::DiscoveryEvent& event) { fabric_news_->OnInvalid(pair, event); },
       .on_hashing = [this](uint32_t pair, probe::Hashing hashing) { fabric_news_->OnHashing(pair, hashing); },
       .on_cut = [this] { silence_changes_.fetch_add(1, std::memory_order_relaxed); },
       .on_slots = [this](uint32_t pair,
                          const probe::SlotUpdate& update) { fabric_news_->OnSlotUpdate(pair, update); }});
  if (!engine.ok()) return engine.status();
  engine_ = std::move(*engine);
  mail_ = std::make_unique<EngineMail>(*engine_);
  greeting_ = std::make_unique<Greeting>(pairs_, vitals_, kVersion, *mail_);
  ticks_ = std::make_unique<EngineTicks>(
      EngineTicks::Engine{.next = [this](int64_t now_ns) { return engine_->NextTickNs(now_ns); },
                          .tick = [this](int64_t now_ns) { engine_->Tick(now_ns); }},
      *loop_, *clock_);
  OpenPaths();
  if (absl::Status status = OpenPairs(); !status.ok()) return status;
  OpenInsight();
  OpenViews();
  return loop_->AddFd(engine_->icmp_fd(), [this] {
    engine_->OnIcmpReadable(NowNs());
    ticks_->Schedule();
  });
}

// Whom this host probes, and the name that it goes by among them.
absl::Status Agent::OpenPairs() {
  const auto planned = [this](const PeerPlan& plan) {
    clocks_->SetPeers(plan.peers, static_cast<size_t>(options_.config.probe.clock_neighbours));
    probe_verbs::VerbsHost* host = verbs_->host();
    if (host == nullptr) return;
    std::vector<PairKey> keys;
    for (const probe::PairSpec& spec : plan.specs) keys.push_back(spec.key());
    host->SetPairs(keys);
  };
  const auto forgotten = [this](uint32_t pair) {
    flow_ends_->ForgetPair(pair);
    causes_->Forget(pair);
    nic_failover_->Forget(pair);
    unseen_->Forget(pair);
    if (blind_notes_ != nullptr) blind_notes_->Forget(pair);
    tails_->Forget(pair);
  };
  pair_keeper_ = std::make_unique<PairKeeper>(
      pairs_, peer_names_, nics_, engine_->mesh(), *totals_,
      PairKeeper::Asks{.planned = planned,
                       .configure =
                           [this](const std::vector<probe::PairSpec>& specs) {
                             auto configured = engine_->Configure(specs);
                             ticks_->Schedule();  // without pairs nothing was to be done at any time
                             return configured;
                           },
                       .forgotten = forgotten});
  absl::StatusOr<PeerPlan> plan = pair_keeper_->Plan(options_.config);
  if (!plan.ok()) return plan.status();
  vitals_.host_name = HostNameOf(options_.config, plan->own_name, vitals_.host_name);
  OpenClocks();
  return pair_keeper_->Take(*std::move(plan));
}

const probe::Hops* Agent::HopsOf(uint32_t pair, uint8_t slot) const {
  const probe::Discovery* discovery = engine_->discovery(pair);
  const uint16_t port = engine_->mesh().slots(pair).port(slot);
  return discovery == nullptr || port == 0 ? nullptr : discovery->HopsOf(port);
}

// What pairs need from their first moment on.
void Agent::OpenPaths() {
  totals_ = std::make_unique<Totals>(nics_, peer_names_, pairs_, engine_->mesh(), *store_);
  const auto hops = [this](uint32_t pair, uint8_t slot) { return HopsOf(pair, slot); };
  samples_ = std::make_unique<FlowSamples>(pairs_, flows_, engine_->mesh(), *mail_, *clock_, monotonic_,
                                           [this] { return modes_->ActsAtAll(); });
  peer_watch_ = std::make_unique<PeerWatch>(pairs_, nics_, journal_, [this](const PairState& pair) {
    const std::optional<Hooks::Rounds> rounds = RoundsOf(pair, control_->session(), *engine_);
    return rounds ? rounds->sent - rounds->seen : 0;
  });
  dry_run_ = std::make_unique<DryRun>(pairs_, flows_, qps_, engine_->mesh(), peer_names_, monotonic_, journal_,
                                      DryRun::Asks{.hops = hops, .acts = [this] { return modes_->ActsAtAll(); }});
  OpenScopes();
  const config::LogConfig& log = options_.config.log;
  dry_run_->Open(log.report_file, static_cast<uint64_t>(log.report_mib) << 20);
  link_flaps_ = std::make_unique<LinkFlaps>(
      options_.config.RunDir() + "/" + kLinkFile, BootId(), pairs_, engine_->mesh(), *clock_, monotonic_, journal_,
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
    ticks_->Schedule();
  };
  path_news_ = std::make_unique<PathNews>(
      pairs_, engine_->mesh(), *link_flaps_, *damping_, path_lost_, monotonic_, *loop_, *mail_, *dry_run_, journal_,
      PathNews::Asks{
          .read_probes = [this] { ReadProbes(); },
          .send_in_class = send_in_class,
          .pause_dscp = [this] { return options_.config.probe.pause_dscp; },
          .own_link_lost = [this](const PairState& pair, const cw_ev_slot& v) { return carriers_->Lost(pair, v); },
          .doubt = doubt});
  OpenNews();
  losses_ = std::make_unique<Losses>(pairs_, flows_, qps_, engine_->mesh(), *damping_, path_lost_, monotonic_,
                                     *dry_run_, journal_, modes_->may());
  sizes_ = std::make_unique<SizeCheck>(
      pairs_, nics_, flows_, engine_->mesh(), *mail_, journal_,
      SizeCheck::Asks{
          .send = [this](uint32_t pair, const probe::SizeReport& question,
                         uint16_t port) { return engine_->SendPadded(pair, question, port, question.bytes); },
          .mtu_of = dataplane::MtuOf,
          .hops = [this](uint32_t pair, uint8_t slot) { return HopsOf(pair, slot); },
          .host = vitals_.host_name});
  OpenBalance();
  OpenMovers();
  OpenFlows();
  OpenPlacer();
  OpenSteering();
  OpenRecovery();
}

// What discovery and the probes tell.
void Agent::OpenNews() {
  fabric_news_ = std::make_unique<FabricNews>(
      pairs_, flows_, *records_, *link_flaps_, monotonic_, journal_,
      FabricNews::Asks{.blind =
                           [this](PairState& pair) {
                             natives_->OnBlind(pair);
                             damping_->Publish(pair);
                           },
                       .leave =
                           [this](const PairState& pair, uint8_t slot, uint16_t port) {
                             return modes_->Acts(Capability::kFailover) &&
                                    kernel_mover_->Leave(pair, slot, Capability::kFailover, port) > 0;
                           },
                       .native =
                           [this](uint32_t pair, const probe::NativeChange& change) {
                             unseen_->OnNative(pair, change);
                             natives_->OnNative(pair, change);
                           }});
  probe_news_ = std::make_unique<ProbeNews>(
      pairs_, *store_, engine_->mesh(), vitals_, monotonic_,
      ProbeNews::Asks{.by_verbs = [this](const PairState& pair) { return verbs_->IsByVerbs(pair); },
                      .answered = [this](uint32_t pair, uint8_t slot) { causes_->Answered(pair, slot); },
                      .of_silent = [this](const PairState& pair, SlotState& slot,
                                          const cw_ev_probe& probe) { path_news_->OnProbeOfSilent(pair, slot, probe); },
                      .delayed = [this](uint32_t pair, uint8_t slot, int64_t sent_ns,
                                        int64_t delay_ns) { balance_->OnProbe(pair, slot, sent_ns, delay_ns); },
                      .ring = [this] { return ring_->recorder(); }});
}

// Fleet time, by the name that the peers know this host by.
void Agent::OpenClocks() {
  const config::Config& config = options_.config;
  const ClockKeeperOptions options{
      .host = vitals_.host_name,
      .session = control_->session(),
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
    if (pace == probe::ClockPace::kYoung) pace_.NeedsProbes(MonotonicNs());
  };
  const auto before_round = [this] {
    nic_clocks_->Look();
    if (pace_.stretch() > 1) ReadProbes();  // the newest count, and the ring's own turn may come later
  };
  clocks_ = std::make_unique<ClockKeeper>(options, clock_, monotonic_, pairs_, nics_, *mail_, journal_,
                                          ClockKeeper::Probing{.set_pace = set_pace, .before_round = before_round});
}

// Answers to those who ask.
void Agent::OpenViews() {
  flows_view_ = std::make_unique<FlowsView>(
      flows_, pairs_, nics_, qps_, kernel_qps_->datagrams(), *owner_mover_, causes_->book(), *gaps_, *labels_,
      deadlines_, engine_->mesh(), peer_names_, monotonic_,
      FlowsView::Asks{.acts = [this] { return modes_->ActsAtAll(); },
                      .at_ns = [this](uint64_t jiffies) { return jiffies_->ToNs(jiffies); },
                      .hops = [this](uint32_t pair, uint8_t slot) { return HopsOf(pair, slot); }});
  paths_view_ = std::make_unique<PathsView>(
      pairs_, nics_, flows_, engine_->mesh(), *store_, *link_flaps_, *clock_, monotonic_,
      PathsView::Asks{.discovery = [this](uint32_t pair) { return engine_->discovery(pair); },
                      .interval_ns = [this](uint32_t pair) { return engine_->IntervalNs(pair); },
                      .acts = [this] { return modes_->ActsAtAll(); },
                      .dscp_configured = [this] { return options_.config.probe.dscp.has_value(); }});
  status_view_ = std::make_unique<StatusView>(
      kVersion, options_.config, vitals_, *modes_, deadlines_, *lease_, *breaker_, pairs_, nics_, flows_,
      causes_->book(), *paths_view_, *flows_view_, monotonic_,
      StatusView::Asks{
          .discovery = [this](uint32_t pair) { return engine_->discovery(pair); },
          .silent = [this](const PairKey& pair) { return nic_failover_->Silent(pair); },
          .carried = [this](const PairKey& pair) { return nic_failover_->Carried(pair); },
          .do_not_leave = [this](uint32_t pair) { return peer_watch_->DoNotLeave(pair); },
          .add_transport = [this](const NicState& nic, api::v1::NicStatus& out) { verbs_->AddTransport(nic, out); },
          .add_others =
              [this](api::v1::StatusReply& reply) {
                keys_.AddTo(reply);
                config_in_force_.AddTo(reply, MonotonicNs());
                scopes_->AddTo(reply);
                verbs_->AddTo(reply);
              },
          .counters = [this] { return dataplane_->counters().Sum(); },
          .tell_counts = [this](const CounterSink& add) { TellCounts(add); },
          .no_qp_moments = [this] { return qp_moments_->why_not(); },
          .rooms = {.sent = dataplane_->tx_flows().capacity(),
                    .received = dataplane_->flows().capacity(),
                    .pairs = dataplane_->pairs().size()}});
  why_view_ = std::make_unique<WhyView>(
      flows_, pairs_, qps_, *owner_mover_, engine_->mesh(), deadlines_, *flows_view_, *paths_view_, monotonic_,
      WhyView::Asks{
          .allowed = [this] { return modes_->allowed(); },
          .discovery = [this](uint32_t pair) { return engine_->discovery(pair); },
          .balance_held =
              [this] {
                const bool held = modes_->Acts(Capability::kBalance) && !breaker_->MayBalance();
                return held ? breaker_->why() : std::string();
              },
          .scopes = [this](const PairState& pair, const FlowKey* flow) { return scopes_->HoldsOf(pair, flow); },
          .collective = [this](const FlowKey& flow, api::v1::WhyReply& reply) { jobs_->FillCollective(flow, reply); },
          .rule = [this](const FlowKey& flow) { return control::Explain(*contention_, flow); }});
}

}  // namespace cw::agent
