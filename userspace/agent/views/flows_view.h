// SPDX-License-Identifier: Apache-2.0
//
// Flows and queue pairs in the schema's words, also those whose packets no program sees. Writes nothing.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "userspace/agent/deadlines.h"
#include "userspace/agent/flow_book.h"
#include "userspace/agent/flows/kernel_qps.h"
#include "userspace/agent/flows/owner_mover.h"
#include "userspace/agent/insight/cause_book.h"
#include "userspace/agent/insight/gaps.h"
#include "userspace/agent/label_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_names.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/model/clock.h"
#include "userspace/probe/hops.h"
#include "userspace/probe/mesh.h"
#include "userspace/rdma/native_port.h"
#include "userspace/rdma/qp_registry.h"
#include "userspace/uplink/seen.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

class FlowsView {
 public:
  struct Asks {
    std::function<bool()> acts;                                           // flows are where they were steered to
    std::function<int64_t(uint64_t jiffies)> at_ns;                       // monotonic
    std::function<const probe::Hops*(uint32_t pair, uint8_t slot)> hops;  // nullptr: no path there, or not traced
  };

  // All of them outlive it.
  FlowsView(const FlowBook& flows, const PairTable& pairs, const NicTable& nics, const rdma::QpRegistry& qps,
            const DatagramQps& datagrams, const OwnerMover& owners, const CauseBook& causes, const Gaps& gaps,
            LabelBook& labels, const Deadlines& deadlines, const probe::Mesh& mesh, const PeerNames& names,
            const Clock& monotonic, Asks asks)
      : flows_(flows),
        pairs_(pairs),
        nics_(nics),
        qps_(qps),
        datagrams_(datagrams),
        owners_(owners),
        causes_(causes),
        gaps_(gaps),
        labels_(labels),
        deadlines_(deadlines),
        mesh_(mesh),
        names_(names),
        monotonic_(monotonic),
        asks_(std::move(asks)) {}

  v1::Flow Of(const FlowKey& key, const FlowEntry& flow) const;
  v1::Flow OfUnseen(const rdma::QpInfo& qp, const rdma::NativePort& port) const;
  v1::QpsReply All(const v1::QpsRequest& request) const;
  // All that this host sends, for the uplink.
  std::vector<uplink::FlowSeen> Seen() const;
  void Count(v1::FlowCounts& out) const;
  // Where a queue pair of a collective is now: its NIC, its peer, and its path's hops.
  void Locate(const rdma::QpInfo& qp, v1::CollectiveQp& out) const;
  // What the owner of the queue pair says of itself counts for more than what others call its process.
  void AddLabel(const rdma::QpInfo& qp, v1::Flow& out) const;
  // The RDMA device where one is known: the queue pair's own, or the only one on the network device.
  void AddNames(const Addr& local, const rdma::QpInfo* qp, v1::Flow& out) const;

 private:
  bool Asked(const v1::QpsRequest& request, const FlowKey& key, const Addr& remote) const;
  void AddUnseen(const v1::QpsRequest& request, v1::QpsReply& reply) const;
  void AddQp(const rdma::QpInfo& qp, v1::Flow& out) const;
  void AddOwner(const rdma::QpInfo& qp, v1::Flow& out) const;
  void AddOwnerMoves(const rdma::QpInfo& qp, v1::OwnerReport& out) const;
  void AddDatagramOwner(const Addr& local, uint32_t qpn, v1::Flow& out) const;
  void AddSteering(const FlowEntry& flow, v1::Flow& out) const;
  double AgoS(uint64_t jiffies) const;
  bool IsShown(const rdma::QpInfo& qp, const absl::flat_hash_set<std::pair<Addr, uint32_t>>& sent) const;
  uplink::FlowSeen SeenOf(const FlowKey& key, const FlowEntry& flow) const;
  uplink::FlowSeen SeenOfUnseen(const rdma::QpInfo& qp) const;
  void NameSeen(const rdma::QpInfo& qp, uplink::FlowSeen& out) const;

  const FlowBook& flows_;
  const PairTable& pairs_;
  const NicTable& nics_;
  const rdma::QpRegistry& qps_;
  const DatagramQps& datagrams_;
  const OwnerMover& owners_;
  const CauseBook& causes_;
  const Gaps& gaps_;
  LabelBook& labels_;
  const Deadlines& deadlines_;
  const probe::Mesh& mesh_;
  const PeerNames& names_;
  const Clock& monotonic_;
  const Asks asks_;
};

}  // namespace cw::agent
