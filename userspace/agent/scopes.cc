// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/scopes.h"

#include <algorithm>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "nlohmann/json.hpp"
#include "spdlog/spdlog.h"
#include "userspace/agent/rules_of_config.h"
#include "userspace/agent/views/view_words.h"

namespace cw::agent {
namespace {

using nlohmann::json;

constexpr int64_t kKnownNs = 1'000'000'000;  // a job's name is looked up again after this …
constexpr int64_t kUnknownNs = 50'000'000;   // … and one that was not known

bool SameTarget(const config::ScopeConfig& a, const config::ScopeConfig& b) {
  return a.nic == b.nic && a.rail == b.rail && a.label == b.label && a.others == b.others;
}

// A job's label may hold what a shell would take for its own.
std::string ForShell(const std::string& word) {
  const auto plain = [](unsigned char c) { return absl::ascii_isalnum(c) || absl::StrContains("._-/:@%+=,", c); };
  if (!word.empty() && std::all_of(word.begin(), word.end(), plain)) return word;
  return absl::StrCat("'", absl::StrReplaceAll(word, {{"'", "'\\''"}}), "'");
}

// As arguments of cwctl mode.
std::string TargetWords(const config::ScopeConfig& scope) {
  if (!scope.nic.empty()) return absl::StrCat("--nic ", scope.nic);
  return scope.rail ? absl::StrCat("--rail ", *scope.rail) : absl::StrCat("--label ", ForShell(scope.label));
}

json ScopeToJson(const config::ScopeConfig& scope, int64_t until_ns) {
  return {{"nic", scope.nic},
          {"rail", scope.rail.value_or(-1)},
          {"label", scope.label},
          {"mode", std::string(config::ToString(scope.mode))},
          {"until_ns", until_ns}};
}

// Throws json::exception where it is none.
config::ScopeConfig ScopeFromJson(const json& entry) {
  config::ScopeConfig scope{.nic = entry.at("nic").get<std::string>(),
                            .rail = entry.at("rail").get<int>(),
                            .label = entry.at("label").get<std::string>()};
  if (*scope.rail < 0) scope.rail.reset();
  const absl::StatusOr<config::Mode> mode = config::ParseMode(entry.at("mode").get<std::string>());
  if (!mode.ok()) throw json::other_error::create(0, "no such mode", nullptr);
  scope.mode = *mode;
  return scope;
}

}  // namespace

std::string ScopeText(const config::ScopeConfig& scope) {
  const std::string kind = !scope.nic.empty() ? "NIC" : scope.rail ? "rail" : "label";
  const std::string name = !scope.nic.empty() ? scope.nic : scope.rail ? absl::StrCat(*scope.rail) : scope.label;
  return scope.others ? absl::StrCat("every ", kind, " but ", name) : absl::StrCat(kind, " ", name);
}

uint32_t Scopes::Bits(const Scope& scope) { return Allowed(ModelMode(scope.what.mode)).NotActing(); }

bool Scopes::HoldsNic(const Scope& scope, size_t place) const {
  if (!scope.what.label.empty()) return false;
  const bool named =
      scope.what.rail ? static_cast<size_t>(*scope.what.rail) == place : scope.what.nic == nics_[place].config.name;
  return named != scope.what.others;
}

bool Scopes::HoldsLabel(const Scope& scope, const std::string& label) {
  return !scope.what.label.empty() && (scope.what.label == label) != scope.what.others;
}

void Scopes::Changed() {
  clean_ = false;
  on_nic_.clear();
  by_label_ = std::any_of(scopes_.begin(), scopes_.end(), [](const Scope& s) { return !s.what.label.empty(); });
  for (size_t i = 0; i < nics_.size(); ++i) {
    for (const Scope& scope : scopes_) {
      if (HoldsNic(scope, i)) on_nic_[nics_[i].ifindex] |= Bits(scope);
    }
  }
  for (auto& [key, flow] : flows_.sent) flow.scoped_ns = 0;
}

void Scopes::Take(std::vector<config::ScopeConfig> configured) {
  std::erase_if(scopes_, [](const Scope& scope) { return !scope.by_operator; });
  for (config::ScopeConfig& each : configured) scopes_.push_back({.what = std::move(each)});
  Changed();
}

uint32_t Scopes::OnNic(uint32_t ifindex) const {
  const auto at = on_nic_.find(ifindex);
  return at == on_nic_.end() ? 0 : at->second;
}

uint32_t Scopes::OnLabel(const std::string& label) const {
  uint32_t bits = 0;
  for (const Scope& scope : scopes_) bits |= HoldsLabel(scope, label) ? Bits(scope) : 0;
  return bits;
}

bool Scopes::HoldsAJob() const {
  return std::any_of(scopes_.begin(), scopes_.end(), [&](const Scope& scope) {
    return !scope.what.label.empty() && !modes_.allowed().Less(Bits(scope)).ActsAtAll();
  });
}

uint32_t Scopes::OfFlow(const FlowKey& key) const {
  if (!by_label_) return 0;
  const auto flow = flows_.sent.find(key);
  if (flow != flows_.sent.end() && flow->second.scoped_ns != 0) return flow->second.tx.withheld;
  return OnLabel(asks_.label(key));
}

uint32_t Scopes::Withheld(uint32_t index, const FlowKey* flow) const {
  if (scopes_.empty()) return 0;
  const PairState* pair = FindIn(pairs_, index);
  return (pair == nullptr ? 0 : OnNic(pair->ifindex)) | (flow == nullptr ? 0 : OfFlow(*flow));
}

void Scopes::Step(int64_t now_ns) {
  if (clean_) return;
  for (const auto& [index, pair] : pairs_) {
    cw_pair& shared = *mesh_.shared(index);
    const uint32_t wanted = OnNic(pair->ifindex);
    if (probe::Load(shared.withheld) != wanted) probe::Store(shared.withheld, wanted);
  }
  for (auto& [key, flow] : flows_.sent) MarkFlow(key, flow, now_ns);
  clean_ = scopes_.empty();
}

void Scopes::MarkFlow(const FlowKey& key, FlowEntry& flow, int64_t now_ns) {
  uint32_t wanted = 0;
  if (by_label_ && flow.scoped_ns > now_ns) {
    wanted = flow.tx.withheld;
  } else if (by_label_) {
    const std::string label = asks_.label(key);
    wanted = OnLabel(label);
    flow.scoped_ns = now_ns + (label.empty() ? kUnknownNs : kKnownNs);
  }
  if (flow.tx.withheld != wanted && records_.Withhold(key, static_cast<uint8_t>(wanted)).ok())
    flow.tx.withheld = static_cast<uint8_t>(wanted);
  const PairState* pair = FindIn(pairs_, flow.tx.pair);
  const uint32_t on_nic = pair == nullptr ? 0 : OnNic(pair->ifindex);
  flow.stays_native = (on_nic | wanted) != 0 && !modes_.allowed().Less(on_nic | wanted).ActsAtAll();
}

std::vector<Scopes::Hold> Scopes::HoldsOf(const PairState& pair, const FlowKey* flow) const {
  std::vector<Hold> holds;
  const auto nic =
      std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.ifindex == pair.ifindex; });
  const std::string label = flow != nullptr && by_label_ ? asks_.label(*flow) : "";
  for (const Scope& scope : scopes_) {
    const bool on_nic = nic != nics_.end() && HoldsNic(scope, static_cast<size_t>(nic - nics_.begin()));
    if (!on_nic && (flow == nullptr || !HoldsLabel(scope, label))) continue;
    if (modes_.allowed().Less(Bits(scope)) == modes_.allowed()) continue;  // the host's mode is no more than that
    holds.push_back(
        {.text = absl::StrFormat("%s may do no more than %s (%s)", ScopeText(scope.what),
                                 std::string(config::ToString(scope.what.mode)),
                                 scope.by_operator ? "set by an operator" : "[[scope]] of the configuration"),
         .left_s = scope.until_ns == 0
                       ? 0
                       : std::max(static_cast<double>(scope.until_ns - monotonic_.NowNs()) / 1e9, 0.001)});
  }
  return holds;
}

