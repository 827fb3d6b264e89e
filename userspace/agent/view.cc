// SPDX-License-Identifier: Apache-2.0
// Answers to cwctl: what the agent knows, in the words of the schema.
#include <unistd.h>

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/breaker.h"
#include "userspace/agent/certificates.h"
#include "userspace/agent/fleet_clock/clock_keeper.h"
#include "userspace/agent/fleet_clock/clock_view.h"
#include "userspace/agent/flows/flow_reader.h"
#include "userspace/agent/flows/qp_moments.h"
#include "userspace/agent/insight/causes.h"
#include "userspace/agent/insight/chunks.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/insight/jobs.h"
#include "userspace/agent/lease.h"
#include "userspace/agent/memory_lock.h"
#include "userspace/agent/nics/nic_clocks.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/paths/totals.h"
#include "userspace/agent/placement.h"
#include "userspace/agent/recovery/rerolls.h"
#include "userspace/agent/recovery/tails.h"
#include "userspace/agent/ring_recorder.h"
#include "userspace/agent/views/flows_view.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/host/doctor.h"
#include "userspace/rights/rights.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;

double AgoS(int64_t now_ns, int64_t then_ns) { return then_ns == 0 ? -1 : static_cast<double>(now_ns - then_ns) / 1e9; }

}  // namespace

v1::StatusReply Agent::MakeStatus() {
  const int64_t now_ns = MonotonicNs();
  v1::StatusReply reply;
  reply.set_version(kVersion);
  reply.set_instance(options_.config.instance);
  reply.set_host_name(host_name_);
  reply.set_pid(static_cast<uint32_t>(getpid()));
  reply.set_uptime_s(AgoS(now_ns, started_ns_));
  reply.set_mode(ToApi(modes_->mode()));
  if (deadlines_.mode())
    reply.set_mode_reverts_s(std::max(static_cast<double>(deadlines_.mode()->at_ns - now_ns) / 1e9, 0.001));
  reply.set_lease_s(absl::ToDoubleSeconds(options_.config.steering.lease));
  if (lease_->LeftS() != 0) reply.set_lease_left_s(lease_->LeftS());
  reply.set_lease_found_over_s(lease_->found_over_s());
  for (const Capability c : kAllCapabilities) {
    v1::CapabilityAllow* out = reply.add_allowed();
    out->set_capability(std::string(CapabilityName(c)));
    out->set_allow(ToApi(modes_->allowed().of(c)));
    out->set_by_mode(ToApi(Allowed(modes_->mode()).of(c)));
  }
  breaker_->AddTo(*reply.mutable_breaker(), now_ns);
  AddKeys(reply, now_ns);
  AddConfig(reply, now_ns);
  reply.set_report_file(options_.config.log.report_file);
  reply.set_observations_file(options_.config.log.observations_file);
  reply.set_data_age_s(AgoS(now_ns, newest_data_ns_));
  reply.set_hashing(paths_view_->Hashing());
  reply.set_cpu_percent(meter_.TotalPercent());
  reply.set_cpu_process_percent(meter_.ProcessPercent());
  reply.set_rss_bytes(ResourceMeter::RssBytes());
  AddNics(reply);
  AddPeers(reply, now_ns);
  flows_view_->Count(*reply.mutable_flows());
  AddProber(reply);
  AddVerbs(reply);
  AddCounters(reply);
  return reply;
}

void Agent::AddNics(v1::StatusReply& reply) {
  for (const Nic& nic : nics_) {
    v1::NicStatus* out = reply.add_nics();
    out->set_name(nic.config.name);
    out->set_ifindex(nic.ifindex);
    out->set_address(nic.address.ToString());
    out->set_ingress(!nic.attached ? "none" : nic.attach.mode == dataplane::XdpMode::kNative ? "native" : "generic");
    out->set_egress(nic.attached ? "tc" : "none");
    out->set_note(nic.note);
    out->set_mtu(nic.mtu);
    out->set_offloads_roce(nic.offloads_roce);
    out->set_keeps_departures(nic.keeps_departures);
    out->set_link_down(!nic.link_up);
    for (const auto& [index, pair] : pairs_) {
      if (pair->ifindex != nic.ifindex) continue;
      out->set_pairs_silent(out->pairs_silent() + (nic_failover_->Silent(pair->key) ? 1 : 0));
      out->set_pairs_carried(out->pairs_carried() + (nic_failover_->Carried(pair->key) ? 1 : 0));
    }
    AddTransport(nic, *out);
    for (const std::string& device : nic.rdma_devices) out->add_rdma_devices(device);
  }
}

