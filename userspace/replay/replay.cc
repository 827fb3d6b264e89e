// SPDX-License-Identifier: Apache-2.0
#include "userspace/replay/replay.h"

#include "absl/strings/str_cat.h"
#include "userspace/control/contention_rules.h"

namespace cw::replay {

absl::StatusOr<ReplayResult> Replay(Reader& reader, const RuleChanges& rules,
                                    const std::function<void(const ReplayedWindow&)>& each) {
  absl::StatusOr<control::ContentionState> state = control::Restore(reader.head().memory);
  if (!state.ok()) return absl::InvalidArgumentError(absl::StrCat("the head: ", state.status().message()));
  control::ContentionRules changed = control::RulesOf(*state);
  for (const auto& [name, value] : rules) {
    if (absl::Status status = control::SetRule(name, value, changed); !status.ok()) return status;
  }
  control::SetRules(changed, *state);
  ReplayResult result;
  while (true) {
    const uint64_t offset = reader.offset();
    const absl::StatusOr<std::optional<Window>> window = reader.Next();
    if (!window.ok()) {
      result.end = window.status();
      return result;
    }
    if (!window->has_value()) return result;
    const control::Decision decided = control::DecideMoves((*window)->seen, *state);
    const bool same = Encode(decided) == Encode((*window)->decided);
    each({.number = result.windows, .offset = offset, .recorded = **window, .decided = decided, .same = same});
    if (!same && result.different++ == 0) result.first_different = result.windows;
    ++result.windows;
    result.moves_recorded += (*window)->decided.moves.size();
    result.moves_decided += decided.moves.size();
  }
}

}  // namespace cw::replay
