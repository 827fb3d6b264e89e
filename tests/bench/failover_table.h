// SPDX-License-Identifier: Apache-2.0
//
// Who sees which fault, and how fast: a line per kind of fault, a column per system. "cannot see": by design nothing
// that the system looks at changes. "never": it was run, and no flow went on before the repair. "no agent": the fault
// is an agent's. "failed": the run of it did. "-": not run. Pure; one thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tests/bench/failover_cases.h"

namespace cw::bench {

struct FaultFigures {
  bool has_recovery = true;  // otherwise only stalls count
  std::vector<double> recovery_ms;
  int not_recovered = 0;  // flows
  std::vector<double> stall_ms;
  std::optional<int> ended_after;  // cuts, when there was nothing left to cut; none: all were made
};

// "1.8 / 2.7 / 3.4": p50, p99, most of the recoveries; ", 3 never" behind them: flows that did not recover. Where there
// is no recovery to speak of, "stall" and those of the stalls. "; all lost after 2" behind all: no queue pair was left.
std::string FaultCell(Sight sight, const std::optional<FaultFigures>& measured);

class FaultTable {
 public:
  explicit FaultTable(std::vector<std::string> systems) : systems_(std::move(systems)) {}
  void SetSight(const std::string& fault, const std::string& system, Sight sight);
  void SetFailed(const std::string& fault, const std::string& system);
  void SetMeasured(const std::string& fault, const std::string& system, FaultFigures figures);
  // Markdown, faults in the order in which they were first named.
  std::string Text() const;

 private:
  struct Cell {
    Sight sight = Sight::kMay;
    bool failed = false;
    std::optional<FaultFigures> measured;
  };
  static std::string CellText(const Cell& cell);
  Cell& At(const std::string& fault, const std::string& system);

  std::vector<std::string> systems_, faults_;
  std::map<std::pair<std::string, std::string>, Cell> cells_;
};

}  // namespace cw::bench
