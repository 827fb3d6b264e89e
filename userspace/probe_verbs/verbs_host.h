// SPDX-License-Identifier: Apache-2.0
//
// The room's front door: probes by verbs on this host, for the agent's loop. Open each NIC, Start, give transport_of to
// the probe engine, tell the pairs; then call OnReadable for each descriptor of fds() and Tick every kTickPeriod.
// Thread rule: one thread (the agent's loop), which must call Start in the network namespace of the NICs. Destroy the
// engine first.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/dataplane/program_runner.h"
#include "userspace/model/flow.h"
#include "userspace/probe/keys.h"
#include "userspace/probe/transport.h"
#include "userspace/probe_verbs/hello_socket.h"
#include "userspace/probe_verbs/peer_book.h"
#include "userspace/probe_verbs/responder.h"
#include "userspace/probe_verbs/ud_endpoint.h"

namespace cw::probe_verbs {

struct HostOptions {
  uint16_t hello_port = 0;
  ResponderOptions responder;
};

class VerbsHost {
 public:
  static constexpr absl::Duration kTickPeriod = absl::Milliseconds(100);

  // keys must outlive it.
  VerbsHost(const HostOptions& options, const dataplane::ProgramRunner& runner, const probe::KeyRing* keys);
  ~VerbsHost();

  // Why the NIC's probes cannot go by verbs, in a sentence; the host goes on without it.
  absl::Status OpenNic(const EndpointOptions& options);
  absl::Status Start();  // after all NICs
  std::vector<int> fds() const;
  std::shared_ptr<probe::Transport> TransportOf(uint32_t ifindex) const;  // null: not by verbs
  const UdEndpoint* EndpointOf(uint32_t ifindex) const;

  // Those of its NICs are taken, others left alone.
  void SetPairs(const std::vector<PairKey>& pairs);
  void OnReadable();
  void Tick(int64_t now_ns);

  const PeerBook& book() const { return *book_; }
  ResponderStats responder_stats() { return responder_ != nullptr ? responder_->stats() : ResponderStats{}; }
  bool busy() const { return options_.responder.busy; }
  uint64_t hellos_refused() const { return hellos_refused_; }

 private:
  struct Nic {
    uint32_t ifindex = 0;
    std::shared_ptr<UdEndpoint> endpoint;
    std::shared_ptr<probe::Transport> transport;
    HelloSocket socket;
  };
  void OnHello(Nic& nic, const HelloSocket::Incoming& in);
  HelloBytes Encode(const Hello& hello) const;

  const HostOptions options_;
  const dataplane::ProgramRunner runner_;
  const probe::KeyRing* const keys_;
  const std::shared_ptr<PeerBook> book_;
  std::random_device random_;
  std::vector<Nic> nics_;
  uint64_t hellos_refused_ = 0;
  std::unique_ptr<Responder> responder_;  // last: its thread uses the others
};

}  // namespace cw::probe_verbs
