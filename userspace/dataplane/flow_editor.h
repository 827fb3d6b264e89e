// SPDX-License-Identifier: Apache-2.0
//
// Changes single fields of live flow records in place, through the program cw_flow_edit. Threads: Edit may be called
// from several threads.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "maps/flow_edit.h"
#include "maps/views.h"

struct bpf_object;

namespace cw::dataplane {

class FlowEditor {
 public:
  static absl::StatusOr<FlowEditor> Create(const maps::FlowsView& flows, const maps::TxFlowsView& tx_flows);

  // NotFound when there is no such flow (any more).
  absl::Status Edit(const cw_flow_edit& edit) const;

  // A pending move of a transmitted flow; slot CW_SLOT_NONE takes it back. port 0: the native one. force: at once, at
  // the price of one go-back-N.
  absl::Status Want(const cw_flow_key& key, uint8_t slot, uint16_t port, bool force) const;
  absl::Status Place(const cw_flow_key& key, uint8_t slot, uint16_t port) const;
  absl::Status SetNativeSlot(const cw_flow_key& key, uint8_t slot) const;  // and clears CW_STEER_NATIVE_NEW
  absl::Status SetFlags(const cw_flow_key& key, uint8_t set, uint8_t clear) const;
  // Capabilities that do not act for the flow, as bits of enum cw_capability; instead of those before.
  absl::Status Withhold(const cw_flow_key& key, uint8_t capabilities) const;
  absl::Status SetPeerQpn(const cw_flow_key& key, bool received, uint32_t peer_qpn) const;

 private:
  struct Closer {
    void operator()(bpf_object* object) const;
  };
  FlowEditor(bpf_object* object, int prog_fd) : object_(object), prog_fd_(prog_fd) {}
  std::unique_ptr<bpf_object, Closer> object_;
  int prog_fd_;
};

}  // namespace cw::dataplane
