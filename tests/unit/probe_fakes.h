// SPDX-License-Identifier: Apache-2.0
//
// What the tests of the probe room share: the maps in plain memory, and a secret.
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "userspace/probe/keys.h"
#include "userspace/probe/pair_store.h"

namespace cw::probe {

class MemoryPairStore final : public PairStore {
 public:
  explicit MemoryPairStore(uint32_t capacity) : pairs(capacity), keys(capacity) {}
  uint32_t capacity() const override { return static_cast<uint32_t>(pairs.size()); }
  cw_pair* At(uint32_t i) override { return &pairs[i]; }
  absl::StatusOr<std::vector<std::pair<PairKey, uint32_t>>> ReadIndex() override {
    return std::vector<std::pair<PairKey, uint32_t>>(index.begin(), index.end());
  }
  absl::Status PutIndex(const PairKey& key, uint32_t i) override {
    index[key] = i;
    return absl::OkStatus();
  }
  absl::Status EraseIndex(const PairKey& key) override {
    index.erase(key);
    return absl::OkStatus();
  }
  absl::Status PutKeys(uint32_t i, const cw_pair_keys& k) override {
    keys[i] = k;
    return absl::OkStatus();
  }

  std::vector<cw_pair> pairs;
  std::vector<cw_pair_keys> keys;
  std::map<PairKey, uint32_t> index;
};

inline KeyRing TestKeys() {
  KeyRing ring;
  (void)ring.Set(0, *GroupSecret::FromBytes("000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"));
  return ring;
}

inline Addr TestAddr(const char* text) { return *Addr::Parse(text); }

}  // namespace cw::probe
