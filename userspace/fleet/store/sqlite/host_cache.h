// SPDX-License-Identifier: Apache-2.0
//
// What is known of rows by host and key, with a bound over all hosts. Beyond it other hosts' rows are forgotten, some
// host's at a time and mostly the same ones', so that a fleet that is a little too large asks again for a little only.
// A value type; one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/container/flat_hash_map.h"
#include "absl/hash/hash.h"

namespace cw::fleet {

template <typename Key, typename Value, typename Hash = absl::Hash<Key>>
class HostCache {
 public:
  explicit HostCache(size_t most) : most_(most) {}

  Value* Find(int64_t host, const Key& key) {  // until the next Put
    const auto of = hosts_.find(host);
    if (of == hosts_.end()) return nullptr;
    const auto it = of->second.find(key);
    return it == of->second.end() ? nullptr : &it->second;
  }
  void Put(int64_t host, const Key& key, const Value& value) {
    if (size_ >= most_) MakeRoom(host);
    if (hosts_[host].insert_or_assign(key, value).second) ++size_;
  }
  void Forget(int64_t host) {
    const auto of = hosts_.find(host);
    if (of == hosts_.end()) return;
    size_ -= of->second.size();
    hosts_.erase(of);
  }
  void Clear() {
    hosts_.clear();
    size_ = 0;
  }
  size_t size() const { return size_; }

 private:
  // All of the host's own only where there is no other.
  void MakeRoom(int64_t host) {
    auto of = hosts_.begin();
    if (of != hosts_.end() && of->first == host && hosts_.size() > 1) ++of;
    if (of != hosts_.end()) Forget(of->first);
  }

  const size_t most_;
  size_t size_ = 0;
  absl::flat_hash_map<int64_t, absl::flat_hash_map<Key, Value, Hash>> hosts_;
};

}  // namespace cw::fleet
