// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/views/status_view.h"

#include <unistd.h>

#include <algorithm>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "maps/names.h"
#include "maps/views.h"
#include "userspace/agent/certificates.h"
#include "userspace/agent/memory_lock.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/host/doctor.h"
#include "userspace/rights/rights.h"

namespace cw::agent {
namespace {

double AgoS(int64_t now_ns, int64_t then_ns) { return then_ns == 0 ? -1 : static_cast<double>(now_ns - then_ns) / 1e9; }

}  // namespace

v1::StatusReply StatusView::Status() const {
  const int64_t now_ns = monotonic_.NowNs();
  v1::StatusReply reply;
  reply.set_version(version_);
  reply.set_instance(config_.instance);
  reply.set_host_name(vitals_.host_name);
  reply.set_pid(static_cast<uint32_t>(getpid()));
  reply.set_uptime_s(AgoS(now_ns, vitals_.started_ns));
  AddMode(reply, now_ns);
  reply.set_report_file(config_.log.report_file);
  reply.set_observations_file(config_.log.observations_file);
  reply.set_data_age_s(AgoS(now_ns, vitals_.newest_data_ns));
  reply.set_hashing(paths_.Hashing());
  reply.set_cpu_percent(vitals_.meter.TotalPercent());
  reply.set_cpu_process_percent(vitals_.meter.ProcessPercent());
  reply.set_rss_bytes(ResourceMeter::RssBytes());
  AddNics(reply);
  AddPeers(reply, now_ns);
  flows_view_.Count(*reply.mutable_flows());
  AddProber(reply);
  asks_.add_others(reply);
  AddCounters(reply);
  return reply;
}

void StatusView::AddMode(v1::StatusReply& reply, int64_t now_ns) const {
  reply.set_mode(ToApi(modes_.mode()));
  if (deadlines_.mode())
    reply.set_mode_reverts_s(std::max(static_cast<double>(deadlines_.mode()->at_ns - now_ns) / 1e9, 0.001));
  reply.set_lease_s(absl::ToDoubleSeconds(config_.steering.lease));
  if (lease_.LeftS() != 0) reply.set_lease_left_s(lease_.LeftS());
  reply.set_lease_found_over_s(lease_.found_over_s());
  for (const Capability c : kAllCapabilities) {
    v1::CapabilityAllow* out = reply.add_allowed();
    out->set_capability(std::string(CapabilityName(c)));
    out->set_allow(ToApi(modes_.allowed().of(c)));
    out->set_by_mode(ToApi(Allowed(modes_.mode()).of(c)));
  }
  breaker_.AddTo(*reply.mutable_breaker(), now_ns);
}

void StatusView::AddNics(v1::StatusReply& reply) const {
  for (const NicState& nic : nics_) {
    v1::NicStatus* out = reply.add_nics();
    out->set_name(nic.config.name);
    out->set_ifindex(nic.ifindex);
    out->set_address(nic.address.ToString());
    out->set_trouble(nic.Trouble());
    const bool there = nic.attached && !nic.programs_gone;
    out->set_ingress(!there ? "none" : nic.attach.mode == dataplane::XdpMode::kNative ? "native" : "generic");
    out->set_egress(there ? "tc" : "none");
    std::vector<std::string> notes = {nic.note, nic.Note()};
    std::erase(notes, "");
    out->set_note(absl::StrJoin(notes, "; "));
    out->set_mtu(nic.mtu);
    out->set_offloads_roce(nic.offloads_roce);
    out->set_keeps_departures(nic.keeps_departures);
    out->set_link_down(!nic.link_up);
    for (const auto& [index, pair] : pairs_) {
      if (pair->ifindex != nic.ifindex) continue;
      out->set_pairs_silent(out->pairs_silent() + (asks_.silent(pair->key) ? 1 : 0));
      out->set_pairs_carried(out->pairs_carried() + (asks_.carried(pair->key) ? 1 : 0));
    }
    asks_.add_transport(nic, *out);
    for (const std::string& device : nic.rdma_devices) out->add_rdma_devices(device);
  }
}

void StatusView::AddPeers(v1::StatusReply& reply, int64_t now_ns) const {
  std::map<std::string, v1::PeerStatus> peers;
  for (const auto& [index, pair] : pairs_) {
    v1::PeerStatus& peer = peers[pair->peer];
    peer.set_name(pair->peer);
    peer.add_addresses(pair->key.remote.ToString());
    peer.set_pairs(peer.pairs() + 1);
    peer.set_flows(peer.flows() + pair->flows);
    if (!pair->version.empty()) peer.set_version(pair->version);
    const double ago_s = AgoS(now_ns, pair->last_reply_ns);
    const bool newer = ago_s >= 0 && (peer.last_reply_ago_s() < 0 || ago_s < peer.last_reply_ago_s());
    if (peer.pairs() == 1 || newer) peer.set_last_reply_ago_s(ago_s);
    AddCause(causes_.Of(pair->key), peer);
    if (!pair->mtu_trouble.empty()) peer.set_mtu_text(pair->mtu_trouble);
    if (pair->PeerIsBlind(now_ns))
      peer.set_blind_text(
          absl::StrCat("its agent's programs do not see the packets of its NIC ", pair->key.remote.ToString()));
    if (asks_.do_not_leave(index))
      peer.set_blind_text(absl::StrCat("probes to its NIC ", pair->key.remote.ToString(),
                                       " do not leave this host: no route, nobody answers for the address, or a "
                                       "firewall"));
    paths_.Count(*pair, peer, *reply.mutable_paths());
    AddFrozen(*pair, reply);
  }
  for (auto& [name, peer] : peers) *reply.add_peers() = std::move(peer);
}

void StatusView::AddFrozen(const PairState& pair, v1::StatusReply& reply) const {
  const probe::Discovery* discovery = asks_.discovery(pair.index);
  if (discovery == nullptr) return;
  std::string why;
  if (pair.table_seen && !discovery->table().valid) {
    why = absl::StrCat("paths to ", pair.peer, " are being found again");
  } else if (!probe::PortsChoosePaths(discovery->hashing())) {
    why = absl::StrCat("ports do not choose the path to ", pair.peer);
  } else if (pair.table_seen && !probe::PortsSeenToChoose(discovery->hashing())) {
    why = absl::StrCat("whether ports choose the path to ", pair.peer, " was not seen (yet)");
  } else {
    return;
  }
  reply.set_moves_frozen(true);
  reply.set_frozen_reason(why);
}

void StatusView::AddProber(v1::StatusReply& reply) const {
  v1::ProberStatus* out = reply.mutable_prober();
  out->set_rate_pps(vitals_.probe_rate_pps);
  out->set_budget_pps(static_cast<double>(config_.probe.budget_pps));
  out->set_afforded_pps(vitals_.prober.afforded_pps);
  out->set_slowed(static_cast<uint32_t>(vitals_.slowed));
  out->set_lateness_p50_ns(static_cast<double>(vitals_.prober.lateness_p50_ns));
  out->set_lateness_p99_ns(static_cast<double>(vitals_.prober.lateness_p99_ns));
  out->set_rounds(vitals_.prober.rounds);
  out->set_skipped(vitals_.prober.skipped_rounds);
  out->set_realtime(vitals_.prober.realtime);
  out->set_cpus(vitals_.prober.cpus);
  const MemoryLock memory = PresentMemoryLock();
  out->set_memory_locked(memory.locked);
  out->set_memory_note(memory.note);
  // This is the loop's thread.
  if (const absl::StatusOr<rights::Set> held = rights::Held(); held.ok()) {
    for (const std::string& name : rights::Names(*held)) reply.add_capabilities(name);
  }
}

void StatusView::AddCounters(v1::StatusReply& reply) const {
  const auto add = [&](const char* name, uint64_t value, const char* text) {
    if (value == 0) return;
    v1::Counter* c = reply.add_counters();
    c->set_name(name);
    c->set_value(value);
    c->set_text(text);
  };
  if (const absl::StatusOr<cw_counters> sums = asks_.counters(); sums.ok()) {
    for (const maps::CounterInfo& counter : maps::Counters()) add(counter.name, (*sums).*counter.field, counter.text);
    reply.mutable_lost()->set_probe_ring(sums->probe_ring_full);
    reply.mutable_lost()->set_event_ring(sums->event_ring_full);
    reply.mutable_lost()->set_message_ring(sums->message_ring_full);
  }
  asks_.tell_counts(add);
  auto fill = [&](const char* name, uint64_t used, uint64_t capacity) {
    v1::MapFill* map = reply.add_maps();
    map->set_name(name);
    map->set_used(used);
    map->set_capacity(capacity);
  };
  fill(CW_MAP_TX_FLOWS, flows_.sent.size(), asks_.rooms.sent);
  fill(CW_MAP_FLOWS, flows_.received.size(), asks_.rooms.received);
  fill(CW_MAP_PAIRS, pairs_.size(), asks_.rooms.pairs);
}

v1::DoctorReply StatusView::Doctor() const {
  host::DoctorInput input{.agent_runs = true,
                          .agent_note = absl::StrCat(version_, ", mode ", modes_.allowed().ToString())};
  for (const NicState& nic : nics_) {
    v1::NicStatus status;
    asks_.add_transport(nic, status);
    const std::string& how = status.transport();  // kernel, verbs, or none
    input.nics.push_back(
        {nic.device,
         !nic.attached                                    ? "none"
         : nic.attach.mode == dataplane::XdpMode::kNative ? "native"
                                                          : "generic",
         how == "none" ? absl::StrCat(nic.note, nic.note.empty() ? "" : "; ", "no probes: ", status.transport_note())
                       : nic.note,
         how == "verbs" ? status.transport_note() : "", nic.DeviceTrouble(), nic.Note(), nic.hooks_trouble});
  }
  input.hashing = HostHashing(paths_.Hashing());
  input.prober_realtime = vitals_.prober.realtime;
  input.certificates = LookAtCertificates(config_.api);
  input.no_qp_moments = asks_.no_qp_moments();
  if (const absl::StatusOr<cw_counters> sums = asks_.counters(); sums.ok()) input.gso_frames = sums->gso_frames;
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

}  // namespace cw::agent
