// SPDX-License-Identifier: Apache-2.0
//
// The outages of links (control/link_book.h) in a file of the agent's run folder, so that a restart of the agent
// forgets none. Times are CLOCK_MONOTONIC ns; the file names the boot that they count from, and one of another boot is
// not read. Thread rule: the agent's loop.
#pragma once

#include <string>

#include "absl/status/status.h"
#include "userspace/control/link_book.h"

namespace cw::agent {

inline constexpr char kLinkFile[] = "link_outages.json";  // in the run folder

// NotFound: nothing, or of an earlier boot. InvalidArgument: unreadable; the book is left as it was.
absl::Status LoadLinkBook(const std::string& file, const std::string& boot, control::LinkBook& book);
// By a rename, so that a killed agent leaves the old file or the new one.
absl::Status SaveLinkBook(const std::string& file, const std::string& boot, const control::LinkBook& book);

}  // namespace cw::agent
