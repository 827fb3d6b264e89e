// SPDX-License-Identifier: Apache-2.0
// Which queue pair a flow belongs to. One table, whatever told us: the owner's RegisterQp or the kernel's list.
//
// The kernel's list has both QPNs and no remote address; the first packet received for the local QPN supplies it
// (ObserveReceived). An announcement by the owner outranks the kernel's list,
// but for the name of the RDMA device.
// Pure; thread rule: one thread.
#ifndef CW_USERSPACE_RDMA_QP_REGISTRY_H
#define CW_USERSPACE_RDMA_QP_REGISTRY_H

#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "userspace/model/flow.h"
#include "userspace/rdma/inproc_server.h"

namespace cw::rdma {

// What it sends, by its wire's key.
FlowKey SentFlow(const QpInfo& qp);

class QpRegistry {
 public:
  void Register(const QpInfo& qp);
  void Unregister(const QpInfo& qp);
  // The kernel's list as it is now (source "nldev"): queue pairs of an earlier list that are gone are forgotten, and
  // those that the kernel told of at their moment ("hook") when two lists in a row lack them.
  void ReplaceKernelList(const std::vector<QpInfo>& qps);
  // A packet from key.src arrived for local queue pair key.dqpn at key.dst. Returns true if that completed a record.
  bool ObserveReceived(const FlowKey& key);

  std::optional<QpInfo> BySentFlow(const FlowKey& key) const;
  std::optional<QpInfo> ByReceivedFlow(const FlowKey& key) const;
  // Each one, in no order; `look` leaves the registry as it is.
  template <typename Look>
  void ForEach(Look look) const {
    for (const auto& [key, qp] : by_local_) look(qp);
  }
  std::vector<QpInfo> All() const;
  std::vector<QpInfo> Owned() const;  // those whose owner's library tells of itself
  size_t size() const { return by_local_.size(); }

 private:
  using LocalKey = std::pair<Addr, uint32_t>;  // address, local QPN
  void Index(const QpInfo& qp);
  void Remove(const LocalKey& key);

  absl::flat_hash_map<LocalKey, QpInfo> by_local_;
  absl::flat_hash_map<FlowKey, LocalKey> by_sent_flow_;
  absl::flat_hash_set<LocalKey> unlisted_;  // told at their moment, and not in the list since
};

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_QP_REGISTRY_H
