// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/peer_book.h"

#include <utility>

namespace cw::probe_verbs {

void PeerBook::SetPairs(const std::vector<PairKey>& pairs) {
  std::lock_guard hold(mutex_);
  absl::flat_hash_map<PairKey, Entry> wanted;
  for (const PairKey& pair : pairs) {
    const auto it = entries_.find(pair);
    wanted.emplace(pair, it == entries_.end() ? Entry{} : it->second);
  }
  entries_ = std::move(wanted);
}

bool PeerBook::Has(const PairKey& pair) const {
  std::lock_guard hold(mutex_);
  return entries_.contains(pair);
}

std::vector<PeerBook::Question> PeerBook::Due(int64_t now_ns, const std::function<uint64_t()>& random) {
  std::lock_guard hold(mutex_);
  std::vector<Question> due;
  for (auto& [pair, entry] : entries_) {
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
  it->second.qpn = qpn;
  return true;
}

std::optional<uint32_t> PeerBook::Qpn(const PairKey& pair) const {
  std::lock_guard hold(mutex_);
  const auto it = entries_.find(pair);
  return it == entries_.end() ? std::nullopt : it->second.qpn;
}

uint32_t PeerBook::pairs() const {
  std::lock_guard hold(mutex_);
  return static_cast<uint32_t>(entries_.size());
}

uint32_t PeerBook::known() const {
  std::lock_guard hold(mutex_);
  uint32_t known = 0;
  for (const auto& [pair, entry] : entries_) known += entry.qpn ? 1 : 0;
  return known;
}

}  // namespace cw::probe_verbs
