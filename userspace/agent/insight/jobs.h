// SPDX-License-Identifier: Apache-2.0
//
// Collectives of training processes: what their profilers tell, with the flows and paths that only the agent knows.
// Thread rule: the agent's loop. Times: CLOCK_MONOTONIC, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/container/inlined_vector.h"
#include "absl/types/span.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/label_book.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/model/clock.h"
#include "userspace/profile/hello.h"
#include "userspace/profile/profiles.h"
#include "userspace/rdma/inproc_server.h"
#include "userspace/rdma/qp_registry.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

// Connected queue pairs by number, of a registry that stays as it is meanwhile.
class QpsByNumber {
 public:
  explicit QpsByNumber(const rdma::QpRegistry& qps);
  // That of the process itself, or the only one with this number on the host, since two NICs may each have one.
  // nullptr: there is none, or there are several.
  const rdma::QpInfo* Find(uint32_t pid, uint32_t qpn) const;

 private:
  absl::flat_hash_map<uint32_t, absl::InlinedVector<const rdma::QpInfo*, 1>> by_number_;
};

class Jobs {
 public:
  // Fills in flow, NIC, peer, and path of a queue pair, as far as they are known.
  using Locate = std::function<void(const rdma::QpInfo&, v1::CollectiveQp&)>;

  // All of them outlive it.
  Jobs(const profile::ProfileOptions& options, const rdma::QpRegistry& qps, LabelBook& labels, Locate locate,
       const Clock& monotonic, EventSink& events);

  void SetOptions(const profile::ProfileOptions& options) { profiles_.SetOptions(options); }

  // What comes over inproc.sock; give: how the process is answered.
  void OnProfiler(const rdma::InprocServer::Peer& peer, absl::Span<const uint8_t> message, const profile::Give& give);
  void OnStranger(const rdma::InprocServer::Peer& peer);
  void OnClosed(const rdma::InprocServer::Peer& peer) { profiles_.Closed(peer.connection, monotonic_.NowNs()); }

  // Some times a second; false: there is nobody to be read.
  bool Read();

  v1::ListJobsReply List(const v1::ListJobsRequest& request);
  v1::ListCollectivesReply Collectives(const v1::ListCollectivesRequest& request);
  // The job's name where the owner of the queue pair gave none, and the collective that it carried last.
  void FillCollective(const FlowKey& key, v1::WhyReply& reply);

  // Sent flows whose process has posted work that a collective waits for (profile::Profiles::AwaitedSends).
  absl::flat_hash_set<FlowKey> AwaitedFlows(int64_t now_ns);

  profile::Profiles& profiles() { return profiles_; }

 private:
  bool MayTellOfStrangers();
  void TellOfStall(const profile::Stall& stall);
  void LocateQps(const QpsByNumber& known, v1::Collective& collective);

  const rdma::QpRegistry& qps_;
  LabelBook& labels_;
  const Locate locate_;
  const Clock& monotonic_;
  EventSink& events_;

  profile::Profiles profiles_;
  int64_t stranger_told_ns_ = 0;  // 0: never
};

}  // namespace cw::agent
