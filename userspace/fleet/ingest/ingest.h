// SPDX-License-Identifier: Apache-2.0
//
// The fleet's side of the uplink without its sockets: who may speak, what is taken, when it is acknowledged (after the
// store has it), and what each host is like now. Batches of many hosts are put into the store together, since a commit
// costs more than a batch: Enqueue, then Flush.
//
// Time comes in as an argument. Threads: one at a time, but for Put.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/fleet.pb.h"
#include "userspace/fleet/ingest/live_work.h"
#include "userspace/fleet/ingest/metrics_address.h"
#include "userspace/fleet/ingest/quota.h"
#include "userspace/fleet/ingest/translate.h"
#include "userspace/fleet/store/store.h"

namespace cw::fleet {

struct IngestLimits {
  BatchLimits batch;
  QuotaLimits quota;
  size_t hosts = 20'000;
  size_t queued_batches = 4096;     // of all hosts; more wait at the agents …
  size_t queued_bytes = 128 << 20;  // … and so many bytes of their flows and jobs, as they are kept in memory
};

// A host as it is now, from what it sent last.
struct LiveHost {
  static constexpr int kMostNics = 64;
  std::string host, version, boot_id;
  uint64_t run = 0;
  absl::Time last_seen = absl::InfinitePast();
  absl::Time run_began = absl::InfinitePast();  // when this run was heard first
  bool connected = false;
  int64_t newest_ns = 0;                // end of the newest interval that is known
  std::map<PathKey, PathSample> paths;  // the newest of each
  struct Nic {
    std::string name;
    Addr address;
    std::string rail;                // "" = not known
    uint32_t mtu = 0, roce_mtu = 0;  // bytes; 0 = not known
    double rate_bps = 0;             // 0 = not known
    std::string trouble;             // why its agent does not measure it; "": it does
  };
  std::vector<Nic> nics;                 // at most kMostNics
  std::shared_ptr<const LiveWork> work;  // null: it told of none in this run
  bool told = false;                     // a batch of this run, whose paths are known from it
  bool takes_drains = false;
  bool clock_known = false, clock_synced = false;
  double clock_bound_ns = 0;
  // Two agents speak as this host, and from where: a sentence; when that was seen last. Its word counts for no drain.
  static constexpr absl::Duration kTwinsLast = absl::Minutes(10);
  std::string twins;
  absl::Time twins_seen = absl::InfinitePast();
  std::string TwinsNow(absl::Time now) const { return now - twins_seen < kTwinsLast ? twins : ""; }
  std::string metrics, metrics_fault;  // HOST:PORT; why what it said is not taken
  uint64_t batches = 0, refused = 0, records_left_out = 0, dropped_detail = 0, dropped_events = 0;
  uint64_t refused_reports = 0;                  // over its quota
  std::string last_refusal;                      // why; "" = nothing was refused
  absl::Time refused_at = absl::InfinitePast();  // a batch as a whole, last
  double late_share = 0;  // of what the programs saw, what its agent came too late for; of its newest detail
};

class Ingest {
 public:
  Ingest(Store& store, std::string instance, const IngestLimits& limits);

  // Before Connect, any thread and beside any call: what that wants to know of the store is at hand then.
  void Prepare(const std::string& host, uint64_t run) const { store_.Through(host, run).IgnoreError(); }
  // A stream begins. PermissionDenied: the certificate is another host's.
  absl::StatusOr<cwfabric::v1::Welcome> Connect(const cwfabric::v1::Hello& hello, const Speaker& who, absl::Time now);
  void Disconnect(const std::string& host, uint64_t run);
  // A host left for good: nothing is known of it but its history, until it speaks again. Three steps, of which the
  // second looks at nothing but the store and may be done beside any call. NotFound: nothing was known of it.
  // FailedPrecondition: it is connected, and not `force`; in the third step: since the first.
  absl::StatusOr<HostFacts> MayRemove(const std::string& host, bool force, absl::Time now) const;
  absl::Status KeepRemoved(const HostFacts& gone) { return store_.PutHosts({gone}); }
  absl::Status Remove(const HostFacts& gone, bool force);

