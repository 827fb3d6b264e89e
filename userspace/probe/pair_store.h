// SPDX-License-Identifier: Apache-2.0
//
// Where the mesh keeps its pairs: the maps that the BPF programs read, or plain memory in a test.
// Thread rule: one thread calls; the memory behind At() is shared with the kernel and with the prober's thread, so its
// fields are read and written with Load and Store below.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "maps/abi.h"
#include "maps/views.h"
#include "userspace/model/flow.h"

namespace cw::probe {

template <typename T>
T Load(const T& field) {
  return std::atomic_ref<T>(const_cast<T&>(field)).load(std::memory_order_relaxed);
}
template <typename T>
void Store(T& field, T value) {
  std::atomic_ref<T>(field).store(value, std::memory_order_release);
}

class PairStore {
 public:
  virtual ~PairStore() = default;
  virtual uint32_t capacity() const = 0;
  virtual cw_pair* At(uint32_t index) = 0;  // index < capacity(); valid as long as the store
  virtual absl::StatusOr<std::vector<std::pair<PairKey, uint32_t>>> ReadIndex() = 0;
  virtual absl::Status PutIndex(const PairKey& key, uint32_t index) = 0;
  virtual absl::Status EraseIndex(const PairKey& key) = 0;  // Ok when there is none
  virtual absl::Status PutKeys(uint32_t index, const cw_pair_keys& keys) = 0;
};

// The real maps. The views must outlive the store.
class MapPairStore final : public PairStore {
 public:
  MapPairStore(const maps::PairIndexView& index, const maps::PairsView& pairs, const maps::KeysView& keys)
      : index_(index), pairs_(pairs), keys_(keys) {}

  uint32_t capacity() const override;
  cw_pair* At(uint32_t index) override { return &pairs_[index]; }
  absl::StatusOr<std::vector<std::pair<PairKey, uint32_t>>> ReadIndex() override;
  absl::Status PutIndex(const PairKey& key, uint32_t index) override;
  absl::Status EraseIndex(const PairKey& key) override;
  absl::Status PutKeys(uint32_t index, const cw_pair_keys& keys) override { return keys_.Put(index, keys); }

 private:
  const maps::PairIndexView& index_;
  const maps::PairsView& pairs_;
  const maps::KeysView& keys_;
};

}  // namespace cw::probe
