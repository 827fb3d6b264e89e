// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_drains.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;
using nlohmann::json;

// Ports that no path crosses are looked for again: often at first, as paths come with an agent's start.
constexpr absl::Duration kRetry = absl::Seconds(5), kRetryLater = absl::Minutes(1);
// The agent ends a drain by its own clock, a little before or after what the service said last.
constexpr absl::Duration kEndsAlike = absl::Seconds(5);

constexpr char kNone[] = "no path of this host is known to cross it";
constexpr char kUnclear[] =
    "paths of this host may cross a part of it: switches on them do not answer, see cwctl paths";

absl::Duration RetryAfter(absl::Duration age) {
  if (age < FleetDrains::kNoneAfter) return FleetDrains::kLook;
  return age < absl::Minutes(1) ? kRetry : kRetryLater;
}

const v1::Drain* Find(const v1::DrainsReply& drains, const std::string& what) {
  const auto found = std::find_if(drains.drains().begin(), drains.drains().end(),
                                  [&](const v1::Drain& d) { return d.what() == what; });
  return found == drains.drains().end() ? nullptr : &*found;
}

api::Caller CallerOf(const v1::DrainOrder& order, const std::string& instance) {
  return {.name = order.who(), .role = api::Role::kSteer, .via = absl::StrCat("the fleet service ", instance)};
}

}  // namespace

FleetDrains::FleetDrains(std::string file, std::string boot, bool allowed, Asks asks)
    : file_(std::move(file), std::move(boot), /*version=*/1), allowed_(allowed), asks_(std::move(asks)) {
  Load();
}

// What is lost is nothing: the service sends its orders again.
void FleetDrains::Load() {
  const absl::Status read = file_.Load([this](const json& state) {
    for (const json& entry : state.at("orders")) {
      Held held{.instance = entry.at("instance").get<std::string>()};
      held.order.set_id(entry.at("id").get<uint64_t>());
      held.mine = entry.at("mine").get<std::set<std::string>>();
      held.refused = entry.at("undrained").get<std::string>();
      held.undrained = !held.refused.empty();
      held_.emplace(held.order.id(), std::move(held));
    }
  });
  if (!read.ok()) held_.clear();
}

void FleetDrains::Save() {
  json list = json::array();
  for (const auto& [id, held] : held_)
    list.push_back({{"id", id},
                    {"instance", held.instance},
                    {"mine", held.mine},
                    {"undrained", held.undrained ? held.refused : ""}});
  std::string text = list.dump(-1, ' ', false, json::error_handler_t::replace);
  if (text == saved_) return;
  const absl::Status saved = list.empty() ? file_.Remove() : file_.Save({{"orders", std::move(list)}});
  if (saved.ok()) saved_ = std::move(text);
}

void FleetDrains::Take(const v1::DrainOrders& orders) {
  const std::lock_guard lock(mutex_);
  if (taken_.size() >= 4) taken_.erase(taken_.begin());  // each is whole
  taken_.push_back(orders);
}

std::optional<absl::Time> FleetDrains::OthersUntil(const std::string& what, uint64_t but) const {
  std::optional<absl::Time> until;
  for (const auto& [id, held] : held_) {
    if (id != but && held.mine.contains(what)) until = std::max(until.value_or(held.until), held.until);
  }
  return until;
}

// What another order wants, too, stays.
void FleetDrains::UndrainMine(Held& held) {
  for (const std::string& what : held.mine) {
    if (OthersUntil(what, held.order.id()).has_value()) continue;
    v1::UndrainRequest request;
    request.set_what(what);
    (void)asks_.undrain(CallerOf(held.order, held.instance), request);
  }
  held.mine.clear();
}

void FleetDrains::GiveBack(uint64_t id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  UndrainMine(found->second);
  held_.erase(found);
}

