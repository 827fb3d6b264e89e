// SPDX-License-Identifier: Apache-2.0
//
// Where the kernel's file trees are: the real ones, or fixtures in tests.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace cw::host {

struct Roots {
  std::string proc = "/proc";
  std::string sys = "/sys";
};

// The file's text without white space at its ends; nullopt when it cannot be read.
std::optional<std::string> ReadTrimmed(const std::string& path);
// The last part of what a symbolic link leads to; empty when there is none.
std::string LinkName(const std::string& path);
// Names in a folder, sorted; empty when there is none.
std::vector<std::string> ListFolder(const std::string& path);

}  // namespace cw::host
