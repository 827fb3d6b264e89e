// SPDX-License-Identifier: Apache-2.0
//
// What the fleet service asked of the ring, and what it is answered: a few copies at a time, chunks as far as the
// service has kept those before. The one who writes the ring drives it (Step); the uplink's client gives it what
// arrives and takes what is to be sent. Kept for an hour, so that a connection that was lost costs sending again;
// but the oldest that nobody wants makes room for a new one. What is read of the ring has a budget, so that a service
// that asks for ever costs the host no more; what has begun is finished.
//
// Threads: any; a call may wait for one block of the ring to be copied.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "userspace/api/ring.pb.h"
#include "userspace/uplink/ring_copy.h"

namespace cw::uplink {

class RingAnswers {
 public:
  static constexpr size_t kMostCopies = 4;
  static constexpr uint32_t kAhead = 4;  // chunks
  static constexpr absl::Duration kKept = absl::Hours(1);
  static constexpr double kBytesAnHour = 1 << 30;  // of the ring, read for the service; so much at once, too

  // Copies lie in `folder`, which is made; what an agent before left there goes.
  explicit RingAnswers(std::string folder);
  ~RingAnswers();

  // From the service. A request that cannot be taken is answered with why.
  void Take(const cwfabric::v1::RingAsk& ask);
  // A new connection: nothing was sent over it. Who wants more, asks again.
  void Begin();
  std::optional<cwfabric::v1::RingAnswer> Next();

  // Copies some more of what was asked for. True: there may be more to send, or to copy.
  bool Step(Ring& ring, absl::Time now);
  bool busy() const;  // something is asked for

 private:
  struct Asked {
    std::optional<RingCopy> copy;
    absl::Time since;
    size_t record = 0;            // the next to be sent
    uint32_t sent = 0, kept = 0;  // chunks
    bool wanted = true;           // over this connection
    bool ended = false;           // RingEnd is sent
  };
  void Ask(const cwfabric::v1::RingRequest& request);
  void Refuse(uint64_t id, const std::string& reason);
  void BeginAsked(Ring& ring, absl::Time now);
  void Refill(absl::Time now);

  const std::string folder_;
  mutable std::mutex mutex_;                        // of all below
  std::deque<cwfabric::v1::RingRequest> requests_;  // not begun yet
  std::deque<cwfabric::v1::RingAnswer> refusals_;
  std::deque<Asked> asked_;
  double budget_ = kBytesAnHour;  // bytes; below zero: what had begun took more
  absl::Time refilled_ = absl::InfiniteFuture();
};

}  // namespace cw::uplink
