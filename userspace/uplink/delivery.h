// SPDX-License-Identifier: Apache-2.0
//
// Which batch of the spool goes next, and what an answer means for it: the uplink without its sockets. Sends ahead of
// acknowledgements up to a window, goes back where the service missed something, waits where it asks for it, and says
// with each batch which sequences before it never come. Time comes in as an argument, of a clock that nobody sets.
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/uplink/spool.h"

namespace cw::uplink {

namespace wire = ::cwfabric::v1;

class Delivery {
 public:
  static constexpr size_t kWindowBytes = 512 << 10, kWindowBatches = 256;
  static constexpr absl::Duration kPatience = absl::Seconds(30);  // for an acknowledgement

  Delivery(Spool& spool, std::string host) : spool_(spool), host_(std::move(host)) {}

  // A new stream, of which nothing was sent.
  void Begin(absl::Time now);
  // Flows, jobs and collectives go to a service that takes them, and to no other.
  absl::Status OnWelcome(uint64_t run, const wire::Welcome& welcome);
  // True: all definitions are wanted again.
  absl::StatusOr<bool> OnAck(const wire::Ack& ack, absl::Time now);
  // What to send now; none: all is sent, the window is full, or the service asked for a pause. `definitions`, as
  // far as there is room, go with the first batches of `run` among them, and are taken out.
  absl::StatusOr<std::vector<wire::Batch>> Next(absl::Time now, uint64_t run, wire::Definitions* definitions);
  // The stream is stuck: batches wait for an answer that does not come.
  bool Stuck(absl::Time now) const;
  // When Next may have something that it has not now, other than by an Ack; InfiniteFuture: never.
  absl::Time PausedUntil() const { return paused_until_; }
  uint64_t refused() const { return refused_; }
  const std::string& last_refusal() const { return last_refusal_; }

 private:
  struct Sent {
    uint64_t run, sequence;
    size_t bytes;
  };
  void GoBack();
  bool WindowFull() const { return in_flight_bytes_ >= kWindowBytes || in_flight_.size() >= kWindowBatches; }

  Spool& spool_;
  std::string host_;
  uint64_t cursor_ = 0;                // position of the spool up to which all was sent
  std::map<uint64_t, uint64_t> sent_;  // by run: the last sequence on this stream
  bool takes_work_ = false, takes_calm_paths_ = false;
  std::deque<Sent> in_flight_;
  size_t in_flight_bytes_ = 0;
  absl::Time paused_until_ = absl::InfinitePast(), heard_ = absl::InfinitePast();
  std::pair<uint64_t, uint64_t> went_back_;  // to behind this run's sequence …
  absl::Time went_back_at_ = absl::InfinitePast();
  uint64_t told_detail_ = 0, told_events_ = 0, told_bytes_ = 0;  // of what the spool dropped
  uint64_t refused_ = 0;
  std::string last_refusal_;
};

}  // namespace cw::uplink
