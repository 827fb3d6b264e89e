// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/hooks.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::agent {
namespace {

constexpr size_t kQuickRepairs = 3;  // within kQuickPeriodNs; whoever undoes more than these means it
constexpr int64_t kQuickPeriodNs = 600'000'000'000, kSlowRepairNs = 60'000'000'000;
constexpr int kUnseenLooks = 2;
constexpr int kSettling = 5;  // losses are summed over four seconds

std::string Missing(const dataplane::HookLook& look) {
  std::vector<std::string> names;
  if (!look.xdp) names.emplace_back("XDP");
  if (!look.tc_egress) names.emplace_back("tc egress");
  if (!look.tc_ingress) names.emplace_back("tc ingress");
  return absl::StrJoin(names, " and ");
}

}  // namespace

void Hooks::LookAtAll() {
  LookAtPins();  // first: what is attached again is pinned there
  for (NicState& nic : nics_) {
    if (nic.attached && !nic.removed) LookAt(nic);
  }
}

void Hooks::LookAt(NicState& nic) {
  const absl::StatusOr<dataplane::HookLook> look = dependencies_.look(nic);
  if (absl::IsFailedPrecondition(look.status())) return Repair(nic, {.tc_ingress = true});  // a repair failed before
  if (!look.ok()) return;                                                                   // not known: as it was
  if (!look->all()) return Repair(nic, *look);
  nic.programs_gone = false;
  if (nic.settling > 0) --nic.settling;
  SetTrouble(nic, Unseen(nic));
}

void Hooks::Repair(NicState& nic, const dataplane::HookLook& look) {
  nic.programs_gone = true;
  nic.settling = kSettling;
  TryRepair(nic, look, watched_[nic.ifindex]);
}

void Hooks::TryRepair(NicState& nic, const dataplane::HookLook& look, Watched& watched) {
  const std::string missing = Missing(look);
  const std::vector<std::string> others = dependencies_.others(nic);
  const std::string seen = others.empty() ? "" : "; other programs there: " + absl::StrJoin(others, ", ");
  if (look.other_xdp != 0) {
    return SetTrouble(nic, absl::StrFormat("NIC %s: another XDP program (id %d) is in the place of the agent's%s",
                                           nic.config.name, look.other_xdp, seen));
  }
  if (dependencies_.off()) {
    return SetTrouble(nic, absl::StrFormat("NIC %s: somebody detached the agent's %s program while the mode is off; it "
                                           "is attached again with another mode (cwctl mode observe)",
                                           nic.config.name, missing));
  }
  std::deque<int64_t>& repairs = look.xdp ? watched.tc_repairs_ns : watched.xdp_repairs_ns;
  if (!MayRepair(repairs)) {
    if (nic.hooks_trouble.empty())
      SetTrouble(nic, absl::StrFormat("NIC %s: somebody detaches the agent's %s program again and again%s",
                                      nic.config.name, missing, seen));
    return;
  }
  const absl::StatusOr<dataplane::AttachInfo> attached = dependencies_.attach(nic);
  if (absl::IsUnavailable(attached.status())) {  // it waits for a moment in which nobody feels it
    watched.waits = true;
    return SetTrouble(nic, absl::StrCat("NIC ", nic.config.name, ": ", attached.status().message()));
  }
  repairs.push_back(monotonic_.NowNs());
  if (!attached.ok()) {
    return SetTrouble(nic, absl::StrFormat("NIC %s: the agent's %s program is gone, and cannot be attached again: %s",
                                           nic.config.name, missing, std::string(attached.status().message())));
  }
  nic.attach = *attached;
  nic.programs_gone = false;
  if (std::exchange(watched.waits, false)) return SetTrouble(nic, "");
  Log(nic, telemetry::Severity::kNotice,
      absl::StrFormat("NIC %s: somebody detached the agent's %s program; it is attached again%s", nic.config.name,
                      missing, seen));
  SetTrouble(nic, "");
}

bool Hooks::MayRepair(std::deque<int64_t>& repairs) const {
  const int64_t now_ns = monotonic_.NowNs();
  while (!repairs.empty() && now_ns - repairs.front() > kQuickPeriodNs) repairs.pop_front();
  return repairs.size() < kQuickRepairs || now_ns - repairs.back() >= kSlowRepairNs;
}

// "": the programs see probes leave, or none is sent. One pair's probes may be refused for want of a route.
std::string Hooks::Unseen(const NicState& nic) {
  Watched& watched = watched_[nic.ifindex];
  const std::vector<Rounds> rounds = dependencies_.rounds(nic);
  const auto lags = [](const Rounds& r) { return r.sent - r.seen >= kUnseenRounds; };
  const bool unseen = nic.link_up && !rounds.empty() && std::all_of(rounds.begin(), rounds.end(), lags);
  watched.unseen_looks = unseen ? watched.unseen_looks + 1 : 0;
  if (watched.unseen_looks < kUnseenLooks) return "";
  const std::vector<std::string> others = dependencies_.others(nic);
  return absl::StrFormat(
      "NIC %s: its own probes do not reach the agent's tc egress program; %s ends their path before it",
      nic.config.name,
      others.empty() ? "a firewall's output rule, a tc filter or a missing route" : absl::StrJoin(others, ", "));
}

void Hooks::SetTrouble(NicState& nic, const std::string& trouble) {
  if (nic.hooks_trouble == trouble) return;
  const bool over = trouble.empty();
  nic.hooks_trouble = trouble;
  if (over) {
    Log(nic, telemetry::Severity::kNotice,
        absl::StrFormat("NIC %s: the agent's programs see its packets again", nic.config.name));
  } else {
    Log(nic, telemetry::Severity::kAlert,
        trouble + "; until this is over no dead path is left on this NIC, and none of its paths is reported");
  }
}

void Hooks::LookAtPins() {
  if (dependencies_.off()) return;  // whoever took them away after that wants them gone
  const absl::StatusOr<std::vector<std::string>> restored = dependencies_.restore_pins();
  const bool fail = !restored.ok();
  telemetry::Event event{.type = "nic", .severity = telemetry::Severity::kNotice};
  if (fail && !pins_fail_) {
    event.text = absl::StrCat("pins of the agent's programs are gone, and cannot be made again: ",
                              std::string(restored.status().message()), "; when the agent ends, its programs go, too");
    events_.Log(std::move(event));
  } else if (!fail && !restored->empty()) {
    event.text = absl::StrFormat("somebody removed %d pins of the agent's programs and maps; they are made again",
                                 restored->size());
    event.evidence = {{"pins", absl::StrJoin(*restored, ",")}};
    events_.Log(std::move(event));
  }
  pins_fail_ = fail;
}

void Hooks::Log(const NicState& nic, telemetry::Severity severity, std::string text) {
  events_.Log({.type = "nic",
               .severity = severity,
               .text = std::move(text),
               .evidence = {{"nic", nic.config.name}, {"ifindex", absl::StrCat(nic.ifindex)}}});
}

}  // namespace cw::agent
