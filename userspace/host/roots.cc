// SPDX-License-Identifier: Apache-2.0
#include "userspace/host/roots.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/ascii.h"

namespace cw::host {

std::optional<std::string> ReadTrimmed(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  // An empty file makes operator<< fail, which is no fault here.
  if (!file) return std::nullopt;
  text << file.rdbuf();
  if (file.bad()) return std::nullopt;
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

std::string LinkName(const std::string& path) {
  std::error_code error;
  const std::filesystem::path target = std::filesystem::read_symlink(path, error);
  return error ? "" : target.filename().string();
}

std::vector<std::string> ListFolder(const std::string& path) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(path, error), end; !error && entry != end; entry.increment(error)) {
    names.push_back(entry->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace cw::host
