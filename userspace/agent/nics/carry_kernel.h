// SPDX-License-Identifier: Apache-2.0
//
// What NIC failover needs of the kernel: the entries by which the programs carry packets (bpf/carry.h), the state of
// links, and the next hops of packets (dataplane/next_hop.h). Thread rule: the agent's loop.
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "maps/abi.h"
#include "userspace/dataplane/next_hop.h"
#include "userspace/model/addr.h"

namespace cw::dataplane {
class Dataplane;
}

namespace cw::agent {

class CarryKernel {
 public:
  virtual ~CarryKernel() = default;
  virtual absl::StatusOr<cw_carry_out> Out(uint32_t pair) const = 0;  // packets of the pair that leave
  virtual absl::Status PutOut(uint32_t pair, const cw_carry_out& out) = 0;
  virtual absl::Status ForEachIn(absl::FunctionRef<void(const cw_carry_key&, const cw_carry_in&)> visit) const = 0;
  virtual absl::Status PutIn(const cw_carry_key& key, const cw_carry_in& in) = 0;  // carried packets that arrive
  virtual void EraseIn(const cw_carry_key& key) = 0;
  virtual absl::StatusOr<bool> LinkUp(const std::string& device) const = 0;  // by its name now
  virtual absl::StatusOr<std::array<uint8_t, 6>> MacOf(uint32_t ifindex) const = 0;
  virtual absl::StatusOr<dataplane::Neighbour> NextHop(uint32_t ifindex, const Addr& from, const Addr& to) const = 0;
  virtual absl::Status Pin(uint32_t ifindex, const dataplane::Neighbour& hop) = 0;
  virtual void Unpin(uint32_t ifindex, const dataplane::Neighbour& hop) = 0;
};

class RealCarryKernel final : public CarryKernel {
 public:
  explicit RealCarryKernel(const dataplane::Dataplane& dataplane) : dataplane_(dataplane) {}
  absl::StatusOr<cw_carry_out> Out(uint32_t pair) const override;
  absl::Status PutOut(uint32_t pair, const cw_carry_out& out) override;
  absl::Status ForEachIn(absl::FunctionRef<void(const cw_carry_key&, const cw_carry_in&)> visit) const override;
  absl::Status PutIn(const cw_carry_key& key, const cw_carry_in& in) override;
  void EraseIn(const cw_carry_key& key) override;
  absl::StatusOr<bool> LinkUp(const std::string& device) const override;
  absl::StatusOr<std::array<uint8_t, 6>> MacOf(uint32_t ifindex) const override;
  absl::StatusOr<dataplane::Neighbour> NextHop(uint32_t ifindex, const Addr& from, const Addr& to) const override;
  absl::Status Pin(uint32_t ifindex, const dataplane::Neighbour& hop) override;
  void Unpin(uint32_t ifindex, const dataplane::Neighbour& hop) override;

 private:
  const dataplane::Dataplane& dataplane_;
};

}  // namespace cw::agent
