// SPDX-License-Identifier: Apache-2.0
// What operators want free of this host's flows: found, kept free, watched, given back.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "spdlog/spdlog.h"
#include "userspace/agent/agent.h"
#include "userspace/agent/nics/nic_failover.h"
#include "userspace/agent/paths/damping.h"
#include "userspace/agent/views/paths_view.h"
#include "userspace/api/path_ref.h"
#include "userspace/model/counted.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;
using control::Crosses;
using control::DrainKind;

constexpr double kSafeAfterS = 10;  // without a byte

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
uint16_t Agent::CrossingPorts(PairState& pair, DrainEntry& drain, uint16_t& unknown) {
  const probe::SlotTable& slots = engine_->mesh().slots(pair.index);
  const probe::Discovery* discovery = engine_->discovery(pair.index);
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

void Agent::FindCrossing(DrainEntry& drain) {
  drain.crossing.clear();
  drain.unknown.clear();
  for (auto& [index, pair] : pairs_) {
    uint16_t mask = 0, unknown = 0;
    if (drain.kind == DrainKind::kNic) {
      const auto nic =
          std::find_if(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.ifindex == pair->ifindex; });
      if (nic != nics_.end() && nic->config.name == drain.what) mask = 0xffff;
    } else {
      mask = CrossingPorts(*pair, drain, unknown);
    }
    if (mask != 0) drain.crossing[index] = mask;
    if (unknown != 0) drain.unknown[index] = unknown;
  }
}

std::vector<control::DrainSlot> Agent::DrainSlots(uint32_t index) {
  std::vector<control::DrainSlot> out;
  const PairState* pair = FindPair(index);
  if (pair == nullptr) return out;
  const probe::SlotTable& slots = engine_->mesh().slots(index);
  for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
    if (slots.port(s) == 0) continue;
    const uint8_t state = probe::Load(dataplane_->pairs()[index].slot[s].state);
    control::DrainSlot slot{.slot = s, .live = state == CW_SLOT_UP || state == CW_SLOT_SUSPECT};
    slot.path = slots.is_path(s);
    slot.drained = Has(pair->drained, s);
    slot.damped = Has(pair->blocked, s) && !slot.drained;  // flaps, or loses packets
    for (const auto& [what, drain] : drains_.entries()) {  // what may cross it comes last
      slot.damped = slot.damped || Has(drain.UnknownOf(index), s);
    }
    for (const auto& [key, flow] : flows_.sent) {
      if (flow.tx.pair != index) continue;
      slot.flows += (flow.tx.want_slot != CW_SLOT_NONE ? flow.tx.want_slot : flow.PathSlot()) == s;
    }
    out.push_back(slot);
  }
  return out;
}

bool Agent::NicDrained(const Nic& nic) const {
  const auto drain = drains_.entries().find(nic.config.name);
  return drain != drains_.entries().end() && drain->second.kind == DrainKind::kNic;
}

// NIC failover acts here, and another NIC that is not drained reaches the same peer. Whether the peer puts packets back
// only its agent's answer tells.
bool Agent::AnotherNicMayCarry(const PairState& pair) const {
  if (!nic_failover_->on() || !modes_->Acts(Capability::kNic)) return false;
  return std::any_of(pairs_.begin(), pairs_.end(), [&](const auto& entry) {
    const PairState& other = *entry.second;
    if (other.peer != pair.peer || other.ifindex == pair.ifindex) return false;
    if (probe::Load(dataplane_->pairs()[other.index].live_mask) == 0) return false;
    return std::none_of(nics_.begin(), nics_.end(),
                        [&](const Nic& nic) { return nic.ifindex == other.ifindex && NicDrained(nic); });
  });
}

// The pair's packets go by another NIC, or will once the peer has said that it puts them back.
bool Agent::LeavesByAnotherNic(const DrainEntry& drain, uint32_t index) {
  const PairState* pair = drain.kind == DrainKind::kNic ? FindPair(index) : nullptr;
  return pair != nullptr && AnotherNicMayCarry(*pair);
}

// Asks the kernel to move a flow that is on what is drained.
void Agent::MoveOff(DrainEntry& drain, const FlowKey& key, FlowEntry& flow) {
  const PairState* pair = FindPair(flow.tx.pair);
  if (pair == nullptr || !modes_->ActsAtAll()) return;
  const bool under_way = flow.tx.want_slot != CW_SLOT_NONE && !Has(pair->drained, flow.tx.want_slot);
  if (under_way && (flow.tx.want_force != 0 || !drain.now)) return;
  const auto target = control::DrainTarget(DrainSlots(flow.tx.pair));
  if ((flow.tx.flags & CW_STEER_HARD_LOCKED) != 0 || !target) return drain.held.push_back(key);
  const uint16_t port = engine_->mesh().slots(flow.tx.pair).port(*target);
  if (port == flow.tx.port) return;  // nowhere better: all paths may cross it
  if (!dataplane_->flow_editor().Want(ToMap(key), *target, port, drain.now).ok()) return;
  flow.tx.want_slot = *target;
  flow.tx.want_port = port;
  flow.tx.want_force = drain.now ? 1 : 0;
  const auto [moved, fresh] = drain.moved.try_emplace(key, DrainEntry::Moved{.from = flow.tx.port, .to = port});
  moved->second.to = port;
  drains_.Changed();
}