void FleetDrains::Begin(const v1::DrainOrders& orders, absl::Time now) {
  std::set<uint64_t> wanted;
  for (const v1::DrainOrder& order : orders.orders()) {
    if (order.id() == 0 || order.targets_size() > kMostTargets || wanted.size() >= kMostOrders) continue;
    wanted.insert(order.id());
    const auto [place, fresh] = held_.try_emplace(order.id());
    Held& held = place->second;
    // One that grew is looked at like a new one: at once, and for as long.
    const bool known = !fresh && held.order.targets_size() == order.targets_size();
    held.order = order;
    held.instance = orders.instance();
    held.until = order.left_s() > 0 ? now + absl::Seconds(order.left_s()) : absl::InfiniteFuture();
    if (known) continue;
    held.taken = now;
    held.tried = absl::InfinitePast();
  }
  std::vector<uint64_t> over;
  for (const auto& [id, held] : held_) {
    if (held.instance == orders.instance() && !wanted.contains(id)) over.push_back(id);
  }
  for (const uint64_t id : over) GiveBack(id);
}

// NotFound: no path of this host crosses it. Aborted: that is not known. `standing`: drained for another order already.
absl::Status FleetDrains::DrainOne(Held& held, v1::DrainTarget target, const v1::Drain* standing, absl::Time now) {
  if (standing != nullptr) {
    if (held.until <= *OthersUntil(target.what(), held.order.id())) {
      held.mine.insert(target.what());
      return absl::OkStatus();
    }
    target.set_kind(standing->kind());  // the same once more, for longer
  }
  v1::DrainRequest request;
  request.set_kind(target.kind());
  request.set_what(target.what());
  request.set_now(held.order.now());
  if (held.until != absl::InfiniteFuture()) request.set_for_s(std::max(1.0, absl::ToDoubleSeconds(held.until - now)));
  const absl::StatusOr<v1::ActionReply> reply = asks_.drain(CallerOf(held.order, held.instance), request);
  if (!reply.ok()) return reply.status();
  held.mine.insert(std::string(absl::StripPrefix(reply->undo(), "undrain ")));
  held.effect = reply->effect();
  return absl::OkStatus();
}

// At first all of it or nothing: half a drained switch is not safe to pull, and keeps paths from flows. What was
// accepted once stays: it may be in somebody's hands.
void FleetDrains::Refuse(Held& held, const std::string& why) {
  if (!held.accepted) UndrainMine(held);
  held.refused = why;
}

void FleetDrains::Pursue(Held& held, const v1::DrainsReply& drains, absl::Time now) {
  if (held.undrained || held.order.targets_size() == 0) return;
  if (now + kEndsAlike >= held.until) {
    if (now >= held.until) UndrainMine(held);
    return;
  }
  for (const std::string& what : held.mine) {
    if (Find(drains, what) != nullptr) continue;
    held.undrained = true;
    held.accepted = false;
    return Refuse(held, absl::StrCat(what, " was undrained on the host"));
  }
  if (std::erase_if(held.others, [&](const std::string& what) { return Find(drains, what) == nullptr; }) > 0)
    held.tried = absl::InfinitePast();
  if (now < held.tried + (held.refused.empty() ? RetryAfter(now - held.taken) : kRetryLater)) return;
  held.tried = now;
  Try(held, drains, now);
}

absl::Status FleetDrains::TryOne(Held& held, const v1::DrainTarget& target, const v1::DrainsReply& drains,
                                 absl::Time now) {
  if (held.mine.contains(target.what()) || held.others.contains(target.what())) return absl::OkStatus();
  const v1::Drain* standing = Find(drains, target.what());
  if (standing != nullptr && !OthersUntil(target.what(), held.order.id()).has_value()) {
    held.others.insert(target.what());  // it stays when the order ends
    return absl::OkStatus();
  }
  return DrainOne(held, target, standing, now);
}

