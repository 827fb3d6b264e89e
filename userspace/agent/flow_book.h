// SPDX-License-Identifier: Apache-2.0
//
// The flows of this host as they were at the last reading of the flow maps, with what is known of them besides.
// Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "maps/abi.h"
#include "userspace/model/flow.h"
#include "userspace/telemetry/path_delay.h"
#include "userspace/telemetry/sketch.h"

namespace cw::agent {

cw_flow_key ToMap(const FlowKey& key);
FlowKey FromMap(const cw_flow_key& key);

// Sketches of the last ten seconds in two halves, so that forgetting costs nothing.
struct RecentDelays {
  telemetry::Sketch now, before;
  int64_t turned_ns = 0;
  void Add(int64_t now_ns, int64_t owd_ns);
  void Turn(int64_t now_ns);
  telemetry::Sketch Merged() const;
};

struct FlowEntry {
  bool received = false;
  cw_tx_flow tx{};  // sent flows; for received ones only tx.flow
  const cw_flow& flow() const { return tx.flow; }
  // IPv6: the flow label that its RDMA stack gives it.
  uint32_t NativeLabel() const { return uint32_t{tx.label[0]} << 16 | tx.label[1] << 8 | tx.label[2]; }
  // The slot whose path the flow takes: its own while steered, that of its native port otherwise.
  uint8_t PathSlot() const { return tx.port != 0 && !stays_native ? tx.slot : tx.native_slot; }
  // What its packets do: where nothing is rewritten (acts false: modes off and observe, or its scope) they leave by the
  // native port, whatever the record keeps for later.
  uint8_t SlotOfPackets(bool acts) const { return acts && !stays_native ? PathSlot() : tx.native_slot; }
  uint16_t PortOfPackets(bool acts) const { return acts && !stays_native && tx.port != 0 ? tx.port : flow().sport; }
  // What it knows of the path that it took before is forgotten.
  void AddDelay(int64_t now_ns, uint8_t on_slot, int64_t owd_ns);
  uint64_t window_bytes = 0;  // since the reading before
  uint64_t window_packets = 0;
  uint64_t window_cnps = 0;
  uint64_t last_bytes = 0;  // totals at the last reading
  uint64_t last_packets = 0;
  uint64_t last_cnps = 0;
  struct Answers {  // of its receiver, totals at the last reading
    bool known = false;
    uint64_t acks = 0, rnr_naks = 0, seq_naks = 0;
  } answers;
  bool cnps_known = false;    // last_cnps is a reading, not the start
  double rate_bps = 0;        // smoothed over about a second
  int64_t read_ns = 0;        // received flows: monotonic time of the last reading
  uint16_t native_asked = 0;  // native port that a slot was asked for
  bool stays_native = false;  // sent flows: a scope of its NIC or of its job lets nothing act (scopes.h)
  int64_t scoped_ns = 0;      // monotonic; when its job's scopes are looked up again; 0: they never were
  uint32_t process = 0;       // sent flows: whose queue pair it is; 0: not known (yet)
  RecentDelays owd;           // of its packets on the path of owd_slot
  uint8_t owd_slot = CW_SLOT_NONE;
  bool seen = false;  // in the present reading
};

struct FlowBook {
  absl::flat_hash_map<FlowKey, FlowEntry> sent;
  absl::flat_hash_map<FlowKey, FlowEntry> received;
};

}  // namespace cw::agent
