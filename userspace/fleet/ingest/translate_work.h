// SPDX-License-Identifier: Apache-2.0
//
// The part of a batch that tells of flows, jobs and collectives, checked. A record that makes no sense is left out,
// with a reason; words of strangers are cut. Pure; threads: one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

struct WorkLimits {
  int flows = 512, jobs = 512, collectives = 128;  // of one batch
  size_t job_bytes = 4096, collective_bytes = 16'384;
  size_t text_bytes = 512;         // of one word or sentence in them
  uint32_t flow_numbers = 20'000;  // of a run
  double bytes_per_s = 12.5e12;    // 100 Tbit/s: no flow has more
};

// What a run's definitions named so far.
struct WorkNames {
  const absl::flat_hash_map<uint32_t, cwfabric::v1::PathName>& paths;
  absl::flat_hash_map<uint32_t, FlowName>& flows;
};

struct TranslatedWork {
  WorkSample sample;
  bool undefined = false;  // records named what `names` does not know
};

// Its definitions of flows go into `names` first. `leave_out`: told of each record that is not taken.
TranslatedWork TranslateWork(const cwfabric::v1::Batch& batch, const WorkLimits& limits, WorkNames names,
                             const std::function<void(const std::string& reason)>& leave_out);

}  // namespace cw::fleet
