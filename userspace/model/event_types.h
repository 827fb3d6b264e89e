// SPDX-License-Identifier: Apache-2.0
//
// The types of the agent's events: one list for the agent, cwctl, metrics and the documents' test. An event of another
// type is a mistake of the agent's; readers of newer agents have to expect some.
#pragma once

#include <array>

#include "absl/strings/string_view.h"

// X(name, what it tells). In the order in which people meet them.
#define CW_EVENT_TYPES(X)                                               \
  X(path, "a path died, paused, lost packets, or is well again")        \
  X(decision, "the contention rule decided a move")                     \
  X(trial, "what such a move brought")                                  \
  X(move, "a queue pair took another path")                             \
  X(return, "a queue pair went back to a path that recovered")          \
  X(repair, "a resend was asked for what was lost with a path")         \
  X(breaker, "moves for balance were judged, ended or begun again")     \
  X(flow, "a queue pair appeared, or the flow table is full")           \
  X(place, "a queue pair was put on a path when it connected")          \
  X(steer, "an operator's placement or lock, or its end")               \
  X(drain, "a drain began, is safe to pull, or ended")                  \
  X(mode, "the mode or what a capability may do changed")               \
  X(link, "a link flaps")                                               \
  X(nic, "a NIC's link went down or came back, or another NIC carries") \
  X(rdma, "an RDMA port or its settings changed")                       \
  X(clock, "fleet time: its state, steps, false tickers")               \
  X(fabric, "paths were found or changed")                              \
  X(cause, "why a queue pair is slow")                                  \
  X(gap, "a queue pair's packets are slower than the probes")           \
  X(job, "a collective stands, and what holds it back")                 \
  X(audit, "somebody acted through the API")                            \
  X(api, "doors of the API, and certificates")                          \
  X(keys, "the group's secrets")                                        \
  X(config, "the configuration was read again")                         \
  X(fleet, "the fleet service: connected, away, what was not told")     \
  X(agent, "the agent itself")

namespace cw {

#define CW_EVENT_NAME(name, what) absl::string_view(#name),
inline constexpr std::array kEventTypes = {CW_EVENT_TYPES(CW_EVENT_NAME)};
#undef CW_EVENT_NAME

}  // namespace cw
