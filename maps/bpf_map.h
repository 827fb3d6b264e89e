// SPDX-License-Identifier: Apache-2.0
//
// One BPF map by descriptor: what it is, and its raw operations. The typed views (views.h) are built on this.
// Errors: absl::Status with the errno's code (NotFound for a key that is not there, AlreadyExists, ResourceExhausted
// for a full map) and the map's name. Threads: every call is one system call; calls from several threads are safe.
#pragma once

#include <linux/bpf.h>

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "maps/unique_fd.h"

namespace cw::maps {

struct MapShape {
  uint32_t type = 0;  // enum bpf_map_type
  uint32_t key_size = 0;
  uint32_t value_size = 0;
  uint32_t max_entries = 0;
  uint32_t flags = 0;
};

class BpfMap {
 public:
  BpfMap() = default;

  // Opens the map pinned at `path`; NotFound when nothing is pinned there.
  static absl::StatusOr<BpfMap> OpenPinned(const std::string& path);
  // Takes the descriptor over.
  static absl::StatusOr<BpfMap> FromFd(UniqueFd fd);
  // A second descriptor of the same map; the caller keeps `fd`.
  static absl::StatusOr<BpfMap> Duplicate(int fd);

  int fd() const { return fd_.get(); }
  uint32_t id() const { return id_; }
  const std::string& name() const { return name_; }
  const MapShape& shape() const { return shape_; }

  // FailedPrecondition naming both sizes when the map does not hold records of these sizes.
  absl::Status ExpectSizes(uint32_t key_size, uint32_t value_size) const;

  // `key` and `value` point to shape().key_size and value_size bytes (per-CPU maps: value_size rounded up to 8, times
  // the possible CPUs). flags: BPF_ANY, BPF_NOEXIST, BPF_EXIST.
  absl::Status Lookup(const void* key, void* value) const;
  absl::Status Update(const void* key, const void* value, uint64_t flags = BPF_ANY) const;
  absl::Status Delete(const void* key) const;

  // Visits every entry of a hash map, many per system call. Entries that change while it runs may be missed or seen
  // twice; a visit sees one copy of the value, whose fields the kernel may have been writing.
  absl::Status ForEach(absl::FunctionRef<void(const void* key, const void* value)> visit) const;

 private:
  absl::Status Error(int err, const char* what) const;
  absl::Status ForEachOneByOne(absl::FunctionRef<void(const void*, const void*)> visit) const;

  UniqueFd fd_;
  uint32_t id_ = 0;
  std::string name_;
  MapShape shape_;
};

}  // namespace cw::maps
