// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/findings/ledger.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace cw::fleet {

bool Narrows(const Finding& what, const Finding& open) {
  const auto is_death = [](Cause cause) { return cause == Cause::kSwitchDead || cause == Cause::kLinkDead; };
  return is_death(open.cause) && is_death(what.cause) && what.one_of.empty() &&
         std::find(open.one_of.begin(), open.one_of.end(), what.scope) != open.one_of.end();
}

std::vector<Finding> Ledger::Update(int64_t now_ns, const std::vector<Suspicion>& suspicions) {
  std::vector<Finding> changed;
  for (const Suspicion& s : suspicions) {
    const std::pair<Cause, std::string> key{s.what.cause, s.what.scope};
    auto it = entries_.find(key);
    // What is only suspected may take over a finding that a part of it had in the meantime.
    if ((it == entries_.end() || it->second.finding.id == 0) && s.goes_on && Replace(s, now_ns, changed))
      it = entries_.find(key);
    if (it == entries_.end()) {
      if (entries_.size() >= kMost) continue;
      it = entries_.emplace(key, Entry{.finding = s.what, .since_ns = now_ns}).first;
    }
    Entry& e = it->second;
    e.last_ns = now_ns;
    e.end_after = s.end_after;
    e.open_after = s.open_after;
    if (e.finding.id == 0) {
      if (absl::Nanoseconds(now_ns - e.since_ns) < s.open_after) continue;
      const int64_t start_ns = std::min(e.finding.start_ns, e.since_ns);
      e.finding = s.what;
      e.finding.start_ns = start_ns;
      e.finding.id = FindingId(s.what.cause, s.what.scope, start_ns);
    } else {
      const bool back = e.finding.end_ns != 0;
      const bool news =
          e.finding.evidence != s.what.evidence || e.finding.hosts != s.what.hosts || e.finding.jobs != s.what.jobs;
      if (!back && (!news || absl::Nanoseconds(now_ns - e.told_ns) < kTellAgain)) continue;
      e.finding.end_ns = 0;
      e.finding.evidence = s.what.evidence;
      e.finding.hosts = s.what.hosts;
      e.finding.jobs = s.what.jobs;
    }
    e.told_ns = now_ns;
    changed.push_back(e.finding);
  }
  Age(now_ns, changed);
  return changed;
}

// An open finding, or one of a moment ago, that this one makes clearer; end: there is none.
Ledger::Entries::iterator Ledger::FindLesser(const Suspicion& s) {
  constexpr Cause kLesser[] = {Cause::kFlapping, Cause::kSwitchDead, Cause::kLinkDead,
                               Cause::kNicDown,  Cause::kHostDown,   Cause::kLinkGrey};
  const auto same_place = [&](const std::string& scope) {
    return scope == s.what.scope || std::find(s.parts.begin(), s.parts.end(), scope) != s.parts.end();
  };
  return std::find_if(entries_.begin(), entries_.end(), [&](const auto& entry) {
    const auto& [cause, scope] = entry.first;
    const Finding& f = entry.second.finding;
    const bool lesser = s.what.cause == Cause::kFlapping
                            ? std::find(std::begin(kLesser), std::end(kLesser), cause) != std::end(kLesser)
                            : cause == s.what.cause || Narrows(s.what, f);
    if (!lesser || f.id == 0 || (cause == s.what.cause && scope == s.what.scope)) return false;
    return same_place(scope) || std::any_of(f.one_of.begin(), f.one_of.end(), same_place);
  });
}

// The finding keeps its id and start, and has another cause, or place, from now on. Others that it makes clearer end.
bool Ledger::Replace(const Suspicion& s, int64_t now_ns, std::vector<Finding>& changed) {
  const auto it = FindLesser(s);
  if (it == entries_.end()) return false;
  Entry entry = std::move(it->second);
  entries_.erase(it);
  const Finding was = std::exchange(entry.finding, s.what);
  entry.finding.id = was.id;
  entry.finding.start_ns = was.start_ns;
  entry.finding.end_ns = was.end_ns;
  entry.finding.did = was.did;
  entry.finding.evidence.clear();  // that of the suspicion is news, whatever it is
  entry.told_ns = INT64_MIN / 2;
  entries_.insert_or_assign({s.what.cause, s.what.scope}, std::move(entry));
  for (auto other = FindLesser(s); other != entries_.end(); other = FindLesser(s)) {
    Finding over = std::move(other->second.finding);
    entries_.erase(other);
    if (over.end_ns != 0) continue;
    over.end_ns = std::max(now_ns, over.start_ns + 1);
    changed.push_back(std::move(over));
  }
  return true;
}

void Ledger::Age(int64_t now_ns, std::vector<Finding>& changed) {
  for (auto it = entries_.begin(); it != entries_.end();) {
    Entry& e = it->second;
    const absl::Duration gone = absl::Nanoseconds(now_ns - e.last_ns);
    // One that is only suspected has to hold without a gap, but for the time between two evaluations, or, where it has
    // to hold for longer than the interval in which hosts tell, for such a time.
    const absl::Duration gap = e.open_after > absl::Seconds(10) ? e.open_after : absl::Seconds(3);
    const bool forget = e.finding.id == 0 ? gone > gap : e.finding.end_ns != 0 && gone > e.end_after + kComesBack;
    if (forget) {
      it = entries_.erase(it);
      continue;
    }
    if (e.finding.id != 0 && e.finding.end_ns == 0 && gone >= e.end_after) {
      e.finding.end_ns = std::max(e.last_ns, e.finding.start_ns + 1);
      changed.push_back(e.finding);
    }
    ++it;
  }
}

int64_t Ledger::NextNs() const {
  int64_t next = INT64_MAX;
  for (const auto& [key, e] : entries_) {
    if (e.finding.id == 0) next = std::min(next, e.since_ns + absl::ToInt64Nanoseconds(e.open_after));
  }
  return next;
}

void Ledger::Resume(const Finding& finding, int64_t now_ns) {
  if (finding.id == 0 || finding.end_ns != 0 || entries_.size() >= kMost) return;
  entries_[{finding.cause, finding.scope}] = {.finding = finding,
                                              .since_ns = finding.start_ns,
                                              .last_ns = now_ns,
                                              .told_ns = now_ns,
                                              .end_after = absl::Minutes(1)};  // hosts have to connect first
}

std::vector<Finding> Ledger::Open() const {
  std::vector<Finding> open;
  for (const auto& [key, e] : entries_) {
    if (e.finding.id != 0 && e.finding.end_ns == 0) open.push_back(e.finding);
  }
  std::stable_sort(open.begin(), open.end(),
                   [](const Finding& a, const Finding& b) { return a.start_ns < b.start_ns; });
  return open;
}

bool Ledger::IsOpen(Cause cause, const std::string& scope) const {
  const auto it = entries_.find({cause, scope});
  return it != entries_.end() && it->second.finding.id != 0 && it->second.finding.end_ns == 0;
}

bool Ledger::Lately(Cause cause, const std::string& scope, int64_t now_ns, absl::Duration within) const {
  const auto it = entries_.find({cause, scope});
  return it != entries_.end() && it->second.finding.id != 0 && absl::Nanoseconds(now_ns - it->second.last_ns) <= within;
}

}  // namespace cw::fleet
