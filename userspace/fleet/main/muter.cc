// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/main/muter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "spdlog/spdlog.h"
#include "userspace/model/printable.h"
#include "userspace/model/utf8.h"

namespace cw::fleet {
namespace {

namespace pb = cwfabric::v1;

constexpr size_t kMostText = 300;
constexpr double kMostSeconds = 366.0 * 24 * 3600;

}  // namespace

Muter::Muter(Store& store, OrderClock& clock) : store_(store), clock_(clock) {
  const absl::StatusOr<std::vector<StoredOrder>> kept = store_.Orders(kMuteOrder);
  if (!kept.ok()) spdlog::error("what is muted is not known: {}", std::string(kept.status().message()));
  if (!kept.ok()) return;
  for (const StoredOrder& order : *kept) {
    if (mutes_[order.id].ParseFromString(order.body)) continue;
    mutes_.erase(order.id);
    spdlog::error("a mute in the store cannot be read, and does not hold: mute again what cwctl fleet alerts lacks");
  }
}

absl::StatusOr<pb::FleetActionReply> Muter::Mute(const pb::FleetMuteRequest& request, const api::Caller& caller) {
  if (!(request.for_s() > 0 && request.for_s() <= kMostSeconds))
    return absl::InvalidArgumentError("for how long? Up to a year, such as --for 8h: a mute that stays is forgotten");
  const std::optional<uint64_t> id = ParseId(request.what());
  if (id) {
    const absl::StatusOr<std::vector<StoredFinding>> found = store_.Findings({.id = *id});
    if (!found.ok()) return found.status();
    if (found->empty())
      return absl::NotFoundError(absl::StrCat("no finding ", request.what(), "; see cwctl fleet findings"));
  } else if (!absl::StrContains(request.what(), " ") || request.what().size() > kMostText) {
    return absl::InvalidArgumentError(
        "give a finding's id, or a scope as cwctl fleet findings has it, such as \"switch spine1\"");
  }
  const int64_t now_ns = clock_.NowNs();
  pb::FleetMute mute;
  mute.set_what(id ? IdText(*id) : Printable(request.what()));
  mute.set_start_ns(now_ns);
  mute.set_end_ns(now_ns + absl::ToInt64Nanoseconds(absl::Seconds(request.for_s())));
  mute.set_who(Printable(CutUtf8(caller.name, kMostText)));
  mute.set_reason(Printable(CutUtf8(request.reason(), kMostText)));
  const std::lock_guard lock(mutex_);
  EndOver(now_ns);
  for (const auto& [start, other] : mutes_) {
    if (other.what() == mute.what())
      return absl::AlreadyExistsError(
          absl::StrCat(mute.what(), " is muted already, by ", other.who(), "; first: cwctl fleet unmute"));
  }
  if (mutes_.size() >= kMost) return absl::ResourceExhaustedError("too many mutes; end some first");
  uint64_t key = static_cast<uint64_t>(now_ns);
  while (mutes_.contains(key)) ++key;
  if (absl::Status status = store_.PutOrder({kMuteOrder, key, mute.SerializeAsString()}); !status.ok()) return status;
  mutes_[key] = mute;
  pb::FleetActionReply reply;
  reply.set_effect(absl::StrCat(
      "nobody is alarmed by ", mute.what(), " until ",
      absl::FormatTime(absl::RFC3339_sec, absl::FromUnixNanos(clock_.WallOf(mute.end_ns())), absl::UTCTimeZone())));
  spdlog::warn("{} ({}): {}", caller.name, caller.via, reply.effect());
  return reply;
}

absl::StatusOr<pb::FleetActionReply> Muter::Unmute(const pb::FleetUnmuteRequest& request, const api::Caller& caller) {
  const std::optional<uint64_t> id = ParseId(request.what());
  const std::string what = id ? IdText(*id) : request.what();
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> chosen;
  for (const auto& [key, mute] : mutes_) {
    if (request.all() || mute.what() == what) chosen.push_back(key);
  }
  if (chosen.empty() && !request.all())
    return absl::NotFoundError(absl::StrCat(what, " is not muted; see cwctl fleet alerts"));
  for (const uint64_t key : chosen) {
    if (absl::Status status = store_.RemoveOrder(kMuteOrder, key); !status.ok()) return status;
    mutes_.erase(key);
  }
  pb::FleetActionReply reply;
  reply.set_effect(absl::StrCat(request.all() ? absl::StrCat(chosen.size(), " mutes") : what,
                                request.all() ? " are ended" : " is muted no longer"));
  spdlog::warn("{} ({}): {}", caller.name, caller.via, reply.effect());
  return reply;
}

std::vector<pb::FleetMute> Muter::Mutes() const {
  const std::lock_guard lock(mutex_);
  std::vector<pb::FleetMute> all;
  for (const auto& [key, mute] : mutes_) {
    all.push_back(mute);
    all.back().set_start_ns(clock_.WallOf(mute.start_ns()));
    all.back().set_end_ns(clock_.WallOf(mute.end_ns()));
  }
  return all;
}

// One that the store did not forget is over all the same, and goes with the next start.
void Muter::EndOver(int64_t now_ns) {
  std::erase_if(mutes_, [&](const auto& entry) {
    const bool over = entry.second.end_ns() <= now_ns;
    if (over) store_.RemoveOrder(kMuteOrder, entry.first).IgnoreError();
    return over;
  });
}

std::string Muter::MutedBy(const Finding& finding) {
  const std::lock_guard lock(mutex_);
  EndOver(clock_.NowNs());
  for (const auto& [key, mute] : mutes_) {
    if (mute.what() == finding.scope || mute.what() == IdText(finding.id))
      return mute.reason().empty() ? mute.who() : absl::StrCat(mute.who(), " (", mute.reason(), ")");
  }
  return "";
}

}  // namespace cw::fleet
