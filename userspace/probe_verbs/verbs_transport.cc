// SPDX-License-Identifier: Apache-2.0
#include "userspace/probe_verbs/verbs_transport.h"

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "userspace/probe_verbs/packing.h"

namespace cw::probe_verbs {

absl::Status VerbsTransport::Send(absl::Span<const uint8_t> packet) {
  absl::StatusOr<Unpacked> unpacked = Unpack(packet);
  if (!unpacked.ok()) return unpacked.status();
  const std::optional<uint32_t> qpn = book_->Qpn({.local = unpacked->from, .remote = unpacked->to});
  if (!qpn) return absl::NotFoundError(absl::StrCat(unpacked->to.ToString(), " has not told its probe queue pair"));
  const Datagram datagram = {.to = unpacked->to,
                             .qpn = *qpn,
                             .port = unpacked->port,
                             .traffic_class = unpacked->traffic_class,
                             .label = unpacked->label,
                             .payload = unpacked->payload};
  if (unpacked->type == CW_PROBE_REQUEST) {
    Frame frame;
    const auto seen = FrameOf(packet, &frame);
    if (!seen || !endpoint_->CanSend(datagram)) return absl::UnavailableError("not ready to send");
    if (absl::Status s = runner_.Egress(*seen); !s.ok()) return s;
  }
  return endpoint_->Send(datagram);
}

int VerbsTransport::SendBatch(bool, mmsghdr* messages, unsigned count) {
  unsigned sent = 0;
  for (; sent < count; ++sent) {
    const iovec& part = *messages[sent].msg_hdr.msg_iov;
    const absl::Status s = Send({static_cast<const uint8_t*>(part.iov_base), part.iov_len});
    if (s.ok()) continue;
    if (sent > 0) break;  // what went is told first; this one is asked for again
    return absl::IsUnavailable(s)       ? -EAGAIN
           : absl::IsNotFound(s)        ? -EHOSTUNREACH
           : absl::IsInvalidArgument(s) ? -EINVAL
                                        : -EIO;
  }
  return static_cast<int>(sent);
}

}  // namespace cw::probe_verbs