// What was sent over it since the last look. A flow that moved in between counts in full: its last bytes may have gone
// the old way.
void Agent::WatchDrain(DrainEntry& drain, int64_t now_ns) {
  std::set<FlowKey> on_it;
  std::map<uint32_t, bool> leaving;  // pairs, by another NIC
  uint64_t bytes = 0;
  drain.flows_unknown = 0;
  drain.held.clear();
  drain.carried.clear();
  for (auto& [key, flow] : flows_.sent) {
    const uint32_t index = flow.tx.pair;
    const uint8_t slot = modes_->ActsAtAll() ? flow.PathSlot() : flow.tx.native_slot;
    Crosses crosses = control::CrossesSlot(drain.CrossingOf(index), drain.UnknownOf(index), slot);
    bool leaves = false;
    if (crosses != Crosses::kNo) {
      const auto [known, fresh] = leaving.try_emplace(index);
      if (fresh) known->second = LeavesByAnotherNic(drain, index);
      leaves = known->second;
    }
    if (leaves && nic_failover_->Carried(FindPair(index)->key)) {
      drain.carried.insert(key);
      crosses = Crosses::kNo;
    }
    if (crosses != Crosses::kNo || drain.on_it.contains(key)) bytes += flow.window_bytes;
    if (crosses == Crosses::kNo) continue;
    on_it.insert(key);
    drain.flows_unknown += crosses == Crosses::kMaybe;
    if (!leaves) MoveOff(drain, key, flow);
  }
  drain.on_it = std::move(on_it);
  drain.Sent(now_ns, bytes);
  if (!drain.unseen.on_it.empty()) drain.SentUnseen(now_ns);
  if (drain.told_safe || drain.QuietS(now_ns) < kSafeAfterS || !modes_->ActsAtAll()) return;
  drain.told_safe = true;
  Log({.type = "drain",
       .severity = telemetry::Severity::kNotice,
       .text = absl::StrFormat(
           "nothing was sent over %s %s for %.0f s: as far as this host is concerned it is safe to pull",
           control::DrainKindName(drain.kind), drain.what, kSafeAfterS)});
}

void Agent::RunDrains() {
  if (drains_.entries().empty()) return;
  const int64_t now_ns = MonotonicNs();
  std::map<uint32_t, uint16_t> drained;
  for (auto& [what, drain] : drains_.entries()) {
    FindCrossing(drain);
    for (const auto& [index, mask] : drain.crossing) drained[index] |= mask;
  }
  for (auto& [index, pair] : pairs_) {
    pair->drained = drained[index];
    damping_->Publish(*pair);
  }
  for (auto& [what, drain] : drains_.entries()) WatchDrain(drain, now_ns);
  KeepDrains();
}

void Agent::KeepDrains() {
  const absl::Status status = drains_.Save();
  if (!status.ok() && drains_kept_) {
    spdlog::warn("a restart of the agent would forget what is drained: {}", std::string(status.message()));
  }
  drains_kept_ = status.ok();
}

absl::Status Agent::AdoptDrains() {
  const absl::Status loaded = drains_.Load();
  if (absl::IsInvalidArgument(loaded)) {
    Log({.type = "drain",
         .severity = telemetry::Severity::kAlert,
         .text = absl::StrCat("what an earlier agent kept free is lost: ", std::string(loaded.message()))});
  }
  for (auto& [what, drain] : drains_.entries()) {
    drain.last_sent_ns = MonotonicNs();  // nobody watched until now
    Log({.type = "drain",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrCat(control::DrainKindName(drain.kind), " ", what, " stays drained, as before the restart")});
  }
  RunDrains();
  return absl::OkStatus();
}

