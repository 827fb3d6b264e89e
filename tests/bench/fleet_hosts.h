// SPDX-License-Identifier: Apache-2.0
//
// Hosts that are not there, to a fleet service that is: each with a certificate, a connection and a stream of its own,
// over which go batches that the agent's own BatchBuilder made, as fast as the service acknowledges them. Racks of 32
// hosts under a leaf, spines between them; each host probes `peers` others by all spines.
//
// Threads: one uses it; gRPC's own threads are behind it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/tls/authority.h"

namespace cw::bench {

struct FleetShape {
  int hosts = 200, peers = 20, spines = 8;
  int PathsOfHost() const { return peers * spines; }
};

class FleetHosts {
 public:
  // Makes their certificates. `server`: HOST:PORT.
  static absl::StatusOr<std::unique_ptr<FleetHosts>> Make(const FleetShape& shape, const tls::Issued& authority,
                                                          const std::string& server);
  ~FleetHosts();

  // All of them, until each is welcome; none has told anything yet.
  absl::Status Connect(absl::Duration patience);
  // Each tells the interval that ends then. At most `ahead` batches of a host wait for their acknowledgement; returns
  // when all hosts' are on their way. Unavailable: a stream ended, or nothing was acknowledged for a minute.
  absl::Status Tell(int64_t to_ns, int ahead);
  // The same at once, `spine` dead for all (−1: none).
  void TellDead(int64_t to_ns, int spine);
  absl::Status WaitForAcknowledgements();

  const FleetShape& shape() const;
  uint64_t batches() const;   // acknowledged
  uint64_t bytes() const;     // of the batches behind each host's first, as they were serialised
  uint64_t of_bytes() const;  // so many batches
  uint64_t refusals() const;  // by the service
  static std::string NameOf(int host);
  // What a host's batch says of one of its paths, for a peer that takes numbers: state, base, p50, p99, sent, lost.
  struct Numbers {
    std::string local, remote;
    int port = 0;
    double values[6] = {};
  };
  static std::vector<std::string> NamesOfNumbers();
  std::vector<Numbers> NumbersOf(int host, uint64_t tick) const;

 private:
  struct Impl;
  explicit FleetHosts(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace cw::bench