void Scopes::AddTo(v1::StatusReply& reply) const {
  for (const Scope& scope : scopes_) {
    v1::ModeScope& out = *reply.add_scopes();
    out.set_nic(scope.what.nic);
    if (scope.what.rail) out.set_rail(static_cast<uint32_t>(*scope.what.rail));
    out.set_label(scope.what.label);
    out.set_others(scope.what.others);
    out.set_mode(ToApi(ModelMode(scope.what.mode)));
    out.set_by_operator(scope.by_operator);
    out.set_holds_back(modes_.allowed().Less(Bits(scope)) != modes_.allowed());
    if (scope.until_ns != 0)
      out.set_reverts_s(std::max(static_cast<double>(scope.until_ns - monotonic_.NowNs()) / 1e9, 0.001));
    for (size_t i = 0; i < nics_.size(); ++i) {
      if (HoldsNic(scope, i)) out.add_nics(nics_[i].config.name);
    }
    out.set_text(ScopeText(scope.what));
  }
}

absl::Status Scopes::IsThere(const config::ScopeConfig& what) const {
  const bool known =
      std::any_of(nics_.begin(), nics_.end(), [&](const NicState& nic) { return nic.config.name == what.nic; });
  if (!what.nic.empty() && !known)
    return absl::NotFoundError(absl::StrCat("the agent watches no NIC ", what.nic, "; see cwctl status"));
  if (what.rail && static_cast<size_t>(*what.rail) >= nics_.size()) {
    return absl::NotFoundError(absl::StrFormat("there is no rail %d: the [[nic]] tables are 0 to %d", *what.rail,
                                               static_cast<int>(nics_.size()) - 1));
  }
  return absl::OkStatus();
}

