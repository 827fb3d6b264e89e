// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/process_quota.h"

#include <algorithm>

namespace cw::rdma {
namespace {
constexpr double kStoreS = 2;
}  // namespace

QuotaLimits Within(QuotaLimits limits, uint64_t descriptors) {
  limits.connections = std::min<uint64_t>(limits.connections, descriptors / 2);
  limits.user_connections = std::min(limits.user_connections, limits.connections / 4);
  return limits;
}

bool ProcessQuota::Connected(uint32_t pid, uint32_t uid, int64_t now_ns) {
  if (connections_ >= limits_.connections) return false;
  const auto known = processes_.find(pid);
  const uint32_t owner = known == processes_.end() ? uid : known->second.uid;
  User& user = users_[owner];
  if (owner != 0 && user.connections >= limits_.user_connections) return false;
  ++user.connections;
  ++connections_;
  if (known != processes_.end()) {
    ++known->second.connections;
  } else {
    const double messages = kStoreS * limits_.messages_per_second;
    processes_[pid] = {.uid = uid, .connections = 1, .messages = messages, .filled_ns = now_ns};
  }
  return true;
}

void ProcessQuota::Disconnected(uint32_t pid) {
  const auto it = processes_.find(pid);
  if (it == processes_.end()) return;
  --connections_;
  const auto user = users_.find(it->second.uid);
  if (--user->second.connections == 0) users_.erase(user);
  if (--it->second.connections == 0) processes_.erase(it);
}

bool ProcessQuota::TakeMessage(uint32_t pid, int64_t now_ns) {
  auto it = processes_.find(pid);
  if (it == processes_.end()) return false;
  Process& process = it->second;
  const double seconds = static_cast<double>(now_ns - process.filled_ns) / 1e9;
  process.messages =
      std::min(process.messages + seconds * limits_.messages_per_second, kStoreS * limits_.messages_per_second);
  process.filled_ns = now_ns;
  if (process.messages < 1) return false;
  process.messages -= 1;
  return true;
}

bool ProcessQuota::TakeQp(uint32_t pid) {
  const auto it = processes_.find(pid);
  if (it == processes_.end() || it->second.qps >= limits_.max_qps) return false;
  User& user = users_[it->second.uid];
  if (it->second.uid != 0 && user.qps >= limits_.user_qps) return false;
  ++it->second.qps;
  ++user.qps;
  return true;
}

void ProcessQuota::ReturnQp(uint32_t pid) {
  const auto it = processes_.find(pid);
  if (it == processes_.end() || it->second.qps == 0) return;
  --it->second.qps;
  --users_[it->second.uid].qps;
}

}  // namespace cw::rdma
