// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/nics/carry_kernel.h"

#include "userspace/dataplane/dataplane.h"
#include "userspace/dataplane/netdev.h"

namespace cw::agent {

absl::StatusOr<cw_carry_out> RealCarryKernel::Out(uint32_t pair) const { return dataplane_.carry_out().Lookup(pair); }

absl::Status RealCarryKernel::PutOut(uint32_t pair, const cw_carry_out& out) {
  return dataplane_.carry_out().Put(pair, out);
}

absl::Status RealCarryKernel::ForEachIn(absl::FunctionRef<void(const cw_carry_key&, const cw_carry_in&)> visit) const {
  return dataplane_.carry_in().ForEach(visit);
}

absl::Status RealCarryKernel::PutIn(const cw_carry_key& key, const cw_carry_in& in) {
  return dataplane_.carry_in().Put(key, in);
}

void RealCarryKernel::EraseIn(const cw_carry_key& key) { dataplane_.carry_in().Delete(key).IgnoreError(); }

absl::StatusOr<bool> RealCarryKernel::LinkUp(const std::string& device) const { return dataplane::LinkUp(device); }

absl::StatusOr<std::array<uint8_t, 6>> RealCarryKernel::MacOf(uint32_t ifindex) const {
  return dataplane::MacOf(ifindex);
}

absl::StatusOr<dataplane::Neighbour> RealCarryKernel::NextHop(uint32_t ifindex, const Addr& from,
                                                              const Addr& to) const {
  return dataplane::NextHop(ifindex, from, to);
}

absl::Status RealCarryKernel::Pin(uint32_t ifindex, const dataplane::Neighbour& hop) {
  return dataplane::PinNeighbour(ifindex, hop);
}

void RealCarryKernel::Unpin(uint32_t ifindex, const dataplane::Neighbour& hop) {
  dataplane::UnpinNeighbour(ifindex, hop).IgnoreError();
}

}  // namespace cw::agent
