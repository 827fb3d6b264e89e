// SPDX-License-Identifier: Apache-2.0
//
// The uplink's way to the fleet service: keeps a stream open to one of several endpoints, over mutual TLS, and brings
// there what the spool holds. A thread of its own; whoever adds batches never waits for the network. Where no endpoint
// answers it tries the next, then waits: 0.5 s, doubled up to 30 s, each drawn from its upper half, so that a thousand
// agents do not come back at once. Certificates are read anew with each connection.
// A service may be anybody's by now: what it sends is bounded (a message, what waits to be looked at, messages a
// second), and a stream that it does not read is ended.
//
// Threads: any; Append and Report never block for longer than the disk does.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/tls/certificate.h"
#include "userspace/uplink/spool.h"

namespace cw::uplink {

struct ClientOptions {
  std::string host;  // as in the certificate
  uint64_t run = 0;
  std::vector<std::string> endpoints;  // HOST:PORT, the first that answers is taken
  tls::Files tls;
  std::function<cwfabric::v1::Hello()> hello;  // from the client's thread
  // All that was defined so far; and those that come are to be sent whole. From the client's thread.
  std::function<cwfabric::v1::Definitions()> define_again;
  // What the service wants free of this host's flows. From the client's thread, which it must not hold up.
  std::function<void(const cwfabric::v1::DrainOrders&)> drains;
  // The ring file's, or nothing. From the client's thread.
  struct Ring {
    std::function<void()> begin;  // a new connection
    std::function<void(const cwfabric::v1::RingAsk&)> ask;
    std::function<std::optional<cwfabric::v1::RingAnswer>()> next;  // asked where nothing else is to be sent
  } ring;
  absl::Duration write_patience = absl::Seconds(30);  // until the service reads; then the stream is ended
  // What people should know: connected, not connected and why, refused. Never more than a few a minute.
  std::function<void(const std::string& text, bool alert)> tell;
};

struct ClientState {
  std::string endpoint;  // connected to; "" = not
  uint64_t connects = 0;
  SpoolState spool;
};

class Client {
 public:
  static std::unique_ptr<Client> Start(ClientOptions options, std::unique_ptr<Spool> spool);
  // Ends the stream; what was not acknowledged stays in the spool.
  ~Client();

  // Into the spool, and off as soon as possible. Errors are the spool's.
  absl::Status Append(const cwfabric::v1::Batch& batch, Kind kind);
  // Off as soon as possible, where it is connected; else never: the orders come again with the next connection.
  void Report(cwfabric::v1::DrainReport report);
  void Wake();  // ring.next has something
  ClientState state() const;

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

// How long to wait before the next try; `round`: how often all endpoints failed; `random`: in [0, 1).
absl::Duration BackOff(int round, double random);

}  // namespace cw::uplink
