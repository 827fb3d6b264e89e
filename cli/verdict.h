// SPDX-License-Identifier: Apache-2.0
//
// What a status comes to, in one line. Pure; any thread.
#pragma once

#include <string>

#include "cli/table.h"
#include "userspace/api/cwfabric.pb.h"

namespace cw::cli {

struct Verdict {
  std::string text;  // "healthy", or all that is wrong, the worst first
  Tone tone = Tone::kGood;
};

Verdict VerdictOf(const cwfabric::v1::StatusReply& status);

}  // namespace cw::cli
