// SPDX-License-Identifier: Apache-2.0
//
// Publishes fleet time, round by round: the page for processes (libcwclock), the record for BPF programs
// (maps/clock_abi.h), and samples for chronyd. Finds out by itself whether the machine slept or was moved.
//
//   auto publisher = Publisher::Create(options);
//   each 100 ms:
//     if ((*publisher)->Poll() != Disruption::kNone) agreement.Disrupted(now_ns);   // before the round
//     ... the round ...
//     (*publisher)->Publish({.time = agreement.now(), .tai = ...});
//     the map's one value: (*publisher)->FillBpf(map[0]) after Publish
//
// Threads: one.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "maps/clock_abi.h"
#include "sync/fleet_time.h"
#include "userspace/publish/chrony_output.h"
#include "userspace/publish/disruption.h"
#include "userspace/publish/kernel_clocks.h"
#include "userspace/publish/leap_seconds.h"
#include "userspace/publish/page_writer.h"

namespace cw::publish {

// What the agent calls local time, in terms of one of the kernel's clocks.
struct LocalClock {
  clockid_t base = CLOCK_MONOTONIC;  // or CLOCK_MONOTONIC_RAW
  // Local time at a time of that clock. Empty: they are the same, as in production. In the lab, the hidden error:
  // readers see kernel clocks, so the page has to be in terms of these.
  std::function<int64_t(int64_t base_ns)> at;
};

struct PublisherOptions {
  PageOptions page;  // base_clock is taken from `local`
  LocalClock local;
  absl::Duration fresh_for = absl::Seconds(1);    // without a new line readers say free-running then …
  absl::Duration void_after = absl::Seconds(10);  // … and refuse then
  double max_drift_ppb = 200'000;                 // how fast the bound grows
  double max_slew_ppb = 500'000;  // by which NTP steers CLOCK_MONOTONIC at most: the kernel's own limit. chronyd can do
                                  // 83e6 on start (its maxslewrate); it widens conversions of old RAW stamps only
  std::string chrony_sock;        // "" = none
  std::optional<int> chrony_shm;  // unit
  absl::Duration chrony_interval = absl::Milliseconds(250);
  std::string leap_list = LeapSeconds::kPath;
  int tai_minus_utc_s = 0;  // other than 0: counts instead of the list, which is out of date on many machines
  DisruptionSources disruption;
  ReadClock read_clock = ReadKernelClock;
};

struct Publication {
  sync::FleetTime time;
  uint64_t timeline = 0;      // FleetClaim::timeline
  int64_t tai_offset_ns = 0;  // fleet + tai_offset_ns = TAI, at time.anchor_ns …
  double tai_slope_ppb = 0;   // … growing so fast …
  int64_t tai_bound_ns = -1;  // … give or take; below 0: not known
  bool anchor = false;        // this host has the anchor itself: chronyd here is not fed
};

class Publisher {
 public:
  static absl::StatusOr<std::unique_ptr<Publisher>> Create(PublisherOptions options);

  // Looks for a sleep or a migration. After one, `disrupted` is published until the caller comes with a synchronised
  // time of another epoch than the last one before it.
  Disruption Poll();
  // Errors concern the page; the record is made all the same.
  absl::Status Publish(const Publication& what);
  // Fleet time is not offered any more: readers are told "unknown", and the page is removed.
  absl::Status Withdraw();

  // Writes the last publication to the record, mapped or not (maps/clock_abi.h).
  void FillBpf(cw_fleet_clock* record) const;

  const cw_clock_line& line() const { return line_; }  // as last published
  bool disrupted() const { return disrupted_; }
  // Of the last sample: OK, Unavailable (chronyd is not there), FailedPrecondition (nothing to tell it, and why).
  const absl::Status& chrony_status() const { return chrony_status_; }
  // Why one of the ways to chronyd could not be opened; it is not tried again.
  const absl::Status& chrony_error() const { return chrony_error_; }
  uint64_t chrony_samples() const { return chrony_samples_; }

 private:
  explicit Publisher(PublisherOptions options);
  void OpenChrony();
  struct Point {  // fleet time as a line over the base clock
    int64_t base_ns, local_ns, fleet_ns;
    double local_rate;      // of local over base, minus 1
    double slope;           // of fleet over base, minus 1
    int64_t tai_offset_ns;  // TAI − fleet
    double tai_slope;       // its rate over base
  };
  Point PointAt(const Publication& what, int64_t base_ns) const;
  void Watch();
  void SetLife(int64_t mono_ns);  // how long line_ holds
  uint32_t StateOf(const sync::FleetTime& time);
  void MakeLine(const Publication& what, const Point& point, uint32_t state);
  void MakeBpf(const Point& point);
  void NoteEpoch(const sync::FleetTime& time, uint32_t state, int64_t base_ns);
  void FeedChrony(const Publication& what, uint32_t state);
  absl::StatusOr<LeapState> LeapAt(int64_t tai_ns) const;
  absl::Status ChronySampleNow(const Publication& what, ChronySample& sample);

  PublisherOptions options_;
  RelationTracker clocks_;
  DisruptionWatch watch_;
  std::unique_ptr<PageWriter> page_;
  std::unique_ptr<ChronyOutput> chrony_sock_, chrony_shm_;
  absl::StatusOr<LeapSeconds> leaps_;
  absl::Status chrony_status_, chrony_error_;
  uint64_t chrony_samples_ = 0;
  int64_t chrony_next_ns_ = INT64_MIN;
  cw_clock_line line_{};
  cw_fleet_line bpf_{};
  int64_t since_ns_ = INT64_MIN;
  bool disrupted_ = false;
  Disruption untold_ = Disruption::kNone;  // found, and the caller does not know yet
  std::optional<uint32_t> epoch_;          // of the last usable time
};

}  // namespace cw::publish
