// SPDX-License-Identifier: Apache-2.0
//
// Messages from the parts of the agent to the agent at the other end of a pair (probe/messages.h). They go like a
// datagram: one that is lost is missed where it was waited for, and an agent of an earlier release passes over those it
// does not know. Thread rule: the agent's loop.
#pragma once

#include <cstdint>

#include "userspace/probe/messages.h"

namespace cw::agent {

class PeerMail {
 public:
  virtual ~PeerMail() = default;
  virtual void Send(uint32_t pair, const probe::Body& body) = 0;
};

}  // namespace cw::agent
