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
  const int n = ring_buffer__consume(ring_);
  if (n < 0) return absl::ErrnoToStatus(-n, "read a ring buffer");
  return n;
}

int RingReader::OnSample(void* self, void* data, size_t size) {
  static_cast<RingReader*>(self)->on_record_(absl::MakeConstSpan(static_cast<const uint8_t*>(data), size));
  return 0;
}

}  // namespace cw::maps
