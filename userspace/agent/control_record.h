// SPDX-License-Identifier: Apache-2.0
//
// The control record that the programs read with each packet (cw_ctl), but for what the mode and the lease write there:
// this host's session, knobs, and from when on flows are given a path. Times: CLOCK_MONOTONIC, ns, unless they say
// otherwise. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "maps/abi.h"
#include "userspace/agent/event_sink.h"
#include "userspace/agent/pair_state.h"
#include "userspace/agent/session_keeper.h"
#include "userspace/config/config.h"
#include "userspace/model/clock.h"

namespace cw::agent {

class ControlRecord {
 public:
  static constexpr int64_t kSettleNs = 2'000'000'000;  // flows that appear so soon after the first start ran before it

  // ctl: the record of the map, or one in plain memory; it and the events outlive this.
  ControlRecord(cw_ctl& ctl, std::string session_file, std::function<uint64_t(int64_t monotonic_ns)> jiffies_at,
                const Clock& monotonic, EventSink& events)
      : ctl_(ctl),
        session_(std::move(session_file)),
        jiffies_at_(std::move(jiffies_at)),
        monotonic_(monotonic),
        events_(events) {}

  // wall_ns: since 1970. adopted: an agent before us wrote it, and its flows are known.
  void Begin(const config::Config& config, bool adopted, int64_t wall_ns);
  void WriteKnobs(const config::Config& config);
  // A host that had booted with a clock that was behind, and knew no session before, is refused by its peers until its
  // clock is set; then a new session begins. `take`: who sends gets it.
  void RenewSession(const PairTable& pairs, int64_t wall_ns, absl::FunctionRef<absl::Status(uint32_t session)> take);
  uint32_t session() const { return session_.session(); }

 private:
  void BeginSession(uint32_t before, int64_t wall_ns);

  cw_ctl& ctl_;
  SessionKeeper session_;
  const std::function<uint64_t(int64_t monotonic_ns)> jiffies_at_;
  const Clock& monotonic_;
  EventSink& events_;
};

}  // namespace cw::agent
