// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/draining.h"

#include <algorithm>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/flows/kernel_mover.h"
#include "userspace/agent/views/view_words.h"
#include "userspace/api/path_ref.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

using control::Crosses;
using control::DrainKind;

constexpr int64_t kAwayNs = 2'000'000'000;  // between two looks: this agent was stopped, or starved
constexpr int kTraceLooks = 5;              // by then the path of a port is known, unless switches do not answer

bool Has(uint16_t mask, uint8_t slot) { return slot < CW_MAX_SLOTS && (mask >> slot & 1) != 0; }

bool SameHops(const probe::Hops* a, const probe::Hops* b) {
  if (a == nullptr || b == nullptr || a->empty() || *a != *b) return false;
  return std::none_of(a->begin(), a->end(), [](const Addr& hop) { return hop.is_zero(); });
}

// Of a link or a switch; a path's own port stands in `ports` from the start.
Crosses CrossesAt(const DrainEntry& drain, const PairKey& pair, const probe::Discovery& discovery, uint16_t port) {
  const probe::Hops* hops = discovery.HopsOf(port);
  if (drain.kind == DrainKind::kPath) {
    const auto own = drain.ports.find(pair);
    if (own == drain.ports.end()) return Crosses::kNo;
    for (const uint16_t known : own->second) {
      if (known == port || SameHops(hops, discovery.HopsOf(known))) return Crosses::kYes;
    }
    return Crosses::kNo;
  }
  const absl::StatusOr<Addr> hop = Addr::Parse(drain.what);
  if (!hop.ok()) return Crosses::kNo;
  return control::CrossesHop(hops == nullptr ? absl::Span<const Addr>() : absl::Span<const Addr>(*hops), pair.remote,
                             *hop);
}

const char* HowTheyLeave(const DrainEntry& drain) {
  if (drain.kind == DrainKind::kNic) return "where another NIC carries their packets";
  return drain.now ? "with their next packet" : "at the next pause or moment without packets in flight";
}

}  // namespace

// Slots of the pair that cross what is drained. Where the pair's paths are not known just now: as they were.
uint16_t Draining::CrossingPorts(const PairState& pair, DrainEntry& drain, uint16_t& unknown) {
  const probe::SlotTable& slots = mesh_.slots(pair.index);
  const probe::Discovery* discovery = asks_.discovery(pair.index);
  if (drain.kind == DrainKind::kPath && !drain.ports.contains(pair.key)) return 0;
  const bool valid = pair.table_seen && discovery != nullptr && discovery->table().valid;
  uint16_t mask = 0;
  std::set<uint16_t> ports;
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    const uint16_t port = slots.port(s);
    if (port == 0) continue;
    const auto before = drain.ports.find(pair.key);
    const bool was = before != drain.ports.end() && before->second.contains(port);
    const Crosses crosses = valid ? CrossesAt(drain, pair.key, *discovery, port) : Crosses::kMaybe;
    const bool yes = crosses == Crosses::kYes || (crosses == Crosses::kMaybe && was);
    if (yes) {
      mask |= static_cast<uint16_t>(1u << s);
      ports.insert(port);
    } else if (crosses == Crosses::kMaybe) {
      unknown |= static_cast<uint16_t>(1u << s);
    }
  }
  // The port that names a path stays, whatever the slots are now.
  if (valid && drain.kind != DrainKind::kPath) {
    const auto before = drain.ports.find(pair.key);
    if (before == drain.ports.end() ? !ports.empty() : before->second != ports) {
      drain.ports[pair.key] = ports;
      drains_.Changed();
    }
  }
  return mask;
}

void Draining::FindCrossing(DrainEntry& drain) {
  drain.crossing.clear();
  drain.unknown.clear();
  for (auto& [index, pair] : pairs_) {
    uint16_t mask = 0, unknown = 0;
    if (drain.kind == DrainKind::kNic) {
      const auto nic =
          std::find_if(nics_.begin(), nics_.end(), [&](const NicState& n) { return n.ifindex == pair->ifindex; });
      if (nic != nics_.end() && nic->config.name == drain.what) mask = 0xffff;
    } else {
      mask = CrossingPorts(*pair, drain, unknown);
    }
    if (mask != 0) drain.crossing[index] = mask;
    if (unknown != 0) drain.unknown[index] = unknown;
  }
}

