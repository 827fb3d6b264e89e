// SPDX-License-Identifier: Apache-2.0
//
// Tells peers that answer who this host is and which release it runs, again and again, since messages get lost. Times:
// CLOCK_MONOTONIC, ns. Thread rule: the agent's loop.
#pragma once

#include <cstdint>
#include <string>
#include <utility>

#include "userspace/agent/pair_state.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/agent/vitals.h"

namespace cw::agent {

class Greeting {
 public:
  static constexpr int64_t kAgainNs = 30'000'000'000;

  // All of them outlive it.
  Greeting(const PairTable& pairs, const Vitals& vitals, std::string version, PeerMail& mail)
      : pairs_(pairs), vitals_(vitals), version_(std::move(version)), mail_(mail) {}

  void Send(int64_t now_ns);  // to those whose turn it is

 private:
  const PairTable& pairs_;
  const Vitals& vitals_;
  const std::string version_;
  PeerMail& mail_;
};

}  // namespace cw::agent