void Agent::AddPeers(v1::StatusReply& reply, int64_t now_ns) {
  std::map<std::string, v1::PeerStatus> peers;
  for (auto& [index, pair] : pairs_) {
    v1::PeerStatus& peer = peers[pair->peer];
    peer.set_name(pair->peer);
    peer.add_addresses(pair->key.remote.ToString());
    peer.set_pairs(peer.pairs() + 1);
    peer.set_flows(peer.flows() + pair->flows);
    if (!pair->version.empty()) peer.set_version(pair->version);
    const double ago_s = AgoS(now_ns, pair->last_reply_ns);
    const bool newer = ago_s >= 0 && (peer.last_reply_ago_s() < 0 || ago_s < peer.last_reply_ago_s());
    if (peer.pairs() == 1 || newer) peer.set_last_reply_ago_s(ago_s);
    AddCause(causes_->book().Of(pair->key), peer);
    paths_view_->Count(*pair, peer, *reply.mutable_paths());
    const probe::Discovery* discovery = engine_->discovery(index);
    if (discovery != nullptr && pair->table_seen && !discovery->table().valid) {
      reply.set_moves_frozen(true);
      reply.set_frozen_reason(absl::StrCat("paths to ", pair->peer, " are being found again"));
    } else if (discovery != nullptr && !probe::PortsChoosePaths(discovery->hashing())) {
      reply.set_moves_frozen(true);
      reply.set_frozen_reason(absl::StrCat("ports do not choose the path to ", pair->peer));
    } else if (discovery != nullptr && pair->table_seen && !probe::PortsSeenToChoose(discovery->hashing())) {
      reply.set_moves_frozen(true);
      reply.set_frozen_reason(absl::StrCat("whether ports choose the path to ", pair->peer, " was not seen (yet)"));
    }
  }
  for (auto& [name, peer] : peers) *reply.add_peers() = std::move(peer);
}

void Agent::AddProber(v1::StatusReply& reply) {
  v1::ProberStatus* out = reply.mutable_prober();
  out->set_rate_pps(probe_rate_pps_);
  out->set_budget_pps(static_cast<double>(options_.config.probe.budget_pps));
  out->set_lateness_p50_ns(static_cast<double>(prober_stats_.lateness_p50_ns));
  out->set_lateness_p99_ns(static_cast<double>(prober_stats_.lateness_p99_ns));
  out->set_rounds(prober_stats_.rounds);
  out->set_skipped(prober_stats_.skipped_rounds);
  out->set_realtime(prober_stats_.realtime);
  out->set_cpus(prober_stats_.cpus);
  const MemoryLock memory = PresentMemoryLock();
  out->set_memory_locked(memory.locked);
  out->set_memory_note(memory.note);
  // This is the loop's thread.
  if (const absl::StatusOr<rights::Set> held = rights::Held(); held.ok()) {
    for (const std::string& name : rights::Names(*held)) reply.add_capabilities(name);
  }
}

void Agent::AddCounters(v1::StatusReply& reply) {
  const auto add = [&](const char* name, uint64_t value, const char* text) {
    if (value == 0) return;
    v1::Counter* c = reply.add_counters();
    c->set_name(name);
    c->set_value(value);
    c->set_text(text);
  };
  if (absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum(); sums.ok()) {
    for (const maps::CounterInfo& counter : maps::Counters()) add(counter.name, (*sums).*counter.field, counter.text);
    reply.mutable_lost()->set_probe_ring(sums->probe_ring_full);
    reply.mutable_lost()->set_event_ring(sums->event_ring_full);
    reply.mutable_lost()->set_message_ring(sums->message_ring_full);
  }
  tails_->TellCounts(add);
  rerolls_->TellCounts(add);
  TellPlaceCounts(add);
  auto fill = [&](const char* name, uint64_t used, uint64_t capacity) {
    v1::MapFill* map = reply.add_maps();
    map->set_name(name);
    map->set_used(used);
    map->set_capacity(capacity);
  };
  fill(CW_MAP_TX_FLOWS, flows_.sent.size(), dataplane_->tx_flows().capacity());
  fill(CW_MAP_FLOWS, flows_.received.size(), dataplane_->flows().capacity());
  fill(CW_MAP_PAIRS, pairs_.size(), dataplane_->pairs().size());
}

