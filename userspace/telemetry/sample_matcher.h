// SPDX-License-Identifier: Apache-2.0
//
// Matches the two halves of sampled data packets: ours from tc egress, the peer's from its XDP program by message.
// A half matches only within `window_ns` of the other (times of both already on one clock), so that PSNs that wrapped
// around, and earlier queue pairs with the same number, cannot meet. A PSN seen twice at either end voids the sample,
// and so does a half that arrived before it was sent by more than any clock error. Pure: time comes in. Thread rule:
// one thread. Memory is bounded by `capacity` open halves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "userspace/model/flow.h"

namespace cw::telemetry {

struct SampleKey {
  FlowKey flow;
  uint32_t psn = 0;
  bool is_resp = false;
  auto operator<=>(const SampleKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const SampleKey& k) {
    return H::combine(std::move(h), k.flow, k.psn, k.is_resp);
  }
};

struct MatchStats {
  uint64_t matched = 0;
  uint64_t voided = 0;     // duplicates, contradictions, and all that was open when records were lost
  uint64_t unmatched = 0;  // expired without the other half
  uint64_t dropped = 0;    // the table was full
};

class SampleMatcher {
 public:
  struct Match {
    SampleKey key;
    int64_t tx_ns = 0;  // both on our clock
    int64_t rx_ns = 0;
    uint8_t slot = 0;  // taken, from our half
    int64_t OwdNs() const { return rx_ns - tx_ns; }
  };
  explicit SampleMatcher(size_t capacity = 65536, int64_t window_ns = 1'000'000'000)
      : capacity_(capacity), window_ns_(window_ns) {}

  void AddSent(const SampleKey& key, int64_t tx_ns, uint8_t slot, bool duplicate);
  // rx_ns: the peer's stamp, converted to our clock.
  void AddReceived(const SampleKey& key, int64_t rx_ns, bool duplicate);
  // Calls back for each match that stood for kWaitNs, in which a duplicate could still void it. Call every 100 ms or
  // so.
  void TakeMatches(int64_t now_ns, const std::function<void(const Match&)>& each);

  // A record of a retransmission may be among lost records, so whatever is open could be a false match.
  void VoidOpen();

  static constexpr int64_t kWaitNs = 50'000'000;

  const MatchStats& stats() const { return stats_; }
  size_t open() const { return open_.size(); }

 private:
  struct Half {
    int64_t tx_ns = 0, rx_ns = 0;
    int64_t first_ns = 0;     // by which it expires
    uint32_t generation = 0;  // tells it from an earlier half of the same key
    bool has_tx = false, has_rx = false, voided = false;
    uint8_t slot = 0;
  };
  struct Waiting {
    int64_t since_ns = INT64_MIN;  // of the first TakeMatches after both halves were there
    uint32_t generation = 0;
    SampleKey key;
  };
  struct Opened {
    int64_t at_ns = 0;
    uint32_t generation = 0;
    SampleKey key;
  };

  Half* Open(const SampleKey& key, int64_t at_ns);
  Half* Find(const SampleKey& key, int64_t at_ns);
  void Void(Half& half);
  void Complete(const SampleKey& key, Half& half);
  void Expire(int64_t now_ns);
  void Close(absl::flat_hash_map<SampleKey, Half>::iterator it);

  size_t capacity_;
  int64_t window_ns_;
  absl::flat_hash_map<SampleKey, Half> open_;
  std::deque<Opened> order_;     // in order of arrival
  std::deque<Waiting> waiting_;  // both halves are there
  uint32_t next_generation_ = 1;
  MatchStats stats_;
};

}  // namespace cw::telemetry
