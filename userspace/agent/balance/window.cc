// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/balance/window.h"

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "absl/hash/hash.h"
#include "absl/strings/str_cat.h"

namespace cw::agent {
namespace {

// Flows with smaller packets on average are acknowledgements and READ requests: they take no room, so they share
// nothing.
constexpr uint64_t kDataPacketBytes = 128;
constexpr int64_t kFindingNs = 10'000'000'000;  // one of a pair is told at most this often

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

control::PairObservation ContentionWindow::ObservePair(PairState& pair) {
  control::PairObservation out{.pair = pair.key};
  out.table_valid = asks_.paths_known(pair.index);
  cw_pair& shared = *mesh_.shared(pair.index);
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    SlotState& slot = pair.slot[s];
    if (slots.port(s) == 0) continue;
    control::PathObservation path{.slot = s};
    path.usable = IsUsable(pair, mesh_, s);
    path.base_ns = slot.forward.BaseNs() == INT64_MAX ? 0 : static_cast<double>(slot.forward.BaseNs());
    path.queue_samples = static_cast<int>(slot.window.owd_ns.size());
    if (path.queue_samples > 0) {
      path.queue_ns = std::max(TypicalNs(slot.window.owd_ns) - path.base_ns, 0.0);
      slot.queue_ns = path.queue_ns;
    }
    path.ecn_samples = slot.window.ecn_samples;
    path.marked = slot.window.marked;
    slot.window.Clear();
    path.links = LinkNames(asks_.hops(pair.index, s));
    out.paths.push_back(std::move(path));
  }
  const std::array<uint16_t, kMaxSlots> backups = pair.backups.Step(out.paths);
  for (uint8_t s = 0; s < kMaxSlots; ++s) probe::Store(shared.backup[s], backups[s]);
  return out;
}

void ContentionWindow::Observe(int64_t now_ns) {
  seen_ = {.now_ns = now_ns, .window_ns = now_ns - std::exchange(began_ns_, now_ns), .line_rate_bps = asks_.path_bps()};
  seen_.reprobed = moves_.TakeSeen();
  std::map<uint32_t, size_t> where;
  for (const auto& [index, pair] : pairs_) {
    where[index] = seen_.pairs.size();
    seen_.pairs.push_back(ObservePair(*pair));
  }
  for (const auto& [key, flow] : flows_.sent) {
    auto at = where.find(flow.tx.pair);
    if (at == where.end() || flow.window_bytes < kDataPacketBytes * flow.window_packets) continue;
    // A flow with a pending move is left alone until the kernel has made it.
    const bool locked = (flow.tx.flags & (CW_STEER_LOCKED | CW_STEER_HARD_LOCKED | CW_STEER_MANUAL)) != 0 ||
                        (flow.tx.withheld >> CW_CAP_BALANCE & 1) != 0 || flow.tx.want_slot != CW_SLOT_NONE;
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

void ContentionWindow::Decide() {
  if (seen_.window_ns <= 0 || flows_.sent.empty()) return;
  const control::Decision decision = control::DecideMoves(seen_, rule_);
  SetWindow();
  Add(decision);
  for (const control::Move& move : decision.moves) moves_.Apply(move);
  SetWindow();
  for (const control::Finding& finding : decision.findings) Tell(finding);
}

void ContentionWindow::Tell(const control::Finding& finding) {
  if (finding.kind != control::Finding::Kind::kReceiverOrEveryPath) return TellTrial(finding);
  int64_t& last_ns = finding_logged_ns_[finding.pair];
  if (last_ns != 0 && seen_.now_ns - last_ns < kFindingNs) return;
  last_ns = seen_.now_ns;
  events_.Log({.type = "fabric",
               .severity = telemetry::Severity::kNotice,
               .text = finding.text,
               .peer = names_.Of(finding.pair.remote),
               .evidence = finding.evidence});
}

// What a move of ours brought.
void ContentionWindow::TellTrial(const control::Finding& finding) {
  const bool kept = finding.kind == control::Finding::Kind::kMoveConfirmed;
  events_.Log({.type = "trial",
               .text = absl::StrCat(kept ? "a move paid: " : "a move brought nothing: ", finding.text),
               .flow = finding.flow.Id().ToString(),
               .peer = names_.Of(finding.pair.remote),
               .evidence = finding.evidence});
}

void ContentionWindow::Record(const std::string& file, uint64_t most_bytes, const replay::RecordedBy& by) {
  if (file.empty()) return;
  auto recorder = replay::Recorder::Open(file, most_bytes, by, rule_);
  if (recorder.ok()) {
    recorder_ = *std::move(recorder);
    return;
  }
  events_.Log({.type = "agent",
               .severity = telemetry::Severity::kAlert,
               .text = absl::StrCat("observations are not recorded: ", std::string(recorder.status().message()))});
}

void ContentionWindow::Add(const control::Decision& decision) {
  if (recorder_ == nullptr) return;
  const absl::Status status = recorder_->Add(seen_, decision, rule_);
  if (status.ok()) return;
  recorder_.reset();
  events_.Log({.type = "agent",
               .severity = telemetry::Severity::kAlert,
               .text = absl::StrCat("observations are recorded no longer: ", std::string(status.message()))});
}

void ContentionWindow::SetWindow() {
  if (recorder_ == nullptr) return dry_run_.SetWindow({0, -1});
  dry_run_.SetWindow({recorder_->started_unix_ns(), static_cast<int64_t>(recorder_->windows())});
}

}  // namespace cw::agent
