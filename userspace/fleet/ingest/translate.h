// SPDX-License-Identifier: Apache-2.0
//
// Batches as the store keeps them, and what is wrong with those that it does not get. A batch that is too large or of a
// time that cannot be is refused as a whole, but for its events; a single record that makes no sense is left out, with
// a reason, and the rest is taken. Pure; threads: one at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/ingest/translate_work.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

struct BatchLimits {
  WorkLimits work;
  size_t bytes = 1 << 20;
  int records = 20'000;      // of each kind
  int hops = 64;             // of a list
  size_t text_bytes = 8192;  // of one event
  uint32_t paths = 20'000;   // of a run, as their numbers go
  size_t hop_lists = 20'000;
  uint64_t definitions = 200'000;                     // of paths within a run: each may be a row in the store
  absl::Duration ahead = absl::Minutes(10);           // of our clock: fleet time may not be anchored yet
  absl::Duration back = absl::Hours(48);              // what spools keep, and more
  absl::Duration events_back = absl::Hours(24 * 90);  // an event that is older was told by a clock that is wrong
};

// What a run's definitions said so far.
struct Names {
  absl::flat_hash_map<uint32_t, cwfabric::v1::PathName> paths;
  absl::flat_hash_set<uint64_t> hop_lists;
  absl::flat_hash_map<uint32_t, FlowName> flows;
  uint64_t defined = 0;  // paths, each time that one was
};

struct Translated {
  HostBatch batch;
  std::vector<std::string> left_out;  // reasons, at most ten
  uint64_t records_left_out = 0;
  bool undefined = false;  // records named what `names` does not know
};

// Of 4 or 16 bytes in network order; nullopt: of another size.
std::optional<Addr> AddressOf(const std::string& bytes);

// Whether it says rightly what it is. `host`: whose stream it is.
absl::Status CheckName(const cwfabric::v1::Batch& batch, const std::string& host);
// Whether what is in it may come at all. Its calm paths were unpacked (api/calm_records.h), or it does not come.
absl::Status CheckBatch(const cwfabric::v1::Batch& batch, int64_t now_ns, const BatchLimits& limits);

// Of a batch that CheckBatch took; its definitions go into `names` first.
Translated Translate(const cwfabric::v1::Batch& batch, int64_t now_ns, const BatchLimits& limits, Names& names);

}  // namespace cw::fleet
