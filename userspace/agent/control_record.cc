// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/control_record.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "maps/views.h"
#include "spdlog/spdlog.h"

namespace cw::agent {

using maps::CtlView;

void ControlRecord::Begin(const config::Config& config, bool adopted, int64_t wall_ns) {
  BeginSession(CtlView::Load(ctl_.session), wall_ns);
  CtlView::Store(ctl_.abi_version, CW_ABI_VERSION);
  WriteKnobs(config);
  const int64_t settle_ns = adopted ? 0 : kSettleNs;
  CtlView::Store(ctl_.assign_jiffies,
                 config.steering.assign_new_flows ? jiffies_at_(monotonic_.NowNs() + settle_ns) : 0);
}

void ControlRecord::WriteKnobs(const config::Config& config) {
  CtlView::Store(ctl_.sample_level_tx, static_cast<uint32_t>(config.samples.level_tx));
  CtlView::Store(ctl_.sample_level_rx, static_cast<uint32_t>(config.samples.level_rx));
  CtlView::Store(ctl_.miss_limit, static_cast<uint32_t>(config.liveness.misses));
  CtlView::Store(ctl_.patience_ns, static_cast<uint32_t>(absl::ToInt64Nanoseconds(config.liveness.patience)));
  CtlView::Store(ctl_.revive_limit, static_cast<uint32_t>(config.liveness.revive));
  CtlView::Store(ctl_.move_gap_ns, static_cast<uint64_t>(absl::ToInt64Nanoseconds(config.steering.move_gap)));
  if (!config.steering.assign_new_flows) {
    CtlView::Store(ctl_.assign_jiffies, uint64_t{0});
  } else if (CtlView::Load(ctl_.assign_jiffies) == 0) {
    CtlView::Store(ctl_.assign_jiffies, jiffies_at_(monotonic_.NowNs()));
  }
}

void ControlRecord::BeginSession(uint32_t before, int64_t wall_ns) {
  const absl::Status kept = session_.Begin(before, wall_ns, monotonic_.NowNs());
  if (!kept.ok()) {
    spdlog::warn(
        "the session is not kept ({}): after a reboot with a clock that is behind, peers would refuse this host's "
        "probes as replayed until the clock is set; let the agent write there",
        std::string(kept.message()));
  }
  CtlView::Store(ctl_.session, session_.session());
}

void ControlRecord::RenewSession(const PairTable& pairs, int64_t wall_ns,
                                 absl::FunctionRef<absl::Status(uint32_t session)> take) {
  if (!session_.Due(wall_ns, monotonic_.NowNs())) return;
  // Where a peer answers it is believed as it is; a new session would cost every pair its history.
  const bool heard =
      std::any_of(pairs.begin(), pairs.end(), [](const auto& pair) { return pair.second->last_reply_ns != 0; });
  if (heard) return;
  BeginSession(session_.session(), wall_ns);
  if (absl::Status status = take(session_.session()); !status.ok())
    spdlog::error("new session: {}", std::string(status.message()));
  telemetry::Event event{.type = "agent"};
  event.severity = telemetry::Severity::kNotice;
  event.text = "the wall clock was set forward: a new session begins, so that no peer takes this host for an old one";
  event.evidence = {{"session", absl::StrCat(session_.session())}};
  events_.Log(std::move(event));
}

}  // namespace cw::agent
