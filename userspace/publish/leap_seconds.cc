// SPDX-License-Identifier: Apache-2.0
#include "userspace/publish/leap_seconds.h"

#include <fstream>
#include <sstream>

#include "absl/strings/str_format.h"

namespace cw::publish {
namespace {
constexpr int64_t kUnixFrom1900 = 2'208'988'800;
constexpr int64_t kDay = 86'400;
}  // namespace

absl::StatusOr<LeapSeconds> LeapSeconds::Load(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError(absl::StrFormat("%s: cannot be read; install the package tzdata", path));
  LeapSeconds out;
  out.path_ = path;
  for (std::string line; std::getline(file, line);) {
    const bool expiry = line.rfind("#@", 0) == 0;
    if (!expiry && (line.empty() || line[0] == '#')) continue;
    std::istringstream fields(expiry ? line.substr(2) : line);
    int64_t seconds = 0;
    int offset = 0;
    fields >> seconds;
    if (!expiry) fields >> offset;
    if (!fields) return absl::InvalidArgumentError(absl::StrFormat("%s: not a list of leap seconds: %s", path, line));
    if (expiry) {
      out.expires_unix_s_ = seconds - kUnixFrom1900;
    } else {
      out.entries_.push_back({seconds - kUnixFrom1900, offset});
    }
  }
  if (out.entries_.empty() || out.expires_unix_s_ == 0) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: no leap seconds, or no date of expiry", path));
  }
  return out;
}

absl::StatusOr<LeapState> LeapSeconds::At(int64_t utc_unix_s) const {
  if (utc_unix_s >= expires_unix_s_ || utc_unix_s < entries_.front().from_unix_s) {
    return absl::FailedPreconditionError(
        absl::StrFormat("%s: holds from %d to %d, not at %d; update the package tzdata, or configure TAI - UTC", path_,
                        entries_.front().from_unix_s, expires_unix_s_, utc_unix_s));
  }
  LeapState state;
  for (const Entry& e : entries_) {
    if (e.from_unix_s <= utc_unix_s) {
      state.tai_minus_utc_s = e.offset_s;
    } else {
      if (e.from_unix_s - utc_unix_s <= kDay) state.announced = e.offset_s > state.tai_minus_utc_s ? 1 : -1;
      break;
    }
  }
  return state;
}

}  // namespace cw::publish
