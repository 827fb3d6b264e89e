// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/wanted.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace cw::bench {

absl::StatusOr<Wanted> Wanted::Parse(const char* list, const std::vector<std::string>& names) {
  Wanted wanted;
  wanted.all_ = list == nullptr;
  if (wanted.all_) wanted.wanted_ = names;
  if (wanted.all_) return wanted;
  const std::vector<std::string> parts = absl::StrSplit(list, ',', absl::SkipEmpty());
  for (const std::string& part : parts) {
    const bool whole = std::find(names.begin(), names.end(), part) != names.end();
    const size_t before = wanted.wanted_.size();
    for (const std::string& name : names) {
      if (whole ? name == part : absl::StartsWith(name, part + "_")) wanted.wanted_.push_back(name);
    }
    if (wanted.wanted_.size() > before) continue;
    return absl::InvalidArgumentError(absl::StrCat("there is no '", part, "'; choose of ", absl::StrJoin(names, ", ")));
  }
  return wanted;
}

bool Wanted::Has(const std::string& name) const {
  return std::find(wanted_.begin(), wanted_.end(), name) != wanted_.end();
}

}  // namespace cw::bench