// Slots that may cross something drained.
uint16_t Draining::UnknownOf(uint32_t pair) const {
  uint16_t mask = 0;
  for (const auto& [what, drain] : drains_.entries()) mask |= drain.UnknownOf(pair);
  return mask;
}

bool Draining::IsDrained(const NicState& nic) const {
  const auto drain = drains_.entries().find(nic.config.name);
  return drain != drains_.entries().end() && drain->second.kind == DrainKind::kNic;
}

// The pair's packets go by another NIC, or will: NIC failover acts here, and another NIC that is not drained reaches
// the same peer. Whether the peer puts packets back only its agent's answer tells.
bool Draining::LeavesByAnotherNic(const DrainEntry& drain, uint32_t index) const {
  const PairState* pair = drain.kind == DrainKind::kNic ? FindIn(pairs_, index) : nullptr;
  if (pair == nullptr || !asks_.nic_failover() || !modes_.may()(index).Acts(Capability::kNic)) return false;
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    const PairState& other = *entry.second;
    if (other.peer != pair->peer || other.ifindex == pair->ifindex) return false;
    if (probe::Load(mesh_.shared(other.index)->live_mask) == 0) return false;
    return std::none_of(nics_.begin(), nics_.end(),
                        [&](const NicState& nic) { return nic.ifindex == other.ifindex && IsDrained(nic); });
  });
}

// Asks its mover to take it off. certainly: it is on a path that crosses what is drained.
void Draining::Leave(Mover& mover, DrainEntry& drain, const FlowKey& flow, uint32_t pair, bool certainly) {
  const bool act = modes_.may()(pair, flow).ActsAtAll(), unseen = &mover == &unseen_;
  if (!act && modes_.ActsAtAll()) (unseen ? drain.unseen.held : drain.held).push_back(flow);  // a scope keeps it there
  if (!act && (!unseen || modes_.mode() == Mode::kOff || drain.told.contains(flow))) return;  // told of once
  const Mover::DrainWay way{.unknown = UnknownOf(pair), .certainly = certainly, .now = drain.now, .act = act};
  DrainEntry::Moved moved;
  const Mover::Leaving leaving = mover.LeaveDrained(flow, way, moved);
  if (leaving == Mover::Leaving::kNo && !act) drain.told.insert(flow);
  if (leaving == Mover::Leaving::kStays && act) (unseen ? drain.unseen.held : drain.held).push_back(flow);
  if (leaving == Mover::Leaving::kGoes) {
    drain.moved.try_emplace(flow, moved).first->second.to = moved.to;
    drains_.Changed();
  }
  drain.unseen.leaving += unseen && (leaving == Mover::Leaving::kGoes || leaving == Mover::Leaving::kUnderWay);
}

