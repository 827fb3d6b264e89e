// SPDX-License-Identifier: Apache-2.0
//
// The clocks of our NICs: opened, read ten times a second, and given to the ingress program as lines. Thread rule: the
// agent's loop. Times: local time, ns.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "maps/abi.h"
#include "userspace/agent/nic_state.h"
#include "userspace/agent/pair_state.h"
#include "userspace/api/cwfabric.pb.h"
#include "userspace/model/clock.h"
#include "userspace/probe_verbs/arrival_stamps.h"

namespace cw::agent {

namespace v1 = ::cwfabric::v1;

class NicClocks {
 public:
  // The map cw_nic_lines, by interface.
  struct Lines {
    std::function<bool(uint32_t ifindex, const cw_nic_line& line)> put;  // false: it is not there
    std::function<void(uint32_t ifindex)> erase;
  };
  // Of a NIC whose probes go by verbs; others have none.
  using StampsOf = std::function<probe_verbs::ArrivalStamps(const NicState& nic)>;
  // Empty: the NICs' own clocks are opened.
  using MakeClock = std::function<std::unique_ptr<sync::NicClock>(std::shared_ptr<const Clock> local)>;

  // nics and pairs outlive it.
  NicClocks(NicTable& nics, const PairTable& pairs, std::shared_ptr<const Clock> local, Lines lines,
            StampsOf device_stamps, MakeClock make_simulated);

  void Open(NicState& nic);
  void Look();
  void Fill(v1::ClockReply& reply) const;

 private:
  void SetErrors(const NicState& nic, int64_t error_ns, int64_t bound_ns);
  void PutLine(NicState& nic, int64_t now_ns);

  NicTable& nics_;
  const PairTable& pairs_;
  const std::shared_ptr<const Clock> local_;
  const Lines lines_;
  const StampsOf device_stamps_;
  const MakeClock make_simulated_;
};

}  // namespace cw::agent
