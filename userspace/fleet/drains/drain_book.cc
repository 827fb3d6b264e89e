// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/drains/drain_book.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/time.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/model/printable.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

const char* KindOf(DrainScope scope) {
  switch (scope) {
    case DrainScope::kLink:
      return "link";
    case DrainScope::kSwitch:
      return "switch";
    case DrainScope::kHost:
      break;
  }
  return "host";
}

constexpr char kAsked[] = "asked", kRefused[] = "refused", kUnderWay[] = "under way", kSafe[] = "safe",
               kNotAllowed[] = "not allowed", kNotConnected[] = "not connected";

void FillAnswer(const pb::DrainAnswer& answer, pb::FleetDrainHost& out) {
  out.set_state(answer.state() == pb::DRAIN_STATE_SAFE      ? kSafe
                : answer.state() == pb::DRAIN_STATE_REFUSED ? kRefused
                                                            : kUnderWay);
  out.set_words(answer.words());
  out.set_flows(answer.flows());
  out.set_flows_moved(answer.flows_moved());
  *out.mutable_held() = answer.held();
}

// A copy of what there is room for, of however much a host said.
pb::DrainAnswer Bounded(const pb::DrainAnswer& answer) {
  pb::DrainAnswer out;
  out.set_id(answer.id());
  out.set_state(answer.state());
  out.set_words(CutUtf8(answer.words(), DrainBook::kMostWords));
  out.set_flows(answer.flows());
  out.set_flows_moved(answer.flows_moved());
  out.set_targets(answer.targets());
  const int held = std::min(answer.held_size(), static_cast<int>(DrainBook::kMostHeld));
  for (int i = 0; i < held; ++i) out.add_held(CutUtf8(answer.held(i), DrainBook::kMostFlowBytes));
  return out;
}

// What is in the way most.
std::string StateOf(const pb::FleetDrain& drain) {
  bool stuck = false, waits = false;
  for (const pb::FleetDrainHost& host : drain.hosts()) {
    stuck = stuck || host.state() == kRefused || host.state() == kNotAllowed || host.state() == kNotConnected;
    waits = waits || host.state() == kAsked || host.state() == kUnderWay;
  }
  return stuck ? "refused" : waits || drain.hosts().empty() ? kUnderWay : kSafe;
}

// An agent of an earlier release says it once.
bool IsOld(const pb::DrainAnswer& answer, int64_t age_ns) {
  return answer.targets() != 0 && age_ns > DrainBook::kAnswerHoldsNs;
}

// What a host that is drained itself is asked for are its NICs.
int TargetsFor(const std::string& host, const pb::FleetDrain& drain) {
  return drain.kind() == "host" && drain.name() == host ? drain.nics_size() : drain.addresses_size();
}

void ShowStrangers(const DrainCrossing& crossing, pb::FleetDrain& out) {
  size_t shown = 0;
  for (const auto& [address, host] : crossing.strangers) {
    pb::FleetDrainHost& line = *out.add_hosts();
    line.set_host(address);
    line.set_state(kNotConnected);
    if (++shown == DrainBook::kMostStrangers && crossing.strangers.size() > shown) {
      line.set_words(
          absl::StrCat("and ", crossing.strangers.size() - shown, " more peers that are no host of the fleet"));
      return;
    }
    line.set_words(absl::StrCat("a peer of ", host,
                                " and no host of the fleet: what it sends over it nobody knows; add it to the fleet "
                                "([fleet] in its agent's configuration), or take it from the peers"));
  }
}

}  // namespace

std::string DrainBook::NameOf(const pb::FleetDrain& drain) {
  std::string text = absl::StrCat("the drain of ", drain.kind(), " ", drain.name(), " by ", drain.who());
  if (!drain.reason().empty()) absl::StrAppend(&text, " (", drain.reason(), ")");
  return text;
}

std::string DrainBook::BodyOf(const pb::FleetDrain& drain) { return drain.SerializeAsString(); }

absl::Status DrainBook::Resume(const std::string& body) {
  pb::FleetDrain drain;
  if (!drain.ParseFromString(body) || drain.start_ns() <= 0)
    return absl::InvalidArgumentError("a drain in the store cannot be read");
  drains_[static_cast<uint64_t>(drain.start_ns())].drain = std::move(drain);
  return absl::OkStatus();
}

DrainBook DrainBook::WithoutAnswers() const {
  DrainBook out(instance_);
  for (const auto& [id, entry] : drains_) out.drains_[id].drain = entry.drain;
  return out;
}

