// SPDX-License-Identifier: Apache-2.0
//
// The fleet's memory. One interface, several engines (folders beside this file), one conformance suite that each passes
// (tests/unit/fleet_store_test.cc).
//
// Paths and work are kept on a ladder: as they came, then a minute each, then five, with sketches merged, so nothing is
// averaged away. Events and documents have no ladder. Fleet time comes in as an argument.
//
// Errors are Status: Unavailable: the engine does not answer or the disk fails, come again; ResourceExhausted: no room,
// though detail was dropped; InvalidArgument: the request; FailedPrecondition: written by a newer release.
// Threads: any. One call at a time is served, and some take long: Append where the disk is full, Compact,
// PlanRetention, Delete. Meanwhile are answered, from what was committed: Through of a run that was appended to or
// asked for of late, and what was lost. So they may be asked under a lock that other threads wait for; the rest may
// not.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "userspace/fleet/store/records.h"

namespace cw::fleet {

enum class Tier : uint8_t { kFine = 0, kMinute = 1, kFiveMinutes = 2 };
inline constexpr size_t kTiers = 3;
inline constexpr std::array<absl::Duration, kTiers> kResolution = {absl::Seconds(10), absl::Seconds(60),
                                                                   absl::Seconds(300)};

struct HostSeen {
  std::string host;
  int64_t newest_ns = 0;  // of what is kept of it; 0 = events only
  HostFacts facts;
};

// A host as it was at a time: of each path the newest sample, none older than `reach`.
struct HostView {
  std::string host;
  std::vector<PathSample> paths;    // by key
  std::vector<Document> documents;  // the newest of each kind
};

struct RangeQuery {
  std::string host;
  int64_t from_ns = 0, to_ns = 0;  // [from, to)
  std::optional<PathKey> path;     // all if not given
  // The finest tier is answered that covers the range's start and has at most so many samples of a path.
  size_t most_samples = 10'000;
};

struct RangeReply {
  Tier tier = Tier::kFine;
  std::vector<PathSample> samples;  // by key, then time
};

struct WorkQuery {
  std::string host;
  int64_t from_ns = 0, to_ns = 0;  // samples whose time is in (from, to]
};

struct WorkReply {
  Tier tier =
      Tier::kFine;  // the finest that covers the range's start; of coarser ones also what reaches beyond its end
  std::vector<WorkSample> samples;  // by time
};

struct EventQuery {
  int64_t from_ns = INT64_MIN, to_ns = INT64_MAX;  // [from, to)
  std::string host, type;                          // "" = all
  uint64_t after = 0;                              // an earlier reply's `next`: go on behind it
  size_t limit = 1000;
  bool newest_first = false;  // the last `limit` by time; `after` is of no use then
};

struct EventPage {
  std::vector<StoredEvent> events;  // in the order of their arrival, so that resuming misses none that came late
  uint64_t next = 0;                // for the next query's `after`
};

struct FindingQuery {
  int64_t at_ns = 0;    // those that went on then; 0 = any
  bool open = false;    // those that go on now
  uint64_t id = 0;      // this one; 0 = any
  size_t limit = 1000;  // the newest by start
};

// What to keep: of each tier of the ladder, and of events. Size is of what the engine stores, compressed.
struct Keep {
  absl::Duration age;
  uint64_t bytes = 0;  // 0 = no bound
};
struct Retention {
  std::array<Keep, kTiers> tiers = {{{absl::Hours(48), 0}, {absl::Hours(24 * 14), 0}, {absl::Hours(24 * 365), 0}}};
  Keep events = {absl::Hours(24 * 365), 0};
};

// What would go. Told to people before Delete does it.
inline constexpr int kTierOfEvents = kTiers, kTierOfFindings = kTiers + 1;
struct Deletion {
  std::string what;       // "paths, 10 s", …, "events", "findings"
  int tier = 0;           // of the ladder, or one of the above
  int64_t before_ns = 0;  // all that is older
  uint64_t bytes = 0;     // about so many
  std::string reason;     // one sentence
};

// Of hosts' work, since the store was opened.
struct WorkLosses {
  uint64_t left_out = 0;  // samples beyond what is kept of a host and ten minutes
  uint64_t damaged = 0;   // blocks that could not be read and were given up
  bool operator==(const WorkLosses&) const = default;
};

// What one host told beyond what is kept of it, since the store was opened. Its batches were taken nevertheless.
struct HostLosses {
  uint64_t events = 0;     // and documents, beyond its share of a day
  uint64_t samples = 0;    // of paths, where it has as many as are kept and all of them are in use
  uint64_t hop_lists = 0;  // likewise
  HostLosses& operator+=(const HostLosses& more) {
    events += more.events, samples += more.samples, hop_lists += more.hop_lists;
    return *this;
  }
  bool operator==(const HostLosses&) const = default;
};

class Store {
 public:
  virtual ~Store() = default;

