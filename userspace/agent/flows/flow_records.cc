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

absl::Status MapFlowRecords::Want(const FlowKey& flow, uint8_t slot, uint16_t port, bool force) {
  return dataplane_.flow_editor().Want(ToMap(flow), slot, port, force);
}

absl::Status MapFlowRecords::Place(const FlowKey& flow, uint8_t slot, uint16_t port) {
  return dataplane_.flow_editor().Place(ToMap(flow), slot, port);
}

absl::Status MapFlowRecords::SetFlags(const FlowKey& flow, uint8_t set, uint8_t clear) {
  return dataplane_.flow_editor().SetFlags(ToMap(flow), set, clear);
}

}  // namespace cw::agent