absl::StatusOr<DrainEntry> Agent::MakeDrain(const v1::DrainRequest& request) {
  const int64_t now_ns = MonotonicNs();
  DrainEntry drain{.kind = static_cast<DrainKind>(request.kind()), .what = request.what(), .since_ns = now_ns};
  drain.until_ns = EndNs(request.for_s(), MonotonicNs());
  drain.now = request.now();
  if (drain.kind == DrainKind::kPath) {
    const v1::PathsReply paths = paths_view_->All({});
    const absl::StatusOr<api::PathRef> path = api::ResolvePath(paths, drain.what);
    if (absl::IsUnimplemented(path.status())) return absl::NotFoundError(path.status().message());
    if (!path.ok()) return path.status();
    drain.ports[FindPair(path->pair)->key] = {engine_->mesh().slots(path->pair).port(static_cast<uint8_t>(path->slot))};
  } else if (drain.kind == DrainKind::kNic) {
    const bool known =
        std::any_of(nics_.begin(), nics_.end(), [&](const Nic& n) { return n.config.name == drain.what; });
    if (!known)
      return absl::NotFoundError(absl::StrCat("no NIC of the agent is called ", drain.what, "; see cwctl status"));
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

absl::Status Agent::CheckSomethingRemains(const DrainEntry& drain) {
  for (const auto& [index, mask] : drain.crossing) {
    std::vector<control::DrainSlot> slots = DrainSlots(index);
    for (control::DrainSlot& slot : slots) slot.drained = slot.drained || Has(mask, slot.slot);
    if (!control::NothingRemains(slots) || LeavesByAnotherNic(drain, index)) continue;
    if (drain.kind == DrainKind::kNic) {
      return absl::FailedPreconditionError(
          absl::StrCat("queue pairs cannot leave their NIC without NIC failover (steering.nic_failover "
                       "here and at ",
                       FindPair(index)->peer, ", and a second NIC): end those of ", drain.what,
                       " in their jobs. --now keeps new flows off its paths where "
                       "that is possible, and watches until it is silent"));
    }
    return absl::FailedPreconditionError(
        absl::StrCat("no live path to ", FindPair(index)->peer, " would remain; --now drains ", drain.what,
                     " nevertheless: flows to ", FindPair(index)->peer, " stay on it"));
  }
  return absl::OkStatus();
}

absl::StatusOr<v1::ActionReply> Agent::DoDrain(const api::Caller& caller, const v1::DrainRequest& request) {
  if (!modes_->ActsAtAll()) {
    return absl::FailedPreconditionError(absl::StrCat("the mode is ", modes_->allowed().ToString(),
                                                      ", in which nothing is moved; first: cwctl mode protect"));
  }
  absl::StatusOr<DrainEntry> made = MakeDrain(request);
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
  RunDrains();
  DrainUnseen();
  int paths = 0;
  for (const auto& [index, mask] : drain.crossing) {
    for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) paths += Has(mask, s) && engine_->mesh().slots(index).port(s) != 0;
  }
  v1::ActionReply reply;
  const size_t leaving = drain.on_it.size() - drain.held.size();
  std::string effect =
      absl::StrFormat("%s %s: no flow is put on the %s that %s it; %s %s it %s", control::DrainKindName(drain.kind),
                      what, paths == 1 ? "one path" : absl::StrCat(paths, " paths"), paths == 1 ? "crosses" : "cross",
                      Counted(leaving, "flow"), leaving == 1 ? "leaves" : "leave", HowTheyLeave(drain));
  if (drain.unseen.leaving > 0)
    absl::StrAppendFormat(&effect, "; %d more at once, by their owners' libraries", drain.unseen.leaving);
  if (const size_t stay = drain.held.size() + drain.unseen.held.size(); stay > 0)
    absl::StrAppendFormat(&effect, "; %d stay: locked hard, without another live path, or nobody can move them", stay);
  reply.set_effect(effect);
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

// Flows that are still where the drain put them go back where they were, as a pause allows.
size_t Agent::EndDrain(const std::string& what) {
  auto found = drains_.entries().find(what);
  if (found == drains_.entries().end()) return 0;
  const std::map<FlowKey, DrainEntry::Moved> moved = std::move(found->second.moved);
  drains_.entries().erase(found);
  drains_.Changed();
  for (auto& [index, pair] : pairs_) {
    if (!drains_.entries().empty()) break;
    pair->drained = 0;
    damping_->Publish(*pair);
  }
  RunDrains();  // what others keep free
  size_t back = ReturnDrainedOwners(moved);
  for (const auto& [key, move] : moved) {
    auto flow = flows_.sent.find(key);
    if (flow == flows_.sent.end()) continue;
    const bool pending = flow->second.tx.want_slot != CW_SLOT_NONE && flow->second.tx.want_port == move.to;
    const PairState* pair = FindPair(flow->second.tx.pair);
    if (pair == nullptr || (flow->second.tx.port != move.to && !pending)) continue;
    const probe::SlotTable& slots = engine_->mesh().slots(pair->index);
    const uint8_t slot =
        move.from == 0 ? flow->second.tx.native_slot : slots.SlotOfPort(move.from).value_or(CW_SLOT_NONE);
    if (slot == CW_SLOT_NONE || Has(pair->drained, slot)) continue;
    if (pending && flow->second.tx.port == move.from) {  // it never left
      (void)dataplane_->flow_editor().Want(ToMap(key), CW_SLOT_NONE, 0, false);
    } else {
      (void)dataplane_->flow_editor().Want(ToMap(key), slot, move.from, false);
    }
    Reread(key);
    ++back;
  }
  return back;
}

absl::StatusOr<v1::ActionReply> Agent::DoUndrain(const api::Caller& caller, const v1::UndrainRequest& request) {
  std::vector<std::string> chosen;
  for (const auto& [what, drain] : drains_.entries()) {
    if (request.all() || what == request.what()) chosen.push_back(what);
  }
  if (chosen.empty() && !request.all())
    return absl::NotFoundError(absl::StrCat(request.what(), " is not drained; see cwctl drain list"));
  size_t back = 0;
  for (const std::string& what : chosen) back += EndDrain(what);
  KeepDrains();
  v1::ActionReply reply;
  reply.set_effect(
      absl::StrFormat("%s may be used again; %d flows go back at the next pause or moment without packets in flight",
                      request.all() ? absl::StrCat(chosen.size(), " drained things") : request.what(), back));
  journal_.LogAct(caller, {.type = "drain", .text = reply.effect()});
  return reply;
}

void Agent::EndDueDrains() {
  std::vector<std::string> due;
  for (const auto& [what, drain] : drains_.entries()) {
    if (drain.until_ns != 0 && drain.until_ns <= MonotonicNs()) due.push_back(what);
  }
  for (const std::string& what : due) {
    const size_t back = EndDrain(what);
    Log({.type = "drain",
         .severity = telemetry::Severity::kNotice,
         .text = absl::StrFormat("%s may be used again, its time is over; %d flows go back", what, back)});
  }
  if (!due.empty()) KeepDrains();
}

v1::DrainsReply Agent::MakeDrains() {
  const int64_t now_ns = MonotonicNs();
  v1::DrainsReply reply;
  reply.set_mode(static_cast<v1::Mode>(static_cast<int>(modes_->mode()) + 1));
  reply.set_nothing_moves(!modes_->ActsAtAll());
  for (const auto& [what, drain] : drains_.entries()) {
    v1::Drain* out = reply.add_drains();
    out->set_kind(static_cast<v1::DrainKind>(drain.kind));
    out->set_what(what);
    out->set_age_s(static_cast<double>(now_ns - drain.since_ns) / 1e9);
    if (drain.until_ns != 0) out->set_reverts_s(std::max(static_cast<double>(drain.until_ns - now_ns) / 1e9, 0.001));
    for (const auto& [index, pair] : pairs_) {
      for (uint8_t s = 0; s < CW_MAX_SLOTS; ++s) {
        if (engine_->mesh().slots(index).port(s) == 0) continue;
        out->set_paths(out->paths() + Has(drain.CrossingOf(index), s));
        out->set_paths_unknown(out->paths_unknown() + Has(drain.UnknownOf(index), s));
      }
    }
    const uint32_t unknown = drain.flows_unknown + static_cast<uint32_t>(drain.unseen.unknown.size());
    out->set_flows(static_cast<uint32_t>(drain.on_it.size() + drain.unseen.on_it.size()) - unknown);
    out->set_flows_unknown(unknown);
    out->set_flows_moved(
        static_cast<uint32_t>(drain.carried.size()) +
        static_cast<uint32_t>(std::count_if(drain.moved.begin(), drain.moved.end(), [&](const auto& moved) {
          return !drain.on_it.contains(moved.first) && !drain.unseen.on_it.contains(moved.first);
        })));
    out->set_bytes_per_s(static_cast<double>(drain.BytesLastSecond(now_ns)));
    out->set_quiet_s(drain.QuietS(now_ns));
    out->set_safe(drain.QuietS(now_ns) >= kSafeAfterS && modes_->ActsAtAll());
    for (const auto* held : {&drain.held, &drain.unseen.held}) {
      for (const FlowKey& flow : *held) out->add_held(flow.Id().ToString());
    }
  }
  return reply;
}

absl::StatusOr<v1::ActionReply> Agent::Drain(const v1::DrainRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return DoDrain(caller, request); });
}

absl::StatusOr<v1::ActionReply> Agent::Undrain(const v1::UndrainRequest& request, const api::Caller& caller) {
  return loop_->Call<v1::ActionReply>([this, caller, request] { return DoUndrain(caller, request); });
}

absl::StatusOr<v1::DrainsReply> Agent::Drains(const v1::DrainsRequest&, const api::Caller&) {
  return loop_->Call<v1::DrainsReply>([this] { return absl::StatusOr<v1::DrainsReply>(MakeDrains()); });
}

}  // namespace cw::agent
