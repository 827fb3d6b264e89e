// SPDX-License-Identifier: Apache-2.0
// What the agent looks after besides its parts, in every window or once per second.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/ring_recorder.h"

namespace cw::agent {
namespace {

constexpr int64_t kQuietAfterNs = 10'000'000'000;  // without flows

}  // namespace

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

// A path that has not answered yet has lost nothing: its peer may not be there. ProbeNews begins its count.
void Agent::CountSent(PairState& pair, int64_t now_ns) {
  const cw_pair& shared = dataplane_->pairs()[pair.index];
  const uint32_t round = probe::Load(shared.cur_round);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    SlotState& slot = pair.slot[s];
    const uint32_t sent = round - std::exchange(slot.counted_round, round);
    if (sent > 100'000) continue;  // the numbering began anew
    const bool begun = slot.answered_ns != 0 || probe::Load(shared.slot[s].state) != CW_SLOT_NEW;
    if (!begun || engine_->mesh().slots(pair.index).port(s) == 0) continue;
    slot.forward.AddSent(now_ns, sent);
    if (ring_ != nullptr) ring_->Sent(pair.index, s, sent);
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
  const uint64_t probes_before = vitals_.prober.probes;
  vitals_.prober = engine_->prober_stats();
  vitals_.probe_rate_pps += 0.2 * (static_cast<double>(vitals_.prober.probes - probes_before) - vitals_.probe_rate_pps);
  int64_t bpf_ns = 0;
  if (auto info = dataplane_->XdpInfo(); info.ok()) bpf_ns += static_cast<int64_t>(info->run_time_ns);
  if (auto info = dataplane_->TcInfo(); info.ok()) bpf_ns += static_cast<int64_t>(info->run_time_ns);
  vitals_.meter.Sample(now_ns, ResourceMeter::ProcessCpuNs(), bpf_ns);
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

}  // namespace cw::agent
