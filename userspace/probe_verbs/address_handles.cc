// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/address_handles.h"

#include <pthread.h>

#include <cstring>

#include "userspace/model/clock.h"

namespace cw::probe_verbs {
namespace {

constexpr uint8_t kHopLimit = 64;

int64_t NowNs() { return MonotonicClock().NowNs(); }

}  // namespace

AddressHandles::AddressHandles(ibv_pd* pd, uint8_t port, uint8_t gid_index)
    : pd_(pd), port_(port), gid_index_(gid_index), thread_([this] { Run(); }) {}

AddressHandles::~AddressHandles() {
  {
    std::lock_guard hold(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

ibv_ah* AddressHandles::Find(const HandleKey& key) {
  const int64_t now_ns = NowNs();
  std::lock_guard hold(mutex_);
  Entry& entry = entries_[key];
  if (!entry.asked && now_ns >= entry.ask_at_ns) {
    entry.asked = true;
    wanted_.push_back(key);
    changed_.notify_one();
  }
  return entry.handle.get();
}

void AddressHandles::Recycle() {
  std::vector<AhHandle> gone;  // destroyed without the lock: that is a system call each
  absl::flat_hash_map<HandleKey, Entry> all;
  std::lock_guard hold(mutex_);
  gone.swap(replaced_);
  if (entries_.size() <= kLimit) return;
  all.swap(entries_);
  wanted_.clear();
}

uint64_t AddressHandles::failures() const {
  std::lock_guard hold(mutex_);
  return failures_;
}

AhHandle AddressHandles::Make(const HandleKey& key) const {
  ibv_ah_attr attr = {};
  attr.is_global = 1;
  std::memcpy(attr.grh.dgid.raw, key.to.bytes.data(), sizeof(attr.grh.dgid.raw));
  attr.grh.sgid_index = gid_index_;
  attr.grh.flow_label = key.label;
  attr.grh.hop_limit = kHopLimit;
  attr.grh.traffic_class = key.traffic_class;
  attr.port_num = port_;
  return AhHandle(ibv_create_ah(pd_, &attr));
}

void AddressHandles::Run() {
  pthread_setname_np(pthread_self(), "cw-verbs-ah");
  std::unique_lock hold(mutex_);
  for (;;) {
    changed_.wait(hold, [this] { return stop_ || !wanted_.empty(); });
    if (stop_) return;
    const HandleKey key = wanted_.front();
    wanted_.pop_front();
    hold.unlock();
    AhHandle made = Make(key);
    hold.lock();
    const auto it = entries_.find(key);
    if (it == entries_.end()) {
      if (made != nullptr) replaced_.push_back(std::move(made));
      continue;
    }
    it->second.asked = false;
    it->second.ask_at_ns = NowNs() + (made != nullptr ? kRenewNs : kRetryNs);
    if (made == nullptr) {
      ++failures_;
      continue;
    }
    if (it->second.handle != nullptr) replaced_.push_back(std::move(it->second.handle));
    it->second.handle = std::move(made);
  }
}

}  // namespace cw::probe_verbs
