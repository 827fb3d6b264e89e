// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "userspace/lab/experiment_failover.h"

namespace cw::lab {

std::vector<double> FailoverResult::AllRecoveries(bool undisturbed) const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) {
    if (undisturbed && cut.Disturbed()) continue;
    all.insert(all.end(), cut.recovery_ms.begin(), cut.recovery_ms.end());
  }
  return all;
}

std::vector<double> FailoverResult::CutStalls(bool undisturbed) const {
  std::vector<double> all;
  for (const CutResult& cut : cuts) {
    if (!undisturbed || !cut.Disturbed()) all.push_back(cut.stall_ms);
  }
  return all;
}

int FailoverResult::Disturbed() const {
  return static_cast<int>(
      std::count_if(cuts.begin(), cuts.end(), [](const CutResult& cut) { return cut.Disturbed(); }));
}

int FailoverResult::NotRecovered() const {
  int sum = 0;
  for (const CutResult& cut : cuts) sum += cut.not_recovered;
  return sum;
}

int FailoverResult::StillOnPath() const {
  int sum = 0;
  for (const CutResult& cut : cuts) sum += cut.still_on_path;
  return sum;
}

std::string WrongText(const FailoverResult& result) {
  return absl::StrCat(result.wrong_verdicts, "; ", result.deaths_elsewhere);
}

int FailoverResult::ToldAsPeer() const {
  return static_cast<int>(
      std::count_if(cuts.begin(), cuts.end(), [](const CutResult& cut) { return cut.told_as_peer; }));
}

}  // namespace cw::lab
