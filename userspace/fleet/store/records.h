// SPDX-License-Identifier: Apache-2.0
//
// What the fleet service keeps, as plain values. Times are fleet time, ns since 1970. Value types; any thread.
#pragma once

#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "userspace/model/addr.h"
#include "userspace/model/packed_sketch.h"

namespace cw::fleet {

// One direction of one way between two NICs, the same over all hosts, runs and restarts.
struct PathKey {
  Addr local;             // the NIC of the host that tells
  Addr remote;            // the peer's
  uint16_t udp_port = 0;  // the entropy that takes it
  bool reverse = false;   // from the peer to the host that tells
  auto operator<=>(const PathKey&) const = default;
};

// As cwfabric.proto.
enum class PathState : uint8_t { kNew = 1, kUp = 2, kSuspect = 3, kDead = 4, kPaused = 5, kSilent = 6 };

struct PathSample {
  PathKey key;
  int64_t time_ns = 0;  // end of the interval that it covers
  PathState state = PathState::kUp;
  uint64_t hops = 0;     // HopsId; 0 = not known
  uint64_t base_ns = 0;  // windowed minimum of the one-way delay; 0 = not known
  uint32_t sent = 0;     // probes within the interval of which it is known whether they arrived
  uint32_t lost = 0;     // of them, that did not
  PackedSketch queue;    // of the delay above base
  // Of what is so now alone; the store keeps the state.
  uint32_t silent_ms = 0;      // probed for so long, and nothing arrived
  bool heard = false;          // reverse, of a pair whose paths are silent: the peer's probes arrive
  uint32_t largest_bytes = 0;  // the largest packet that arrives, where full-size ones do not
  bool full_size = false;      // packets of full size arrive; neither: it is not known
  bool operator==(const PathSample&) const = default;
};

struct HopList {
  uint64_t id = 0;         // HopsId(hops)
  std::vector<Addr> hops;  // zero = silent
  bool operator==(const HopList&) const = default;
};

// Named by (host, run, seq) for ever.
struct StoredEvent {
  std::string host;
  uint64_t run = 0;
  uint64_t seq = 0;  // of the agent's log
  int64_t time_ns = 0;
  uint64_t bound_ns = 0;  // time_ns is not wrong by more
  std::string type;
  int severity = 0;     // as cwfabric.proto
  std::string payload;  // the event itself, opaque here
  bool operator==(const StoredEvent&) const = default;
};

// Which queue pair a host sent with, and for whom.
struct FlowName {
  Addr local, remote;  // NICs
  uint32_t qpn = 0, peer_qpn = 0;
  uint32_t pid = 0;     // owner, 0 = not known
  std::string peer;     // host that has `remote`; "" = not known
  std::string process;  // owner
  std::string label;    // of its job, "" = none
  auto operator<=>(const FlowName&) const = default;
};

// What a flow did within an interval.
struct FlowSample {
  FlowName name;
  uint16_t udp_port = 0;     // of its path, as PathKey has it; 0 = not known
  uint64_t hops = 0;         // HopsId of that; 0 = not known
  uint64_t bytes = 0;        // IP bytes
  uint32_t retransmits = 0;  // packets
  uint32_t ce = 0;           // packets that arrived with CE
  uint32_t cnps = 0;         // congestion notifications that arrived
  PackedSketch delay;        // of its own packets above the path's base; empty = not known
  bool operator==(const FlowSample&) const = default;
};

// A communicator's rank as its host told of it. The message is opaque here; `key` is the same for all of one rank.
struct JobSample {
  std::string key;
  std::string bytes;
  bool operator==(const JobSample&) const = default;
};

// What a host's processes did within (from, time]. Collectives are opaque, each told once.
struct WorkSample {
  int64_t from_ns = 0, time_ns = 0;
  std::vector<FlowSample> flows;
  uint32_t other_flows = 0;  // that sent less than these; and what they did
  uint64_t other_bytes = 0;
  uint32_t other_retransmits = 0;
  std::vector<JobSample> jobs;
  std::vector<std::string> collectives;
  bool empty() const { return flows.empty() && other_flows == 0 && jobs.empty() && collectives.empty(); }
  bool operator==(const WorkSample&) const = default;
};

// The newest of its kind holds until the next: inventory, hello. Opaque here.
struct Document {
  std::string kind;
  int64_t time_ns = 0;
  std::string bytes;
  bool operator==(const Document&) const = default;
};

// What is wrong, as the service found it; the newest word of it. The body is opaque here.
struct StoredFinding {
  uint64_t id = 0;
  int64_t start_ns = 0;
  int64_t end_ns = 0;  // 0: it goes on
  std::string body;
  bool operator==(const StoredFinding&) const = default;
};

// What is known of a host besides what it measures.
struct HostFacts {
  std::string host;
  std::string metrics;     // HOST:PORT where Prometheus finds its metrics; "" = nowhere
  int64_t removed_ns = 0;  // an operator said that it left for good; 0 = it did not
  bool operator==(const HostFacts&) const = default;
};

// What an operator ordered, until it is over. The body is opaque here.
struct StoredOrder {
  std::string kind;  // "drain", "mute"
  uint64_t id = 0;   // of its kind; never 0
  std::string body;
  bool operator==(const StoredOrder&) const = default;
};

// Named by (host, run, sequence) for ever: what comes twice changes nothing.
struct HostBatch {
  std::string host;
  uint64_t run = 0;
  uint64_t sequence = 0;
  std::vector<PathSample> paths;
  std::vector<HopList> hop_lists;
  std::vector<StoredEvent> events;  // their host and run are the batch's
  std::vector<Document> documents;
  WorkSample work;  // empty: nothing to keep
};

}  // namespace cw::fleet
