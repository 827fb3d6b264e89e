// SPDX-License-Identifier: Apache-2.0
//
// Datagrams of one NIC to peers whose NICs have UD queue pairs, without any here: UD SENDs by a raw socket, and those
// that the ingress program hands over (maps/wire.h, CW_ETH_UD_PROBE) by a packet(7) socket. Its queue pair number is
// CW_BTH_QPN, which is nobody's.
// Thread rule: as UdEndpoint's; Listen from any thread.
#pragma once

#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/probe/raw_socket.h"
#include "userspace/probe_verbs/ud_endpoint.h"

namespace cw::probe_verbs {

class PacketEndpoint : public UdEndpoint {
 public:
  // Needs CAP_NET_RAW, as raw does. Gets nothing until Listen(true).
  static absl::StatusOr<std::unique_ptr<PacketEndpoint>> Open(uint32_t ifindex, const Addr& address,
                                                              std::shared_ptr<probe::RawSocket> raw);

  // Whether datagrams are taken: while nobody is known to send some, the kernel drops what claims to be one.
  // An error is told once: the NIC has gone.
  virtual absl::Status Listen(bool on) = 0;
};

}  // namespace cw::probe_verbs