// Scopes that hold back what this one names, for people; "": none.
std::string Scopes::StillHeld(const config::ScopeConfig& what) const {
  std::vector<std::string> by;
  for (const Scope& scope : scopes_) {
    bool holds = !what.label.empty() && HoldsLabel(scope, what.label);
    for (size_t i = 0; i < nics_.size(); ++i)
      holds |= what.label.empty() && HoldsNic({.what = what}, i) && HoldsNic(scope, i);
    if (!holds || Bits(scope) == 0) continue;
    by.push_back(absl::StrCat(ScopeText(scope.what), scope.by_operator ? " (cwctl mode)" : " ([[scope]] of the file)"));
  }
  return absl::StrJoin(by, ", ");
}

absl::StatusOr<Scopes::Scope> Scopes::Parse(const v1::SetModeRequest& request) const {
  Scope scope{.what = {.nic = request.nic(), .label = request.label()}, .by_operator = true};
  if (request.has_rail()) scope.what.rail = static_cast<int>(std::min<uint32_t>(request.rail(), 255));
  if ((request.nic().empty() ? 0 : 1) + (request.has_rail() ? 1 : 0) + (request.label().empty() ? 0 : 1) != 1)
    return absl::InvalidArgumentError("name one of a NIC, a rail and a label");
  if (request.allowed_size() != 0)
    return absl::InvalidArgumentError("a NIC, a rail or a label has a mode; single capabilities are the whole host's");
  if (request.mode() == v1::MODE_OFF || request.mode() == v1::MODE_UNSPECIFIED) {
    return absl::InvalidArgumentError(
        "choose observe, protect or optimize there; off is for the whole host, and observe leaves every flow on its "
        "native port, too");
  }
  if (request.mode() == v1::MODE_PROTECT) scope.what.mode = config::Mode::kProtect;
  if (request.mode() == v1::MODE_OPTIMIZE) scope.what.mode = config::Mode::kOptimize;
  // What an earlier agent was asked for may be about a NIC that is gone: it can be ended.
  if (request.mode() != v1::MODE_OPTIMIZE) {
    if (absl::Status status = IsThere(scope.what); !status.ok()) return status;
  }
  if (request.label().size() > config::kLongestLabel)
    return absl::InvalidArgumentError(absl::StrFormat("a label has at most %d bytes", config::kLongestLabel));
  if (request.mode() == v1::MODE_OPTIMIZE && request.for_s() > 0)
    return absl::InvalidArgumentError("optimize ends what was set there, and takes no --for");
  scope.until_ns = EndNs(request.for_s(), monotonic_.NowNs());
  return scope;
}

