// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/native_ports.h"

namespace cw::agent {

void NativePorts::Ensure(const FlowKey& key, FlowEntry& flow) {
  const uint16_t port = flow.flow().sport;
  if (flow.native_asked != 0) Release(flow.tx.pair, flow.native_asked, key);
  flow.native_asked = port;
  const uint8_t slot = asks_.watch(flow.tx.pair, port, flow.NativeLabel());
  if (slot != CW_SLOT_NONE) (void)records_.SetNativeSlot(key, slot);
}

void NativePorts::Release(uint32_t pair, uint16_t port, const FlowKey& user) {
  for (const auto& [other, flow] : flows_.sent) {
    if (other != user && flow.tx.pair == pair && flow.flow().sport == port) return;
  }
  for (const auto& [other, qp] : unseen_.watched()) {
    if (other != user && qp.pair == pair && qp.port == port) return;
  }
  asks_.release(pair, port);
}

void NativePorts::OnNative(uint32_t pair, const probe::NativeChange& change) {
  for (const auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair == pair && flow.flow().sport == change.port) (void)records_.SetNativeSlot(key, change.slot);
  }
}

void NativePorts::OnBlind(const PairState& pair) {
  for (auto& [key, flow] : flows_.sent) {
    if (flow.tx.pair != pair.index) continue;
    const uint16_t asked = std::exchange(flow.native_asked, 0);
    if (!pair.blind) continue;  // the next reading asks for its slot
    if (asked != 0) asks_.release(pair.index, asked);
    (void)records_.SetNativeSlot(key, CW_SLOT_NONE);
    if ((flow.tx.flags & CW_STEER_MANUAL) == 0) (void)records_.Place(key, CW_SLOT_NONE, 0);
  }
}

}  // namespace cw::agent
