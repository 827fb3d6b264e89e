// SPDX-License-Identifier: Apache-2.0
#include "maps/ring_reader.h"

#include <bpf/libbpf.h>
#include <errno.h>

#include "absl/strings/str_format.h"

namespace cw::maps {

absl::StatusOr<std::unique_ptr<RingReader>> RingReader::Create(const BpfMap& ring, Callback on_record) {
  std::unique_ptr<RingReader> reader(new RingReader(std::move(on_record)));
  reader->ring_ = ring_buffer__new(ring.fd(), &RingReader::OnSample, reader.get(), nullptr);
  if (reader->ring_ == nullptr) {
    return absl::ErrnoToStatus(errno, absl::StrFormat("map the ring buffer %s", ring.name()));
  }
  return reader;
}

RingReader::~RingReader() { ring_buffer__free(ring_); }

int RingReader::epoll_fd() const { return ring_buffer__epoll_fd(ring_); }

absl::StatusOr<int> RingReader::Consume() {
  records_ = 0;
  end_ = std::chrono::steady_clock::now() + kLongest;
  const int result = ring_buffer__consume(ring_);
  if (result < 0 && result != -EAGAIN) return absl::ErrnoToStatus(-result, "read a ring buffer");
  return records_;
}

// libbpf reads until the ring is empty, which it never is where writers are faster. An error ends it; the record counts
// as read.
int RingReader::OnSample(void* self, void* data, size_t size) {
  auto* reader = static_cast<RingReader*>(self);
  reader->on_record_(absl::MakeConstSpan(static_cast<const uint8_t*>(data), size));
  if (++reader->records_ % kBetweenLooks != 0) return 0;
  return std::chrono::steady_clock::now() < reader->end_ ? 0 : -EAGAIN;
}

}  // namespace cw::maps
