// SPDX-License-Identifier: Apache-2.0
//
// One evaluation under way: what the parts of Findings hand to each other. Private to this folder.
#pragma once

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/string_view.h"
#include "userspace/fleet/findings/findings.h"

namespace cw::fleet {

struct Findings::Scene {
  const Picture& picture;
  std::vector<bool> host_fresh;                     // by place
  absl::flat_hash_set<absl::string_view> speaking;  // names of those
  std::vector<uint32_t> paths;                      // that count
  std::vector<const std::vector<int32_t>*> needs;   // of each of them
  std::vector<bool> explained;                      // by something dead; of each of them
  std::vector<bool> unreached;                      // hosts, by place: all others find them dead
  std::vector<int32_t> dead;                        // components
  std::set<std::string> explained_hosts;            // their silence is explained
  std::map<std::pair<Cause, std::string>, Suspicion> suspicions;
};

}  // namespace cw::fleet
