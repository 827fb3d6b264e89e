// SPDX-License-Identifier: Apache-2.0
#include "userspace/fleet/store/sqlite/ready.h"

namespace cw::fleet {

std::optional<uint64_t> Ready::Through(const std::string& host, uint64_t run) {
  const std::pair<std::string, uint64_t> key(host, run);
  const std::lock_guard lock(mutex_);
  if (const auto it = recent_.find(key); it != recent_.end()) return it->second;
  const auto it = older_.find(key);
  if (it == older_.end()) return std::nullopt;
  const uint64_t through = it->second;
  Keep(key, through);
  return through;
}

void Ready::PutThrough(const std::string& host, uint64_t run, uint64_t through) {
  const std::lock_guard lock(mutex_);
  Keep({host, run}, through);
}

void Ready::Put(const Committed& committed, const WorkLosses& work) {
  const std::lock_guard lock(mutex_);
  for (const auto& [run, through] : committed.through) Keep(run, through);
  for (const auto& [host, more] : committed.losses) losses_[host] += more;
  work_ = work;
}

std::map<std::string, HostLosses> Ready::host_losses() const {
  const std::lock_guard lock(mutex_);
  return losses_;
}

WorkLosses Ready::work_losses() const {
  const std::lock_guard lock(mutex_);
  return work_;
}

void Ready::Keep(const std::pair<std::string, uint64_t>& run, uint64_t through) {
  if (recent_.size() >= runs_ && !recent_.contains(run)) {
    older_ = std::move(recent_);
    recent_ = Runs();
  }
  recent_[run] = through;
}

}  // namespace cw::fleet
