// SPDX-License-Identifier: Apache-2.0
//
// A segment of the spool as bytes: a head of 8 bytes, then frames, each 16 bytes of mark, length and CRC-32C and what
// these cover: kind, position, run, sequence, time, the record. Little-endian. A file may end anywhere (the writer was
// killed) and any byte may be wrong: whole frames before and after are found all the same. Pure; any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/strings/string_view.h"

namespace cw::uplink {

inline constexpr absl::string_view kSegmentHead = "CWSPOOL1";  // 1: the version of the format
inline constexpr size_t kMaxRecordBytes = 1 << 20;

// What is dropped first where room ends: detail, all of it, before the first event.
enum class Kind : uint8_t { kEvent = 1, kDetail = 2 };

struct FrameHead {
  Kind kind = Kind::kDetail;
  uint64_t position = 0;  // in the spool, ascending over all runs; from 1
  uint64_t run = 0;       // of the agent that wrote it
  uint64_t sequence = 0;  // of the batch within the run
  int64_t time_ns = 0;    // ns since 1970, UTC, when it was appended
};

inline constexpr size_t kFrameOverhead = 16 + 1 + 4 * 8;  // bytes a record takes besides its own

std::string EncodeFrame(const FrameHead& head, absl::string_view record);

// One whole frame at the start of `bytes`: its size in bytes; 0 if there is none.
size_t DecodeFrame(absl::string_view bytes, FrameHead* head, absl::string_view* record);

struct Scan {
  uint64_t frames = 0;
  uint64_t good_end = 0;       // bytes up to the end of the last whole frame; 0: not even the head is right
  uint64_t damaged_bytes = 0;  // before good_end and in no frame
};

// Calls `frame` for each whole frame with its offset in `bytes`, in order. Work is bounded by a multiple of the size,
// whatever the bytes are.
Scan ScanSegment(absl::string_view bytes,
                 const std::function<void(size_t offset, const FrameHead&, absl::string_view record)>& frame);

}  // namespace cw::uplink
