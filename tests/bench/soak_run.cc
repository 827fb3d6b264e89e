// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/soak_run.h"

#include <cstdio>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
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

absl::Duration SoakPatience(absl::Duration by_default) {
  const char* given = std::getenv("BENCH_PATIENCE_MS");
  double ms = 0;
  return given != nullptr && absl::SimpleAtod(given, &ms) && ms >= 0 && ms <= 1000 ? absl::Milliseconds(ms)
                                                                                   : by_default;
}

int RunSoak(int argc, char** argv, const std::string& name,
            const std::function<absl::Status(absl::Duration length, Report& report)>& measure) {
  const absl::StatusOr<absl::Duration> length = SoakLength(std::getenv("SOAK_MINUTES"));
  if (!length.ok()) {
    std::fprintf(stderr, "%s\n", std::string(length.status().message()).c_str());
    return 2;
  }
  Report report(name);
  absl::Status status = measure(*length, report);
  if (status.ok()) status = report.Write(OutPath(argc, argv, absl::StrCat("build/bench/", name, ".json")));
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  return 0;
}

}  // namespace cw::bench