  // All or nothing, and on the disk when it returns. Batches that are there already are skipped, events likewise.
  // Returns how many batches were new.
  virtual absl::StatusOr<size_t> Append(absl::Span<const HostBatch> batches) = 0;
  // The sequence up to which nothing of the run is missing, gaps that the agent told of (Skip) included; 0 = none.
  virtual absl::StatusOr<uint64_t> Through(const std::string& host, uint64_t run) = 0;
  // The agent lost these sequences [first, last] for good.
  virtual absl::Status Skip(const std::string& host, uint64_t run, uint64_t first, uint64_t last) = 0;

  virtual absl::StatusOr<std::vector<HostSeen>> Hosts() = 0;  // by name; those that were removed, too
  // Each takes the place of what was kept of its host; hosts that never told anything are known from then on.
  virtual absl::Status PutHosts(absl::Span<const HostFacts> facts) = 0;
  // NotFound: nothing was ever kept of this host.
  virtual absl::StatusOr<HostView> LatestAt(const std::string& host, int64_t time_ns, absl::Duration reach) = 0;
  // Names of hosts that told of paths around that time: in the block that it lies in or the one before, which is a
  // minute each, or as coarse as what is left of that time. Cost: linear in hosts, without reading a sample.
  virtual absl::StatusOr<std::vector<std::string>> TellersAt(int64_t time_ns) = 0;
  virtual absl::StatusOr<RangeReply> Range(const RangeQuery& query) = 0;
  // NotFound: nothing was ever kept of this host.
  virtual absl::StatusOr<WorkReply> Work(const WorkQuery& query) = 0;
  virtual absl::StatusOr<EventPage> Events(const EventQuery& query) = 0;
  // NotFound: the host never told this list.
  virtual absl::StatusOr<HopList> Hops(const std::string& host, uint64_t id) = 0;
  // As many as are kept of a host, those first that samples used last.
  virtual absl::StatusOr<std::vector<HopList>> AllHops(const std::string& host) = 0;

  // Each takes the place of what was kept under its id.
  virtual absl::Status PutFindings(absl::Span<const StoredFinding> findings) = 0;
  virtual absl::StatusOr<std::vector<StoredFinding>> Findings(const FindingQuery& query) = 0;  // newest first

  // Each takes the place of what was kept under its kind and id. They stay until they are removed. Where there is no
  // room detail goes for them, as for Append.
  virtual absl::Status PutOrder(const StoredOrder& order) = 0;
  virtual absl::Status RemoveOrder(const std::string& kind, uint64_t id) = 0;
  virtual absl::StatusOr<std::vector<StoredOrder>> Orders(const std::string& kind) = 0;  // by id

  // Climbs the ladder with all that is complete at this time; some work at a time, true: there is more.
  virtual absl::StatusOr<bool> Compact(int64_t now_ns) = 0;
  virtual absl::StatusOr<std::vector<Deletion>> PlanRetention(int64_t now_ns, const Retention& retention) = 0;
  virtual absl::Status Delete(const std::vector<Deletion>& plan) = 0;

  // Samples that were given up because the disk was full, since the store was opened; and events, where it had none.
  virtual uint64_t thinned_bytes() const = 0;
  virtual uint64_t thinned_events() const { return 0; }
  virtual WorkLosses work_losses() const { return {}; }                         // an engine without bounds loses none
  virtual std::map<std::string, HostLosses> host_losses() const { return {}; }  // of those that lost any
};

}  // namespace cw::fleet
