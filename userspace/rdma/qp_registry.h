// SPDX-License-Identifier: Apache-2.0
// Which queue pair a flow belongs to. One table, whatever told us: the owner's RegisterQp or the kernel's list.
//
// The kernel's list has both QPNs and no remote address; the first packet received for the local QPN supplies it
// (ObserveReceived). What its process says adds to what the kernel knows, and never outranks it (qp_claim.h).
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
#include "userspace/rdma/qp_claim.h"

namespace cw::rdma {

// What it sends, by its wire's key.
FlowKey SentFlow(const QpInfo& qp);

using QpKey = std::pair<Addr, uint32_t>;  // local address and QPN

// What a list of the kernel speaks for.
struct KernelCover {
  absl::flat_hash_set<Addr> addresses;  // all queue pairs of which it has
  absl::flat_hash_set<QpKey> there;     // each one, of any type and state
  absl::flat_hash_set<FlowKey> sends;   // what the connected ones send; dst zero: to whom is not known
};

class QpRegistry {
 public:
  void Register(const QpInfo& qp);
  void Unregister(const QpInfo& qp);
  // What a process says (source "inproc"; pid by the socket's credentials), and the kernel's word on it. false: it is
  // not believed, and what it said of that number before is forgotten.
  bool Claim(QpInfo qp, KernelWord word);
  // The same process on the same connection of the queue pair: true, and what is new of it is kept. Asks nobody.
  bool TellAnew(const QpInfo& qp);
  // The kernel's list as it is now (source "nldev"): queue pairs of an earlier list that are gone are forgotten, and
  // those that the kernel told of at their moment ("hook") or a process claims when two lists in a row lack them.
  // Claims that it contradicts give way to it. Returns the claims that ended.
  std::vector<QpInfo> ReplaceKernelList(const std::vector<QpInfo>& qps, const KernelCover& cover = {});
  // The kernel's word as far as it was told before: the list names nobody when the thread that made it has ended.
  uint32_t PidByKernel(const QpKey& key) const;
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
  using LocalKey = QpKey;
  void TakeListed(const QpInfo& qp, std::vector<QpInfo>& ended);
  void Index(const QpInfo& qp);
  void Remove(const LocalKey& key);

  absl::flat_hash_map<LocalKey, QpInfo> by_local_;
  absl::flat_hash_map<FlowKey, LocalKey> by_sent_flow_;
  absl::flat_hash_set<LocalKey> unlisted_;  // told at their moment, and not in the list since
};

}  // namespace cw::rdma

#endif  // CW_USERSPACE_RDMA_QP_REGISTRY_H
