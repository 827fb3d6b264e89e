// SPDX-License-Identifier: Apache-2.0
//
// Whose probe queue pair has which number, and whom to ask next. A peer whose number is not known is asked often, one
// that is known from time to time, because an agent that restarts has another.
// Time comes in. Thread rule: any thread; Qpn is what the sending threads call.
#pragma once

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

  struct Question {
    PairKey pair;
    uint64_t nonce = 0;
  };

  // The whole wanted set; what is known of pairs that stay is kept.
  void SetPairs(const std::vector<PairKey>& pairs);
  bool Has(const PairKey& pair) const;
  // Whom to ask now. random gives nonces.
  std::vector<Question> Due(int64_t now_ns, const std::function<uint64_t()>& random);
  // False: not an answer to the latest question, and nothing changes.
  bool Answered(const PairKey& pair, uint64_t nonce, uint32_t qpn);
  std::optional<uint32_t> Qpn(const PairKey& pair) const;

  uint32_t pairs() const;
  uint32_t known() const;

 private:
  struct Entry {
    std::optional<uint32_t> qpn;
    uint64_t nonce = 0;  // 0: no question is open
    int64_t ask_at_ns = INT64_MIN;
  };
  mutable std::mutex mutex_;
  absl::flat_hash_map<PairKey, Entry> entries_;
};

}  // namespace cw::probe_verbs