absl::StatusOr<v1::ActionReply> Scopes::Set(const api::Caller& caller, const v1::SetModeRequest& request) {
  absl::StatusOr<Scope> scope = Parse(request);
  if (!scope.ok()) return scope.status();
  const config::Mode wanted = scope->what.mode;
  const auto same = [&](const Scope& s) { return s.by_operator && SameTarget(s.what, scope->what); };
  const auto before = std::find_if(scopes_.begin(), scopes_.end(), same);
  const config::Mode was = before == scopes_.end() ? config::Mode::kOptimize : before->what.mode;
  if (before == scopes_.end() && wanted != config::Mode::kOptimize &&
      std::count_if(scopes_.begin(), scopes_.end(), [](const Scope& s) { return s.by_operator; }) >= int64_t{kMost})
    return absl::ResourceExhaustedError(absl::StrCat("there are ", kMost, " such modes already; see cwctl mode"));
  const bool ended_by_itself = before != scopes_.end() && before->until_ns != 0;
  const config::ScopeConfig what = scope->what;
  const std::string text = ScopeText(what), words = TargetWords(what);
  std::erase_if(scopes_, same);
  if (wanted != config::Mode::kOptimize) scopes_.push_back(*std::move(scope));
  Changed();
  Keep();
  v1::ActionReply reply;
  if (const std::string held = StillHeld(what); wanted == config::Mode::kOptimize && !held.empty()) {
    reply.set_effect(
        absl::StrCat("nothing that an operator set for ", text, " alone is left; it is still held by ", held));
  } else if (wanted == config::Mode::kOptimize) {
    reply.set_effect(absl::StrCat(text, " may do what the host's mode lets it, ", modes_.allowed().ToString()));
  } else {
    reply.set_effect(absl::StrFormat("%s may do no more than %s (the host: %s)", text,
                                     std::string(config::ToString(wanted)), modes_.allowed().ToString()));
    reply.set_reverts_s(request.for_s());
  }
  if (was != wanted && !ended_by_itself)
    reply.set_undo(absl::StrCat("mode ", std::string(config::ToString(was)), " ", words));
  journal_.LogAct(caller, {.type = "mode", .text = reply.effect()});
  return reply;
}

void Scopes::EndDue() {
  const int64_t now_ns = monotonic_.NowNs();
  const auto due = [&](const Scope& scope) { return scope.until_ns != 0 && scope.until_ns <= now_ns; };
  if (std::none_of(scopes_.begin(), scopes_.end(), due)) return;
  for (const Scope& scope : scopes_) {
    if (!due(scope)) continue;
    journal_.Log({.type = "mode",
                  .text = absl::StrFormat("%s may do again what the host's mode lets it: the time of %s is over",
                                          ScopeText(scope.what), std::string(config::ToString(scope.what.mode)))});
  }
  std::erase_if(scopes_, due);
  Changed();
  Keep();
}

// A rail is a place among the [[nic]] tables, which may be others now: the mode stays with the NIC that was meant.
void Scopes::FollowNic(const std::string& meant, config::ScopeConfig& what) const {
  if (!what.rail || meant.empty()) return;
  const auto place = static_cast<size_t>(*what.rail);
  if (place < nics_.size() && nics_[place].config.name == meant) return;
  const std::string rail = ScopeText(what);
  what.rail.reset();
  what.nic = meant;
  journal_.Log(
      {.type = "mode",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrFormat("%s was %s when an operator set its mode, and the [[nic]] tables are others now: "
                               "%s keeps it (%s)",
                               rail, meant, ScopeText(what), std::string(config::ToString(what.mode)))});
}

absl::Status Scopes::Load() {
  std::vector<Scope> found;
  absl::Status read = file_.Load([&](const json& state) {
    for (const json& entry : state.at("scopes")) {
      if (found.size() >= kMost) break;
      found.push_back(
          {.what = ScopeFromJson(entry), .by_operator = true, .until_ns = entry.at("until_ns").get<int64_t>()});
      FollowNic(entry.value("rail_nic", ""), found.back().what);
    }
  });
  if (!read.ok()) return read;
  scopes_.insert(scopes_.end(), found.begin(), found.end());
  Changed();
  return absl::OkStatus();
}

// Why it cannot be kept is said once.
void Scopes::Keep() {
  const absl::Status status = Save();
  if (!status.ok() && kept_)
    spdlog::warn("a restart of the agent would forget modes of NICs and labels: {}", std::string(status.message()));
  kept_ = status.ok();
}

absl::Status Scopes::Save() const {
  json list = json::array();
  for (const Scope& scope : scopes_) {
    if (!scope.by_operator) continue;
    list.push_back(ScopeToJson(scope.what, scope.until_ns));
    if (scope.what.rail && static_cast<size_t>(*scope.what.rail) < nics_.size())
      list.back()["rail_nic"] = nics_[static_cast<size_t>(*scope.what.rail)].config.name;
  }
  return list.empty() ? file_.Remove() : file_.Save({{"scopes", list}});
}

}  // namespace cw::agent
