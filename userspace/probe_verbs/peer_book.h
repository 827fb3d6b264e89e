// SPDX-License-Identifier: Apache-2.0
//
// Whose probe queue pair has which number, and whom to ask next. A peer whose number is not known is asked often, one
// that is known from time to time, because an agent that restarts has another. A NIC that the kernel serves asks those
// only that asked it lately: a question may be an old one that somebody sends again, so it is no answer. A peer that
// answers with CW_BTH_QPN has no queue pair: a NIC by verbs sends there all the same, two of the kernel's need none.
// Time comes in. Thread rule: any thread; Qpn is what the sending threads call.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/flow.h"
#include "userspace/probe_verbs/hello.h"

namespace cw::probe_verbs {

class PeerBook {
 public:
  static constexpr int64_t kAskUnknownNs = 500'000'000;
  static constexpr int64_t kAskKnownNs = 2'000'000'000;
  static constexpr int64_t kAskedForNs = 10'000'000'000;  // a peer by verbs asks five times meanwhile

  struct Question {
    PairKey pair;
    uint64_t nonce = 0;
  };

  // The whole wanted set, of NICs by verbs and of NICs that the kernel serves; what is known of pairs that stay is
  // kept.
  void SetPairs(const std::vector<PairKey>& by_verbs, const std::vector<PairKey>& by_kernel);
  bool Has(const PairKey& pair) const;
  // An authentic question came from the peer.
  void WasAsked(const PairKey& pair, int64_t now_ns);
  // Whom to ask now. random gives nonces.
  std::vector<Question> Due(int64_t now_ns, const std::function<uint64_t()>& random);
  // False: not an answer to the latest question, and nothing changes.
  bool Answered(const PairKey& pair, uint64_t nonce, uint32_t qpn);
  std::optional<uint32_t> Qpn(const PairKey& pair) const;

  uint32_t pairs() const;  // that are asked
  uint32_t known() const { return known_; }
  uint32_t KnownFrom(const Addr& local) const;

 private:
  struct Entry {
    bool by_kernel = false;
    int64_t asked_until_ns = INT64_MAX;
    std::optional<uint32_t> qpn;
    uint64_t nonce = 0;  // 0: no question is open
    int64_t ask_at_ns = INT64_MIN;
  };
  void Learn(Entry& entry, std::optional<uint32_t> qpn);

  mutable std::mutex mutex_;
  std::atomic<uint32_t> known_{0};
  absl::flat_hash_map<PairKey, Entry> entries_;
};

}  // namespace cw::probe_verbs
