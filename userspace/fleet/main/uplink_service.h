// SPDX-License-Identifier: Apache-2.0
//
// Hosts' streams over gRPC around Ingest: what arrives is queued, and what the store has is acknowledged. No thread per
// host (gRPC's callbacks). A host that does not read what it is sent, or sends what nobody asked for, loses its stream.
// Ingest is not for several threads, so one lock is around it; a commit goes on beside it.
//
// Threads: any.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "userspace/api/audit.h"
#include "userspace/api/fleet.grpc.pb.h"
#include "userspace/fleet/incidents/collection.h"
#include "userspace/fleet/ingest/ingest.h"
#include "userspace/fleet/main/who.h"

namespace cw::fleet {

class HostStream;

// What hosts are asked for over their streams. Its methods are called with the service's lock held: they must not call
// the service.
class HostOrders {
 public:
  virtual ~HostOrders() = default;
  virtual cwfabric::v1::DrainOrders OrdersFor(const std::string& host) = 0;
  virtual void Take(const std::string& host, const cwfabric::v1::DrainReport& report) = 0;
  virtual void Forget(const std::string& host) = 0;  // what it said holds no longer
};

// What hosts say of their ring files. Its methods are called with the service's lock held: they must not call the
// service.
class HostRings {
 public:
  virtual ~HostRings() = default;
  using State = Collection::HostState;
  virtual void Now(const std::string& host, const State& state) = 0;
  // False: nobody asked for it, or does any more. A host that goes on so is not listened to.
  virtual bool Take(const std::string& host, const cwfabric::v1::RingAnswer& answer) = 0;
};

class UplinkService final : public cwfabric::v1::Uplink::CallbackService {
 public:
  UplinkService(Ingest& ingest, Callers& callers) : ingest_(ingest), callers_(callers) {}

  grpc::ServerBidiReactor<cwfabric::v1::ToFleet, cwfabric::v1::ToHost>* Connect(
      grpc::CallbackServerContext* context) override;

  // Before the first connection; it outlives the service.
  void SetOrders(HostOrders* orders) { orders_ = orders; }
  void SetRings(HostRings* rings) { rings_ = rings; }  // the same
  // Nothing where the host is not connected, or keeps no ring.
  void SendRing(const std::string& host, const cwfabric::v1::RingAsk& ask);
  HostRings::State RingOf(const std::string& host);
  // To all hosts that take them.
  void SendOrders();
  // Ends streams that say nothing, and those whose certificates are over or revoked by now. Once a second or so.
  void EndStrangers(absl::Time now);
  // What is queued into the store, and acknowledgements to their hosts. The store's error: agents send it again.
  absl::Status Flush();
  // Each host, by name, with the streams held up for milliseconds at a time.
  void EachHost(const std::function<void(const LiveHost&)>& look);
  std::vector<LiveHost> Hosts();                             // copies; by name
  std::vector<HostFacts> Facts();                            // of all that did not leave, by name
  absl::Status Remove(const std::string& host, bool force);  // as Ingest has it; a stream of its ends
  // How often paths died or came back, as far as hosts told.
  uint64_t changes() const { return changes_; }
  uint64_t removals() const { return removals_; }  // how often a host was removed

 private:
  friend class HostStream;
  size_t most_records() const { return static_cast<size_t>(ingest_.limits().batch.records); }
  static constexpr int kMostSilent = 4;    // streams of one certificate before their Hello: each may hold a message
  static constexpr int kMostUnasked = 64;  // answers in a row; a forgotten request leaves a few
  // ResourceExhausted: as many of its certificate have not said Hello yet as may.
  absl::Status Open(HostStream& stream, const Speaker& who);
  void NoLongerSilent(const HostStream& stream);
  // The stream takes the place of one that the host had.
  absl::StatusOr<cwfabric::v1::Welcome> Begin(HostStream& stream, const cwfabric::v1::Hello& hello, const Speaker& who);
  // False: it may not come, and its host was told.
  bool Admit(HostStream& stream, const cwfabric::v1::Batch& batch);
  void Take(HostStream& stream, const cwfabric::v1::Batch& batch, uint64_t admitted);
  void Take(HostStream& stream, const cwfabric::v1::DrainReport& report);
  void Take(HostStream& stream, const cwfabric::v1::RingAnswer& answer);
  static void Reply(HostStream& stream, cwfabric::v1::Ack ack);
  void SendOrdersTo(HostStream& stream);
  void End(HostStream& stream);

  std::atomic<uint64_t> changes_ = 0, removals_ = 0;
  std::mutex mutex_;  // of all below, and taken before a stream's own
  Ingest& ingest_;
  std::set<HostStream*> open_;                                 // each leaves before it goes
  std::map<std::pair<std::string, std::string>, int> silent_;  // no Hello yet, by certificate
  std::map<std::string, HostStream*> streams_;                 // those that said Hello, by host
  Callers& callers_;
  HostOrders* orders_ = nullptr;
  HostRings* rings_ = nullptr;
  uint64_t connections_ = 0;
  api::RefusalLimiter lines_{1 << 17};  // of the log, by host
};

}  // namespace cw::fleet