v1::DoctorReply Agent::MakeDoctor() {
  host::DoctorInput input{.agent_runs = true,
                          .agent_note = absl::StrCat(kVersion, ", mode ", modes_->allowed().ToString())};
  for (const Nic& nic : nics_) {
    input.nics.push_back({nic.config.name,
                          !nic.attached                                    ? "none"
                          : nic.attach.mode == dataplane::XdpMode::kNative ? "native"
                                                                           : "generic",
                          nic.note});
  }
  input.hashing = HostHashing(paths_view_->Hashing());
  input.prober_realtime = prober_stats_.realtime;
  input.certificates = LookAtCertificates(options_.config.api);
  input.no_qp_moments = qp_moments_->why_not();
  for (const auto& [index, pair] : pairs_) {
    if (pair->estimate.state != sync::SyncState::kUnknown)
      input.clock_error_ns = std::max(input.clock_error_ns, static_cast<double>(pair->estimate.error_est_ns));
  }
  host::KernelProbe live;
  v1::DoctorReply reply;
  for (const host::Check& check : host::RunDoctor(host::Roots{}, live, input)) {
    v1::Check* out = reply.add_checks();
    out->set_name(check.name);
    out->set_result(ToApi(check.result));
    out->set_seen(check.seen);
    out->set_todo(check.todo);
  }
  return reply;
}

absl::StatusOr<v1::StatusReply> Agent::Status(const v1::StatusRequest&, const api::Caller&) {
  return loop_->Call<v1::StatusReply>([this] { return absl::StatusOr<v1::StatusReply>(MakeStatus()); });
}

absl::StatusOr<v1::DoctorReply> Agent::Doctor(const v1::DoctorRequest&, const api::Caller&) {
  return loop_->Call<v1::DoctorReply>([this] { return absl::StatusOr<v1::DoctorReply>(MakeDoctor()); });
}

absl::StatusOr<v1::PathsReply> Agent::Paths(const v1::PathsRequest& request, const api::Caller&) {
  return loop_->Call<v1::PathsReply>(
      [this, request] { return absl::StatusOr<v1::PathsReply>(paths_view_->All(request)); });
}

absl::StatusOr<v1::LinksReply> Agent::Links(const v1::LinksRequest& request, const api::Caller&) {
  absl::StatusOr<v1::PathsReply> paths = Paths({});
  if (!paths.ok()) return paths.status();
  const absl::StatusOr<LinkPast> flaps =
      loop_->Call<LinkPast>([this] { return absl::StatusOr<LinkPast>(paths_view_->PastOfLinks()); });
  if (!flaps.ok()) return flaps.status();
  return MakeLinks(*paths, request.window_s(), *flaps);
}

absl::StatusOr<v1::QpsReply> Agent::Qps(const v1::QpsRequest& request, const api::Caller&) {
  return loop_->Call<v1::QpsReply>([this, request] {
    if (request.received()) flow_reader_->ReadReceived();
    return absl::StatusOr<v1::QpsReply>(flows_view_->All(request));
  });
}

absl::StatusOr<v1::CountersReply> Agent::Counters(const v1::CountersRequest&, const api::Caller&) {
  absl::StatusOr<cw_counters> sums = dataplane_->counters().Sum();
  if (!sums.ok()) return sums.status();
  v1::CountersReply reply;
  const auto add = [&](const char* name, uint64_t value, const char* text) {
    v1::Counter* out = reply.add_counters();
    out->set_name(name);
    out->set_value(value);
    out->set_text(text);
  };
  for (const maps::CounterInfo& counter : maps::Counters()) add(counter.name, (*sums).*counter.field, counter.text);
  absl::StatusOr<probe::MessageStats> messages = loop_->Call<probe::MessageStats>([this, &add] {
    tails_->TellCounts(add);
    rerolls_->TellCounts(add);
    TellPlaceCounts(add);
    chunks_->TellCounts(add);
    return absl::StatusOr<probe::MessageStats>(engine_->message_stats());
  });
  if (!messages.ok()) return messages.status();
  add("messages_sent", messages->sent, "messages to other agents");
  add("messages_accepted", messages->accepted, "messages of other agents");
  add("messages_rejected", messages->rejected_mac + messages->rejected_replay + messages->rejected_malformed,
      "messages with a wrong MAC, seen before, or malformed");
  add("messages_passed_over", messages->passed_over, "messages of a kind that only a newer agent knows");
  return reply;
}

namespace {

// Who writes events waits while others are copied, and the loop is one of those.
constexpr size_t kEventsAtOnce = 256;

bool Passes(const v1::EventsRequest& request, const telemetry::Event& event) {
  if (!request.type().empty() && request.type() != event.type) return false;
  return request.match().empty() || request.match() == event.flow || request.match() == event.peer;
}

}  // namespace

