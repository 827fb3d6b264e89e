// SPDX-License-Identifier: Apache-2.0
#include "userspace/agent/flows/flow_records.h"

#include "userspace/agent/flow_book.h"
#include "userspace/dataplane/dataplane.h"

namespace cw::agent {

absl::StatusOr<cw_tx_flow> MapFlowRecords::Sent(const FlowKey& flow) const {
  return dataplane_.tx_flows().Lookup(ToMap(flow));
}

absl::StatusOr<cw_flow> MapFlowRecords::Received(const FlowKey& flow) const {
  return dataplane_.flows().Lookup(ToMap(flow));
}

void MapFlowRecords::ForEachSent(absl::FunctionRef<void(const FlowKey&, const cw_tx_flow&)> visit) const {
  (void)dataplane_.tx_flows().ForEach(
      [&](const cw_flow_key& key, const cw_tx_flow& flow) { visit(FromMap(key), flow); });
}

void MapFlowRecords::ForEachReceived(absl::FunctionRef<void(const FlowKey&, const cw_flow&)> visit) const {
  (void)dataplane_.flows().ForEach([&](const cw_flow_key& key, const cw_flow& flow) { visit(FromMap(key), flow); });
}

size_t MapFlowRecords::SentRoom() const { return dataplane_.tx_flows().capacity(); }

absl::Status MapFlowRecords::Want(const FlowKey& flow, uint8_t slot, uint16_t port, bool force) {
  return dataplane_.flow_editor().Want(ToMap(flow), slot, port, force);
}

absl::Status MapFlowRecords::Place(const FlowKey& flow, uint8_t slot, uint16_t port) {
  return dataplane_.flow_editor().Place(ToMap(flow), slot, port);
}

absl::Status MapFlowRecords::SetFlags(const FlowKey& flow, uint8_t set, uint8_t clear) {
  return dataplane_.flow_editor().SetFlags(ToMap(flow), set, clear);
}

absl::Status MapFlowRecords::SetNativeSlot(const FlowKey& flow, uint8_t slot) {
  return dataplane_.flow_editor().SetNativeSlot(ToMap(flow), slot);
}

absl::Status MapFlowRecords::Withhold(const FlowKey& flow, uint8_t capabilities) {
  return dataplane_.flow_editor().Withhold(ToMap(flow), capabilities);
}

absl::Status MapFlowRecords::SetPeerQpn(const FlowKey& received, uint32_t peer_qpn) {
  return dataplane_.flow_editor().SetPeerQpn(ToMap(received), /*received=*/true, peer_qpn);
}

void MapFlowRecords::EraseSent(const FlowKey& flow) { (void)dataplane_.tx_flows().Delete(ToMap(flow)); }
void MapFlowRecords::EraseReceived(const FlowKey& flow) { (void)dataplane_.flows().Delete(ToMap(flow)); }

}  // namespace cw::agent