// What was sent over it since the last look. A flow that moved in between counts in full: its last bytes may have gone
// the old way.
void Draining::Watch(DrainEntry& drain, int64_t now_ns) {
  std::set<FlowKey> on_it;
  std::map<uint32_t, bool> leaving;  // pairs, by another NIC
  uint64_t bytes = 0;
  drain.flows_unknown = 0;
  drain.held.clear();
  drain.carried.clear();
  for (const auto& [key, flow] : flows_.sent) {
    const uint32_t index = flow.tx.pair;
    const uint8_t slot = flow.SlotOfPackets(modes_.ActsAtAll());
    Crosses crosses = control::CrossesSlot(drain.CrossingOf(index), drain.UnknownOf(index), slot);
    bool leaves = false;
    if (crosses != Crosses::kNo) {
      const auto [known, fresh] = leaving.try_emplace(index);
      if (fresh) known->second = LeavesByAnotherNic(drain, index);
      leaves = known->second && modes_.may()(index, key).Acts(Capability::kNic);
    }
    if (leaves && asks_.carried(FindIn(pairs_, index)->key)) {
      drain.carried.insert(key);
      crosses = Crosses::kNo;
    }
    if (crosses != Crosses::kNo || drain.on_it.contains(key)) bytes += flow.window_bytes;
    if (crosses == Crosses::kNo) continue;
    if (flow.window_bytes > 0) drain.sent_ns[key] = now_ns;
    on_it.insert(key);
    drain.flows_unknown += crosses == Crosses::kMaybe;
    if (!leaves) Leave(seen_, drain, key, index, crosses == Crosses::kYes);
  }
  drain.on_it = std::move(on_it);
  std::erase_if(drain.sent_ns, [&](const auto& sent) { return now_ns - sent.second >= kUnlistedQuietNs; });
  drain.Sent(now_ns, bytes);
  if (!drain.unseen.on_it.empty()) drain.SentUnseen(now_ns);
  if (drain.told_safe || !IsSafe(drain, now_ns)) return;
  drain.told_safe = true;
  journal_.Log({.type = "drain",
                .severity = telemetry::Severity::kNotice,
                .text = absl::StrFormat(
                    "nothing was sent over %s %s for %.0f s: as far as this host is concerned it is safe to pull",
                    control::DrainKindName(drain.kind), drain.what, kSafeAfterS)});
}

void Draining::Look() {
  if (drains_.entries().empty()) {
    looked_ns_ = 0;
    return;
  }
  const int64_t now_ns = monotonic_.NowNs();
  std::map<uint32_t, uint16_t> drained;
  for (auto& [what, drain] : drains_.entries()) {
    FindCrossing(drain);
    for (const auto& [index, mask] : drain.crossing) drained[index] |= mask;
  }
  for (const auto& [index, pair] : pairs_) {
    pair->drained = drained[index];
    asks_.publish(*pair);
  }
  // What was sent while nobody looked, or while a program was gone, is not known.
  const bool away = looked_ns_ != 0 && now_ns - looked_ns_ > kAwayNs;
  const bool settles = std::any_of(nics_.begin(), nics_.end(), [](const NicState& nic) { return nic.settling > 0; });
  looked_ns_ = now_ns;
  for (auto& [what, drain] : drains_.entries()) {
    if (away || settles) drain.SentUnseen(now_ns);
    Watch(drain, now_ns);
  }
  Keep();
}

// Once per second, as owners tell of them, and when a drain begins.
void Draining::LookAtUnseen() {
  if (drains_.entries().empty()) return;
  std::vector<UnseenFlows::OnPath> unseen = others_.OnPaths();
  std::sort(unseen.begin(), unseen.end(), [](const auto& a, const auto& b) { return a.qp.lqpn < b.qp.lqpn; });
  for (auto& [what, drain] : drains_.entries()) WatchUnseen(drain, unseen);
}

void Draining::WatchUnseen(DrainEntry& drain, const std::vector<UnseenFlows::OnPath>& unseen) {
  const std::map<FlowKey, int> unknown_before = std::exchange(drain.unseen, {}).unknown;
  for (const UnseenFlows::OnPath& each : unseen) {
    const Crosses crosses = control::CrossesSlot(drain.CrossingOf(each.pair), drain.UnknownOf(each.pair), each.slot);
    if (crosses == Crosses::kNo) continue;
    const FlowKey key = rdma::SentFlow(each.qp);
    drain.unseen.on_it.insert(key);
    if (crosses == Crosses::kMaybe) {
      const auto before = unknown_before.find(key);
      const int looks = before == unknown_before.end() ? 1 : before->second + 1;
      drain.unseen.unknown[key] = looks;
      if (looks < kTraceLooks) continue;
    }
    Leave(unseen_, drain, key, each.pair, crosses == Crosses::kYes);
  }
}

void Draining::Keep() {
  const absl::Status status = drains_.Save();
  if (!status.ok() && kept_) {
    spdlog::warn("a restart of the agent would forget what is drained: {}", std::string(status.message()));
  }
  kept_ = status.ok();
}

