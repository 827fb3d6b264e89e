// SPDX-License-Identifier: Apache-2.0
//
// Messages over the probes' own channel. Thread rule: the agent's loop.
#pragma once

#include "spdlog/spdlog.h"
#include "userspace/agent/peer_mail.h"
#include "userspace/probe/engine.h"

namespace cw::agent {

class EngineMail final : public PeerMail {
 public:
  explicit EngineMail(probe::Engine& engine) : engine_(engine) {}

  // A lost message costs samples or a slightly older clock; both are counted where they are missed.
  void Send(uint32_t pair, const probe::Body& body) override {
    if (absl::Status status = engine_.SendMessage(pair, body); !status.ok())
      spdlog::debug("message to pair {}: {}", pair, std::string(status.message()));
  }

 private:
  probe::Engine& engine_;
};

}  // namespace cw::agent