absl::StatusOr<std::vector<v1::Event>> Agent::Events(const v1::EventsRequest& request, absl::Duration wait) {
  std::vector<v1::Event> out;
  const bool of_this_run = request.after_run() == 0 || request.after_run() == journal_.log().run();
  const uint64_t after_seq = of_this_run ? request.after_seq() : 0;
  const size_t last = after_seq == 0 ? request.last() : 0;  // 0: all
  const auto keep_last = [&](size_t most) {
    if (last > 0 && out.size() > most) out.erase(out.begin(), out.end() - static_cast<std::ptrdiff_t>(last));
  };
  uint64_t after = after_seq;
  if (last > 0 && request.type().empty() && request.match().empty())
    after = journal_.log().newest() - std::min<uint64_t>(journal_.log().newest(), last);
  const absl::Time deadline = absl::Now() + wait;
  // Events that do not pass the filter are no answer: go on waiting behind them.
  for (bool more = true; more;) {
    std::vector<telemetry::Event> events = journal_.log().After(after, kEventsAtOnce);
    if (events.empty()) events = journal_.log().WaitAfter(after, deadline - absl::Now());
    for (const telemetry::Event& event : events) {
      after = event.seq;
      if (Passes(request, event)) out.push_back(ToApi(event));
    }
    keep_last(2 * last);
    more = events.size() >= kEventsAtOnce || (out.empty() && absl::Now() < deadline);
  }
  keep_last(last);
  return out;
}

void Agent::Locate(const rdma::QpInfo& qp, v1::CollectiveQp& out) {
  const FlowKey key{qp.laddr, qp.raddr, qp.rqpn};
  out.set_flow(key.Id().ToString());
  v1::Flow names;
  flows_view_->AddNames(qp.laddr, &qp, names);
  out.set_nic(names.nic());
  out.set_peer(peer_names_.Of(qp.raddr));
  const auto flow = flows_.sent.find(key);
  if (flow == flows_.sent.end()) return;
  PairState* pair = FindPair(flow->second.tx.pair);
  const uint8_t slot = flow->second.PathSlot();
  if (pair == nullptr || slot >= CW_MAX_SLOTS) return;
  out.set_slot(slot);
  // No more of the path than that: each queue pair of many operations is asked for.
  const probe::Hops* hops = HopsOf(pair->index, slot);
  for (size_t i = 0; hops != nullptr && i < hops->size(); ++i)
    out.add_hops((*hops)[i].is_zero() ? "*" : (*hops)[i].ToString());
}

absl::StatusOr<v1::ListJobsReply> Agent::ListJobs(const v1::ListJobsRequest& request, const api::Caller&) {
  return loop_->Call<v1::ListJobsReply>(
      [this, request] { return absl::StatusOr<v1::ListJobsReply>(jobs_->List(request)); });
}

absl::StatusOr<v1::ListCollectivesReply> Agent::ListCollectives(const v1::ListCollectivesRequest& request,
                                                                const api::Caller&) {
  return loop_->Call<v1::ListCollectivesReply>(
      [this, request] { return absl::StatusOr<v1::ListCollectivesReply>(jobs_->Collectives(request)); });
}

absl::StatusOr<v1::ClockReply> Agent::Clock(const v1::ClockRequest&, const api::Caller&) {
  return loop_->Call<v1::ClockReply>([this] {
    v1::ClockReply reply = clocks_->Reply();
    nic_clocks_->Fill(reply);
    return absl::StatusOr<v1::ClockReply>(std::move(reply));
  });
}

absl::StatusOr<metrics::PathTotals> Agent::PathTotals() {
  return loop_->Call<metrics::PathTotals>([this] { return absl::StatusOr<metrics::PathTotals>(totals_->Make()); });
}

absl::StatusOr<std::vector<uplink::PathSeen>> Agent::PathsSeen(int seconds) {
  return loop_->Call<std::vector<uplink::PathSeen>>(
      [this, seconds] { return absl::StatusOr<std::vector<uplink::PathSeen>>(paths_view_->Seen(seconds)); });
}

void Agent::RecordForRing(bool wanted) {
  loop_->Post([this, wanted] {
    ring_ = wanted ? std::make_unique<RingRecorder>() : nullptr;
    ring_from_ns_ = absl::GetCurrentTimeNanos();
  });
}

absl::StatusOr<uplink::SecondSeen> Agent::SecondForRing() {
  return loop_->Call<uplink::SecondSeen>([this]() -> absl::StatusOr<uplink::SecondSeen> {
    if (ring_ == nullptr) return absl::FailedPreconditionError("nothing is recorded");
    uplink::Interval interval{.from_ns = ring_from_ns_, .to_ns = absl::GetCurrentTimeNanos()};
    ring_from_ns_ = interval.to_ns;
    return ring_->Take(paths_view_->Seen(0), flows_, peer_names_, interval, MonotonicNs());
  });
}

absl::StatusOr<std::vector<uplink::FlowSeen>> Agent::FlowsSeen() {
  return loop_->Call<std::vector<uplink::FlowSeen>>(
      [this] { return absl::StatusOr<std::vector<uplink::FlowSeen>>(flows_view_->Seen()); });
}

}  // namespace cw::agent