absl::StatusOr<uint64_t> DrainBook::Add(const pb::FleetDrainRequest& request, const DrainTargets& targets,
                                        const std::string& who, int64_t now_ns) {
  if (!(request.for_s() >= 0 && request.for_s() <= kMostSeconds))  // not a number, either
    return absl::InvalidArgumentError("for how long? Up to a year, such as --for 8h; 0, or no --for: until undrain");
  const char* kind = KindOf(targets.scope);
  for (const auto& [id, entry] : drains_) {
    if (entry.drain.kind() == kind && entry.drain.name() == targets.name)
      return absl::AlreadyExistsError(absl::StrCat(kind, " ", targets.name, " is drained already, by ",
                                                   entry.drain.who(), "; first: cwctl fleet undrain ", targets.name));
  }
  if (drains_.size() >= kMost)
    return absl::ResourceExhaustedError(absl::StrCat("there are ", kMost, " drains; undrain some first"));
  if (targets.addresses.size() > kMostAddresses)
    return absl::ResourceExhaustedError(
        absl::StrCat(targets.name, " has more than ", kMostAddresses, " ports; drain its links by themselves"));
  uint64_t id = static_cast<uint64_t>(now_ns);
  while (drains_.contains(id)) ++id;
  pb::FleetDrain& drain = drains_[id].drain;
  drain.set_id(IdText(id));
  drain.set_kind(kind);
  drain.set_name(targets.name);
  drain.set_start_ns(static_cast<int64_t>(id));
  if (request.for_s() > 0) drain.set_end_ns(now_ns + absl::ToInt64Nanoseconds(absl::Seconds(request.for_s())));
  drain.set_who(Printable(CutUtf8(who, kMostWords)));
  drain.set_reason(Printable(CutUtf8(request.reason(), kMostWords)));
  drain.set_now(request.now());
  drain.set_note(targets.note);
  for (const std::string& address : targets.addresses) drain.add_addresses(address);
  for (const std::string& nic : targets.nics) drain.add_nics(nic);
  return id;
}

bool DrainBook::Grow(uint64_t id, const DrainTargets& more) {
  const auto found = drains_.find(id);
  if (found == drains_.end()) return false;
  auto& [drain, answers, asked, left, uncovered] = found->second;
  const size_t room = kMostAddresses - std::min(kMostAddresses, static_cast<size_t>(drain.addresses_size()));
  const size_t fits = std::min(room, more.addresses.size());
  uncovered = more.addresses.size() - fits;
  if (fits == 0 && more.nics.empty()) return false;
  for (size_t i = 0; i < fits; ++i) drain.add_addresses(more.addresses[i]);
  for (const std::string& nic : more.nics) drain.add_nics(nic);
  answers.clear();
  return true;
}

absl::StatusOr<std::vector<uint64_t>> DrainBook::Named(const pb::FleetUndrainRequest& request) const {
  std::vector<uint64_t> found;
  for (const auto& [id, entry] : drains_) {
    const pb::FleetDrain& d = entry.drain;
    const bool named = request.name() == d.name() || request.name() == d.id() ||
                       std::find(d.addresses().begin(), d.addresses().end(), request.name()) != d.addresses().end();
    if (request.all() || named) found.push_back(id);
  }
  if (found.empty() && !request.all())
    return absl::NotFoundError(absl::StrCat(request.name(), " is not drained; see cwctl fleet drains"));
  return found;
}

std::vector<uint64_t> DrainBook::Over(int64_t now_ns) const {
  std::vector<uint64_t> over;
  for (const auto& [id, entry] : drains_) {
    if (entry.drain.end_ns() != 0 && entry.drain.end_ns() <= now_ns) over.push_back(id);
  }
  return over;
}

pb::DrainOrders DrainBook::OrdersFor(const std::string& host, int64_t now_ns) {
  pb::DrainOrders orders;
  orders.set_instance(instance_);
  for (auto& [id, entry] : drains_) {
    const pb::FleetDrain& d = entry.drain;
    if (d.end_ns() != 0 && d.end_ns() <= now_ns) continue;
    entry.asked.insert(host);
    pb::DrainOrder& order = *orders.add_orders();
    order.set_id(id);
    order.set_who(d.who());
    order.set_reason(d.reason());
    // Flows cannot leave a host: it is watched until they end.
    order.set_now(d.now() || d.kind() == "host");
    if (d.end_ns() != 0) order.set_left_s(static_cast<double>(d.end_ns() - now_ns) / 1e9);
    const auto add = [&](pb::DrainKind kind, const std::string& what) {
      pb::DrainTarget& target = *order.add_targets();
      target.set_kind(kind);
      target.set_what(what);
    };
    if (d.kind() == "host" && d.name() == host) {
      for (const std::string& nic : d.nics()) add(pb::DRAIN_KIND_NIC, nic);
    } else {
      for (const std::string& address : d.addresses())
        add(d.kind() == "switch" ? pb::DRAIN_KIND_SPINE : pb::DRAIN_KIND_LINK, address);
    }
  }
  return orders;
}

