// SPDX-License-Identifier: Apache-2.0
//
// The thread that takes the datagrams that arrive, of all NICs of the host: it shows each datagram to the ingress
// program (userspace/dataplane/program_runner.h), which authenticates it, keeps the states, puts records into the rings
// and turns requests round; the answers go out by verbs again. Thread rule: stats from any thread; Turn from one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "userspace/dataplane/program_runner.h"
#include "userspace/probe_verbs/packing.h"
#include "userspace/probe_verbs/peer_book.h"
#include "userspace/probe_verbs/ud_endpoint.h"

namespace cw::probe_verbs {

// What the ingress program made of a datagram.
struct Turned {
  bool accepted = false;          // it was a probe or a message of ours
  std::optional<Unpacked> reply;  // to send; points into the frame
};
// port: that of the answer, where the program leaves the choice.
Turned Turn(const dataplane::ProgramRunner& runner, const Arrival& arrival, uint16_t port,
            absl::Span<const uint8_t> payload, Frame* frame);

struct ResponderOptions {
  bool busy = false;       // polls without end instead of waiting for events
  int fifo_priority = 20;  // SCHED_FIFO, not when busy; 0: ordinary scheduling
  // Soft-RoCE's doorbell is a write() to uverbs, which the kernel takes only with the very credentials with which the
  // device was opened (ib_safe_file_access), and threads that give rights up have others.
  bool keep_rights = true;
};

struct ResponderStats {
  uint64_t received = 0;
  uint64_t answered = 0;
  uint64_t unanswered = 0;
  uint64_t malformed = 0;
  int64_t turn_p50_ns = 0;  // of the requests that were answered since the thread began
  int64_t turn_p99_ns = 0;
  int64_t cpu_ns = 0;
};

class Responder {
 public:
  // Endpoints and book must outlive it. The thread stays in the caller's network namespace, which the program sees.
  static absl::StatusOr<std::unique_ptr<Responder>> Start(const ResponderOptions& options,
                                                          const dataplane::ProgramRunner& runner,
                                                          std::vector<UdEndpoint*> endpoints, const PeerBook* book);
  virtual ~Responder() = default;
  virtual ResponderStats stats() = 0;
};

}  // namespace cw::probe_verbs
