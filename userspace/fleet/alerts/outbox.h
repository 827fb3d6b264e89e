// SPDX-License-Identifier: Apache-2.0
//
// What one receiver of alerts has still to be told. Pure; time comes in as an argument. Threads: one at a time.
//  - Alertmanager wants states: each finding that goes on is sent again every minute, so that it ends there by itself
//    where this service dies. Of a cause at a place only the newest state counts.
//  - A webhook wants changes: each opening and each end once, in order, until it took them.
// Both are bounded; what has no room is counted.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "userspace/fleet/alerts/alert_text.h"
#include "userspace/fleet/findings/finding.h"

namespace cw::fleet {

class Outbox {
 public:
  virtual ~Outbox() = default;
  // Opened, ended, or has news. Resumed: it was told before this service was started.
  virtual void Take(const Finding& finding, bool resumed, absl::Time now) = 0;
  struct Post {
    std::string body;
    std::vector<std::pair<uint64_t, bool>> alerts;  // findings by id, and whether they go on
    absl::Time since = absl::InfiniteFuture();      // when the first of them was to be sent; future: it comes again
  };
  // The next request, if one is due; Done comes before the next Next.
  virtual std::optional<Post> Next(absl::Time now) = 0;
  // Whether it arrived, or will never be taken; otherwise it stays due.
  virtual void Done(bool over, absl::Time now) = 0;
  virtual absl::Time Due() const = 0;  // of the next request
  virtual size_t waiting(absl::Time now) const = 0;
  uint64_t no_room() const { return no_room_; }

 protected:
  uint64_t no_room_ = 0;
};

class AlertmanagerOutbox final : public Outbox {
 public:
  static constexpr absl::Duration kResend = absl::Minutes(1);  // Alertmanager's resolve_timeout is 5 min by default
  static constexpr absl::Duration kGood = absl::Minutes(4);    // without being sent again
  static constexpr size_t kMost = 20'000, kMostAtOnce = 64;

  explicit AlertmanagerOutbox(AlertWords words) : words_(std::move(words)) {}
  void Take(const Finding& finding, bool resumed, absl::Time now) override;
  std::optional<Post> Next(absl::Time now) override;
  void Done(bool over, absl::Time now) override;
  absl::Time Due() const override { return due_.empty() ? absl::InfiniteFuture() : due_.begin()->first; }
  size_t waiting(absl::Time now) const override;

 private:
  using Key = std::pair<Cause, std::string>;
  struct Entry {
    Finding finding;
    absl::Time due;
    uint64_t version = 0;
  };
  void End(const Key& key, absl::Time now);
  void SetDue(const Key& key, Entry& entry, absl::Time due);

  const AlertWords words_;
  std::map<Key, Entry> entries_;
  std::map<uint64_t, Key> of_id_;  // a finding whose cause becomes another one is another alert
  std::set<std::pair<absl::Time, Key>> due_;
  std::vector<std::pair<Key, uint64_t>> under_way_;
  uint64_t versions_ = 0;
};

class WebhookOutbox final : public Outbox {
 public:
  static constexpr size_t kMost = 1000;  // then the oldest goes

  explicit WebhookOutbox(AlertWords words) : words_(std::move(words)) {}
  void Take(const Finding& finding, bool resumed, absl::Time now) override;
  std::optional<Post> Next(absl::Time now) override;
  void Done(bool over, absl::Time now) override;
  absl::Time Due() const override { return queue_.empty() ? absl::InfiniteFuture() : absl::InfinitePast(); }
  size_t waiting(absl::Time) const override { return queue_.size(); }

 private:
  const AlertWords words_;
  std::deque<std::pair<Finding, absl::Time>> queue_;  // and since when
  // Findings whose opening was queued; news of them is none, but for another cause or place.
  std::map<uint64_t, std::pair<Cause, std::string>> open_;
  bool under_way_ = false;  // the first of the queue
};

}  // namespace cw::fleet
