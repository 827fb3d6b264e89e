// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/alerts/outbox.h"

#include <iterator>

namespace cw::fleet {

void AlertmanagerOutbox::SetDue(const Key& key, Entry& entry, absl::Time due) {
  due_.erase({entry.due, key});
  entry.due = due;
  due_.insert({due, key});
}

void AlertmanagerOutbox::Take(const Finding& finding, bool, absl::Time now) {
  Key key{finding.cause, finding.scope};
  if (!entries_.contains(key) && entries_.size() >= kMost) {
    ++no_room_;
    return;
  }
  const auto [was, fresh] = of_id_.try_emplace(finding.id, key);
  if (!fresh && was->second != key) End(was->second, now);
  was->second = key;
  Entry& entry = entries_[key];
  if (entry.finding.id != finding.id) of_id_.erase(entry.finding.id);
  entry.finding = finding;
  entry.version = ++versions_;
  SetDue(key, entry, now);
}

void AlertmanagerOutbox::End(const Key& key, absl::Time now) {
  const auto it = entries_.find(key);
  if (it == entries_.end() || it->second.finding.end_ns != 0) return;
  it->second.finding.end_ns = absl::ToUnixNanos(now);
  it->second.version = ++versions_;
  SetDue(key, it->second, now);
}

std::optional<Outbox::Post> AlertmanagerOutbox::Next(absl::Time now) {
  std::vector<Finding> findings;
  under_way_.clear();
  for (auto it = due_.begin(); it != due_.end() && it->first <= now && findings.size() < kMostAtOnce; ++it) {
    const Entry& entry = entries_.at(it->second);
    findings.push_back(entry.finding);
    under_way_.emplace_back(it->second, entry.version);
  }
  if (findings.empty()) return std::nullopt;
  Post post{.body = AlertmanagerBody(findings, words_, now + kGood)};
  for (const Finding& f : findings) post.alerts.emplace_back(f.id, f.end_ns == 0);
  return post;
}

void AlertmanagerOutbox::Done(bool over, absl::Time now) {
  for (const auto& [key, version] : under_way_) {
    const auto it = entries_.find(key);
    // What changed in the meantime is due as it is now.
    if (!over || it == entries_.end() || it->second.version != version) continue;
    if (it->second.finding.end_ns == 0) {
      SetDue(key, it->second, now + kResend);
    } else {
      const auto of_id = of_id_.find(it->second.finding.id);
      if (of_id != of_id_.end() && of_id->second == key) of_id_.erase(of_id);
      due_.erase({it->second.due, key});
      entries_.erase(it);
    }
  }
  under_way_.clear();
}

size_t AlertmanagerOutbox::waiting(absl::Time now) const {
  size_t count = 0;
  for (auto it = due_.begin(); it != due_.end() && it->first <= now; ++it) ++count;
  return count;
}

void WebhookOutbox::Take(const Finding& finding, bool resumed, absl::Time now) {
  if (finding.end_ns == 0) {
    std::pair key(finding.cause, finding.scope);
    const auto [was, fresh] = open_.try_emplace(finding.id, key);
    const bool same = !fresh && was->second == key;
    was->second = std::move(key);
    if (same || resumed) return;
  } else {
    open_.erase(finding.id);
  }
  if (queue_.size() >= kMost) {
    queue_.erase(queue_.begin() + (under_way_ ? 1 : 0));
    ++no_room_;
  }
  queue_.emplace_back(finding, now);
}

std::optional<Outbox::Post> WebhookOutbox::Next(absl::Time) {
  if (queue_.empty()) return std::nullopt;
  under_way_ = true;
  const auto& [first, since] = queue_.front();
  return Post{WebhookBody(first, words_), {{first.id, first.end_ns == 0}}, since};
}

void WebhookOutbox::Done(bool over, absl::Time) {
  if (over && under_way_) queue_.pop_front();
  under_way_ = false;
}

}  // namespace cw::fleet
