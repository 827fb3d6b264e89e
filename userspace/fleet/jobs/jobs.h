// SPDX-License-Identifier: Apache-2.0
//
// Jobs over all hosts, from what each host tells of its own processes. A job is the communicators that share a label or
// a process, and the queue pairs of their processes or with their label; a label that is only a communicator's own name
// joins nothing. Pure; any thread. Cost: linear in ranks and flows, but for sorting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/types/span.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/findings/finding.h"
#include "userspace/fleet/store/records.h"
#include "userspace/fleet/topology/topology.h"

namespace cw::fleet {

// What one host tells, at one moment.
struct HostWork {
  struct Flow {
    const FlowSample* sample = nullptr;
    const std::vector<Addr>* hops = nullptr;  // null: not known
  };
  struct Rank {
    const cwfabric::v1::Job* job = nullptr;
    int64_t time_ns = 0;  // when it was told
  };
  std::string host;
  bool speaks = true;    // false: it is not connected, so what it does not tell says nothing
  double flows_s = 0;    // seconds that the flows' counts are of
  int64_t flows_ns = 0;  // … and their end
  std::vector<Flow> flows;
  std::vector<Rank> ranks;
  struct Collective {
    const cwfabric::v1::Collective* what = nullptr;
    int64_t time_ns = 0;  // when it was told
  };
  std::vector<Collective> collectives;  // that stand, or were slow
};

// Places in the hosts that were joined.
struct JoinedJob {
  struct Place {
    size_t host = 0, index = 0;
  };
  std::string name;              // the label; without one the id of its largest communicator
  std::vector<std::string> ids;  // of communicators, ascending
  std::vector<Place> ranks, flows;
};

// By name.
std::vector<JoinedJob> JoinJobs(absl::Span<const HostWork> hosts);

// `whole`: with ranks, pairs and links.
cwfabric::v1::FleetJob DescribeJob(const JoinedJob& job, absl::Span<const HostWork> hosts, bool whole);

// Where a job's flows go.
struct JobReach {
  std::string name;
  absl::flat_hash_set<Addr> ports;         // where links end that they take, as far as that is known
  absl::flat_hash_set<Addr> nics;          // at both ends
  absl::flat_hash_set<std::string> hosts;  // that have these, or a rank that lives
};
JobReach ReachOf(const JoinedJob& job, absl::Span<const HostWork> hosts);
// Whether the job suffers from what the finding accuses, or may.
bool Crosses(const Finding& finding, const JobReach& reach, const Topology& topology);

// What holds the job up: who waits for whom, up to the rank that waits for nobody, and whether that is the network.
// `findings`: those that go on. None: no collective of it stands or was slow.
struct HeldUpBy {
  std::string text;  // a sentence
  std::string host;  // whose process it stands for, and not for the network; "" = it is the network, or not known
};
std::vector<HeldUpBy> WhatHoldsUp(const JoinedJob& job, absl::Span<const HostWork> hosts,
                                  absl::Span<const Finding> findings, const Topology& topology);

}  // namespace cw::fleet
