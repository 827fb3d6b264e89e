// SPDX-License-Identifier: Apache-2.0
//
// What the agent knows of paths, in the words of the schema and of the uplink. It writes nothing. Thread rule: the
// agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "userspace/agent/flow_book.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/paths/link_flaps.h"
#include "userspace/agent/views/links_view.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/model/clock.h"
#include "userspace/probe/discovery.h"
#include "userspace/probe/mesh.h"
#include "userspace/probe/pair_store.h"
#include "userspace/uplink/seen.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

class PathsView {
 public:
  struct Asks {
    std::function<const probe::Discovery*(uint32_t pair)> discovery;
    std::function<int64_t(uint32_t pair)> interval_ns;  // of its probes now
    std::function<bool()> acts;                         // flows are where they were steered to
    std::function<bool()> dscp_configured;              // probes do not follow the flows' class
  };

  // All of them outlive it.
  PathsView(const PairTable& pairs, const NicTable& nics, const FlowBook& flows, const probe::Mesh& mesh,
            probe::PairStore& store, const LinkFlaps& links, const Clock& local, const Clock& monotonic, Asks asks);

  v1::Path Path(PairState& pair, uint8_t slot) const;
  v1::Pair Pair(PairState& pair) const;
  v1::PathsReply All(const v1::PathsRequest& request) const;
  void Count(const PairState& pair, v1::PeerStatus& peer, v1::PathCounts& counts) const;
  // The worst of all pairs: steering rests on ports alone choosing the path.
  v1::FabricHashing Hashing() const;
  LinkPast PastOfLinks() const;  // what paths of this moment do not show
  // Of the last so many seconds; 0: what they are and their base, of both directions, without measurements.
  std::vector<uplink::PathSeen> Seen(int seconds) const;

 private:
  void AddSeen(PairState& pair, int64_t now_ns, int seconds, std::vector<uplink::PathSeen>& out) const;

  const PairTable& pairs_;
  const NicTable& nics_;
  const FlowBook& flows_;
  const probe::Mesh& mesh_;
  probe::PairStore& store_;
  const LinkFlaps& links_;
  const Clock& local_;
  const Clock& monotonic_;
  const Asks asks_;
};

}  // namespace cw::agent
