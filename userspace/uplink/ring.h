// SPDX-License-Identifier: Apache-2.0
//
// The ring file: the last hour or so of what this host measured, second by second, in a file of fixed size that is
// written round and round. Records are opaque here.
//
// Preallocated: a full disk shows when the agent starts, not in the middle of a failure, and nobody else gets that
// room. Blocks of equal size, each laid out as a segment of the spool (spool_format.h: checksummed frames); a frame's
// sequence is its block's, ascending for ever, so what is left of the lap before is known by it. A block begins with
// whatever its records need to be understood (Fits). An agent that was killed at any byte loses the record under way;
// wrong bytes cost the records that they are in, and are counted. Nothing is synced: a power cut may cost what the
// kernel had not written.
//
// Memory: 32 bytes a block, and one block while reading. Errors are Status. Threads: one at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace cw::uplink {

// Where reading goes on: a block by its sequence, and bytes of it that were read.
struct RingSpot {
  uint64_t sequence = 0;  // 0: nowhere
  uint64_t offset = 0;
};

struct RingRecord {
  int64_t end_ns = 0;  // as given to Append
  std::string bytes;
};

class Ring {
 public:
  static constexpr uint64_t kLeastBytes = 4 << 20;

  // Makes the file (0600), and goes on in one that is there; one of another size or release is begun anew.
  // FailedPrecondition: another agent has it. ResourceExhausted: the disk has no room.
  static absl::StatusOr<std::unique_ptr<Ring>> Open(const std::string& path, uint64_t bytes);
  ~Ring();

  // There is room for a record of so many bytes in the present block; else Append begins the next one, which overwrites
  // the oldest.
  bool Fits(size_t bytes) const;
  // A record that ended then. InvalidArgument: larger than a block.
  absl::Status Append(uint64_t run, int64_t end_ns, absl::string_view record);

  // The start of the block with the first record that ends behind `from_ns`; the present one if there is none.
  RingSpot Find(int64_t from_ns) const;
  // The rest of the spot's block as it is now; the spot is moved behind it. None: there is no more yet. What was
  // overwritten meanwhile is passed over, and told by `lost`.
  absl::StatusOr<std::vector<RingRecord>> Read(RingSpot& spot, bool* lost);

  uint64_t most_record_bytes() const;
  int64_t oldest_ns() const;  // end of the oldest record, about; 0: there is none
  uint64_t damaged_bytes() const { return damaged_bytes_; }

 private:
  struct Block {
    uint64_t sequence = 0;  // 0: empty, or not to be read
    int64_t first_ns = 0, last_ns = 0;
  };
  Ring(std::string path, int fd, uint64_t block_bytes, size_t blocks);
  absl::Status Load(bool fresh);
  absl::StatusOr<std::string> BlockAt(size_t place) const;
  size_t PlaceOf(uint64_t sequence) const { return static_cast<size_t>((sequence - 1) % blocks_.size()); }

  std::string path_;
  int fd_ = -1;
  uint64_t block_bytes_ = 0;
  std::vector<Block> blocks_;
  uint64_t sequence_ = 0;  // of the block that is written to; 0: none yet
  uint64_t used_ = 0;      // bytes of it
  uint64_t damaged_bytes_ = 0;
};

}  // namespace cw::uplink
