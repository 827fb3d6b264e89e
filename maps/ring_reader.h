// SPDX-License-Identifier: Apache-2.0
//
// Reads a BPF ring buffer. Records that the kernel submits without a wake-up (all of cw_probe_ring) make no epoll
// event: call Consume on a timer as well. Threads: one thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "maps/bpf_map.h"

struct ring_buffer;

namespace cw::maps {

class RingReader {
 public:
  // The span is valid during the call only. The callback must not destroy the reader.
  using Callback = std::function<void(absl::Span<const uint8_t> record)>;

  static absl::StatusOr<std::unique_ptr<RingReader>> Create(const BpfMap& ring, Callback on_record);
  ~RingReader();
  RingReader(const RingReader&) = delete;
  RingReader& operator=(const RingReader&) = delete;

  // Readable when a record with a wake-up waits; for the caller's own epoll set. Owned by the reader.
  int epoll_fd() const;
  // Calls back for the records that are there; how many there were. Where writers are faster than the callback it ends
  // after kLongest, so that the caller comes to its other work: 0 alone says that none is left.
  static constexpr std::chrono::milliseconds kLongest{20};
  absl::StatusOr<int> Consume();

 private:
  explicit RingReader(Callback on_record) : on_record_(std::move(on_record)) {}
  static int OnSample(void* self, void* data, size_t size);

  static constexpr int kBetweenLooks = 256;  // records from one look at the clock to the next

  Callback on_record_;
  ring_buffer* ring_ = nullptr;
  int records_ = 0;  // of the running Consume
  std::chrono::steady_clock::time_point end_;
};

// The type word that every record begins with (enum cw_event_type); 0 when the record is too short for one.
inline uint32_t RecordType(absl::Span<const uint8_t> record) {
  uint32_t type = 0;
  if (record.size() >= sizeof(type)) std::memcpy(&type, record.data(), sizeof(type));
  return type;
}

// The record as a T; nullopt when it is shorter than one.
template <typename T>
std::optional<T> RecordAs(absl::Span<const uint8_t> record) {
  if (record.size() < sizeof(T)) return std::nullopt;
  T out;
  std::memcpy(&out, record.data(), sizeof(T));
  return out;
}

}  // namespace cw::maps
