// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/soak_length.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"

namespace cw::bench {

absl::StatusOr<absl::Duration> SoakLength(const char* minutes) {
  double number = 30;
  if (minutes != nullptr && (!absl::SimpleAtod(minutes, &number) || !(number > 0 && number <= 60 * 24))) {
    return absl::InvalidArgumentError(
        absl::StrFormat("SOAK_MINUTES: '%s' is no number of minutes above 0, at most a day", minutes));
  }
  return absl::Minutes(number);
}

}  // namespace cw::bench
