// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/per_peer_transport.h"

#include "userspace/probe_verbs/packing.h"

namespace cw::probe_verbs {

bool PerPeerTransport::ByUd(absl::Span<const uint8_t> packet) const {
  if (book_->known() == 0) return false;
  const absl::StatusOr<Unpacked> unpacked = Unpack(packet);
  return unpacked.ok() && book_->Qpn({.local = unpacked->from, .remote = unpacked->to}).has_value();
}

absl::Status PerPeerTransport::Send(absl::Span<const uint8_t> packet) {
  return ByUd(packet) ? ud_.Send(packet) : raw_->Send(packet);
}

int PerPeerTransport::SendBatch(bool v6, mmsghdr* messages, unsigned count) {
  if (count == 0 || book_->known() == 0) return raw_->SendBatch(v6, messages, count);
  const auto by_ud = [&](unsigned i) {
    const iovec& part = *messages[i].msg_hdr.msg_iov;
    return ByUd({static_cast<const uint8_t*>(part.iov_base), part.iov_len});
  };
  const bool first = by_ud(0);
  unsigned alike = 1;
  while (alike < count && by_ud(alike) == first) ++alike;
  return first ? ud_.SendBatch(v6, messages, alike) : raw_->SendBatch(v6, messages, alike);
}

}  // namespace cw::probe_verbs
