// SPDX-License-Identifier: Apache-2.0
#include "userspace/dataplane/flow_editor.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>

#include "absl/strings/str_format.h"
#include "flow_edit.skel.h"
#include "maps/names.h"
#include "userspace/dataplane/libbpf_log.h"

namespace cw::dataplane {

void FlowEditor::Closer::operator()(bpf_object* object) const { bpf_object__close(object); }

absl::StatusOr<FlowEditor> FlowEditor::Create(const maps::FlowsView& flows, const maps::TxFlowsView& tx_flows) {
  LibbpfLog log;
  size_t size = 0;
  const void* elf = flow_edit__elf_bytes(&size);
  bpf_object* object = bpf_object__open_mem(elf, size, nullptr);
  if (object == nullptr) return absl::ErrnoToStatus(errno, "open the object of cw_flow_edit: " + log.text());
  FlowEditor editor(object, -1);
  bpf_map* received = bpf_object__find_map_by_name(object, CW_MAP_FLOWS);
  bpf_map* sent = bpf_object__find_map_by_name(object, CW_MAP_TX_FLOWS);
  if (received == nullptr || sent == nullptr) return absl::InternalError("cw_flow_edit has not the maps of flows");
  int rc = bpf_map__reuse_fd(received, flows.map().fd());
  if (rc == 0) rc = bpf_map__reuse_fd(sent, tx_flows.map().fd());
  if (rc == 0) rc = bpf_object__load(object);
  if (rc != 0) return absl::ErrnoToStatus(-rc, "load the program cw_flow_edit: " + log.text());
  editor.prog_fd_ = bpf_program__fd(bpf_object__find_program_by_name(object, "cw_flow_edit"));
  return editor;
}

absl::Status FlowEditor::Edit(const cw_flow_edit& edit) const {
  cw_flow_edit argument = edit;
  LIBBPF_OPTS(bpf_test_run_opts, options, .ctx_in = &argument, .ctx_size_in = sizeof(argument));
  if (bpf_prog_test_run_opts(prog_fd_, &options) != 0) return absl::ErrnoToStatus(errno, "run cw_flow_edit");
  if (options.retval == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(static_cast<int>(options.retval),
                             absl::StrFormat("edit the flow to QPN 0x%06x", edit.key.dqpn));
}

absl::Status FlowEditor::Want(const cw_flow_key& key, uint8_t slot, uint16_t port, bool force) const {
  cw_flow_edit edit = {.key = key, .fields = CW_EDIT_WANT};
  edit.want_slot = slot;
  edit.want_port = port;
  edit.want_force = force;
  return Edit(edit);
}

absl::Status FlowEditor::Place(const cw_flow_key& key, uint8_t slot, uint16_t port) const {
  cw_flow_edit edit = {.key = key, .fields = CW_EDIT_PLACE};
  edit.slot = slot;
  edit.port = port;
  return Edit(edit);
}

absl::Status FlowEditor::SetNativeSlot(const cw_flow_key& key, uint8_t slot) const {
  cw_flow_edit edit = {.key = key, .fields = CW_EDIT_NATIVE_SLOT | CW_EDIT_FLAGS};
  edit.native_slot = slot;
  edit.flags_clear = CW_STEER_NATIVE_NEW;
  return Edit(edit);
}

absl::Status FlowEditor::SetFlags(const cw_flow_key& key, uint8_t set, uint8_t clear) const {
  cw_flow_edit edit = {.key = key, .fields = CW_EDIT_FLAGS};
  edit.flags_set = set;
  edit.flags_clear = clear;
  return Edit(edit);
}

absl::Status FlowEditor::Withhold(const cw_flow_key& key, uint8_t capabilities) const {
  cw_flow_edit edit = {.key = key, .fields = CW_EDIT_WITHHELD};
  edit.withheld = capabilities;
  return Edit(edit);
}

absl::Status FlowEditor::SetPeerQpn(const cw_flow_key& key, bool received, uint32_t peer_qpn) const {
  cw_flow_edit edit = {.key = key, .fields = CW_EDIT_PEER_QPN};
  if (received) edit.fields |= CW_EDIT_RECEIVED;
  edit.peer_qpn = peer_qpn;
  return Edit(edit);
}

}  // namespace cw::dataplane
