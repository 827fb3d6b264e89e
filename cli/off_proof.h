// SPDX-License-Identifier: Apache-2.0
//
// What the flows did in the second after an emergency off, from their records before and after it. Pure; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

struct OffProof {
  std::map<uint32_t, uint64_t> packets;    // that left, by native UDP port
  std::vector<std::string> still_steered;  // ids of flows that left by another port
  uint64_t Total() const;
};

OffProof ProveOff(const cwfabric::v1::QpsReply& before, const cwfabric::v1::QpsReply& after);
std::string ProofText(const OffProof& proof, double seconds);

}  // namespace cw::cli
