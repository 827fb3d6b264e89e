// SPDX-License-Identifier: Apache-2.0
//
// The fleet service behind its sockets: the production ingest, live state, picture and findings, over a store in
// memory. Time comes in. Threads: one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "tests/sim/memory_store.h"
#include "userspace/fleet/findings/findings.h"
#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/live/live_picture.h"

namespace cw::sim {

class FleetService {
 public:
  explicit FleetService(fleet::FleetFile plan) : ingest_(store_, "simulated", {}), live_(store_, std::move(plan)) {}

  void Connect(const std::string& host, uint64_t run, int64_t now_ns);
  void Disconnect(const std::string& host, uint64_t run) { ingest_.Disconnect(host, run); }
  void Take(const std::string& host, const cwfabric::v1::Batch& batch, int64_t now_ns);
  // What came is in the live state then. True: something changed that is looked at at once.
  bool Settle(int64_t now_ns);
  // What findings changed.
  std::vector<fleet::Finding> Look(int64_t now_ns);
  const fleet::Picture& picture() const { return picture_; }  // of the last look
  const fleet::Findings& findings() const { return findings_; }
  uint64_t refused() const { return refused_; }  // batches; the simulator is wrong where there are any

 private:
  MemoryStore store_;
  fleet::Ingest ingest_;
  fleet::LivePicture live_;
  fleet::Findings findings_;
  fleet::Picture picture_;
  uint64_t changes_ = 0, events_after_ = 0, refused_ = 0;
};

}  // namespace cw::sim
