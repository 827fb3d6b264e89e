// SPDX-License-Identifier: Apache-2.0
#include "userspace/rdma/qp_registry.h"

#include "absl/container/flat_hash_set.h"

namespace cw::rdma {
namespace {

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
  if (!Complete(qp)) return;
  // Nobody takes a flow from its proven queue pair by saying that it is his, too.
  const auto [sent, added] = by_sent_flow_.try_emplace(SentFlow(qp), key);
  if (!added && !IsProven(by_local_.at(sent->second))) sent->second = key;
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

uint32_t QpRegistry::PidByKernel(const QpKey& key) const {
  const auto known = by_local_.find(key);
  return known != by_local_.end() && IsProven(known->second) ? known->second.pid : 0;
}

bool QpRegistry::TellAnew(const QpInfo& qp) {
  const auto known = by_local_.find({qp.laddr, qp.lqpn});
  if (known == by_local_.end() || FromKernel(known->second)) return false;
  const QpInfo& before = known->second;
  if (before.pid != qp.pid || before.rqpn != qp.rqpn) return false;
  QpInfo told = qp;
  told.proven = before.proven;
  told.device = before.device;
  told.state = before.state;
  told.flow_label = before.flow_label;
  told.label_known = before.label_known;
  told.raddr_by_kernel = before.raddr_by_kernel;
  if (before.raddr_by_kernel || told.raddr.is_zero()) told.raddr = before.raddr;
  Index(told);
  return true;
}

bool QpRegistry::Claim(QpInfo qp, KernelWord word) {
  const QpKey key{qp.laddr, qp.lqpn};
  const auto known = by_local_.find(key);
  const QpInfo* before = known == by_local_.end() ? nullptr : &known->second;
  const bool others = before != nullptr && !FromKernel(*before) && before->pid != qp.pid;
  if (word.pid == 0) word.pid = PidByKernel(key);
  const rdma::Claim claim = Judge(qp, word);
  if (claim == rdma::Claim::kFalse) {
    if (before != nullptr && !FromKernel(*before) && !others) Remove(key);
    return false;
  }
  if (others && word.pid != qp.pid) return false;  // where nobody can tell, the first one that said so
  // The kernel knows the connection, and nobody knows whose it is: what it knows stays proven.
  if (claim == rdma::Claim::kOpen && before != nullptr && FromKernel(*before) && qp.rqpn != 0 &&
      before->rqpn == qp.rqpn)
    return true;
  qp.proven = claim == rdma::Claim::kProven;
  if (before != nullptr && before->rqpn == qp.rqpn) {
    qp.device = before->device;
    qp.state = before->state;
    qp.flow_label = before->flow_label;
    qp.label_known = before->label_known;
    qp.raddr_by_kernel = before->raddr_by_kernel;
    if (before->raddr_by_kernel || qp.raddr.is_zero()) qp.raddr = before->raddr;
  }
  Index(qp);
  return true;
}

void QpRegistry::TakeListed(const QpInfo& qp, std::vector<QpInfo>& ended) {
  const QpKey key{qp.laddr, qp.lqpn};
  const auto known = by_local_.find(key);
  unlisted_.erase(key);
  if (known == by_local_.end()) return Index(qp);
  QpInfo merged = known->second;
  const bool claimed = !FromKernel(merged);
  if (IsAnother(merged, qp)) {
    if (claimed) ended.push_back(merged);
    return Index(qp);  // its remote address is learned afresh
  }
  if (claimed && qp.pid != 0) merged.proven = true;
  merged.device = qp.device;  // owners do not announce it
  merged.state = qp.state;
  if (!claimed && qp.pid != 0) {
    merged.pid = qp.pid;
    merged.comm = qp.comm;  // the process's; the hook told its thread's
  }
  if (merged.raddr.is_zero() || (qp.raddr_by_kernel && !qp.raddr.is_zero())) {
    merged.raddr = qp.raddr;
    merged.raddr_by_kernel = qp.raddr_by_kernel;
  }
  if (!merged.label_known && qp.label_known) {
    merged.label_known = true;
    merged.flow_label = qp.flow_label;
  }
  Index(merged);
}

std::vector<QpInfo> QpRegistry::ReplaceKernelList(const std::vector<QpInfo>& qps, const KernelCover& cover) {
  absl::flat_hash_set<QpKey> present;
  std::vector<QpInfo> ended;
  for (const QpInfo& qp : qps) {
    present.insert({qp.laddr, qp.lqpn});
    TakeListed(qp, ended);
  }
  std::vector<QpKey> gone;
  for (const auto& [key, qp] : by_local_) {
    if (present.contains(key)) continue;
    // A claim stands where no list speaks, and for one that is connecting.
    if (!FromKernel(qp) && (!cover.addresses.contains(key.first) || cover.there.contains(key))) continue;
    // One that the kernel told of at its moment, or that has just asked for a path, may be younger than the list.
    if (qp.source != "nldev" && unlisted_.insert(key).second) continue;
    gone.push_back(key);
  }
  for (const QpKey& key : gone) {
    if (const QpInfo& qp = by_local_.at(key); !FromKernel(qp)) ended.push_back(qp);
    Remove(key);
  }
  return ended;
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
