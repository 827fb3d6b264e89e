// SPDX-License-Identifier: Apache-2.0
//
// What every benchmark writes: {"name", "commit", "machine", "rows": [{"case", "system", "metric", "unit", "n", "p50",
// "p99", "max"}]}; system is "cwfabric" or the peer's name. Threads: one.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace cw::bench {

struct Row {
  std::string bench_case;
  std::string system;
  std::string metric;
  std::string unit;
  size_t n = 0;  // samples
  double p50 = 0, p99 = 0, max = 0;
};

// Nearest rank: a value that was measured; q in [0, 1]. 0 for no samples.
double Quantile(std::vector<double> samples, double q);

class Report {
 public:
  explicit Report(std::string name) : name_(std::move(name)) {}

  void Add(Row row) { rows_.push_back(std::move(row)); }
  void Add(const std::string& bench_case, const std::string& system, const std::string& metric, const std::string& unit,
           const std::vector<double>& samples);
  const std::string& name() const { return name_; }
  const std::vector<Row>& rows() const { return rows_; }

  // Creates missing folders; replaces the file in one step.
  absl::Status Write(const std::string& path) const;
  static absl::StatusOr<Report> Read(const std::string& path);

  // Aligned columns, one line per row.
  std::string Table() const;

 private:
  std::string name_;
  std::vector<Row> rows_;
};

// Value of `--out PATH` among the arguments; the default otherwise.
std::string OutPath(int argc, char** argv, const std::string& fallback);

}  // namespace cw::bench