void FleetDrains::Try(Held& held, const v1::DrainsReply& drains, absl::Time now) {
  std::vector<const v1::DrainTarget*> targets;
  for (const v1::DrainTarget& target : held.order.targets()) targets.push_back(&target);
  std::stable_partition(targets.begin(), targets.end(),
                        [&](const v1::DrainTarget* target) { return target->what() == held.refused_at; });
  bool unclear = false;
  for (const v1::DrainTarget* target : targets) {
    const absl::Status status = TryOne(held, *target, drains, now);
    unclear = unclear || absl::IsAborted(status);
    if (status.ok() || absl::IsNotFound(status) || absl::IsAborted(status)) continue;
    held.refused_at = target->what();
    return Refuse(held, std::string(status.message()));
  }
  held.refused.clear();
  held.refused_at.clear();
  held.accepted = true;
  held.unclear = unclear;
}

v1::DrainAnswer FleetDrains::AnswerOf(const Held& held, const v1::DrainsReply& drains, absl::Time now) const {
  v1::DrainAnswer answer;
  answer.set_id(held.order.id());
  answer.set_targets(static_cast<uint32_t>(held.order.targets_size()));
  if (!held.refused.empty()) {
    answer.set_state(v1::DRAIN_STATE_REFUSED);
    answer.set_words(held.refused);
    return answer;
  }
  if (now >= held.until) {
    answer.set_state(v1::DRAIN_STATE_UNDER_WAY);
    answer.set_words("its time is over");
    return answer;
  }
  bool safe = true;
  std::set<std::string> obstacles(drains.obstacles().begin(), drains.obstacles().end());
  for (const auto* whats : {&held.mine, &held.others}) {
    for (const std::string& what : *whats) {
      const v1::Drain* drain = Find(drains, what);
      if (drain == nullptr) continue;
      safe = safe && drain->safe();
      answer.set_flows(answer.flows() + drain->flows() + drain->flows_unknown());
      answer.set_flows_moved(answer.flows_moved() + drain->flows_moved());
      for (const std::string& flow : drain->held()) answer.add_held(flow);
      obstacles.insert(drain->obstacles().begin(), drain->obstacles().end());
    }
  }
  const bool none = held.mine.empty() && held.others.empty();
  if (none) safe = now >= held.taken + kNoneAfter;
  // Traffic that this host cannot place may cross anything.
  safe = safe && !held.unclear && obstacles.empty();
  answer.set_state(safe ? v1::DRAIN_STATE_SAFE : v1::DRAIN_STATE_UNDER_WAY);
  answer.set_words(held.unclear         ? kUnclear
                   : !obstacles.empty() ? "not safe: " + absl::StrJoin(obstacles, "; ")
                   : none               ? kNone
                   : safe               ? "safe to pull"
                                        : held.effect);
  return answer;
}

std::optional<v1::DrainReport> FleetDrains::Step(absl::Time now) {
  std::vector<v1::DrainOrders> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(taken_);
  }
  if (!allowed_) {
    const bool any = !held_.empty();
    while (!held_.empty()) GiveBack(held_.begin()->first);
    if (any) Save();
    return std::nullopt;
  }
  if (taken.empty() && (held_.empty() || now < looked_ + kLook)) return std::nullopt;
  looked_ = now;
  for (const v1::DrainOrders& orders : taken) Begin(orders, now);
  absl::StatusOr<v1::DrainsReply> drains = asks_.drains();
  if (!drains.ok()) return std::nullopt;  // the agent ends
  for (auto& [id, held] : held_) {
    Pursue(held, *drains, now);
    Save();
    drains = asks_.drains();  // as orders after this one find it
    if (!drains.ok()) return std::nullopt;
  }
  Save();
  v1::DrainReport report;
  for (const auto& [id, held] : held_) {
    if (held.order.targets_size() > 0) *report.add_answers() = AnswerOf(held, *drains, now);
  }
  const std::string text = report.SerializeAsString();
  if (taken.empty() && text == told_ && (held_.empty() || now < reported_ + kRepeat)) return std::nullopt;
  told_ = text;
  reported_ = now;
  return report;
}

}  // namespace cw::agent
