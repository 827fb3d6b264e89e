// SPDX-License-Identifier: Apache-2.0
#include "maps/bpf_map.h"

#include <bpf/bpf.h>
#include <errno.h>
#include <fcntl.h>

#include <vector>

#include "absl/strings/str_format.h"

namespace cw::maps {
namespace {

constexpr uint32_t kFirstBatch = 256;
constexpr int kKernelNotSupported = 524;  // ENOTSUPP, which the kernel returns and userspace's errno.h does not have

}  // namespace

absl::StatusOr<BpfMap> BpfMap::OpenPinned(const std::string& path) {
  UniqueFd fd(bpf_obj_get(path.c_str()));
  if (!fd.ok()) return absl::ErrnoToStatus(errno, absl::StrFormat("open pinned map %s", path));
  return FromFd(std::move(fd));
}

absl::StatusOr<BpfMap> BpfMap::FromFd(UniqueFd fd) {
  bpf_map_info info = {};
  uint32_t len = sizeof(info);
  if (bpf_obj_get_info_by_fd(fd.get(), &info, &len) != 0) return absl::ErrnoToStatus(errno, "read a BPF map's info");
  BpfMap map;
  map.fd_ = std::move(fd);
  map.id_ = info.id;
  map.name_ = info.name;
  map.shape_ = {info.type, info.key_size, info.value_size, info.max_entries, info.map_flags};
  return map;
}

absl::StatusOr<BpfMap> BpfMap::Duplicate(int fd) {
  UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
  if (!copy.ok()) return absl::ErrnoToStatus(errno, "duplicate a BPF map's descriptor");
  return FromFd(std::move(copy));
}

absl::Status BpfMap::ExpectSizes(uint32_t key_size, uint32_t value_size) const {
  if (shape_.key_size == key_size && shape_.value_size == value_size) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("map %s has keys of %u and values of %u bytes, this program expects %u and %u", name_,
                      shape_.key_size, shape_.value_size, key_size, value_size));
}

absl::Status BpfMap::Error(int err, const char* what) const {
  // The kernel says E2BIG for a hash map without room, and for an index beyond an array's end.
  if (err == E2BIG) return absl::ResourceExhaustedError(absl::StrFormat("%s in %s: map is full", what, name_));
  return absl::ErrnoToStatus(err, absl::StrFormat("%s in %s", what, name_));
}

absl::Status BpfMap::Lookup(const void* key, void* value) const {
  if (bpf_map_lookup_elem(fd_.get(), key, value) == 0) return absl::OkStatus();
  return Error(errno, "look up");
}

absl::Status BpfMap::Update(const void* key, const void* value, uint64_t flags) const {
  if (bpf_map_update_elem(fd_.get(), key, value, flags) == 0) return absl::OkStatus();
  return Error(errno, "update");
}

absl::Status BpfMap::Delete(const void* key) const {
  if (bpf_map_delete_elem(fd_.get(), key) == 0) return absl::OkStatus();
  return Error(errno, "delete");
}

absl::Status BpfMap::ForEach(absl::FunctionRef<void(const void*, const void*)> visit) const {
  uint32_t capacity = kFirstBatch;
  std::vector<uint8_t> keys, values;
  uint64_t in = 0, out = 0;  // opaque position; hash maps use four bytes of it
  bool first = true;
  for (bool done = false; !done;) {
    keys.resize(size_t{capacity} * shape_.key_size);
    values.resize(size_t{capacity} * shape_.value_size);
    uint32_t count = capacity;
    const int rc =
        bpf_map_lookup_batch(fd_.get(), first ? nullptr : &in, &out, keys.data(), values.data(), &count, nullptr);
    const int err = rc == 0 ? 0 : errno;
    if (err == ENOSPC) {  // one hash bucket has more entries than the batch: nothing was copied
      capacity *= 2;
      continue;
    }
    if (first && (err == EINVAL || err == EOPNOTSUPP || err == kKernelNotSupported)) return ForEachOneByOne(visit);
    if (err != 0 && err != ENOENT) return Error(err, "read a batch");
    for (uint32_t i = 0; i < count; ++i) {
      visit(&keys[size_t{i} * shape_.key_size], &values[size_t{i} * shape_.value_size]);
    }
    done = err == ENOENT;
    in = out;
    first = false;
  }
  return absl::OkStatus();
}

absl::Status BpfMap::ForEachOneByOne(absl::FunctionRef<void(const void*, const void*)> visit) const {
  std::vector<uint8_t> key(shape_.key_size), next(shape_.key_size), value(shape_.value_size);
  // Bounded: a key deleted under us restarts the walk at the first entry.
  for (uint64_t left = 2ull * shape_.max_entries; left > 0; --left) {
    if (bpf_map_get_next_key(fd_.get(), left == 2ull * shape_.max_entries ? nullptr : key.data(), next.data()) != 0) {
      return errno == ENOENT ? absl::OkStatus() : Error(errno, "walk");
    }
    key = next;
    if (bpf_map_lookup_elem(fd_.get(), key.data(), value.data()) == 0) visit(key.data(), value.data());
  }
  return absl::OkStatus();
}

}  // namespace cw::maps
