// SPDX-License-Identifier: Apache-2.0
//
// The clocks of this host's NICs as nodes beside its own: each is tied to local time by ten cross-stamps a second, and
// the line by which the ingress program converts its stamps follows from that. One thread.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "maps/nic_line.h"
#include "sync/nic_clock.h"

namespace cw::agent {

class NicNode {
 public:
  // How far a stamp that was converted may be off: the peers rest their bounds on it. A tie that is worse gives no
  // line.
  static constexpr int64_t kMostBoundNs = 100'000;
  static constexpr int64_t kPeriodNs = 100'000'000;  // between looks, within which two clocks part by 25 µs at most
  static constexpr int64_t kLineNs = 2'000'000'000;  // a line is good for so long without an agent

  NicNode(std::string name, std::string source, std::unique_ptr<sync::NicClock> clock)
      : name_(std::move(name)), source_(std::move(source)), clock_(std::move(clock)) {}

  // One read.
  void Look();

  // By which stamps are converted from now on; nothing while the tie is too young or too loose.
  std::optional<cw_nic_line> Line(int64_t now_ns) const;

  const std::string& name() const { return name_; }      // of the network device
  const std::string& source() const { return source_; }  // /dev/ptpN
  sync::Estimate At(int64_t now_ns) const { return tie_.At(now_ns); }
  // What stamps may be off by until the next look: likely, and at most.
  sync::Estimate UntilNextLook(int64_t now_ns) const { return tie_.At(now_ns + kPeriodNs); }
  uint64_t reads() const { return reads_; }
  uint64_t failed() const { return failed_; }  // times that the NIC did not answer

 private:
  std::string name_, source_;
  std::unique_ptr<sync::NicClock> clock_;
  sync::NicTie tie_;
  uint64_t reads_ = 0, failed_ = 0;
};

}  // namespace cw::agent
