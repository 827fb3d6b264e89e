// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/link_book.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "absl/strings/str_format.h"

namespace cw::control {
namespace {

constexpr size_t kMostKept = 4096;  // of all links together
constexpr size_t kMostSeenBy = 16;

bool Names(const LinkOutage& outage, const std::string& link) {
  return std::binary_search(outage.links.begin(), outage.links.end(), link);
}

std::vector<std::string> Common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
  std::vector<std::string> both;
  std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
  return both;
}

bool ContainsAll(absl::Span<const std::string> links, const std::vector<std::string>& wanted) {
  return std::all_of(wanted.begin(), wanted.end(), [&](const std::string& link) {
    return std::find(links.begin(), links.end(), link) != links.end();
  });
}

}  // namespace

bool LinkBook::InWindow(const LinkOutage& outage, int64_t now_ns) const {
  return now_ns - outage.began_ns < rules_.window_ns;
}

// The newest first: a link that came back ends all that were before.
LinkOutage* LinkBook::SameAs(const LinkOutage& outage, int64_t alive_ns) {
  for (auto it = outages_.rbegin(); it != outages_.rend(); ++it) {
    if (Common(it->links, outage.links).empty()) continue;
    return alive_ns <= it->began_ns + rules_.slack_ns ? &*it : nullptr;
  }
  return nullptr;
}

void LinkBook::Join(LinkOutage& outage, const LinkOutage& more) {
  outage.links = Common(outage.links, more.links);
  for (const LinkOutage::Witness& witness : more.seen_by) {
    if (outage.seen_by.size() < kMostSeenBy) outage.seen_by.push_back(witness);
  }
}

// Those that no window holds any more.
void LinkBook::Drop(int64_t now_ns) {
  while (!outages_.empty() && (!InWindow(outages_.front(), now_ns) || outages_.size() > kMostKept)) {
    outages_.pop_front();
  }
}

std::optional<FlapAlert> LinkBook::Add(LinkOutage outage, int64_t alive_ns) {
  const int64_t now_ns = outage.began_ns;
  std::sort(outage.links.begin(), outage.links.end());
  if (outage.seen_by.size() > kMostSeenBy) outage.seen_by.resize(kMostSeenBy);
  Drop(now_ns);
  changed_ = true;
  if (LinkOutage* same = SameAs(outage, alive_ns); same != nullptr) {
    Join(*same, outage);
    return std::nullopt;
  }
  // Of links that paths cannot tell apart one that was told of before explains this outage, too.
  const auto above = [&](const std::string& link) { return CountOf(link, now_ns).flaps > rules_.alert; };
  const bool told = std::any_of(outage.links.begin(), outage.links.end(), above);
  outages_.push_back(std::move(outage));
  if (told) return std::nullopt;
  std::vector<std::string> crossed;
  std::copy_if(outages_.back().links.begin(), outages_.back().links.end(), std::back_inserter(crossed), above);
  if (crossed.empty()) return std::nullopt;
  return AlertOf(std::move(crossed), now_ns);
}

FlapAlert LinkBook::AlertOf(std::vector<std::string> links, int64_t now_ns) const {
  FlapAlert alert{.links = std::move(links)};
  alert.count = CountOf(alert.links[0], now_ns);
  std::set<std::string> names;
  for (const LinkOutage& outage : outages_) {
    if (!InWindow(outage, now_ns) || !Names(outage, alert.links[0])) continue;
    if (alert.first_ns == 0) alert.first_ns = outage.began_ns;
    alert.last_ns = outage.began_ns;
    for (const LinkOutage::Witness& witness : outage.seen_by) names.insert(witness.name);
  }
  for (const std::string& name : names) {
    if (alert.seen_by.size() < kMostSeenBy) alert.seen_by.push_back(name);
  }
  return alert;
}

void LinkBook::Retract(uint64_t path, int64_t alive_ns) {
  for (auto it = outages_.rbegin(); it != outages_.rend(); ++it) {
    if (it->began_ns + rules_.slack_ns < alive_ns) continue;  // it died of an earlier one, and had come back since
    const size_t removed =
        std::erase_if(it->seen_by, [&](const LinkOutage::Witness& witness) { return witness.path == path; });
    if (removed == 0) continue;
    changed_ = true;
    if (it->seen_by.empty()) outages_.erase(std::prev(it.base()));
    return;
  }
}

FlapCount LinkBook::CountOf(const std::string& link, int64_t now_ns) const {
  FlapCount count;
  for (const LinkOutage& outage : outages_) {
    if (!InWindow(outage, now_ns) || !Names(outage, link)) continue;
    ++count.flaps;
    count.certain += outage.links.size() == 1;
  }
  return count;
}

std::map<std::string, FlapCount> LinkBook::Counts(int64_t now_ns) const {
  std::map<std::string, FlapCount> counts;
  for (const LinkOutage& outage : outages_) {
    if (!InWindow(outage, now_ns)) continue;
    for (const std::string& link : outage.links) {
      FlapCount& count = counts[link];
      ++count.flaps;
      count.certain += outage.links.size() == 1;
    }
  }
  return counts;
}

bool LinkBook::AnyToDamp(int64_t now_ns) const {
  return !outages_.empty() && now_ns - outages_.back().began_ns < rules_.damping_memory_ns;
}

bool LinkBook::Damps(absl::Span<const std::string> links, int64_t now_ns) const {
  const auto old = std::find_if(outages_.rbegin(), outages_.rend(), [&](const LinkOutage& outage) {
    return now_ns - outage.began_ns >= rules_.damping_memory_ns;
  });
  PathDamping damping(rules_.damping);
  for (auto it = old.base(); it != outages_.end(); ++it) {
    const LinkOutage& outage = *it;
    if (!ContainsAll(links, outage.links)) continue;
    damping.UsableAt(outage.began_ns);  // what had decayed by then does not come back
    damping.Down(outage.began_ns);
    damping.Up(outage.began_ns);
  }
  return !damping.UsableAt(now_ns);
}

std::string LinkBook::AlertText() const {
  const int64_t seconds = rules_.window_ns / 1'000'000'000;
  const std::string window = seconds == 3600 ? "hour" : absl::StrFormat("%d seconds", seconds);
  return absl::StrFormat("has flapped more than %d times within the past %s", rules_.alert, window);
}

void LinkBook::Restore(std::deque<LinkOutage> outages) {
  outages_ = std::move(outages);
  for (LinkOutage& outage : outages_) std::sort(outage.links.begin(), outage.links.end());
  while (outages_.size() > kMostKept) outages_.pop_front();
}

bool LinkBook::TakeChanged() { return std::exchange(changed_, false); }

}  // namespace cw::control
