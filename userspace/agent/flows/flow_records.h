// SPDX-License-Identifier: Apache-2.0
//
// The kernel programs' records of flows, and what may be asked of the programs for a sent one (dataplane/flow_editor.h
// says how). NotFound: there is no such flow (any more). Thread rule: the agent's loop.
#pragma once

#include <cstddef>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "maps/abi.h"
#include "userspace/model/flow.h"

namespace cw::dataplane {
class Dataplane;
}

namespace cw::agent {

class FlowRecords {
 public:
  virtual ~FlowRecords() = default;
  virtual absl::StatusOr<cw_tx_flow> Sent(const FlowKey& flow) const = 0;
  virtual absl::StatusOr<cw_flow> Received(const FlowKey& flow) const = 0;
  virtual void ForEachSent(absl::FunctionRef<void(const FlowKey&, const cw_tx_flow&)> visit) const = 0;
  virtual void ForEachReceived(absl::FunctionRef<void(const FlowKey&, const cw_flow&)> visit) const = 0;
  virtual size_t SentRoom() const = 0;  // so many sent flows fit
  // A pending move; slot CW_SLOT_NONE takes it back, port 0 is the native one. force: at once, for one go-back-N.
  virtual absl::Status Want(const FlowKey& flow, uint8_t slot, uint16_t port, bool force) = 0;
  virtual absl::Status Place(const FlowKey& flow, uint8_t slot, uint16_t port) = 0;
  virtual absl::Status SetFlags(const FlowKey& flow, uint8_t set, uint8_t clear) = 0;
  virtual absl::Status SetNativeSlot(const FlowKey& flow, uint8_t slot) = 0;
  virtual absl::Status Withhold(const FlowKey& flow, uint8_t capabilities) = 0;  // that do not act for it, as bits
  virtual absl::Status SetPeerQpn(const FlowKey& received, uint32_t peer_qpn) = 0;
  virtual void EraseSent(const FlowKey& flow) = 0;
  virtual void EraseReceived(const FlowKey& flow) = 0;
};

// Those of the maps.
class MapFlowRecords final : public FlowRecords {
 public:
  explicit MapFlowRecords(const dataplane::Dataplane& dataplane) : dataplane_(dataplane) {}
  absl::StatusOr<cw_tx_flow> Sent(const FlowKey& flow) const override;
  absl::StatusOr<cw_flow> Received(const FlowKey& flow) const override;
  void ForEachSent(absl::FunctionRef<void(const FlowKey&, const cw_tx_flow&)> visit) const override;
  void ForEachReceived(absl::FunctionRef<void(const FlowKey&, const cw_flow&)> visit) const override;
  size_t SentRoom() const override;
  absl::Status Want(const FlowKey& flow, uint8_t slot, uint16_t port, bool force) override;
  absl::Status Place(const FlowKey& flow, uint8_t slot, uint16_t port) override;
  absl::Status SetFlags(const FlowKey& flow, uint8_t set, uint8_t clear) override;
  absl::Status SetNativeSlot(const FlowKey& flow, uint8_t slot) override;
  absl::Status Withhold(const FlowKey& flow, uint8_t capabilities) override;
  absl::Status SetPeerQpn(const FlowKey& received, uint32_t peer_qpn) override;
  void EraseSent(const FlowKey& flow) override;
  void EraseReceived(const FlowKey& flow) override;

 private:
  const dataplane::Dataplane& dataplane_;
};

}  // namespace cw::agent
