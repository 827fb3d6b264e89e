// SPDX-License-Identifier: Apache-2.0
//
// A NIC's own clock as a node tied to its host. Cross-stamps (host, NIC, host again, as PTP_SYS_OFFSET_EXTENDED gives
// them) are to a NIC what probes are to a peer: two one-way measurements. So the tie is a PairEstimator, with its lower
// envelope against slow reads, its drift, its steps and its bound (half a read, as nobody knows where in it the NIC
// looked at its clock).
// Pure; one thread per object.
#pragma once

#include <cstdint>
#include <optional>

#include "sync/pair_estimator.h"

namespace cw::sync {

struct CrossStamp {
  int64_t before_ns = 0;  // of the host's clock
  int64_t nic_ns = 0;
  int64_t after_ns = 0;
};

// Where cross-stamps come from: a PTP device, a cycle counter, a simulation.
class NicClock {
 public:
  virtual ~NicClock() = default;
  virtual std::optional<CrossStamp> Read() = 0;  // nullopt: this time the NIC did not answer
};

class NicTie {
 public:
  explicit NicTie(EstimatorOptions options = Options());
  static EstimatorOptions Options();

  void Add(const CrossStamp& read);
  Estimate At(int64_t host_ns) { return pair_.At(host_ns); }  // NIC − host; refits when due
  // A stamp of the NIC as host time, by the line of the last At().
  int64_t ToHostNs(int64_t nic_ns) const;
  int64_t ToNicNs(int64_t host_ns) const { return host_ns + pair_.OffsetAt(host_ns); }

 private:
  PairEstimator pair_;
  int64_t offset_ns_ = 0;  // of the newest read: where to begin to look
};

}  // namespace cw::sync
