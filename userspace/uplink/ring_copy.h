// SPDX-License-Identifier: Apache-2.0
//
// A span of the ring, taken aside before it is overwritten, in a file of its own: what one request of the fleet service
// asked for. A span that reaches into the future grows with it. The bound on bytes is hard: where it would not do for
// the whole span, records go without their raw samples, and keep their sketches; where that is not enough it ends.
//
// Errors are Status. Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/api/ring.pb.h"
#include "userspace/uplink/ring.h"
#include "userspace/uplink/spool_segment.h"

namespace cw::uplink {

class RingCopy {
 public:
  static constexpr uint64_t kMostBytes = 64 << 20;  // whatever is asked for
  static constexpr int64_t kMostSpanNs = int64_t{3600} * 1'000'000'000;
  static constexpr size_t kChunkBytes = 128 << 10;

  // InvalidArgument: the request makes no sense.
  static absl::StatusOr<RingCopy> Begin(const std::string& path, const cwfabric::v1::RingRequest& request,
                                        const Ring& ring);
  RingCopy(RingCopy&&) = default;
  RingCopy& operator=(RingCopy&&) = default;

  // Takes some more, a block of the ring at most. True: there was something.
  bool Step(Ring& ring, int64_t now_ns);
  // All that there will be is there.
  bool complete() const { return complete_; }
  // Complete, or so much that it is worth a chunk: from record `first` on, which is moved behind it.
  std::optional<cwfabric::v1::RingChunk> Chunk(size_t& first);
  bool AllBehind(size_t first) const { return first >= records_.size(); }
  const std::string& reason() const { return reason_; }
  uint64_t damaged_bytes() const { return damaged_bytes_; }
  uint64_t read_bytes() const { return read_bytes_; }  // of the ring, so far
  void Remove() { file_.Remove().IgnoreError(); }
  const cwfabric::v1::RingRequest& request() const { return request_; }

 private:
  RingCopy(Segment file, const cwfabric::v1::RingRequest& request) : file_(std::move(file)), request_(request) {}
  void Take(const RingRecord& record);
  bool Keep(const cwfabric::v1::RingSecond& second);
  void TellNames(const cwfabric::v1::RingSecond& second);
  void End(const std::string& reason);

  Segment file_;
  cwfabric::v1::RingRequest request_;
  RingSpot spot_;
  bool begun_ = false;                                                     // the span
  std::map<std::pair<uint64_t, uint32_t>, cwfabric::v1::RingName> names_;  // by run and number, before it
  std::vector<std::pair<uint64_t, uint32_t>> records_;                     // where each lies, and its size
  uint64_t damaged_bytes_ = 0, thinned_ = 0, read_bytes_ = 0;
  bool complete_ = false, lost_ = false;
  std::string reason_;
};

}  // namespace cw::uplink
