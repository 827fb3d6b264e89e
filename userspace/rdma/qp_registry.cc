// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/qp_registry.h"

#include "absl/container/flat_hash_set.h"

namespace cw::rdma {
namespace {

bool FromKernel(const QpInfo& qp) { return qp.source == "nldev" || qp.source == "hook"; }
// The number was given to another queue pair. A list knows no process whose creating thread has ended: one that it knew
// before is still its.
bool IsAnother(const QpInfo& known, const QpInfo& listed) {
  return known.rqpn != listed.rqpn || (known.pid != 0 && listed.pid != 0 && known.pid != listed.pid);
}
bool Complete(const QpInfo& qp) { return !qp.raddr.is_zero() && qp.rqpn != 0; }

}  // namespace

FlowKey SentFlow(const QpInfo& qp) { return {.src = qp.laddr, .dst = qp.raddr, .dqpn = qp.rqpn}; }

void QpRegistry::Index(const QpInfo& qp) {
  const LocalKey key{qp.laddr, qp.lqpn};
  Remove(key);
  by_local_[key] = qp;
  if (Complete(qp)) by_sent_flow_[SentFlow(qp)] = key;
}

void QpRegistry::Remove(const LocalKey& key) {
  auto it = by_local_.find(key);
  if (it == by_local_.end()) return;
  auto sent = by_sent_flow_.find(SentFlow(it->second));
  if (sent != by_sent_flow_.end() && sent->second == key) by_sent_flow_.erase(sent);
  unlisted_.erase(key);
  by_local_.erase(it);
}

void QpRegistry::Register(const QpInfo& qp) { Index(qp); }

void QpRegistry::Unregister(const QpInfo& qp) { Remove({qp.laddr, qp.lqpn}); }

void QpRegistry::ReplaceKernelList(const std::vector<QpInfo>& qps) {
  absl::flat_hash_set<LocalKey> present;
  for (const QpInfo& qp : qps) {
    const LocalKey key{qp.laddr, qp.lqpn};
    present.insert(key);
    auto known = by_local_.find(key);
    if (known == by_local_.end()) {
      Index(qp);
    } else if (FromKernel(known->second) && IsAnother(known->second, qp)) {
      Index(qp);  // its remote address is learned afresh
    } else {
      QpInfo merged = known->second;
      merged.device = qp.device;  // owners do not announce it
      merged.state = qp.state;
      if (FromKernel(merged) && qp.pid != 0) {
        merged.pid = qp.pid;
        merged.comm = qp.comm;  // the process's; the hook told its thread's
      }
      if (merged.raddr.is_zero()) merged.raddr = qp.raddr;
      if (!merged.label_known && qp.label_known) {
        merged.label_known = true;
        merged.flow_label = qp.flow_label;
      }
      Index(merged);
    }
    unlisted_.erase(key);
  }
  std::vector<LocalKey> gone;
  for (const auto& [key, qp] : by_local_) {
    if (!FromKernel(qp) || present.contains(key)) continue;
    // One that the kernel told of at its moment may be younger than the list.
    if (qp.source == "hook" && unlisted_.insert(key).second) continue;
    gone.push_back(key);
  }
  for (const LocalKey& key : gone) Remove(key);
}

bool QpRegistry::ObserveReceived(const FlowKey& key) {
  auto it = by_local_.find({key.dst, key.dqpn});
  if (it == by_local_.end() || !it->second.raddr.is_zero()) return false;
  QpInfo qp = it->second;
  qp.raddr = key.src;
  Index(qp);
  return Complete(qp);
}

std::optional<QpInfo> QpRegistry::BySentFlow(const FlowKey& key) const {
  auto it = by_sent_flow_.find(key);
  if (it == by_sent_flow_.end()) return std::nullopt;
  return by_local_.at(it->second);
}

std::optional<QpInfo> QpRegistry::ByReceivedFlow(const FlowKey& key) const {
  auto it = by_local_.find({key.dst, key.dqpn});
  if (it == by_local_.end()) return std::nullopt;
  return it->second;
}

std::vector<QpInfo> QpRegistry::All() const {
  std::vector<QpInfo> all;
  all.reserve(by_local_.size());
  for (const auto& [key, qp] : by_local_) all.push_back(qp);
  return all;
}

std::vector<QpInfo> QpRegistry::Owned() const {
  std::vector<QpInfo> owned;
  for (const auto& [key, qp] : by_local_) {
    if (qp.owner) owned.push_back(qp);
  }
  return owned;
}

}  // namespace cw::rdma
