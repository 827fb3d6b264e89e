// SPDX-License-Identifier: Apache-2.0
//
// What the agent has to tell and the fleet service has not acknowledged yet, on disk. Survives the agent's end at any
// byte, a full disk and rotten files: what is whole is found, what is not is counted. Bounded by size, age and number.
//
// Where room ends the oldest detail goes first, a file at a time, counted; events only when no detail is left, and
// never for the sake of detail. Events and detail lie in files of their own, so that dropping is one unlink and needs
// no room. What Append took is lost in no other way. Events are on the disk when Append returns (fdatasync), detail
// when the kernel writes it: a power cut may cost detail. Records are opaque here; the store takes none twice (host,
// run, sequence), so an acknowledgement lost with the agent only costs sending again.
//
// Errors are Status: ResourceExhausted: no room, the message says where; the record was not taken, all others are
// there. Threads: one at a time.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/uplink/spool_format.h"
#include "userspace/uplink/spool_segment.h"

namespace cw::uplink {

struct SpoolLimits {
  uint64_t bytes = uint64_t{256} << 20;  // of all files together
  absl::Duration age = absl::Hours(24);  // by the clock that Append is given
  uint64_t records = 100'000;            // about 64 bytes of memory each
  bool sync_events = true;
  // False: nothing goes by its age now. A clock that is ahead would let all go. Without: it is right.
  std::function<bool()> clock_is_right;
};

struct SpoolRecord {
  FrameHead head;
  std::string bytes;
};

struct SpoolState {
  uint64_t records = 0;         // not acknowledged
  uint64_t bytes = 0;           // of files
  uint64_t dropped_detail = 0;  // records, since the spool was opened
  uint64_t dropped_events = 0;
  uint64_t dropped_bytes = 0;
  uint64_t damaged_bytes = 0;  // that were no record any more
};

class Spool {
 public:
  // Makes the folder (0700) if need be. FailedPrecondition: another agent has it, or a newer release wrote it.
  static absl::StatusOr<std::unique_ptr<Spool>> Open(const std::string& folder, const SpoolLimits& limits,
                                                     absl::Time now, const FileCalls& calls = FileCalls::Real());
  ~Spool();

  absl::Status Append(Kind kind, uint64_t run, uint64_t sequence, absl::string_view record, absl::Time now);
  // Records behind `position`, in the order in which they were appended: at least one if there is any, else at most so
  // many bytes.
  absl::StatusOr<std::vector<SpoolRecord>> After(uint64_t position, size_t most_bytes);
  // All records of the run up to the sequence are in the store.
  absl::Status Acknowledge(uint64_t run, uint64_t through_sequence);
  // Drops what is too old.
  absl::Status Expire(absl::Time now);
  SpoolState state() const { return state_; }

 private:
  struct Entry {
    uint64_t position = 0, run = 0, sequence = 0;
    int64_t time_ns = 0;
    uint32_t offset = 0, size = 0;
    bool done = false;  // acknowledged, or found damaged
  };
  struct Part {
    Segment file;
    std::deque<Entry> entries;
    uint64_t open = 0;  // entries that are not done
  };
  using Stream = std::deque<Part>;  // by position; the last part is written to

  Spool(std::string folder, const SpoolLimits& limits, const FileCalls& calls, int lock);
  Stream& Of(Kind kind) { return streams_[kind == Kind::kEvent ? 0 : 1]; }
  absl::Status Load();
  absl::Status LoadFile(const std::string& name, Kind kind);
  absl::Status MakeRoom(Kind kind, size_t bytes);
  absl::StatusOr<Part*> PartToWrite(Kind kind);
  // False: there is none.
  absl::StatusOr<bool> DropOldest(Kind kind);
  absl::Status Settle(Stream& stream);  // files of which nothing is open go
  void Done(Part& part, Entry& entry);

  std::string folder_;
  SpoolLimits limits_;
  FileCalls calls_;
  int lock_ = -1;
  std::array<Stream, 2> streams_;
  uint64_t next_position_ = 1;
  SpoolState state_;
};

}  // namespace cw::uplink
