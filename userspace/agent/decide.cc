// SPDX-License-Identifier: Apache-2.0
// The decision window: observations in, moves out.
#include <algorithm>
#include <array>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/balance/dry_run.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/placement.h"
#include "userspace/replay/recorder.h"

namespace cw::agent {
namespace {

// Flows with smaller packets on average are acknowledgements and READ requests: they take no room, so they share
// nothing.
constexpr uint64_t kDataPacketBytes = 128;
constexpr int64_t kQuietAfterNs = 10'000'000'000;  // without flows
constexpr int64_t kDryEventNs = 10'000'000'000;    // observe mode: a flow's wish is logged at most this often

// A mean without the highest twentieth: one probe that waited behind a burst is not a queue, but the tail tells how
// many flows share a path (the rule is tuned to this cut).
double TypicalNs(std::vector<int64_t>& values) {
  std::sort(values.begin(), values.end());
  const size_t used = values.size() - values.size() / 20;
  double sum = 0;
  for (size_t i = 0; i < used; ++i) sum += static_cast<double>(values[i]);
  return sum / static_cast<double>(used);
}

// A link's name: the address of the port where it ends tells the switch and the port.
std::vector<uint64_t> LinkNames(const probe::Hops* hops) {
  std::vector<uint64_t> names;
  if (hops == nullptr) return names;
  for (const Addr& hop : *hops) {
    if (!hop.is_zero()) names.push_back(absl::Hash<Addr>()(hop));
  }
  if (!names.empty()) names.erase(names.begin());  // the first hop is this host's own link, the same for every path
  return names;
}

}  // namespace

control::PairObservation Agent::ObservePair(PairState& pair) {
  control::PairObservation out{.pair = pair.key};
  const probe::Discovery* discovery = engine_->discovery(pair.index);
  out.table_valid = discovery != nullptr && discovery->table().valid && probe::PortsSeenToChoose(discovery->hashing());
  cw_pair& shared = dataplane_->pairs()[pair.index];
  const probe::SlotTable& slots = engine_->mesh().slots(pair.index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    SlotState& slot = pair.slot[s];
    if (slots.port(s) == 0) continue;
    control::PathObservation path{.slot = s};
    path.usable = IsUsable(pair, s);
    path.base_ns = slot.forward.BaseNs() == INT64_MAX ? 0 : static_cast<double>(slot.forward.BaseNs());
    path.queue_samples = static_cast<int>(slot.window.owd_ns.size());
    if (path.queue_samples > 0) {
      path.queue_ns = std::max(TypicalNs(slot.window.owd_ns) - path.base_ns, 0.0);
      slot.queue_ns = path.queue_ns;
    }
    path.ecn_samples = slot.window.ecn_samples;
    path.marked = slot.window.marked;
    slot.window.Clear();
    if (discovery != nullptr) path.links = LinkNames(discovery->HopsOf(slots.port(s)));
    out.paths.push_back(std::move(path));
  }
  const std::array<uint16_t, kMaxSlots> backups = pair.backups.Step(out.paths);
  for (uint8_t s = 0; s < kMaxSlots; ++s) probe::Store(shared.backup[s], backups[s]);
  return out;
}

void Agent::Observe(int64_t now_ns) {
  seen_ = {.now_ns = now_ns,
           .window_ns = now_ns - std::exchange(last_window_ns_, now_ns),
           .line_rate_bps = options_.config.steering.path_gbps * 1e9};
  seen_.reprobed = last_looks_.TakeSeen();
  std::map<uint32_t, size_t> where;
  for (auto& [index, pair] : pairs_) {
    where[index] = seen_.pairs.size();
    seen_.pairs.push_back(ObservePair(*pair));
  }
  for (const auto& [key, flow] : flows_.sent) {
    auto at = where.find(flow.tx.pair);
    if (at == where.end() || flow.window_bytes < kDataPacketBytes * flow.window_packets) continue;
    // A flow with a pending move is left alone until the kernel has made it.
    const bool locked = (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) != 0 ||
                        flow.tx.want_slot != CW_SLOT_NONE;
    const cw_tx_flow& tx = flow.tx;
    seen_.pairs[at->second].flows.push_back(
        {.key = key,
         .slot = flow.PathSlot(),
         .bytes = flow.window_bytes,
         .cnps = flow.window_cnps,
         .locked = locked,
         .at_rest = tx.acked_valid != 0 && tx.flow.req.seen == 1 && tx.acked_psn == tx.flow.req.next});
  }
}

void Agent::Decide(int64_t now_ns) {
  if (seen_.window_ns <= 0 || flows_.sent.empty()) return;
  const control::Decision decision = control::DecideMoves(seen_, *contention_);
  dry_run_->SetWindow(RecordedWindow());
  Record(seen_, decision);
  for (const control::Move& move : decision.moves) Apply(move);
  dry_run_->SetWindow(RecordedWindow());
  for (const control::Finding& finding : decision.findings) {
    if (finding.kind != control::Finding::Kind::kReceiverOrEveryPath) {
      LogTrial(finding);
      continue;
    }
    int64_t& last_ns = finding_logged_ns_[finding.pair];
    if (last_ns != 0 && now_ns - last_ns < kDryEventNs) continue;
    last_ns = now_ns;
    Log({.type = "fabric",
         .severity = telemetry::Severity::kNotice,
         .text = finding.text,
         .peer = peer_names_.Of(finding.pair.remote),
         .evidence = finding.evidence});
  }
}

// What a move of ours brought.
void Agent::LogTrial(const control::Finding& finding) {
  const bool kept = finding.kind == control::Finding::Kind::kMoveConfirmed;
  Log({.type = "trial",
       .text = absl::StrCat(kept ? "a move paid: " : "a move brought nothing: ", finding.text),
       .flow = finding.flow.Id().ToString(),
       .peer = peer_names_.Of(finding.pair.remote),
       .evidence = finding.evidence});
}

void Agent::OpenRecording() {
  const config::LogConfig& log = options_.config.log;
  if (log.observations_file.empty()) return;
  auto recorder = replay::Recorder::Open(log.observations_file, static_cast<uint64_t>(log.observations_mib) << 20,
                                         {.host = host_name_, .version = kVersion}, *contention_);
  if (recorder.ok()) {
    recorder_ = *std::move(recorder);
    return;
  }
  Log({.type = "agent",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrCat("observations are not recorded: ", std::string(recorder.status().message()))});
}

std::pair<int64_t, int64_t> Agent::RecordedWindow() const {
  if (recorder_ == nullptr) return {0, -1};
  return {recorder_->started_unix_ns(), static_cast<int64_t>(recorder_->windows())};
}

void Agent::Record(const control::Observation& seen, const control::Decision& decision) {
  if (recorder_ == nullptr) return;
  const absl::Status status = recorder_->Add(seen, decision, *contention_);
  if (status.ok()) return;
  recorder_.reset();
  Log({.type = "agent",
       .severity = telemetry::Severity::kAlert,
       .text = absl::StrCat("observations are recorded no longer: ", std::string(status.message()))});
}

// Flows that send nothing are no work: most of them have ended.
void Agent::KeepPace(int64_t now_ns) {
  if (std::any_of(flows_.sent.begin(), flows_.sent.end(), [](const auto& f) { return f.second.window_packets > 0; }))
    busy_ns_ = now_ns;
  SetPace(now_ns - busy_ns_ < kQuietAfterNs);
}

// A wake-up costs more than what there is to do without flows. A new flow wakes the loop by its event. Not soon after
// the start: young clock lines need the newest probes.
void Agent::SetPace(bool busy) {
  if (busy == busy_) return;
  busy_ = busy;
  loop_->SetPeriod(ring_timer_, busy ? kRingPeriod : kQuietPeriod);
  loop_->SetPeriod(window_timer_, busy ? Window() : std::max(Window(), kQuietPeriod));
}

void Agent::Apply(const control::Move& move) {
  const std::optional<uint32_t> index = engine_->mesh().Find(move.pair);
  if (!index) return;
  const bool act = MayBalance();
  if (!act && !modes_->allowed().Decides(Capability::kBalance)) return;
  if (!act) {
    dry_run_->TellMove(move);
    const int64_t now_ns = MonotonicNs();
    int64_t& last_ns = dry_logged_ns_[move.flow];
    if (last_ns != 0 && now_ns - last_ns < kDryEventNs) return;
    last_ns = now_ns;
  }
  if (!act) return TellMove(move, false);
  if (move.second != CW_SLOT_NONE) return LookOnceMore(move, *index);
  MakeMove(move, *index);
}

// A path that has not answered yet has lost nothing: its peer may not be there. OnProbe begins its count.
void Agent::CountSent(PairState& pair, int64_t now_ns) {
  const cw_pair& shared = dataplane_->pairs()[pair.index];
  const uint32_t round = probe::Load(shared.cur_round);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    SlotState& slot = pair.slot[s];
    const uint32_t sent = round - std::exchange(slot.counted_round, round);
    if (sent > 100'000) continue;  // the numbering began anew
    const bool begun = slot.answered_ns != 0 || probe::Load(shared.slot[s].state) != CW_SLOT_NEW;
    if (begun && engine_->mesh().slots(pair.index).port(s) != 0) slot.forward.AddSent(now_ns, sent);
  }
}

void Agent::LookAtPairs(int64_t now_ns) {
  for (auto& [index, pair] : pairs_) {
    link_flaps_->Remember(*pair);
    damping_->Update(*pair);
    CountSent(*pair, now_ns);
  }
}

void Agent::ReadMeters(int64_t now_ns) {
  const uint64_t probes_before = prober_stats_.probes;
  prober_stats_ = engine_->prober_stats();
  probe_rate_pps_ += 0.2 * (static_cast<double>(prober_stats_.probes - probes_before) - probe_rate_pps_);
  int64_t bpf_ns = 0;
  if (auto info = dataplane_->XdpInfo(); info.ok()) bpf_ns += static_cast<int64_t>(info->run_time_ns);
  if (auto info = dataplane_->TcInfo(); info.ok()) bpf_ns += static_cast<int64_t>(info->run_time_ns);
  meter_.Sample(now_ns, ResourceMeter::ProcessCpuNs(), bpf_ns);
}

// Told once, and once when it is over: each event tries the file again.
void Agent::TellOfEventsFile() {
  const std::string error = journal_.log().file_error();
  if (error.empty() == !file_error_logged_) return;
  file_error_logged_ = !error.empty();
  const std::string& file = options_.config.log.events_file;
  Log({.type = "agent",
       .severity = file_error_logged_ ? telemetry::Severity::kAlert : telemetry::Severity::kNotice,
       .text =
           file_error_logged_
               ? absl::StrCat("events cannot be written to ", file, " (", error, "): make room; cwctl events has them")
               : absl::StrCat("events are written to ", file, " again; those in between are missing there")});
}

// The kernel stops inserting once the table was full; it may go on when flows were forgotten.
void Agent::ReopenFlowTable() {
  using maps::CtlView;
  cw_ctl& ctl = dataplane_->ctl()[0];
  if (CtlView::Load(ctl.steer_full) == 0) return;
  if (!table_full_logged_) {
    Log({.type = "flow",
         .severity = telemetry::Severity::kAlert,
         .text = absl::StrFormat(
             "the flow table is full (%d): further flows stay on their native ports; raise limits.max_tx_flows",
             dataplane_->tx_flows().capacity())});
  }
  table_full_logged_ = true;
  if (FlowTableScarce()) return;
  CtlView::Store(ctl.steer_full, 0);
  table_full_logged_ = false;
}

}  // namespace cw::agent
