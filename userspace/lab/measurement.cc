// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/measurement.h"

#include <sys/utsname.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "userspace/lab/report.h"

namespace cw::lab {
namespace {

std::string Commit() {
  std::string commit;
  if (FILE* git = popen("git describe --always --dirty 2>/dev/null", "r"); git != nullptr) {
    char line[128];
    if (std::fgets(line, sizeof(line), git) != nullptr) commit = line;
    pclose(git);
  }
  while (!commit.empty() && commit.back() == '\n') commit.pop_back();
  return commit.empty() ? "unknown" : commit;
}

std::string CpuModel() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

nlohmann::json Row(const Measurement& row) {
  nlohmann::json json = {{"case", row.test_case}, {"system", row.system}, {"metric", row.metric}, {"unit", row.unit}, {"n", row.values.size()}};
  std::vector<double> sorted = row.values;
  std::sort(sorted.begin(), sorted.end());
  auto rank = [&](double q) -> nlohmann::json {
    if (sorted.empty()) return nullptr;
    return sorted[static_cast<size_t>(std::max(1.0, std::ceil(q * static_cast<double>(sorted.size())))) - 1];
  };
  json["p50"] = rank(0.5);
  json["p99"] = rank(0.99);
  json["max"] = rank(1);
  return json;
}

}  // namespace

absl::Status WriteMeasurements(const std::string& path, const std::string& name, const std::vector<Measurement>& rows) {
  utsname system{};
  uname(&system);
  nlohmann::json json = {{"name", name},
                         {"commit", Commit()},
                         {"machine", {{"kernel", system.release}, {"arch", system.machine}, {"cpu", CpuModel()}, {"cores", std::thread::hardware_concurrency()}}},
                         {"rows", nlohmann::json::array()}};
  for (const Measurement& row : rows) json["rows"].push_back(Row(row));
  std::error_code ignored;
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  if (!folder.empty()) std::filesystem::create_directories(folder, ignored);
  return WriteFile(path, json.dump(1) + "\n");
}

}  // namespace cw::lab
