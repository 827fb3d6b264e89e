// SPDX-License-Identifier: Apache-2.0
// Moves of connected queue pairs through the library in their process: what was asked, what came of it, and where each
// queue pair is or is going. Pure; time is an argument (monotonic); one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "userspace/rdma/inproc_server.h"

namespace cw::rdma {

// Something else in its process moves it.
bool OwnFailover(const QpInfo& qp);
// Why the library of its process cannot move the queue pair to another UDP source port; "" when it can.
std::string CannotMove(const QpInfo& qp);
// As "Operation not supported (errno 95)".
std::string ErrnoText(int error);

enum class MoveWhy : uint8_t {
  kDead,  // its path
  kLossy,
  kOperator,
  kDrained,
  kDrainOver,
  kRecovered,  // the path that it left when that died or lost packets
};
const char* MoveWhyName(MoveWhy why);  // "dead", "lossy", "operator", "drained", "drain over", "recovered"
// It leaves a path because of what is wrong with it.
bool LeavesBadPath(MoveWhy why);

class MoveBook {
 public:
  // An answer takes as long as the moves before it in its process; one that takes longer is not waited for.
  static constexpr int64_t kOverdueNs = 10'000'000'000;
  static constexpr int kRefusals = 3;  // in a row, after which a queue pair is not asked for again by itself

  struct Asked {
    uint32_t request = 0;
    uint16_t from_port = 0, port = 0;  // port 0: as it was
    uint8_t lag_port = 0;
    int64_t at_ns = 0;
    MoveWhy why = MoveWhy::kOperator;
  };
  struct Entry {
    std::optional<Asked> asked;  // not answered yet
    uint64_t done = 0, refused = 0;
    int refused_in_row = 0;
    int last_error = 0;          // errno of the last refusal; 0: none
    bool manual = false;         // an operator placed it …
    uint16_t before_manual = 0;  // … and it was on this port before
  };
  struct Counts {
    uint64_t done = 0, refused = 0, unanswered = 0;
  };

  // The order for its library, which takes the place of one that was not answered.
  MoveOrder Ask(const QpInfo& qp, uint16_t port, uint8_t lag_port, MoveWhy why, int64_t now_ns);
  // It could not be sent.
  void Unsent(const QpInfo& qp, uint32_t request);
  // What was asked; nullopt: nothing, or something else since.
  std::optional<Asked> Answered(const QpInfo& qp, const MoveResult& result);
  void ExpireOverdue(int64_t now_ns);
  // It is gone, or is another one of that number.
  void Forget(const QpInfo& qp) { entries_.erase(KeyOf(qp)); }
  void SetManual(const QpInfo& qp, bool manual);

  // Where it goes, or is.
  uint16_t PortOf(const QpInfo& qp) const;
  // May it be asked for without anybody's wish: nothing is under way, and it was not refused again and again.
  bool MayAsk(const QpInfo& qp) const;
  Entry Of(const QpInfo& qp) const;
  const Counts& counts() const { return counts_; }

  // true: the first queue pair of this process that something else moves.
  bool FirstOfOwnFailover(uint32_t pid) { return own_failover_.insert(pid).second; }
  void ProcessGone(uint32_t pid) { own_failover_.erase(pid); }

 private:
  using Key = std::pair<Addr, uint32_t>;  // local address and QPN
  static Key KeyOf(const QpInfo& qp) { return {qp.laddr, qp.lqpn}; }

  absl::flat_hash_map<Key, Entry> entries_;
  absl::flat_hash_set<uint32_t> own_failover_;  // processes that were told of
  Counts counts_;
  uint32_t last_request_ = 0;
};

}  // namespace cw::rdma
