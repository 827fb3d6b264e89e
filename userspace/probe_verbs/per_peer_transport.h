// SPDX-License-Identifier: Apache-2.0
//
// Probes and messages of a NIC that the kernel serves, whose peers may be NICs of both kinds: UD SENDs to those that
// have told a queue pair, the kernel's way to all others.
// Thread rule: any thread; nothing blocks.
#pragma once

#include <memory>

#include "userspace/probe/raw_socket.h"
#include "userspace/probe_verbs/peer_book.h"
#include "userspace/probe_verbs/verbs_transport.h"

namespace cw::probe_verbs {

class PerPeerTransport final : public probe::Transport {
 public:
  PerPeerTransport(std::shared_ptr<probe::RawSocket> raw, std::shared_ptr<UdEndpoint> endpoint,
                   std::shared_ptr<const PeerBook> book, const dataplane::ProgramRunner& runner)
      : raw_(std::move(raw)), book_(book), ud_(std::move(endpoint), std::move(book), runner) {}

  absl::Status Send(absl::Span<const uint8_t> packet) override;
  // Those at the front that go the same way; the rest is asked for again.
  int SendBatch(bool v6, mmsghdr* messages, unsigned count) override;

 private:
  bool ByUd(absl::Span<const uint8_t> packet) const;

  const std::shared_ptr<probe::RawSocket> raw_;
  const std::shared_ptr<const PeerBook> book_;
  VerbsTransport ud_;
};

}  // namespace cw::probe_verbs
