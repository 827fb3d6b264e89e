// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/process_sample.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "absl/strings/str_cat.h"

namespace cw::bench {
namespace {

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

}  // namespace

absl::StatusOr<ProcessSample> ReadProcess(pid_t pid) {
  const std::string folder = absl::StrCat("/proc/", pid);
  const std::string memory = Read(folder + "/smaps_rollup");
  const auto rss = NumberOf(memory, "Rss"), pss = NumberOf(memory, "Pss");
  const auto threads = NumberOf(Read(folder + "/status"), "Threads");
  if (!rss || !pss || !threads) return absl::NotFoundError(absl::StrCat("the process ", pid, " cannot be looked at"));
  ProcessSample sample{.rss_mib = static_cast<double>(*rss) / 1024,
                       .pss_mib = static_cast<double>(*pss) / 1024,
                       .threads = static_cast<int>(*threads)};
  std::error_code error;
  for (const auto& each : std::filesystem::directory_iterator(folder + "/fd", error)) {
    (void)each;
    ++sample.descriptors;
  }
  if (error) return absl::NotFoundError(absl::StrCat("the descriptors of process ", pid, ": ", error.message()));
  return sample;
}

std::optional<uint64_t> NumberOf(const std::string& text, const std::string& name) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(name + ":", 0) != 0) continue;
    std::istringstream rest(line.substr(name.size() + 1));
    uint64_t number = 0;
    if (rest >> number) return number;
  }
  return std::nullopt;
}

}  // namespace cw::bench
