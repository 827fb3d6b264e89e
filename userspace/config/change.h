// SPDX-License-Identifier: Apache-2.0
//
// What differs between the configuration that runs and the one that a file holds now, and what of it a running agent
// takes. Keys are dotted, as "steering.move_gap"; the tables of an array are one key, "nic" or "peer".
// Pure; any thread.
#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "userspace/config/config.h"

namespace cw::config {

struct Change {
  std::string key;
  std::string from, to;  // as in the file; of "nic" and "peer" the tables, one key a line
  bool live = false;     // a running agent takes it; else its next start does
};

// In the order of the file.
std::vector<Change> Changes(const Config& running, const Config& fresh);

// Whether a running agent takes a new value of this key.
bool TakenLive(absl::string_view key);

// `running` with what is taken live from `fresh`. InvalidArgument: the two together break a rule that each of them
// keeps; the message names it.
absl::StatusOr<Config> MergeLive(const Config& running, const Config& fresh);

// Sixteen hexadecimal digits, the same for the same effective configuration on any host: the first of the SHA-256 of
// ToToml. Secrets are not in it, their files' names are.
std::string Fingerprint(const Config& config);

}  // namespace cw::config
