// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/peer_book.h"

#include <algorithm>
#include <utility>

#include "maps/wire.h"

namespace cw::probe_verbs {

void PeerBook::SetPairs(const std::vector<PairKey>& by_verbs, const std::vector<PairKey>& by_kernel) {
  std::lock_guard hold(mutex_);
  absl::flat_hash_map<PairKey, Entry> wanted;
  const auto want = [&](const PairKey& pair, const Entry& fresh) {
    const auto it = entries_.find(pair);
    wanted.emplace(pair, it == entries_.end() ? fresh : it->second);
  };
  for (const PairKey& pair : by_verbs) want(pair, {});
  for (const PairKey& pair : by_kernel) want(pair, {.by_kernel = true, .asked_until_ns = INT64_MIN});
  entries_ = std::move(wanted);
  known_ = static_cast<uint32_t>(
      std::count_if(entries_.begin(), entries_.end(), [](const auto& e) { return e.second.qpn.has_value(); }));
}

// With the lock held.
void PeerBook::Learn(Entry& entry, std::optional<uint32_t> qpn) {
  if (entry.qpn.has_value() != qpn.has_value()) qpn ? ++known_ : --known_;
  entry.qpn = qpn;
}

void PeerBook::WasAsked(const PairKey& pair, int64_t now_ns) {
  std::lock_guard hold(mutex_);
  const auto it = entries_.find(pair);
  if (it == entries_.end() || !it->second.by_kernel) return;
  it->second.asked_until_ns = now_ns + kAskedForNs;
}

bool PeerBook::Has(const PairKey& pair) const {
  std::lock_guard hold(mutex_);
  return entries_.contains(pair);
}

std::vector<PeerBook::Question> PeerBook::Due(int64_t now_ns, const std::function<uint64_t()>& random) {
  std::lock_guard hold(mutex_);
  std::vector<Question> due;
  for (auto& [pair, entry] : entries_) {
    if (now_ns >= entry.asked_until_ns) {
      Learn(entry, std::nullopt);
      entry.asked_until_ns = INT64_MIN;
      continue;
    }
    if (now_ns < entry.ask_at_ns) continue;
    do {
      entry.nonce = random();
    } while (entry.nonce == 0);
    entry.ask_at_ns = now_ns + (entry.qpn ? kAskKnownNs : kAskUnknownNs);
    due.push_back({pair, entry.nonce});
  }
  return due;
}

bool PeerBook::Answered(const PairKey& pair, uint64_t nonce, uint32_t qpn) {
  std::lock_guard hold(mutex_);
  const auto it = entries_.find(pair);
  if (it == entries_.end() || nonce == 0 || it->second.nonce != nonce) return false;
  it->second.nonce = 0;
  const bool needs_none = it->second.by_kernel && qpn == CW_BTH_QPN;
  if (needs_none) it->second.asked_until_ns = INT64_MIN;
  Learn(it->second, needs_none ? std::nullopt : std::optional(qpn));
  return true;
}

std::optional<uint32_t> PeerBook::Qpn(const PairKey& pair) const {
  std::lock_guard hold(mutex_);
  const auto it = entries_.find(pair);
  return it == entries_.end() ? std::nullopt : it->second.qpn;
}

uint32_t PeerBook::pairs() const {
  std::lock_guard hold(mutex_);
  return static_cast<uint32_t>(std::count_if(entries_.begin(), entries_.end(),
                                             [](const auto& e) { return e.second.asked_until_ns != INT64_MIN; }));
}

uint32_t PeerBook::KnownFrom(const Addr& local) const {
  std::lock_guard hold(mutex_);
  return static_cast<uint32_t>(std::count_if(entries_.begin(), entries_.end(),
                                             [&](const auto& e) { return e.first.local == local && e.second.qpn; }));
}

}  // namespace cw::probe_verbs
