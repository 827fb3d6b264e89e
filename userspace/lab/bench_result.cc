// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/bench_result.h"

#include <stdio.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"

namespace cw::bench {
namespace {

using nlohmann::json;

std::string CommandLine(const std::string& command) {
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "";
  char buffer[256] = "";
  std::string line = fgets(buffer, sizeof(buffer), pipe) == nullptr ? "" : buffer;
  pclose(pipe);
  return line.substr(0, line.find('\n'));
}

std::string Commit() {
  const std::string commit = CommandLine("git -C " CW_SOURCE_DIR " describe --always --dirty --abbrev=12 2>/dev/null");
  return commit.empty() ? "unknown" : commit;
}

std::string CpuModel() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    const size_t colon = line.find(": ");
    if (line.rfind("model name", 0) == 0 && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

json Machine() {
  utsname name = {};
  uname(&name);
  return {{"cpu", CpuModel()},
          {"cores", sysconf(_SC_NPROCESSORS_ONLN)},
          {"memory_mib", sysconf(_SC_PHYS_PAGES) / 1024 * sysconf(_SC_PAGESIZE) / 1024},
          {"kernel", name.release},
          {"arch", name.machine}};
}

}  // namespace

double Quantile(std::vector<double> samples, double q) {
  if (samples.empty()) return 0;
  std::sort(samples.begin(), samples.end());
  const auto rank = static_cast<size_t>(std::ceil(q * static_cast<double>(samples.size())));
  return samples[rank == 0 ? 0 : rank - 1];
}

void Report::Add(const std::string& bench_case, const std::string& system, const std::string& metric,
                 const std::string& unit, const std::vector<double>& samples) {
  Add(Row{bench_case, system, metric, unit, samples.size(), Quantile(samples, 0.5), Quantile(samples, 0.99),
          Quantile(samples, 1)});
}

absl::Status Report::Write(const std::string& path) const {
  json rows = json::array();
  for (const Row& r : rows_) {
    rows.push_back({{"case", r.bench_case},
                    {"system", r.system},
                    {"metric", r.metric},
                    {"unit", r.unit},
                    {"n", r.n},
                    {"p50", r.p50},
                    {"p99", r.p99},
                    {"max", r.max}});
  }
  const json all = {{"name", name_}, {"commit", Commit()}, {"machine", Machine()}, {"rows", rows}};
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::absolute(path).parent_path(), error);
  const std::string fresh = path + ".new";
  std::ofstream(fresh) << all.dump(1) << "\n";
  std::filesystem::rename(fresh, path, error);
  if (error) return absl::ErrnoToStatus(error.value(), "write " + path);
  return absl::OkStatus();
}

absl::StatusOr<Report> Report::Read(const std::string& path) {
  std::ifstream file(path);
  if (!file) return absl::NotFoundError("no such file: " + path);
  const json all = json::parse(file, nullptr, false);
  if (all.is_discarded() || !all.contains("rows")) return absl::DataLossError(path + " is not a benchmark's result");
  try {
    Report report(all.at("name").get<std::string>());
    for (const json& r : all.at("rows")) {
      report.Add(Row{r.at("case"), r.at("system"), r.at("metric"), r.at("unit"), r.at("n"), r.at("p50"), r.at("p99"),
                     r.at("max")});
    }
    return report;
  } catch (const json::exception& e) {
    return absl::DataLossError(absl::StrFormat("%s: %s", path, e.what()));
  }
}

std::string Report::Table() const {
  std::string out = absl::StrFormat("%-12s %-22s %-18s %-14s %8s %12s %12s %12s  %s\n", "name", "case", "system",
                                    "metric", "n", "p50", "p99", "max", "unit");
  for (const Row& r : rows_) {
    if (r.n == 0) {
      absl::StrAppendFormat(&out, "%-12s %-22s %-18s %-14s %8d %12s\n", name_, r.bench_case, r.system, r.metric, r.n,
                            "never");
      continue;
    }
    absl::StrAppendFormat(&out, "%-12s %-22s %-18s %-14s %8d %12.2f %12.2f %12.2f  %s\n", name_, r.bench_case, r.system,
                          r.metric, r.n, r.p50, r.p99, r.max, r.unit);
  }
  return out;
}

std::string OutPath(int argc, char** argv, const std::string& fallback) {
  for (int i = 1; i + 1 < argc; ++i) {
    if (strcmp(argv[i], "--out") == 0) return argv[i + 1];
  }
  return fallback;
}

}  // namespace cw::bench
