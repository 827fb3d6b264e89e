// SPDX-License-Identifier: Apache-2.0
//
// One incident while it is taken: which hosts are asked for their rings, what each has sent, and what is missing in the
// end. A host's data is taken as far as it was asked for and no further: what is more, out of order, or of another time
// is refused, counted, and ends that host's part. So does a host that begins anew until it has sent its part three
// times. All hosts' parts fit into the file. Time comes in as an argument; it knows no sockets.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/incident.pb.h"
#include "userspace/api/ring.pb.h"
#include "userspace/fleet/incidents/bundle.h"

namespace cw::fleet {

struct CollectionLimits {
  uint64_t host_bytes = 16 << 20;              // of a host at most, and no more than its share of `bytes`
  uint64_t bytes = uint64_t{512} << 20;        // of all
  absl::Duration patience = absl::Minutes(2);  // behind the end of the span
};

class Collection {
 public:
  // A host's ring as of its connection.
  struct HostState {
    bool connected = false, keeps_ring = false;
    std::string no_ring;      // why it keeps none; "": it is too old to say
    uint64_t connection = 0;  // counts up; what is said of an earlier one holds no longer
  };
  static constexpr size_t kMostChunkBytes = 512 << 10;

  // `head`: id, span, hosts. The file will be at `path`.
  static absl::StatusOr<std::unique_ptr<Collection>> Begin(cwfabric::v1::Incident head, const std::string& path,
                                                           const CollectionLimits& limits);

  // The host's state as it is now: at the beginning, and whenever it connects or is gone. What to send to it: over one
  // connection it is asked once.
  std::optional<cwfabric::v1::RingAsk> Look(const std::string& host, const HostState& state);
  // What it answered. What to send to it then.
  std::optional<cwfabric::v1::RingAsk> Take(const std::string& host, const cwfabric::v1::RingAnswer& answer);
  // Nothing more will come, or not in time.
  bool Done(absl::Time now) const;
  uint64_t request() const { return request_; }
  bool Concerns(uint64_t request) const { return request == request_; }
  bool Asks(const std::string& host) const { return hosts_.contains(host); }

  // Of hosts whose rings gave nothing, what the store has (gather.h), before Finish.
  std::vector<std::string> WithoutRing() const;
  // In records of a bounded size. InvalidArgument: one second alone is too large.
  absl::Status AddSeconds(const std::string& host, const std::vector<std::string>& seconds);
  void Lacks(const std::string& host, const std::string& why);  // of what the store has; joins what is missing
  absl::Status AddEvents(const std::vector<cwfabric::v1::FleetEventOf>& events);
  // Makes the file. The head as it stands in there, with each host's part.
  absl::StatusOr<cwfabric::v1::Incident> Finish();

  cwfabric::v1::Incident& head() { return head_; }
  const cwfabric::v1::Incident& head() const { return head_; }
  cwfabric::v1::Incident Short() const;  // as lists show it
  uint64_t refused() const { return refused_; }
  std::string MissingOf(const std::string& host) const;  // why its part ended; "": nothing is wrong so far
  std::vector<std::string> Waiting() const;              // who was asked and may still send
  cwfabric::v1::RingAsk Forget() const;

 private:
  struct Host {
    HostState state;
    bool asked = false, ended = false;
    uint32_t chunks = 0;
    uint64_t bytes = 0;  // over this connection
    uint64_t total = 0, seconds = 0, damaged = 0;
    std::string source, missing, lacks;
  };
  Collection(cwfabric::v1::Incident head, std::unique_ptr<BundleWriter> file, const CollectionLimits& limits);
  absl::Status Check(const Host& host, const cwfabric::v1::RingChunk& chunk) const;
  cwfabric::v1::RingAsk Refuse(Host& host, const std::string& why);

  cwfabric::v1::Incident head_;
  const std::unique_ptr<BundleWriter> file_;
  const CollectionLimits limits_;
  const uint64_t share_;  // bytes that each host is asked for
  const uint64_t request_;
  std::map<std::string, Host> hosts_;
  uint64_t refused_ = 0;
};

}  // namespace cw::fleet