void DrainBook::Take(const std::string& host, const pb::DrainReport& report, int64_t now_ns) {
  for (int i = 0; i < report.answers_size() && i < static_cast<int>(kMost); ++i) {
    const auto entry = drains_.find(report.answers(i).id());
    if (entry == drains_.end()) continue;
    // An answer to the order as it was before it grew is none.
    const pb::DrainAnswer& answer = report.answers(i);
    const int targets = TargetsFor(host, entry->second.drain);
    if (answer.targets() != 0 && answer.targets() != static_cast<uint32_t>(targets)) continue;
    entry->second.answers[host] = {Bounded(answer), now_ns};
    entry->second.left.erase(host);
  }
}

void DrainBook::Forget(const std::string& host) {
  for (auto& [id, entry] : drains_) {
    const auto answer = entry.answers.find(host);
    const bool safe = answer != entry.answers.end() && answer->second.what.state() == pb::DRAIN_STATE_SAFE;
    if (entry.asked.contains(host) && !safe) entry.left.insert(host);
    if (answer != entry.answers.end()) entry.answers.erase(answer);
  }
}

const pb::FleetDrain* DrainBook::Find(uint64_t id) const {
  const auto found = drains_.find(id);
  return found == drains_.end() ? nullptr : &found->second.drain;
}

std::vector<uint64_t> DrainBook::ids() const {
  std::vector<uint64_t> ids;
  for (const auto& [id, entry] : drains_) ids.push_back(id);
  return ids;
}

pb::FleetDrain DrainBook::Show(uint64_t id, const std::map<std::string, DrainHost>& hosts,
                               const DrainCrossing& crossing, int64_t now_ns) const {
  const auto found = drains_.find(id);
  if (found == drains_.end()) return {};
  pb::FleetDrain out = found->second.drain;
  for (const auto& [name, host] : hosts) {
    // A host that is drained itself is expected to go.
    const bool itself = out.kind() == "host" && out.name() == name;
    const bool asked = host.connected && host.takes;
    const bool may_cross = host.unheard || crossing.hosts.contains(name);
    const bool left = found->second.left.contains(name);
    if (!asked && !left && (itself ? !host.connected : !may_cross)) continue;
    pb::FleetDrainHost& line = *out.add_hosts();
    line.set_host(name);
    const auto answer = found->second.answers.find(name);
    if (!host.connected) {
      line.set_state(kNotConnected);
      line.set_words(host.unheard
                         ? absl::StrCat("nothing was heard of it since the service began: its paths may cross it; "
                                        "if it left for good: cwctl fleet remove ",
                                        name)
                     : left ? "it was asked, and went before it said that it is safe; start its agent, or see that its "
                              "traffic has ended"
                            : "its paths crossed it, or may; whether it is silent nobody knows");
    } else if (!host.twins.empty()) {
      line.set_state(kAsked);
      line.set_words(host.twins);
    } else if (!host.takes) {
      line.set_state(kNotAllowed);
      line.set_words("its paths cross it, or may, and its configuration does not let the fleet drain: [fleet] allow");
    } else if (answer == found->second.answers.end()) {
      line.set_state(kAsked);
    } else if (IsOld(answer->second.what, now_ns - answer->second.heard_ns)) {
      line.set_state(kAsked);
      line.set_words(
          absl::StrFormat("it is connected, and answers no more since %.0f s: its agent is stopped, or too late",
                          static_cast<double>(now_ns - answer->second.heard_ns) / 1e9));
    } else {
      FillAnswer(answer->second.what, line);
    }
  }
  ShowStrangers(crossing, out);
  out.set_state(StateOf(out));
  if (found->second.uncovered > 0) {
    out.set_state(kRefused);
    out.set_note(absl::StrCat(out.note(), out.note().empty() ? "" : "; ", found->second.uncovered,
                              " ports that became known later are not kept free: ", kMostAddresses,
                              " are the most; drain its links by themselves"));
  }
  return out;
}

}  // namespace cw::fleet
