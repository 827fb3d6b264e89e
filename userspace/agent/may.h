// SPDX-License-Identifier: Apache-2.0
//
// What may be done: on the host, with flows of a pair of NICs, with one flow. The narrower ones are the host's less
// what a NIC's or a job's scope withholds (scopes.h); whoever acts asks for the narrowest that it knows. Thread rule:
// the agent's loop.
#pragma once

#include <cstdint>
#include <functional>
#include <type_traits>
#include <utility>

#include "userspace/model/allowed.h"
#include "userspace/model/flow.h"

namespace cw::agent {

class May {
 public:
  using Host = std::function<Allowed()>;
  // Capabilities that do not act there, a bit of each. flow: nullptr: any of the pair.
  using Withheld = std::function<uint32_t(uint32_t pair, const FlowKey* flow)>;

  template <typename F>
  requires std::is_invocable_r_v<Allowed, F> May(F host)
      : host_(std::move(host)) {}  // NOLINT(google-explicit-constructor): where nothing is narrower
  May(Host host, Withheld withheld) : host_(std::move(host)), withheld_(std::move(withheld)) {}

  Allowed operator()() const { return host_(); }
  Allowed operator()(uint32_t pair) const { return Less(pair, nullptr); }
  Allowed operator()(uint32_t pair, const FlowKey& flow) const { return Less(pair, &flow); }

 private:
  Allowed Less(uint32_t pair, const FlowKey* flow) const {
    return withheld_ ? host_().Less(withheld_(pair, flow)) : host_();
  }

  Host host_;
  Withheld withheld_;
};

}  // namespace cw::agent