void Draining::Adopt() {
  const absl::Status loaded = drains_.Load();
  if (absl::IsInvalidArgument(loaded)) {
    journal_.Log({.type = "drain",
                  .severity = telemetry::Severity::kAlert,
                  .text = absl::StrCat("what an earlier agent kept free is lost: ", std::string(loaded.message()))});
  }
  for (auto& [what, drain] : drains_.entries()) {
    drain.last_sent_ns = monotonic_.NowNs();  // nobody watched until now
    drain.overflows_before = asks_.overflows();
    journal_.Log(
        {.type = "drain",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrCat(control::DrainKindName(drain.kind), " ", what, " stays drained, as before the restart")});
  }
  Look();
}

// By the name that its device has now; by that of the configuration where no other device has it.
absl::StatusOr<std::string> Draining::NicCalled(const std::string& name) const {
  for (const NicState& nic : nics_) {
    if (nic.device == name) return nic.config.name;
  }
  for (const NicState& nic : nics_) {
    if (nic.config.name != name) continue;
    if (nic.removed || nic.device.empty()) return name;
    return absl::FailedPreconditionError(
        absl::StrCat("NIC ", name, " is now called ", nic.device, ": cwctl drain nic ", nic.device));
  }
  return absl::NotFoundError(absl::StrCat("no NIC of the agent is called ", name, "; see cwctl status"));
}

absl::StatusOr<DrainEntry> Draining::Make(const v1::DrainRequest& request) {
  const int64_t now_ns = monotonic_.NowNs();
  DrainEntry drain{.kind = static_cast<DrainKind>(request.kind()), .what = request.what(), .since_ns = now_ns};
  drain.until_ns = EndNs(request.for_s(), now_ns);
  drain.now = request.now();
  drain.overflows_before = asks_.overflows();
  if (drain.kind == DrainKind::kPath) {
    const absl::StatusOr<api::PathRef> path = api::ResolvePath(asks_.paths(), drain.what);
    if (absl::IsUnimplemented(path.status())) return absl::NotFoundError(path.status().message());
    if (!path.ok()) return path.status();
    drain.ports[pairs_.at(path->pair)->key] = {mesh_.slots(path->pair).port(static_cast<uint8_t>(path->slot))};
  } else if (drain.kind == DrainKind::kNic) {
    const absl::StatusOr<std::string> name = NicCalled(drain.what);
    if (!name.ok()) return name.status();
    drain.what = *name;
  } else if (absl::StatusOr<Addr> hop = Addr::Parse(drain.what); hop.ok() && !hop->is_zero()) {
    drain.what = hop->ToString();
  } else {
    return absl::InvalidArgumentError(absl::StrCat("\"", drain.what, "\" is no address; name ",
                                                   drain.kind == DrainKind::kLink
                                                       ? "the port where the link ends (TO in cwctl links)"
                                                       : "the switch as among the HOPS of cwctl paths"));
  }
  FindCrossing(drain);
  if (drain.crossing.empty() && !drain.unknown.empty()) {
    return absl::AbortedError(absl::StrCat("no path of this host is known to cross ", drain.what,
                                           ", though some may: switches on them do not answer, or not yet; see cwctl "
                                           "links and cwctl paths"));
  }
  if (drain.crossing.empty()) {
    return absl::NotFoundError(
        absl::StrCat("no path of this host is known to cross ", drain.what, "; see cwctl links and cwctl paths"));
  }
  return drain;
}

