// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/modes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "maps/views.h"
#include "spdlog/spdlog.h"

namespace cw::agent {
namespace {

Mode FromApi(v1::Mode mode) {
  switch (mode) {
    case v1::MODE_OFF:
      return Mode::kOff;
    case v1::MODE_PROTECT:
      return Mode::kProtect;
    case v1::MODE_OPTIMIZE:
      return Mode::kOptimize;
    default:
      return Mode::kObserve;
  }
}

// The cwctl arguments that set `from` again.
std::string UndoOf(Allowed from, Allowed to) {
  std::string undo = absl::StrCat("mode ", std::string(ModeName(from.mode())));
  for (const Capability c : kAllCapabilities) {
    const bool was = from.of(c) != Allowed(from.mode()).of(c), is = to.of(c) != Allowed(to.mode()).of(c);
    if (!was && !is) continue;
    absl::StrAppend(&undo, " ", std::string(CapabilityName(c)), "=",
                    was ? std::string(AllowName(from.of(c))) : std::string("mode"));
  }
  return undo;
}

}  // namespace

Allowed Modes::allowed() const { return Allowed(maps::CtlView::Load(ctl_.mode)); }

void Modes::Begin(Allowed configured, const AllowOverrides& overrides, bool adopted) {
  overrides_ = overrides;
  if (adopted) {
    std::lock_guard lock(mutex_);
    known_ = maps::CtlView::Load(ctl_.mode);
  } else {
    Store(configured);
  }
  if (mode() != Mode::kOff) overrides_ = OverridesOf(allowed());
  if (mode() == Mode::kOff && configured.mode() != Mode::kOff) {
    journal_.Log({.type = "mode",
                  .severity = telemetry::Severity::kAlert,
                  .text = absl::StrCat("mode off was found in the kernel's map: it was set before this start (cwctl "
                                       "off) and stays; the configuration says ",
                                       configured.ToString(), ": cwctl mode ", ModeName(configured.mode()))});
  } else if (allowed() != configured) {
    spdlog::warn("the mode is {} and stays, as it was before the restart; the configuration says {}: cwctl mode {}",
                 allowed().ToString(), configured.ToString(), std::string(ModeName(configured.mode())));
  }
}

void Modes::Store(Allowed allowed) {
  std::lock_guard lock(mutex_);
  known_ = allowed.word();
  maps::CtlView::Store(ctl_.mode, known_);
}

void Modes::LookAtMap() {
  uint32_t before = 0;
  {
    std::lock_guard lock(mutex_);
    before = std::exchange(known_, maps::CtlView::Load(ctl_.mode));
    if (before == known_) return;
  }
  const Allowed now = allowed();
  if (now.mode() != Mode::kOff) overrides_ = OverridesOf(now);
  AdoptEnd();
  KeepDeadlines();
  const bool off = now.mode() == Mode::kOff;
  journal_.Log({.type = "mode",
                .severity = telemetry::Severity::kAlert,
                .text = absl::StrCat("mode ", now.ToString(), " was set in the kernel's map by somebody else",
                                     off ? " (cwctl off or cwfabric-off)" : "", ", was ", Allowed(before).ToString(),
                                     "; it stays", off ? ": every flow leaves on its native port" : ""),
                .evidence = {{"mode", now.ToString()}, {"mode_before", Allowed(before).ToString()}}});
}

void Modes::KeepDeadlines() {
  const absl::Status status = deadlines_.Save();
  if (!status.ok() && deadlines_kept_)
    spdlog::warn("a restart of the agent would forget what ends by itself: {}", std::string(status.message()));
  deadlines_kept_ = status.ok();
}

void Modes::AdoptEnd() {
  if (deadlines_.mode() && deadlines_.mode()->set != allowed()) deadlines_.SetMode(std::nullopt);
}

void Modes::Due(const Deadlines::ModeEnd& end) {
  if (end.set == allowed()) Change({}, allowed(), end.after, 0);
}

void Modes::TakeConfigured(Allowed before, Allowed wanted) {
  if (wanted == before || wanted == allowed()) return;
  if (mode() == Mode::kOff) {
    journal_.Log({.type = "mode",
                  .severity = telemetry::Severity::kNotice,
                  .text = absl::StrCat("the mode is off and stays; the configuration says ", wanted.ToString(),
                                       ": cwctl mode ", std::string(ModeName(wanted.mode())))});
    return;
  }
  Change({}, allowed(), wanted, 0);
}

Allowed Modes::SwitchOff() {
  constexpr uint32_t kOff = CW_MODE_OFF;
  std::lock_guard lock(mutex_);
  const Allowed was = allowed();
  if (was.word() == known_) known_ = kOff;  // else LookAtMap has something to report
  maps::CtlView::Store(ctl_.mode, kOff);
  return was;
}

v1::ActionReply Modes::Change(const api::Caller& caller, Allowed from, Allowed to, double for_s) {
  LookAtMap();
  Store(to);
  if (to.mode() != Mode::kOff) overrides_ = OverridesOf(to);
  if (for_s > 0) {
    // A second --for goes back to where the first one would have.
    deadlines_.SetMode(Deadlines::ModeEnd{.set = to,
                                          .after = deadlines_.mode() ? deadlines_.mode()->after : from,
                                          .at_ns = EndNs(for_s, monotonic_.NowNs())});
  } else {
    deadlines_.SetMode(std::nullopt);
  }
  KeepDeadlines();
  v1::ActionReply reply;
  reply.set_effect(absl::StrFormat("mode %s (was %s)%s", to.ToString(), from.ToString(),
                                   to.ActsAtAll() ? "" : ": every flow leaves on its native port"));
  if (from != to) reply.set_undo(from.mode() == Mode::kOff ? "off" : UndoOf(from, to));
  reply.set_reverts_s(for_s);
  journal_.LogAct(caller, {.type = "mode", .text = reply.effect()});
  return reply;
}

absl::StatusOr<v1::ActionReply> Modes::Set(const api::Caller& caller, const v1::SetModeRequest& request) {
  const Allowed from = allowed();
  if (request.mode() == v1::MODE_OFF) return Change(caller, from, Mode::kOff, request.for_s());
  const bool same = request.mode() == v1::MODE_UNSPECIFIED;
  if (same && from.mode() == Mode::kOff)
    return absl::FailedPreconditionError("the mode is off; first: cwctl mode observe, protect or optimize");
  AllowOverrides overrides = overrides_;
  for (const v1::CapabilityAllow& each : request.allowed()) {
    const std::optional<Capability> capability = ParseCapability(each.capability());
    if (!capability) {
      return absl::InvalidArgumentError(absl::StrCat("there is no capability ", each.capability(),
                                                     "; choose failover, loss, tails, balance, place or nic"));
    }
    std::optional<Allow>& allow = overrides[static_cast<size_t>(*capability)];
    allow = each.allow() == v1::ALLOW_OFF       ? std::optional(Allow::kOff)
            : each.allow() == v1::ALLOW_OBSERVE ? std::optional(Allow::kObserve)
            : each.allow() == v1::ALLOW_ACT     ? std::optional(Allow::kAct)
                                                : std::nullopt;
  }
  return Change(caller, from, cw::Apply(same ? from.mode() : FromApi(request.mode()), overrides), request.for_s());
}

}  // namespace cw::agent
