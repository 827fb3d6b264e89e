// SPDX-License-Identifier: Apache-2.0
//
// Address handles of one endpoint, by destination, flow label and traffic class. They are made in a thread of its own:
// libibverbs asks for the neighbour's link-layer address, and waits for it. A handle is made anew once a minute while
// it is used, because a neighbour may get another link-layer address; the old one serves until the new one is there.
// Thread rule: any thread; nothing blocks. A handle holds until Recycle, which the owner calls while nothing that it
// has posted is under way.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "userspace/probe_verbs/verbs_handles.h"

namespace cw::probe_verbs {

struct HandleKey {
  Addr to;
  uint32_t label = 0;
  uint8_t traffic_class = 0;

  bool operator==(const HandleKey&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const HandleKey& k) {
    return H::combine(std::move(h), k.to, k.label, k.traffic_class);
  }
};

class AddressHandles {
 public:
  AddressHandles(ibv_pd* pd, uint8_t port, uint8_t gid_index);
  ~AddressHandles();

  // nullptr: not there yet, and asked for.
  ibv_ah* Find(const HandleKey& key);
  // Lets go of handles that were replaced, and of all when there are too many.
  void Recycle();
  uint64_t failures() const;

 private:
  static constexpr size_t kLimit = 1 << 16;
  static constexpr int64_t kRenewNs = 60'000'000'000;
  static constexpr int64_t kRetryNs = 1'000'000'000;

  struct Entry {
    AhHandle handle;
    int64_t ask_at_ns = 0;  // not before
    bool asked = false;
  };
  void Run();
  AhHandle Make(const HandleKey& key) const;

  ibv_pd* const pd_;
  const uint8_t port_;
  const uint8_t gid_index_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  absl::flat_hash_map<HandleKey, Entry> entries_;
  std::deque<HandleKey> wanted_;
  std::vector<AhHandle> replaced_;
  uint64_t failures_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace cw::probe_verbs
