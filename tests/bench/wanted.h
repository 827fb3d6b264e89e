// SPDX-License-Identifier: Apache-2.0
//
// Which cases or systems of a benchmark a run is about: BENCH_CASE and BENCH_SYSTEM, comma lists of names, or of what
// names begin with before a "_" (pause is pause_1, pause_5 …; a whole name is itself only). Any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace cw::bench {

class Wanted {
 public:
  // `list` as given, nullptr: all. InvalidArgument: no name is meant by a part of it; the message names them all, since
  // an empty result would look like a run that went well.
  static absl::StatusOr<Wanted> Parse(const char* list, const std::vector<std::string>& names);
  bool Has(const std::string& name) const;
  bool all() const { return all_; }

 private:
  bool all_ = false;
  std::vector<std::string> wanted_;
};

}  // namespace cw::bench
