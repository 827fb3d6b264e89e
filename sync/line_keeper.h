// SPDX-License-Identifier: Apache-2.0
//
// Keeps the line that makes local time run like CLOCK_MONOTONIC_RAW (maps/local_clock.h) while an NTP client slews
// CLOCK_MONOTONIC: looks at paired reads of the two, and says when the line has to change.
//
// The line stays as it is for as long as some steady rate of RAW explains all reads (ClockDomain), so that a clock that
// nobody slews keeps the line that is nothing. When a change of slew is noticed, local time has run with the wrong rate
// since the look before: what that makes is worked off at 100 ppm at most. More than a limit is not worked off but
// given up: local time was stepped then, as far as the fleet is concerned.
//
// Pure; one thread per object.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "maps/local_clock.h"
#include "sync/clock_domain.h"
#include "sync/clock_domain_reader.h"

namespace cw::sync {

struct LineKeeperOptions {
  double work_ppb = 100'000;            // how fast missed time is made good at most …
  int64_t work_over_ns = 50'000'000;    // … and over how long at least
  int64_t most_missed_ns = 100'000;     // more is given up
  double max_slew_ppb = 500'000;        // the bound's: what CLOCK_MONOTONIC's rate changes by between two looks
  int64_t remember_ns = 4'000'000'000;  // the bound covers what stamps of that age may have carried
};

class LineKeeper {
 public:
  explicit LineKeeper(const LineKeeperOptions& options = {});

  // A: CLOCK_MONOTONIC, B: CLOCK_MONOTONIC_RAW. line: the one that holds. The line that should hold from the read on,
  // if another.
  std::optional<cw_local_line> Look(const PairedRead& read, const cw_local_line& line);

  // How far local time may have been off a clock that runs like RAW, lately and until the next look.
  int64_t BoundNs(int64_t now_ns) const;
  // What is known to be missing and not made good yet.
  int64_t missing_ns() const { return missing_ns_; }
  double slew_ppb() const { return domain_.slew_ppb(); }
  uint32_t changes() const { return domain_.changes(); }  // of the slew
  uint32_t given_up() const { return given_up_; }         // times that more was missed than is worked off
  int64_t last_given_up_ns() const { return last_given_up_ns_; }

 private:
  // The largest of the last remember_ns and up to twice that.
  class Recent {
   public:
    void Add(int64_t at_ns, int64_t value, int64_t span_ns);
    int64_t most() const { return std::max(older_, newer_); }

   private:
    int64_t since_ns_ = INT64_MIN, older_ = 0, newer_ = 0;
  };

  double Missing(const ClockDomain::Converted& raw, int64_t at_ns, const cw_local_line& line);

  LineKeeperOptions options_;
  ClockDomain domain_;
  bool tied_ = false;  // raw_less_local_ns_ holds for good: the line has changed
  int64_t raw_less_local_ns_ = 0;
  int64_t looked_ns_ = INT64_MIN;
  int64_t missing_ns_ = 0, last_given_up_ns_ = 0;
  uint32_t given_up_ = 0;
  Recent gaps_, errors_;
};

// `line` from `at_ns` on, where local time has come to by then on `held`.
cw_local_line Continue(const cw_local_line& held, const cw_local_line& line, int64_t at_ns);

}  // namespace cw::sync
