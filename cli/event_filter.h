// SPDX-License-Identifier: Apache-2.0
//
// Which events are wanted: types, peers, flows, a span of time. Pure; any thread.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

const std::vector<std::string>& EventTypes();  // all that an agent logs

struct EventFilter {
  std::vector<std::string> types, peers, matches;  // none: all. matches: a flow's id or a peer
  std::optional<absl::Time> since, until;

  bool Passes(const cwfabric::v1::Event& event) const;
  bool PassesAll() const;
  // "of type move about h1 since …", for an empty answer; "" when all pass.
  std::string Text() const;
};

// InvalidArgument: a type that no agent logs, with those that there are.
absl::Status CheckEventTypes(const std::vector<std::string>& types);

// "10m" (ago), "2026-11-20T16:54:27Z", "2026-11-20T16:54", "2026-11-20", "16:54", "16:54:27" (the last such moment);
// all UTC, as events are shown. `option` is named in the error.
absl::StatusOr<absl::Time> ParseMoment(const std::string& option, const std::string& text, absl::Time now);

}  // namespace cw::cli
