// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe/pair_store.h"

#include <algorithm>

#include "absl/status/status.h"

namespace cw::probe {
namespace {

cw_pair_key ToAbi(const PairKey& key) {
  cw_pair_key k;
  std::copy(key.local.bytes.begin(), key.local.bytes.end(), k.local);
  std::copy(key.remote.bytes.begin(), key.remote.bytes.end(), k.remote);
  return k;
}

}  // namespace

uint32_t MapPairStore::capacity() const {
  return std::min({pairs_.size(), keys_.size(), index_.capacity(), uint32_t{CW_PAIR_NONE}});
}

absl::StatusOr<std::vector<std::pair<PairKey, uint32_t>>> MapPairStore::ReadIndex() {
  std::vector<std::pair<PairKey, uint32_t>> out;
  absl::Status s = index_.ForEach([&](const cw_pair_key& key, const uint32_t& index) {
    out.push_back({{Addr::FromBytes(key.local), Addr::FromBytes(key.remote)}, index});
  });
  if (!s.ok()) return s;
  return out;
}

absl::Status MapPairStore::PutIndex(const PairKey& key, uint32_t index) { return index_.Put(ToAbi(key), index); }

absl::Status MapPairStore::EraseIndex(const PairKey& key) {
  const absl::Status s = index_.Delete(ToAbi(key));
  return absl::IsNotFound(s) ? absl::OkStatus() : s;
}

}  // namespace cw::probe
