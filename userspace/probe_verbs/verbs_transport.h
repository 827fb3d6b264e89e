// SPDX-License-Identifier: Apache-2.0
//
// Probes and messages of one NIC by verbs. A request is shown to the egress program first, which notes when it leaves:
// that stamp is the software's, some microseconds before the NIC's.
// Thread rule: any thread; nothing blocks.
#pragma once

#include <memory>

#include "userspace/dataplane/program_runner.h"
#include "userspace/probe/transport.h"
#include "userspace/probe_verbs/peer_book.h"
#include "userspace/probe_verbs/ud_endpoint.h"

namespace cw::probe_verbs {

class VerbsTransport final : public probe::Transport {
 public:
  VerbsTransport(std::shared_ptr<UdEndpoint> endpoint, std::shared_ptr<const PeerBook> book,
                 const dataplane::ProgramRunner& runner)
      : endpoint_(std::move(endpoint)), book_(std::move(book)), runner_(runner) {}

  // NotFound: the peer has not told its queue pair.
  absl::Status Send(absl::Span<const uint8_t> packet) override;
  int SendBatch(bool v6, mmsghdr* messages, unsigned count) override;
  absl::Span<const uint16_t> ports() const override { return endpoint_->ports(); }

 private:
  const std::shared_ptr<UdEndpoint> endpoint_;
  const std::shared_ptr<const PeerBook> book_;
  const dataplane::ProgramRunner runner_;
};

}  // namespace cw::probe_verbs
