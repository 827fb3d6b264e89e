// SPDX-License-Identifier: Apache-2.0
#include "tests/bench/error_rows.h"

#include <cmath>
#include <cstdio>

namespace cw::bench {

double Mean(const std::vector<double>& values) {
  double sum = 0;
  for (double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

std::vector<double> Absolute(std::vector<double> values) {
  for (double& value : values) value = std::abs(value);
  return values;
}

std::vector<double> Medians(const std::vector<double>& values, size_t count) {
  std::vector<double> medians;
  for (size_t i = 0; i + count <= values.size(); i += count) {
    const auto first = values.begin() + static_cast<std::ptrdiff_t>(i);
    medians.push_back(Quantile({first, first + static_cast<std::ptrdiff_t>(count)}, 0.5));
  }
  return medians;
}

void AddPercent(const std::string& bench_case, const std::string& system, const std::string& metric, size_t part,
                size_t whole, Report& report) {
  const double percent = whole == 0 ? 0 : 100 * static_cast<double>(part) / static_cast<double>(whole);
  report.Add(Row{bench_case, system, metric, "percent", whole, percent, percent, percent});
}

void PrintErrors(const std::string& what, const std::vector<double>& signed_ns, const std::string& more) {
  const std::vector<double> absolute = Absolute(signed_ns);
  std::fprintf(stderr, "  %s: mean %+.0f ns, |error| p50 %.0f p99 %.0f max %.0f ns%s\n", what.c_str(), Mean(signed_ns),
               Quantile(absolute, 0.5), Quantile(absolute, 0.99), Quantile(absolute, 1), more.c_str());
}

void AddLoad(const std::string& bench_case, const std::vector<double>& shares, Report& report) {
  std::vector<double> percent;
  for (double share : shares) percent.push_back(100 * share);
  report.Add(bench_case, kProduct, "load", "percent", percent);
  std::fprintf(stderr, "  load of the %d link directions: mean %.1f, least %.1f, most %.1f %%\n",
               static_cast<int>(percent.size()), Mean(percent), Quantile(percent, 0), Quantile(percent, 1));
}

}  // namespace cw::bench
