// SPDX-License-Identifier: Apache-2.0
//
// TAI − UTC, which calendar time needs and TAI clocks do not know. Source: the IERS list as the time zone package
// installs it (https://data.iana.org/time-zones/data/leap-seconds.list: seconds since 1900, offset; "#@" says how long
// it holds).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::publish {

struct LeapState {
  int tai_minus_utc_s = 0;
  int announced = 0;  // at the end of this UTC day: 1 a second is inserted, −1 one is left out, 0 nothing
};

class LeapSeconds {
 public:
  static constexpr char kPath[] = "/usr/share/zoneinfo/leap-seconds.list";

  static absl::StatusOr<LeapSeconds> Load(const std::string& path = kPath);
  // FailedPrecondition when the list does not reach so far.
  absl::StatusOr<LeapState> At(int64_t utc_unix_s) const;

 private:
  struct Entry {
    int64_t from_unix_s;
    int offset_s;
  };
  std::string path_;
  std::vector<Entry> entries_;
  int64_t expires_unix_s_ = 0;
};

}  // namespace cw::publish
