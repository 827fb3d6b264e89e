// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/fleet_drains.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"

namespace cw::agent {
namespace {

namespace v1 = api::v1;
using nlohmann::json;

constexpr int kFileVersion = 1;
// Ports that no path crosses are looked for again: often at first, as paths come with an agent's start.
constexpr absl::Duration kRetry = absl::Seconds(5), kRetryLater = absl::Minutes(1);

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
    : file_(std::move(file)), boot_(std::move(boot)), allowed_(allowed), asks_(std::move(asks)) {
  Load();
}

// What is lost is nothing: the service sends its orders again.
void FleetDrains::Load() {
  std::ifstream in(file_);
  const json state = in ? json::parse(in, nullptr, false) : json();
  try {
    if (!state.is_object() || state.at("version") != kFileVersion || state.at("boot") != boot_) return;
    for (const json& entry : state.at("orders")) {
      Held held{.instance = entry.at("instance").get<std::string>()};
      held.order.set_id(entry.at("id").get<uint64_t>());
      held.mine = entry.at("mine").get<std::set<std::string>>();
      held.refused = entry.at("undrained").get<std::string>();
      held.undrained = !held.refused.empty();
      held_.emplace(held.order.id(), std::move(held));
    }
  } catch (const json::exception&) {
    held_.clear();
  }
}

void FleetDrains::Save() {
  if (held_.empty()) {
    unlink(file_.c_str());
    return saved_.clear();
  }
  json state = {{"version", kFileVersion}, {"boot", boot_}, {"orders", json::array()}};
  for (const auto& [id, held] : held_)
    state["orders"].push_back({{"id", id},
                               {"instance", held.instance},
                               {"mine", held.mine},
                               {"undrained", held.undrained ? held.refused : ""}});
  const std::string text = state.dump(2, ' ', false, json::error_handler_t::replace);
  if (text == saved_) return;
  saved_ = text;
  const std::string fresh = file_ + ".new";
  std::ofstream out(fresh, std::ios::trunc);
  out << text << '\n';
  out.close();
  if (out) std::rename(fresh.c_str(), file_.c_str());
}

void FleetDrains::Take(const v1::DrainOrders& orders) {
  const std::lock_guard lock(mutex_);
  if (taken_.size() >= 4) taken_.erase(taken_.begin());  // each is whole
  taken_.push_back(orders);
}

bool FleetDrains::IsOurs(const std::string& what, uint64_t but) const {
  return std::any_of(held_.begin(), held_.end(),
                     [&](const auto& entry) { return entry.first != but && entry.second.mine.contains(what); });
}

// What another order wants, too, stays.
void FleetDrains::GiveBack(uint64_t id) {
  const auto found = held_.find(id);
  if (found == held_.end()) return;
  for (const std::string& what : found->second.mine) {
    if (IsOurs(what, id)) continue;
    v1::UndrainRequest request;
    request.set_what(what);
    (void)asks_.undrain(CallerOf(found->second.order, found->second.instance), request);
  }
  held_.erase(found);
}

void FleetDrains::Begin(const v1::DrainOrders& orders, absl::Time now) {
  std::set<uint64_t> wanted;
  for (const v1::DrainOrder& order : orders.orders()) {
    if (order.id() == 0 || order.targets_size() > kMostTargets || wanted.size() >= kMostOrders) continue;
    wanted.insert(order.id());
    const auto [place, fresh] = held_.try_emplace(order.id());
    Held& held = place->second;
    const bool known = !fresh && held.order.targets_size() > 0;
    held.order = order;
    held.instance = orders.instance();
    held.until = order.left_s() > 0 ? now + absl::Seconds(order.left_s()) : absl::InfiniteFuture();
    if (!known) held.taken = now;
  }
  std::vector<uint64_t> over;
  for (const auto& [id, held] : held_) {
    if (held.instance == orders.instance() && !wanted.contains(id)) over.push_back(id);
  }
  for (const uint64_t id : over) GiveBack(id);
}

// NotFound: no path of this host crosses it.
absl::Status FleetDrains::DrainOne(Held& held, const v1::DrainTarget& target, absl::Time now) {
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

// All of it or nothing: half a drained switch is not safe to pull, and keeps paths from flows.
void FleetDrains::Refuse(Held& held, const std::string& why) {
  for (const std::string& what : held.mine) {
    if (IsOurs(what, held.order.id())) continue;
    v1::UndrainRequest request;
    request.set_what(what);
    (void)asks_.undrain(CallerOf(held.order, held.instance), request);
  }
  held.mine.clear();
  held.refused = why;
}

void FleetDrains::Pursue(Held& held, const v1::DrainsReply& drains, absl::Time now) {
  if (!held.refused.empty() || now >= held.until || held.order.targets_size() == 0) return;
  for (const std::string& what : held.mine) {
    if (Find(drains, what) != nullptr) continue;
    held.undrained = true;
    return Refuse(held, absl::StrCat(what, " was undrained on the host"));
  }
  std::erase_if(held.others, [&](const std::string& what) { return Find(drains, what) == nullptr; });
  if (now < held.tried + RetryAfter(now - held.taken)) return;
  held.tried = now;
  for (const v1::DrainTarget& target : held.order.targets()) {
    if (held.mine.contains(target.what()) || held.others.contains(target.what())) continue;
    if (Find(drains, target.what()) != nullptr && !IsOurs(target.what(), held.order.id())) {
      held.others.insert(target.what());  // it stays when the order ends
      continue;
    }
    const absl::Status status = DrainOne(held, target, now);
    if (!status.ok() && !absl::IsNotFound(status)) return Refuse(held, std::string(status.message()));
  }
}

v1::DrainAnswer FleetDrains::AnswerOf(const Held& held, const v1::DrainsReply& drains, absl::Time now) const {
  v1::DrainAnswer answer;
  answer.set_id(held.order.id());
  if (!held.refused.empty()) {
    answer.set_state(v1::DRAIN_STATE_REFUSED);
    answer.set_words(held.refused);
    return answer;
  }
  bool safe = true;
  for (const auto* whats : {&held.mine, &held.others}) {
    for (const std::string& what : *whats) {
      const v1::Drain* drain = Find(drains, what);
      if (drain == nullptr) continue;
      safe = safe && drain->safe();
      answer.set_flows(answer.flows() + drain->flows() + drain->flows_unknown());
      answer.set_flows_moved(answer.flows_moved() + drain->flows_moved());
      for (const std::string& flow : drain->held()) answer.add_held(flow);
    }
  }
  const bool none = held.mine.empty() && held.others.empty();
  if (none) safe = now >= held.taken + kNoneAfter;
  answer.set_state(safe ? v1::DRAIN_STATE_SAFE : v1::DRAIN_STATE_UNDER_WAY);
  answer.set_words(none ? "no path of this host is known to cross it" : safe ? "safe to pull" : held.effect);
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
  for (auto& [id, held] : held_) Pursue(held, *drains, now);
  Save();
  drains = asks_.drains();
  if (!drains.ok()) return std::nullopt;
  v1::DrainReport report;
  for (const auto& [id, held] : held_) {
    if (held.order.targets_size() > 0) *report.add_answers() = AnswerOf(held, *drains, now);
  }
  const std::string text = report.SerializeAsString();
  if (taken.empty() && text == told_) return std::nullopt;
  told_ = text;
  return report;
}

}  // namespace cw::agent
