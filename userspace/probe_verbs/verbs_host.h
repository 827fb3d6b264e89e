// SPDX-License-Identifier: Apache-2.0
//
// The room's front door: probes by verbs on this host, and those of NICs that the kernel serves with peers by verbs,
// for the agent's loop. Open each NIC, Start, give TransportOf to the probe engine, tell the pairs; then call
// OnReadable for each descriptor of fds() and Tick every kTickPeriod. Thread rule: one thread (the agent's loop), which
// must call Start in the network namespace of the NICs. Destroy the engine first.
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
#include "userspace/probe_verbs/packet_endpoint.h"
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
  // A NIC that the kernel serves. Why it will not understand peers by verbs, in a sentence; it has its probes anyway.
  absl::Status OpenKernelNic(uint32_t ifindex, const Addr& address);
  absl::Status Start();  // after all NICs
  std::vector<int> fds() const;
  std::shared_ptr<probe::Transport> TransportOf(uint32_t ifindex) const;  // null: it was not opened
  const UdEndpoint* EndpointOf(uint32_t ifindex) const;                   // null: not by verbs
  uint32_t PeersByVerbs(uint32_t ifindex) const;                          // that have told their queue pair

  // Those of its NICs are taken, others left alone.
  void SetPairs(const std::vector<PairKey>& pairs);
  void OnReadable(int64_t now_ns);
  void Tick(int64_t now_ns);

  const PeerBook& book() const { return *book_; }
  ResponderStats responder_stats() { return responder_ != nullptr ? responder_->stats() : ResponderStats{}; }
  bool busy() const { return options_.responder.busy; }
  uint64_t hellos_refused() const { return hellos_refused_; }

 private:
  struct Nic {
    uint32_t ifindex = 0;
    std::shared_ptr<UdEndpoint> endpoint;
    PacketEndpoint* packets = nullptr;  // the endpoint of a NIC that the kernel serves
    std::shared_ptr<probe::Transport> transport;
    HelloSocket socket;
  };
  const Nic* NicOf(uint32_t ifindex) const;
  bool AnyByVerbs() const;
  void OnHello(Nic& nic, const HelloSocket::Incoming& in, int64_t now_ns);
  void ListenWhereNeeded();
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
