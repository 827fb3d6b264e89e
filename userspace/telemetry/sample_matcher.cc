// SPDX-License-Identifier: Apache-2.0
#include "userspace/telemetry/sample_matcher.h"

#include <algorithm>

namespace cw::telemetry {
namespace {

// Far above any error of a clock that counts as synchronised, far below the time in which a PSN can come again.
constexpr int64_t kMostNegativeNs = 1'000'000;

}  // namespace

// The open half of a key, unless it is too old to be of the same packet; then it is closed.
SampleMatcher::Half* SampleMatcher::Find(const SampleKey& key, int64_t at_ns) {
  const auto it = open_.find(key);
  if (it == open_.end()) return nullptr;
  const int64_t age = at_ns - it->second.first_ns;
  if (age <= window_ns_ && age >= -window_ns_) return &it->second;
  Close(it);
  return nullptr;
}

SampleMatcher::Half* SampleMatcher::Open(const SampleKey& key, int64_t at_ns) {
  // Closed halves stay in `order_` until their time, so it is what bounds the memory.
  if (order_.size() >= capacity_) {
    ++stats_.dropped;
    return nullptr;
  }
  Half& half = open_[key];
  half = Half{.first_ns = at_ns, .generation = next_generation_++};
  order_.push_back({at_ns, half.generation, key});
  return &half;
}

void SampleMatcher::Void(Half& half) {
  if (!half.voided) ++stats_.voided;
  half.voided = true;  // it stays, so that the other half finds it and does not start anew
}

void SampleMatcher::Complete(const SampleKey& key, Half& half) {
  const int64_t owd = half.rx_ns - half.tx_ns;
  if (owd > window_ns_ || owd < -kMostNegativeNs) {
    Void(half);
  } else {
    waiting_.push_back({.generation = half.generation, .key = key});
  }
}

void SampleMatcher::AddSent(const SampleKey& key, int64_t tx_ns, uint8_t slot, bool duplicate) {
  Half* half = Find(key, tx_ns);
  if (half == nullptr) half = Open(key, tx_ns);
  if (half == nullptr) return;
  if (duplicate || half->has_tx) Void(*half);
  half->has_tx = true;
  if (half->voided) return;
  half->tx_ns = tx_ns;
  half->slot = slot;
  if (half->has_rx) Complete(key, *half);
}

void SampleMatcher::AddReceived(const SampleKey& key, int64_t rx_ns, bool duplicate) {
  Half* half = Find(key, rx_ns);
  if (half == nullptr) half = Open(key, rx_ns);
  if (half == nullptr) return;
  if (duplicate || half->has_rx) Void(*half);
  half->has_rx = true;
  if (half->voided) return;
  half->rx_ns = rx_ns;
  if (half->has_tx) Complete(key, *half);
}

void SampleMatcher::Close(absl::flat_hash_map<SampleKey, Half>::iterator it) {
  const Half& half = it->second;
  if (!half.voided && !(half.has_tx && half.has_rx)) ++stats_.unmatched;
  open_.erase(it);
}

void SampleMatcher::VoidOpen() {
  for (auto& [key, half] : open_) Void(half);
}

void SampleMatcher::Expire(int64_t now_ns) {
  while (!order_.empty()) {
    const Opened& oldest = order_.front();
    // A time far ahead is of a clock that was set back since; it must not hold up the queue.
    if (oldest.at_ns > now_ns - window_ns_ - 2 * kWaitNs && oldest.at_ns < now_ns + window_ns_) break;
    const auto it = open_.find(oldest.key);
    if (it != open_.end() && it->second.generation == oldest.generation) Close(it);
    order_.pop_front();
  }
}

void SampleMatcher::TakeMatches(int64_t now_ns, const std::function<void(const Match&)>& each) {
  for (Waiting& w : waiting_) {
    if (w.since_ns == INT64_MIN || w.since_ns > now_ns) w.since_ns = now_ns;
  }
  while (!waiting_.empty() && now_ns - waiting_.front().since_ns >= kWaitNs) {
    const Waiting w = waiting_.front();
    waiting_.pop_front();
    const auto it = open_.find(w.key);
    if (it == open_.end() || it->second.generation != w.generation || it->second.voided) continue;
    const Match match{w.key, it->second.tx_ns, it->second.rx_ns, it->second.slot};
    ++stats_.matched;
    Void(it->second);  // one packet, one match: what comes under this key in the window is a duplicate
    --stats_.voided;
    each(match);
  }
  Expire(now_ns);
}

}  // namespace cw::telemetry
