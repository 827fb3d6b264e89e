// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/drains/muting.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace cw::fleet {
namespace {

bool CanBeOfAPart(Cause cause) {
  switch (cause) {
    case Cause::kLinkDead:
    case Cause::kLinkGrey:
    case Cause::kSwitchDead:
    case Cause::kHostDown:
    case Cause::kAgentGone:
    case Cause::kNicDown:
    case Cause::kFlapping:
    case Cause::kSwapped:
    case Cause::kClassPaused:
    case Cause::kConfiguration:
    case Cause::kHostBusy:
    case Cause::kReportsRefused:
    case Cause::kNicNotMeasured:
    case Cause::kPacketSize:
      return true;
    case Cause::kCongestion:
    case Cause::kIncast:
    case Cause::kSlowReceiver:
    case Cause::kSlowSender:
    case Cause::kClock:
    case Cause::kSla:
    case Cause::kNotNetwork:
    case Cause::kRailDown:
    case Cause::kPathsDead:
      break;
  }
  return false;
}

}  // namespace

bool Explains(const cwfabric::v1::FleetDrain& drain, const Finding& f) {
  // Whatever of them it is, it is drained.
  if (!f.one_of.empty()) {
    return std::all_of(f.one_of.begin(), f.one_of.end(), [&](const std::string& scope) {
      Finding one = f;
      one.one_of.clear();
      one.scope = scope;
      return Explains(drain, one);
    });
  }
  const auto drained = [&](const Addr& address) {
    const auto& all = drain.addresses();
    return std::find(all.begin(), all.end(), address.ToString()) != all.end();
  };
  const bool host = drain.kind() == "host";
  if (host && f.scope == absl::StrCat("host ", drain.name())) return true;  // it may be off, its clock with it
  if (!CanBeOfAPart(f.cause)) return false;
  if (host && absl::EndsWith(f.scope, absl::StrCat(" of ", drain.name()))) return true;  // "NIC eth0 of node17"
  if (drain.kind() == "switch" && f.scope == absl::StrCat("switch ", drain.name())) return true;
  for (const std::string& address : drain.addresses()) {
    if (f.scope == absl::StrCat("NIC ", address)) return true;
  }
  const bool whole = drain.kind() != "link";
  return !f.links.empty() && std::all_of(f.links.begin(), f.links.end(), [&](const LinkId& link) {
    return drained(link.second) || (whole && drained(link.first));
  });
}

void MuteBook::Resume(const Finding& finding, const std::string& muted_by) {
  if (muted_by.empty()) {
    alerted_.insert(finding.id);
  } else {
    muted_[finding.id] = muted_by;
  }
}

void MuteBook::TakeOpen(const Finding& f, bool changed, const std::string& by, int64_t now_ns, News& news) {
  const auto before = muted_.find(f.id);
  const std::string was = before == muted_.end() ? "" : before->second;
  if (changed || by != was) news.keep.emplace_back(f, by);
  if (by.empty()) {
    muted_.erase(f.id);
    if (!changed && was.empty()) return;
    alerted_.insert(f.id);
    news.alerts.push_back(f);
    return;
  }
  muted_[f.id] = by;
  if (alerted_.erase(f.id) == 0) return;
  Finding over = f;
  over.end_ns = now_ns;
  news.alerts.push_back(std::move(over));
}

void MuteBook::TakeEnded(const Finding& f, News& news) {
  const auto before = muted_.find(f.id);
  news.keep.emplace_back(f, before == muted_.end() ? "" : before->second);
  muted_.erase(f.id);
  if (alerted_.erase(f.id) != 0) news.alerts.push_back(f);
}

MuteBook::News MuteBook::Take(const std::vector<Finding>& changed, const std::vector<Finding>& open,
                              const MutedBy& muted_by, int64_t now_ns) {
  News news;
  std::set<uint64_t> taken;
  for (const Finding& f : changed) {
    taken.insert(f.id);
    f.end_ns == 0 ? TakeOpen(f, true, muted_by(f), now_ns, news) : TakeEnded(f, news);
  }
  for (const Finding& f : open) {
    if (!taken.contains(f.id)) TakeOpen(f, false, muted_by(f), now_ns, news);
  }
  return news;
}

}  // namespace cw::fleet