  // A reply at once: refused, to wait, to go back, or known already. None: it is queued. `admitted` are the bytes of it
  // that Admit has taken from the quota.
  std::optional<cwfabric::v1::Ack> Enqueue(const std::string& host, const cwfabric::v1::Batch& batch, absl::Time now,
                                           uint64_t admitted = 0);
  // The same of a batch as it came, before what is packed in it is inflated. None: do so, and Enqueue it.
  std::optional<cwfabric::v1::Ack> Admit(const std::string& host, const cwfabric::v1::Batch& batch, absl::Time now);
  // Whether it may say so much about what it is asked for: of the same quota. What is not taken is counted.
  bool TakesReport(const std::string& host, uint64_t bytes, absl::Time now);
  struct Queued {
    HostBatch batch;
    uint64_t skip_from = 0;  // sequences from here up to the batch never come; 0 = none
    bool undefined = false;
    std::vector<std::string> left_out;
    size_t bytes = 0;  // of its flows and jobs, in memory
    bool refused = false;
    uint64_t records_left_out = 0, dropped_detail = 0, dropped_events = 0;
  };
  using Acks = std::vector<std::pair<std::string, cwfabric::v1::Ack>>;  // by host
  // All that is queued goes into the store in three steps, of which the second is long and looks at nothing but the
  // store: beside it any other call may be made, and only one at a time is under way.
  struct Taken {
    std::vector<Queued> batches;
    std::vector<HostFacts> facts;  // that the store does not have yet
    bool facts_stored = false;
    bool wants_kept = false;  // what the store has told of hosts is not known yet …
    std::optional<std::vector<HostSeen>> kept;
  };
  Taken Take();
  absl::Status Put(Taken& taken);
  // Acknowledgements. Where the store failed nothing is acknowledged, what was taken is forgotten with what came behind
  // it, and the agents, told to pause, send it again.
  Acks Settle(const Taken& taken, bool stored, absl::Time now);
  Acks Flush(absl::Time now);  // all three

  const IngestLimits& limits() const { return limits_; }  // any thread
  const LiveHost* Find(const std::string& host) const;
  std::vector<const LiveHost*> Hosts() const;                               // by name
  const std::map<std::string, HostFacts>& facts() const { return facts_; }  // of all that were ever known
  bool has_work() const { return !queue_.empty() || !untold_.empty(); }     // for Flush
  uint64_t changes() const { return changes_; }  // how often paths died or came back, or causes were told

 private:
  struct Run {
    Names names;
    std::optional<uint64_t> last;  // the last sequence that is queued or in the store; not known after a failure
    absl::Time used = absl::InfinitePast();
  };
  struct Host {
    LiveHost live;
    Quota quota;
    std::map<uint64_t, Run> runs;  // at most two: the present one and one that the spool still holds
    struct Speaks {
      uint64_t run = 0;
      std::string from;  // address
    };
    std::vector<Speaks> speakers;  // the latest last, four at most
  };
  static void LookForTwins(Host& host, uint64_t run, const std::string& from, absl::Time now);

  std::optional<cwfabric::v1::Ack> WhyNot(const std::string& name, Host& host, const cwfabric::v1::Batch& batch,
                                          absl::Time now);
  absl::StatusOr<Run*> RunOf(const std::string& name, Host& host, uint64_t run, absl::Time now);
  cwfabric::v1::Ack Again(const std::string& host, uint64_t run, double pause_s);
  void Forget(const std::vector<Queued>& taken);
  void SettleFacts(const Taken& taken);
  void Learn(LiveHost& live, const HostBatch& batch);
  void LearnFacts(const std::vector<HostSeen>& kept);
  void KeepFacts(HostFacts facts);

  Store& store_;
  std::string instance_;
  const IngestLimits limits_;
  std::map<std::string, Host> hosts_;
  std::vector<Queued> queue_;
  size_t queued_bytes_ = 0;
  std::map<std::string, HostFacts> facts_;
  bool facts_known_ = false;      // the store has told its own
  std::set<std::string> untold_;  // hosts whose facts the store does not have yet
  uint64_t changes_ = 0;
};

}  // namespace cw::fleet