absl::Status Draining::CheckSomethingRemains(const DrainEntry& drain) const {
  for (const auto& [index, mask] : drain.crossing) {
    std::vector<control::DrainSlot> slots = DrainSlotsOf(*pairs_.at(index), mesh_, UnknownOf(index));
    for (control::DrainSlot& slot : slots) slot.drained = slot.drained || Has(mask, slot.slot);
    if (!control::NothingRemains(slots) || LeavesByAnotherNic(drain, index)) continue;
    if (drain.kind == DrainKind::kNic) {
      return absl::FailedPreconditionError(
          absl::StrCat("queue pairs cannot leave their NIC without NIC failover (steering.nic_failover "
                       "here and at ",
                       pairs_.at(index)->peer, ", and a second NIC): end those of ", drain.what,
                       " in their jobs. --now keeps new flows off its paths where "
                       "that is possible, and watches until it is silent"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("no live path to ", pairs_.at(index)->peer, " would remain; --now drains ", drain.what,
                     " nevertheless: flows to ", pairs_.at(index)->peer, " stay on it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ActionReply> Draining::Begin(const api::Caller& caller, const v1::DrainRequest& request) {
  if (!modes_.ActsAtAll()) {
    return absl::FailedPreconditionError(absl::StrCat("the mode is ", modes_.allowed().ToString(),
                                                      ", in which nothing is moved; first: cwctl mode protect"));
  }
  absl::StatusOr<DrainEntry> made = Make(request);
  if (!made.ok()) return made.status();
  if (!request.now()) {
    if (absl::Status status = CheckSomethingRemains(*made); !status.ok()) return status;
  }
  const std::string what = made->what;
  if (auto before = drains_.entries().find(what); before != drains_.entries().end()) {
    if (before->second.kind != made->kind)
      return absl::AlreadyExistsError(absl::StrCat(what, " is drained already; first: cwctl undrain ", what));
    made->moved = before->second.moved;
  }
  DrainEntry& drain = drains_.entries()[what] = *std::move(made);
  drains_.Changed();
  Look();
  LookAtUnseen();
  v1::ActionReply reply;
  reply.set_effect(EffectOf(drain));
  reply.set_undo(absl::StrCat("undrain ", what));
  const bool agreeing = drain.kind == DrainKind::kNic && drain.on_it.size() > drain.held.size();  // with the peer
  reply.set_pending((!drain.now && !drain.on_it.empty()) || agreeing || !drain.unseen.on_it.empty());
  reply.set_reverts_s(request.for_s());
  for (const auto* on_it : {&drain.on_it, &drain.unseen.on_it}) {
    for (const FlowKey& flow : *on_it) reply.add_flows(flow.Id().ToString());
  }
  journal_.LogAct(caller, {.type = "drain", .text = reply.effect()});
  return reply;
}

std::string Draining::EffectOf(const DrainEntry& drain) const {
  int paths = 0;
  for (const auto& [index, mask] : drain.crossing) {
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) paths += Has(mask, s) && mesh_.slots(index).port(s) != 0;
  }
  const size_t leaving = drain.on_it.size() - drain.held.size();
  std::string effect = absl::StrFormat(
      "%s %s: no flow is put on the %s that %s it; %s %s it %s", control::DrainKindName(drain.kind), drain.what,
      paths == 1 ? "one path" : absl::StrCat(paths, " paths"), paths == 1 ? "crosses" : "cross",
      Counted(leaving, "flow"), leaving == 1 ? "leaves" : "leave", HowTheyLeave(drain));
  if (drain.unseen.leaving > 0)
    absl::StrAppendFormat(&effect, "; %d more at once, by their owners' libraries", drain.unseen.leaving);
  if (const size_t stay = drain.held.size() + drain.unseen.held.size(); stay > 0)
    absl::StrAppendFormat(
        &effect,
        "; %d stay: locked hard, held by a scope, without another live path, or nobody can move them (cwctl why FLOW)",
        stay);
  return effect;
}

bool Draining::Acts(const FlowKey& flow) const {
  return modes_.may()(mesh_.Find({flow.src, flow.dst}).value_or(CW_PAIR_NONE), flow).ActsAtAll();
}

// Flows that are still where the drain put them go back where they were, as a pause allows.
size_t Draining::GiveBack(const std::string& what) {
  auto found = drains_.entries().find(what);
  if (found == drains_.entries().end()) return 0;
  const std::map<FlowKey, DrainEntry::Moved> moved = std::move(found->second.moved);
  drains_.entries().erase(found);
  drains_.Changed();
  for (const auto& [index, pair] : pairs_) {
    if (!drains_.entries().empty()) break;
    pair->drained = 0;
    asks_.publish(*pair);
  }
  Look();  // what others keep free
  size_t back = 0;
  for (const auto& [flow, move] : moved)
    back += seen_.ReturnDrained(flow, move) || (Acts(flow) && unseen_.ReturnDrained(flow, move));
  return back;
}

absl::StatusOr<v1::ActionReply> Draining::End(const api::Caller& caller, const v1::UndrainRequest& request) {
  std::vector<std::string> chosen;
  for (const auto& [what, drain] : drains_.entries()) {
    if (request.all() || what == request.what()) chosen.push_back(what);
  }
  if (chosen.empty() && !request.all())
    return absl::NotFoundError(absl::StrCat(request.what(), " is not drained; see cwctl drain list"));
  size_t back = 0;
  for (const std::string& what : chosen) back += GiveBack(what);
  Keep();
  v1::ActionReply reply;
  reply.set_effect(
      absl::StrFormat("%s may be used again; %d flows go back at the next pause or moment without packets in flight",
                      request.all() ? absl::StrCat(chosen.size(), " drained things") : request.what(), back));
  journal_.LogAct(caller, {.type = "drain", .text = reply.effect()});
  return reply;
}

void Draining::EndDue() {
  std::vector<std::string> due;
  for (const auto& [what, drain] : drains_.entries()) {
    if (drain.until_ns != 0 && drain.until_ns <= monotonic_.NowNs()) due.push_back(what);
  }
  for (const std::string& what : due) {
    const size_t back = GiveBack(what);
    journal_.Log({.type = "drain",
                  .severity = telemetry::Severity::kNotice,
                  .text = absl::StrFormat("%s may be used again, its time is over; %d flows go back", what, back)});
  }
  if (!due.empty()) Keep();
}

v1::DrainsReply Draining::All() {
  v1::DrainsReply reply;
  reply.set_mode(ToApi(modes_.mode()));
  reply.set_nothing_moves(!modes_.ActsAtAll());
  const int64_t now_ns = asked_ns_ = monotonic_.NowNs();
  for (const auto& [what, drain] : drains_.entries()) Show(drain, now_ns, *reply.add_drains());
  for (const NicState& nic : nics_) {
    if (nic.attached && !nic.has_programs()) reply.add_obstacles(nic.Trouble());
  }
  if (std::string other = OtherTraffic(now_ns, nullptr); !other.empty()) reply.add_obstacles(std::move(other));
  return reply;
}

void Draining::Show(const DrainEntry& drain, int64_t now_ns, v1::Drain& out) const {
  out.set_kind(static_cast<v1::DrainKind>(drain.kind));
  out.set_what(drain.what);
  out.set_age_s(static_cast<double>(now_ns - drain.since_ns) / 1e9);
  if (drain.until_ns != 0) out.set_reverts_s(std::max(static_cast<double>(drain.until_ns - now_ns) / 1e9, 0.001));
  for (const auto& [index, pair] : pairs_) {
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
      if (mesh_.slots(index).port(s) == 0) continue;
      out.set_paths(out.paths() + Has(drain.CrossingOf(index), s));
      out.set_paths_unknown(out.paths_unknown() + Has(drain.UnknownOf(index), s));
    }
  }
  const uint32_t unknown = drain.flows_unknown + static_cast<uint32_t>(drain.unseen.unknown.size());
  out.set_flows(static_cast<uint32_t>(drain.on_it.size() + drain.unseen.on_it.size()) - unknown);
  out.set_flows_unknown(unknown);
  const auto left = std::count_if(drain.moved.begin(), drain.moved.end(), [&](const auto& moved) {
    return !drain.on_it.contains(moved.first) && !drain.unseen.on_it.contains(moved.first);
  });
  out.set_flows_moved(static_cast<uint32_t>(drain.carried.size()) + static_cast<uint32_t>(left));
  out.set_bytes_per_s(static_cast<double>(drain.BytesLastSecond(now_ns)));
  out.set_quiet_s(drain.QuietS(now_ns));
  out.set_safe(IsSafe(drain, now_ns));
  for (std::string& obstacle : ObstaclesOf(drain, now_ns)) out.add_obstacles(std::move(obstacle));
  for (const auto* held : {&drain.held, &drain.unseen.held}) {
    for (const FlowKey& flow : *held) out.add_held(flow.Id().ToString());
  }
}

}  // namespace cw::agent
