// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/failover_table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace cw::bench {
namespace {

std::string Spread(const std::vector<double>& ms) {
  return absl::StrFormat("%.1f / %.1f / %.1f", lab::Quantile(ms, 0.5), lab::Quantile(ms, 0.99), lab::Quantile(ms, 1));
}

}  // namespace

std::string FaultCell(Sight sight, const std::optional<FaultFigures>& measured) {
  if (sight == Sight::kNoAgent) return "no agent";
  // What a system that cannot see the fault measures is the fault's end.
  if (sight == Sight::kCannot) return "cannot see";
  if (!measured) return "-";
  std::string ended;
  if (measured->ended_after == 0) ended = "; all lost before the first cut";
  if (measured->ended_after > 0) ended = absl::StrCat("; all lost after ", *measured->ended_after);
  if (!measured->has_recovery) return absl::StrCat("stall ", Spread(measured->stall_ms), ended);
  if (measured->recovery_ms.empty()) return absl::StrCat("never", ended);
  std::string text = Spread(measured->recovery_ms);
  if (measured->not_recovered > 0) absl::StrAppend(&text, ", ", measured->not_recovered, " never");
  return absl::StrCat(text, ended);
}

FaultTable::Cell& FaultTable::At(const std::string& fault, const std::string& system) {
  if (std::find(faults_.begin(), faults_.end(), fault) == faults_.end()) faults_.push_back(fault);
  return cells_[{fault, system}];
}

void FaultTable::SetSight(const std::string& fault, const std::string& system, Sight sight) {
  At(fault, system).sight = sight;
}

void FaultTable::SetFailed(const std::string& fault, const std::string& system) { At(fault, system).failed = true; }

void FaultTable::SetMeasured(const std::string& fault, const std::string& system, FaultFigures figures) {
  At(fault, system).measured = std::move(figures);
}

std::string FaultTable::CellText(const Cell& cell) {
  return cell.failed ? "failed" : FaultCell(cell.sight, cell.measured);
}

std::string FaultTable::Text() const {
  std::string text = absl::StrCat("| fault, ms p50 / p99 / max | ", absl::StrJoin(systems_, " | "), " |\n|---|");
  for (size_t i = 0; i < systems_.size(); ++i) text += "---|";
  text += "\n";
  for (const std::string& fault : faults_) {
    absl::StrAppend(&text, "| ", fault, " |");
    for (const std::string& system : systems_) {
      const auto cell = cells_.find({fault, system});
      absl::StrAppend(&text, " ", cell == cells_.end() ? "-" : CellText(cell->second), " |");
    }
    text += "\n";
  }
  return text;
}

}  // namespace cw::bench
