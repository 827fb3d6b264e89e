// SPDX-License-Identifier: Apache-2.0
//
// What the flows did in the second after an emergency off: their records before and after it, and how many packets the
// kernel's program counted that it gave another port. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

struct OffProof {
  std::map<uint32_t, uint64_t> packets;    // that left, by native UDP port
  std::vector<std::string> still_steered;  // ids of flows that left by another port
  std::optional<uint64_t> rewritten;       // packets of any flow, by the program's own count; nullopt: not known
  bool Holds() const { return still_steered.empty() && rewritten.value_or(0) == 0; }
  uint64_t Total() const;
};

// At one moment. An agent that does not count rewritten packets has no such counter.
struct OffLook {
  cwfabric::v1::QpsReply flows;
  cwfabric::v1::CountersReply counters;
};

OffProof ProveOff(const OffLook& before, const OffLook& after);
std::string ProofText(const OffProof& proof, double seconds);

}  // namespace cw::cli
