// SPDX-License-Identifier: Apache-2.0
#include "cli_fake_agent.h"

#include "absl/strings/str_format.h"
#include "cli_fake_clock.h"
#include "tests/lab/eventually.h"
#include "userspace/api/path_ref.h"

namespace cw::api {
namespace {

void SetDelay(v1::Delay& delay, double p50_ns, double p99_ns) {
  delay.set_samples(1000);
  delay.set_min_ns(p50_ns - 300);
  delay.set_p50_ns(p50_ns);
  delay.set_p99_ns(p99_ns);
  delay.set_max_ns(p99_ns * 2);
}

void AddPath(v1::Pair& pair, uint32_t slot, v1::PathState state, double p50_ns) {
  v1::Path& path = *pair.add_paths();
  path.set_slot(slot);
  path.set_reverse_slot(slot);
  path.set_udp_port(49152 + slot);
  path.add_hops("10.0.0.1");
  path.add_hops(absl::StrFormat("10.1.%d.1", slot));
  path.set_state(state);
  path.set_assignable(true);
  path.set_age_s(12);
  path.set_flows(slot == 0 ? 2 : 0);
  path.set_base_forward_ns(p50_ns - 300);
  path.set_last_change_ago_s(-1);
  for (const uint32_t seconds : {1, 10, 60}) {
    v1::PathWindow& window = *path.add_windows();
    window.set_seconds(seconds);
    window.set_sent(1000 * seconds);
    window.set_known(1000 * seconds);
    window.set_lost(seconds);
    window.set_loss(0.001);
    SetDelay(*window.mutable_forward(), p50_ns, p50_ns * 1.5);
    SetDelay(*window.mutable_reverse(), p50_ns, p50_ns * 1.5);
    SetDelay(*window.mutable_queueing_forward(), 300, 900);
    window.set_jitter_forward_ns(120);
  }
}

v1::Flow MakeFlow(const std::string& id, uint32_t local_qpn, uint32_t remote_qpn, bool received) {
  v1::Flow flow;
  flow.set_id(id);
  flow.set_nic("rxe0");
  flow.set_device("eth0");
  flow.set_local_qpn(local_qpn);
  flow.set_remote_qpn(remote_qpn);
  flow.set_local_address("10.0.0.10");
  flow.set_remote_address("10.0.1.10");
  flow.set_peer("node2");
  flow.set_received(received);
  flow.set_slot(received ? -1 : 0);
  flow.set_native_slot(received ? -1 : 3);
  flow.set_want_slot(-1);
  flow.set_udp_port_native(51234);
  flow.set_udp_port(received ? 51234 : 49152);
  SetDelay(*flow.mutable_owd(), 5310, 7100);
  flow.set_owd_error_ns(400);
  flow.set_rate_bps(1.25e9);
  flow.set_moved_ago_s(-1);
  flow.set_pid(4711);
  flow.set_process("ib_write\033[31m");
  return flow;
}

}  // namespace

FakeAgent::FakeAgent() {
  v1::Check& check = *doctor.add_checks();
  check.set_name("bpffs");
  check.set_result(v1::Check::RESULT_OK);
  check.set_seen("mounted");
  for (const char* text : {"path 2 to node2 died", "flow 0b5c91fe left path 2 for path 0", "path 2 answers again"}) {
    Add(text);
  }
}

absl::StatusOr<v1::StatusReply> FakeAgent::Status(const v1::StatusRequest&, const Caller&) {
  v1::StatusReply reply;
  reply.set_version(version);
  reply.set_instance("default");
  reply.set_host_name("node1");
  reply.set_pid(99);
  reply.set_uptime_s(3700);
  reply.set_mode(mode);
  for (const char* name : {"failover", "loss", "tails", "balance", "place", "nic"}) {
    v1::CapabilityAllow& each = *reply.add_allowed();
    each.set_capability(name);
    const v1::Allow by_mode =
        mode == v1::MODE_PROTECT && std::string(name) != "balance" ? v1::ALLOW_ACT : v1::ALLOW_OBSERVE;
    each.set_by_mode(by_mode);
    each.set_allow(balance_acts && std::string(name) == "balance" ? v1::ALLOW_ACT : by_mode);
  }
  for (const v1::ModeScope& scope : scopes) *reply.add_scopes() = scope;
  reply.mutable_breaker()->set_enabled(true);
  reply.mutable_breaker()->set_tripped(breaker_tripped);
  if (breaker_tripped) reply.mutable_breaker()->set_text("2 of 3 moves for balance within the last minute did harm");
  if (prober) *reply.mutable_prober() = *prober;
  reply.set_report_file(report_file);
  reply.mutable_paths()->set_up(3);
  reply.mutable_paths()->set_dead(1);
  reply.set_rss_bytes(40 << 20);
  v1::NicStatus& nic = *reply.add_nics();
  nic.set_name("eth0");
  nic.set_address("10.0.0.10");
  nic.set_ingress("native");
  nic.set_egress("tc");
  nic.set_mtu(4500);
  return reply;
}

absl::StatusOr<v1::PathsReply> FakeAgent::Paths(const v1::PathsRequest& request, const Caller&) {
  v1::PathsReply reply;
  if (!request.remote().empty() && request.remote() != "node2" && request.remote() != "10.0.1.10") return reply;
  v1::Pair& pair = *reply.add_pairs();
  pair.set_nic("eth0");
  pair.set_local_address("10.0.0.10");
  pair.set_peer("node2");
  pair.set_remote_address("10.0.1.10");
  pair.set_interval_s(0.001);
  pair.set_dscp(26);
  pair.set_dscp_from("flows");
  pair.set_table("valid");
  pair.set_hashing(v1::FABRIC_HASHING_PORTS);
  pair.mutable_clock()->set_state(v1::PeerClock::STATE_SYNCED);
  pair.mutable_clock()->set_offset_ns(-1000000123);
  pair.mutable_clock()->set_error_est_ns(400);
  pair.mutable_clock()->set_bound_ns(5200);
  AddPath(pair, 0, v1::PATH_STATE_UP, 5310);
  AddPath(pair, 1, v1::PATH_STATE_DEAD, -250);
  return reply;
}

absl::StatusOr<v1::LinksReply> FakeAgent::Links(const v1::LinksRequest& request, const Caller&) {
  const uint32_t window_s = request.window_s();
  v1::LinksReply reply;
  reply.set_window_s(window_s);
  reply.set_paths(2);
  v1::Link& dead = *reply.add_links();
  dead.set_from("10.0.0.1");
  dead.set_to("10.1.1.0");
  dead.set_paths(1);
  dead.set_paths_dead(1);
  dead.set_suspect(true);
  dead.add_alike("10.1.1.3");
  dead.set_flaps_1h(9);
  dead.set_flaps_1h_certain(4);
  v1::Link& queue = *reply.add_links();
  queue.set_from("10.1.0.3");
  queue.set_to("10.0.1.10");
  queue.set_peer("node2");
  queue.set_paths(2);
  queue.set_queue_ns(251'000);
  queue.set_queue_error_ns(3'000);
  queue.set_loss(0.021);
  queue.set_checked_ago_s(12);
  v1::Link& gone = *reply.add_links();
  gone.set_from("10.0.0.1");
  gone.set_to("10.1.2.0");
  gone.set_gone_ago_s(40);
  return reply;
}

absl::StatusOr<v1::QpsReply> FakeAgent::Qps(const v1::QpsRequest& request, const Caller&) {
  v1::QpsReply reply;
  for (const v1::Flow& flow : {MakeFlow("0b5c91fe", 0x11, 0x21, false), MakeFlow("11111111", 0x12, 0x22, false),
                               MakeFlow("22222222", 0x13, 0x22, false), MakeFlow("33333333", 0x11, 0x21, true)}) {
    if (!request.flow().empty() && request.flow() != flow.id()) continue;
    if (flow.received() && !request.received() && request.flow().empty()) continue;
    if (!request.remote().empty() && request.remote() != "node2" && request.remote() != "10.0.1.10") continue;
    v1::Flow& out = *reply.add_flows();
    out = flow;
    out.set_packets(100 * ++asked_);
    if (!flow.received()) out.set_port_from("packets");
    if (mode == v1::MODE_OFF) out.set_udp_port(off_sticks ? out.udp_port() : out.udp_port_native());
    if (flow.id() != "11111111") continue;
    v1::OwnerReport& owner = *reply.mutable_flows(reply.flows_size() - 1)->mutable_owner();
    owner.set_placed(true);
    owner.set_messages(12345);
    owner.set_bytes(790080);
    owner.set_completion_samples(9);
    owner.set_completion_p50_ns(8'500);
    owner.set_completion_max_ns(41'000);
    owner.set_can_move(true);
    owner.set_udp_port(49152);
    owner.set_last_refusal("Device or resource busy (errno 16)");
    owner.mutable_moves()->set_done(3);
    owner.mutable_moves()->set_refused(1);
    owner.mutable_moves()->set_to_port(-1);
    owner.mutable_moves()->set_lag_port(2);
    v1::Flow& unseen = *reply.mutable_flows(reply.flows_size() - 1);
    unseen.set_port_from("label");
    unseen.set_udp_port(unseen.udp_port_native());
    v1::DelayGap& gap = *unseen.mutable_gap();
    gap.set_flow_p50_ns(37'000);
    gap.set_mesh_p50_ns(20'000);
    gap.set_finding(true);
    gap.set_text("its packets take 37.0 µs and the probes on its path 20.0 µs (p50), for 12 s now: it is in DSCP 0");
  }
  return reply;
}

absl::StatusOr<v1::CountersReply> FakeAgent::Counters(const v1::CountersRequest&, const Caller&) {
  v1::CountersReply reply;
  v1::Counter& counter = *reply.add_counters();
  counter.set_name("gso_frames");
  counter.set_value(18000000000000000001u);
  counter.set_text("GSO frames");
  reply.add_counters()->set_name("ip_options");
  return reply;
}

absl::StatusOr<v1::ClockReply> FakeAgent::Clock(const v1::ClockRequest&, const Caller&) {
  return clock_known ? KnownClock() : RefusedClock();
}

void FakeAgent::Add(const std::string& text) {
  const std::lock_guard lock(mutex_);
  v1::Event event;
  event.set_seq(events_.size() + 1);
  event.set_time_unix_ns(1700000000123456789);
  event.set_type("path");
  event.set_text(text);
  event.set_slot(2);
  event.set_to_slot(-1);
  v1::Evidence& evidence = *event.add_evidence();
  evidence.set_name("misses");
  evidence.set_value("3");
  events_.push_back(event);
  changed_.notify_all();
}

absl::StatusOr<std::vector<v1::Event>> FakeAgent::Events(const v1::EventsRequest& request, absl::Duration wait) {
  ++asked_for_events;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, absl::ToChronoMilliseconds(wait), [&] { return events_.size() > request.after_seq(); });
  std::vector<v1::Event> events;
  for (const v1::Event& event : events_) {
    if (event.seq() > request.after_seq()) events.push_back(event);
  }
  if (request.after_seq() == 0 && request.last() > 0 && events.size() > request.last()) {
    events.erase(events.begin(), events.end() - request.last());
  }
  return events;
}

absl::StatusOr<v1::ActionReply> FakeAgent::SteerSet(const v1::SteerSetRequest& request, const Caller& caller) {
  last_caller = caller;
  last_request = request.ShortDebugString();
  if (request.path() == 9) return absl::FailedPreconditionError("path 9 to node2 is dead; see cwctl paths node2");
  if (request.path() == 10) return absl::UnimplementedError("this NIC offloads RoCE; it cannot be steered from here");
  v1::ActionReply reply;
  reply.set_effect("flow " + request.flow() + " goes to path 1");
  reply.set_undo("steer set " + request.flow() + " --path 0");
  reply.set_pending(!request.force());
  reply.set_reverts_s(request.for_s());
  reply.add_flows(request.flow());
  return reply;
}

absl::StatusOr<v1::ActionReply> FakeAgent::SteerClear(const v1::SteerClearRequest& request, const Caller& caller) {
  last_caller = caller;
  last_request = request.ShortDebugString();
  return v1::ActionReply();
}

absl::StatusOr<v1::ActionReply> FakeAgent::SteerLock(const v1::SteerLockRequest& request, const Caller& caller) {
  last_caller = caller;
  last_request = request.ShortDebugString();
  return v1::ActionReply();
}

static v1::Collective MakeCollective(v1::Collective::State state) {
  v1::Collective c;
  c.set_job_id("00000000000000ab");
  c.set_label("train");
  c.set_rank(3);
  c.set_ranks(8);
  c.set_seq(42);
  c.set_function("AllReduce");
  c.set_bytes(1 << 20);
  c.set_algorithm("RING");
  c.set_protocol("SIMPLE");
  c.set_state(state);
  c.set_peer(-1);
  c.set_enqueued_ago_s(12);
  c.set_duration_ns(2e6);
  c.set_bus_bytes_per_s(9.17e8);
  c.set_held("the network to rank 4, channel 1, queue pair 0x21: SendWait 80 % of the time");
  c.set_network(true);
  c.set_held_qpn(0x21);
  v1::ChunkDelay& delay = *c.mutable_chunk_delay();
  delay.set_chunks(16);
  delay.set_p50_ns(300'000);
  delay.set_p99_ns(2'000'000);
  delay.set_max_ns(2'500'000);
  delay.set_bound_ns(20'000);
  c.set_slow(state == v1::Collective::STATE_DONE);
  return c;
}

v1::WhyReply FakeAgent::WhyFlow(const std::string& id) {
  v1::WhyReply reply;
  reply.set_mode(mode);
  *reply.mutable_flow() = MakeFlow(id, 0x11, 0x21, id == "33333333");
  reply.mutable_flow()->set_moved_ago_s(3);
  reply.set_placement(id == "33333333" ? "received" : "left_dead_path");
  if (id == "33333333") return reply;
  *reply.mutable_path() = WhyPath(0, 0).path();
  *reply.mutable_collective() = MakeCollective(v1::Collective::STATE_DONE);
  v1::WhyHold& hold = *reply.add_holds();
  hold.set_kind("lock");
  hold.set_text("locked by an operator: it leaves a dead path only");
  hold.set_left_s(90);
  v1::WhyRule& rule = *reply.mutable_rule();
  rule.set_standing("no_better");
  rule.set_text("its path is congested, but no other promises 1.25 times the rate");
  rule.set_rate_bps(1e8);
  rule.set_congested_windows(4);
  rule.set_congested_wanted(2);
  rule.mutable_here()->set_queue_limit_ns(10'000);
  rule.mutable_here()->set_queue_known(true);
  rule.mutable_here()->set_queue_ns(412'000);
  v1::WhyCandidate& candidate = *rule.add_candidates();
  candidate.set_slot(1);
  candidate.set_gain(1.5);
  candidate.set_enough(true);
  candidate.set_probability(0.3);
  candidate.set_text("that path is idle: 1.50 times the rate expected");
  v1::WhyEvent& event = *reply.add_events();
  event.set_ago_s(12);
  event.mutable_event()->set_text("queue pair moved");
  v1::Evidence& evidence = *event.mutable_event()->add_evidence();
  evidence.set_name("psn");
  evidence.set_value("7");
  return reply;
}

v1::WhyReply FakeAgent::WhyPath(uint32_t pair, uint32_t slot) {
  v1::WhyReply reply;
  reply.set_mode(mode);
  const v1::PathsReply paths = *Paths(v1::PathsRequest());
  for (const v1::Pair& known : paths.pairs()) {
    if (known.index() != pair) continue;
    reply.mutable_path()->set_nic(known.nic());
    reply.mutable_path()->set_peer(known.peer());
    reply.mutable_path()->set_table(known.table());
    reply.mutable_path()->set_hashing(known.hashing());
    for (const v1::Path& path : known.paths()) {
      if (path.slot() == slot) *reply.mutable_path()->mutable_path() = path;
    }
  }
  reply.mutable_path()->set_penalty(1800);
  reply.mutable_path()->set_flaps(3);
  reply.mutable_path()->add_flows("0b5c91fe");
  return reply;
}

absl::StatusOr<v1::WhyReply> FakeAgent::Why(const v1::WhyRequest& request, const Caller&) {
  v1::QpsRequest all;
  all.set_received(true);
  const absl::StatusOr<What> what = ResolveWhat(*Paths(), *Qps(all), request.what());
  if (!what.ok()) return what.status();
  return what->path ? WhyPath(what->path->pair, what->path->slot) : WhyFlow(what->flow);
}

absl::StatusOr<v1::DoctorReply> FakeAgent::Doctor(const v1::DoctorRequest&, const Caller&) { return doctor; }

absl::StatusOr<v1::ActionReply> FakeAgent::Drain(const v1::DrainRequest& request, const Caller& caller) {
  last_caller = caller;
  last_request = request.ShortDebugString();
  if (mode < v1::MODE_PROTECT) return absl::FailedPreconditionError("the mode is observe; first: cwctl mode protect");
  v1::ActionReply reply;
  reply.set_effect("spine " + request.what() + ": no flow is put on the 4 paths that cross it");
  reply.set_undo("undrain " + request.what());
  reply.set_reverts_s(request.for_s());
  return reply;
}

absl::StatusOr<v1::ActionReply> FakeAgent::Undrain(const v1::UndrainRequest& request, const Caller& caller) {
  last_caller = caller;
  last_request = request.ShortDebugString();
  v1::ActionReply reply;
  reply.set_effect(request.what() + " may be used again");
  return reply;
}

absl::StatusOr<v1::NicsReply> FakeAgent::Nics(const v1::NicsRequest&, const Caller&) {
  v1::NicsReply reply;
  v1::RdmaNic& nic = *reply.add_nics();
  nic.set_name("mlx5_0");
  nic.set_driver("mlx5_core");
  nic.set_bus("0000:c1:00.0");
  nic.set_node_guid("946d:ae03:00a1:b2c0");
  nic.set_firmware("28.39.1002");
  nic.set_kind("physical");
  nic.set_numa_node(1);
  nic.set_events("async");
  nic.add_agent_nics("eth0");
  v1::RdmaNicPort& port = *nic.add_ports();
  port.set_number(1);
  port.set_state("active");
  port.set_physical_state("linkup");
  port.set_link_layer("Ethernet");
  port.set_rate_bps(400e9);
  port.set_netdev("eth0");
  port.set_netdev_mtu(4500);
  port.set_active_mtu(4096);
  v1::RdmaGid& gid = *port.add_gids();
  gid.set_index(3);
  gid.set_type("RoCE v2");
  gid.set_netdev("eth0");
  gid.set_gid("0000:0000:0000:0000:0000:ffff:0a00:000a");
  gid.set_address("10.0.0.10");
  port.set_counters_over_s(120);
  for (const auto& [name, moved] : {std::pair{"out_of_sequence", 17}, {"rx_write_requests", 0}}) {
    v1::NicCounter& counter = *port.add_counters();
    counter.set_name(name);
    counter.set_value(1200);
    counter.set_moved(static_cast<uint64_t>(moved));
    counter.set_text("packets that arrived out of sequence");
  }
  v1::NicFinding& finding = *reply.add_findings();
  finding.set_device("mlx5_1");
  finding.set_port(1);
  finding.set_kind("port_down");
  finding.set_level(v1::NicFinding::LEVEL_FAIL);
  finding.set_text("mlx5_1 is DOWN, physically Disabled");
  finding.set_todo("check the cable");
  return reply;
}

absl::StatusOr<v1::ActionReply> FakeAgent::Label(const v1::LabelRequest& request, const Caller&) {
  last_request = request.ShortDebugString();
  v1::ActionReply reply;
  reply.set_effect("process 77 is train");
  reply.set_undo("label clear --pid 77");
  return reply;
}

absl::StatusOr<v1::LabelsReply> FakeAgent::Labels(const v1::LabelsRequest&, const Caller&) {
  v1::LabelsReply reply;
  v1::ProcessLabel& label = *reply.add_labels();
  label.set_cgroup("/system.slice/job_7");
  label.set_label("job 7");
  return reply;
}

absl::StatusOr<v1::ListJobsReply> FakeAgent::ListJobs(const v1::ListJobsRequest& request, const Caller&) {
  last_request = request.ShortDebugString();
  v1::ListJobsReply reply;
  if (request.job() == "nobody") return reply;
  v1::Job& job = *reply.add_jobs();
  job.set_id("00000000000000ab");
  job.set_label("train\033[31m");
  job.set_pid(77);
  job.set_process("python3");
  job.set_rank(3);
  job.set_ranks(8);
  job.set_collectives_per_s(12.5);
  job.set_bus_bytes_per_s(9.17e8);
  job.set_slowest_peer(4);
  job.set_slowest_peer_host("node2");
  job.set_slowest_flow("0b5c91fe");
  *job.mutable_running() = MakeCollective(v1::Collective::STATE_STALLED);
  *job.mutable_chunk_delay() = job.running().chunk_delay();
  job.set_note("no queue pair events: NCCL was built without NET_PROFILER=1");
  job.set_lost(3);
  return reply;
}

absl::StatusOr<v1::ListCollectivesReply> FakeAgent::ListCollectives(const v1::ListCollectivesRequest& request,
                                                                    const Caller&) {
  last_request = request.ShortDebugString();
  v1::ListCollectivesReply reply;
  *reply.add_collectives() = MakeCollective(v1::Collective::STATE_DONE);
  *reply.add_stalls() = MakeCollective(v1::Collective::STATE_STALLED);
  return reply;
}

absl::StatusOr<v1::DrainsReply> FakeAgent::Drains(const v1::DrainsRequest&, const Caller&) {
  v1::DrainsReply reply;
  reply.set_mode(mode);
  reply.set_nothing_moves(mode < v1::MODE_PROTECT);
  v1::Drain& drain = *reply.add_drains();
  drain.set_kind(v1::DRAIN_KIND_SPINE);
  drain.set_what("10.1.1.1");
  drain.set_paths(4);
  const bool silent = rounds_until_silent-- <= 0;
  drain.set_flows(silent ? 0 : 1);
  drain.set_flows_moved(silent ? 2 : 1);
  drain.set_bytes_per_s(silent ? 0 : 4096);
  drain.set_quiet_s(silent ? 10.2 : 0);
  drain.set_safe(silent);
  if (!silent) drain.add_held("11111111");
  return reply;
}

absl::StatusOr<v1::ActionReply> FakeAgent::SetMode(const v1::SetModeRequest& request, const Caller& caller) {
  last_caller = caller;
  last_request = request.ShortDebugString();
  const bool narrow = !request.nic().empty() || request.has_rail() || !request.label().empty();
  if (request.mode() != v1::MODE_UNSPECIFIED && !narrow) mode = request.mode();
  v1::ActionReply reply;
  reply.set_effect("mode is set");
  reply.set_undo("mode observe");
  return reply;
}

absl::StatusOr<v1::ActionReply> FakeAgent::BreakerReset(const v1::BreakerResetRequest&, const Caller& caller) {
  last_caller = caller;
  v1::ActionReply reply;
  reply.set_effect(breaker_tripped ? "the breaker is armed again" : "the breaker has not tripped");
  breaker_tripped = false;
  return reply;
}

absl::StatusOr<v1::ActionReply> FakeAgent::Off(const v1::OffRequest& request, const Caller& caller) {
  last_caller = caller;
  if (frozen_in_off) lab::Hold(absl::Seconds(3));
  last_request = request.ShortDebugString();
  v1::ActionReply reply;
  mode = v1::MODE_OFF;
  reply.set_effect("every flow is on its native port");
  return reply;
}

void FakeAgent::Tell(const ApiEvent& event) {
  const std::lock_guard lock(mutex_);
  told_.push_back(event);
}

std::vector<ApiEvent> FakeAgent::Told() {
  const std::lock_guard lock(mutex_);
  return told_;
}

}  // namespace cw::api
