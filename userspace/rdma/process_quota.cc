// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/process_quota.h"

#include <algorithm>

namespace cw::rdma {
namespace {
constexpr double kStoreS = 2;
}  // namespace

void ProcessQuota::Connected(uint32_t pid, int64_t now_ns) {
  auto [it, added] = processes_.try_emplace(pid);
  ++it->second.connections;
  if (added) it->second = {.connections = 1, .messages = kStoreS * limits_.messages_per_second, .filled_ns = now_ns};
}

void ProcessQuota::Disconnected(uint32_t pid) {
  auto it = processes_.find(pid);
  if (it != processes_.end() && --it->second.connections == 0) processes_.erase(it);
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
  auto it = processes_.find(pid);
  if (it == processes_.end() || it->second.qps >= limits_.max_qps) return false;
  ++it->second.qps;
  return true;
}

void ProcessQuota::ReturnQp(uint32_t pid) {
  auto it = processes_.find(pid);
  if (it != processes_.end() && it->second.qps > 0) --it->second.qps;
}

}  // namespace cw::rdma
