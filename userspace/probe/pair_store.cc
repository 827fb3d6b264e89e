// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/pair_store.h"

#include <bpf/bpf.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace cw::probe {
namespace {

absl::Status Errno(const char* what, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("probe mesh: ", what));
}

cw_pair_key ToAbi(const PairKey& key) {
  cw_pair_key k;
  std::copy(key.local.bytes.begin(), key.local.bytes.end(), k.local);
  std::copy(key.remote.bytes.begin(), key.remote.bytes.end(), k.remote);
  return k;
}

}  // namespace

absl::StatusOr<std::unique_ptr<MapPairStore>> MapPairStore::Open(const Fds& fds) {
  bpf_map_info info{};
  uint32_t info_len = sizeof(info);
  if (bpf_obj_get_info_by_fd(fds.pairs, &info, &info_len) != 0) return Errno("reading cw_pairs' shape", errno);
  if (info.value_size != sizeof(cw_pair)) {
    return absl::FailedPreconditionError(
        absl::StrCat("cw_pairs has entries of ", info.value_size, " bytes, this agent's have ", sizeof(cw_pair)));
  }
  std::unique_ptr<MapPairStore> store(new MapPairStore());
  store->capacity_ = std::min<uint32_t>(info.max_entries, CW_PAIR_NONE);
  const size_t page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = (size_t{info.max_entries} * sizeof(cw_pair) + page - 1) / page * page;
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fds.pairs, 0);
  if (memory == MAP_FAILED) return Errno("mapping cw_pairs into memory", errno);
  store->pairs_ = static_cast<cw_pair*>(memory);
  store->mapped_bytes_ = bytes;
  store->index_fd_ = fcntl(fds.pair_index, F_DUPFD_CLOEXEC, 0);
  store->keys_fd_ = fcntl(fds.keys, F_DUPFD_CLOEXEC, 0);
  if (store->index_fd_ < 0 || store->keys_fd_ < 0) return Errno("keeping the maps open", errno);
  return store;
}

MapPairStore::~MapPairStore() {
  if (pairs_ != nullptr) munmap(pairs_, mapped_bytes_);
  if (index_fd_ >= 0) close(index_fd_);
  if (keys_fd_ >= 0) close(keys_fd_);
}

absl::StatusOr<std::vector<std::pair<PairKey, uint32_t>>> MapPairStore::ReadIndex() {
  std::vector<std::pair<PairKey, uint32_t>> out;
  cw_pair_key key, next;
  const cw_pair_key* from = nullptr;
  while (bpf_map_get_next_key(index_fd_, from, &next) == 0) {
    key = next;
    from = &key;
    uint32_t index = 0;
    if (bpf_map_lookup_elem(index_fd_, &key, &index) != 0) continue;
    out.push_back({{Addr::FromBytes(key.local), Addr::FromBytes(key.remote)}, index});
  }
  if (errno != ENOENT) return Errno("reading cw_pair_index", errno);
  return out;
}

absl::Status MapPairStore::PutIndex(const PairKey& key, uint32_t index) {
  const cw_pair_key k = ToAbi(key);
  if (bpf_map_update_elem(index_fd_, &k, &index, BPF_ANY) != 0) return Errno("writing cw_pair_index", errno);
  return absl::OkStatus();
}

absl::Status MapPairStore::EraseIndex(const PairKey& key) {
  const cw_pair_key k = ToAbi(key);
  if (bpf_map_delete_elem(index_fd_, &k) != 0 && errno != ENOENT) return Errno("writing cw_pair_index", errno);
  return absl::OkStatus();
}

absl::Status MapPairStore::PutKeys(uint32_t index, const cw_pair_keys& keys) {
  if (bpf_map_update_elem(keys_fd_, &index, &keys, BPF_ANY) != 0) return Errno("writing cw_keys", errno);
  return absl::OkStatus();
}

}  // namespace cw::probe
