// SPDX-License-Identifier: Apache-2.0
//
// How the programs know that the agent's process is there: an entry of a perf event array lasts as long as the map's
// descriptor through which it was made, and a program that asks for it is told so (bpf/blind.h). However the process
// ends, the kernel closes that. The event itself counts nothing. Where another agent has followed, its entry stays.
// Thread rule: none; no call after Enter.
#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "maps/bpf_map.h"
#include "maps/unique_fd.h"

namespace cw::dataplane {

class Presence {
 public:
  // pin: of the map CW_MAP_PRESENCE. Opened anew: the entry goes with this object. Errors: that of the map, or of
  // perf_event_open (PermissionDenied without CAP_PERFMON where kernel.perf_event_paranoid asks for it).
  static absl::StatusOr<Presence> Enter(const std::string& pin);

 private:
  Presence(maps::BpfMap map, maps::UniqueFd event) : map_(std::move(map)), event_(std::move(event)) {}
  maps::BpfMap map_;
  maps::UniqueFd event_;
};

}  // namespace cw::dataplane
