// SPDX-License-Identifier: Apache-2.0
#include "userspace/control/link_queues.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace cw::control {
namespace {

constexpr double kStillNs = 0.1;  // a sweep that changes no queue by more is the last

// The paths as rows, groups of links that share all their paths as columns.
struct Fit {
  struct Row {
    double queue_ns, weight;  // 1 / error²
    double rest_ns;           // what the columns do not explain
    std::vector<size_t> columns;
  };
  struct Column {
    LinkQueue link;
    std::vector<size_t> rows;
    bool allowed = true;
  };
  std::vector<Row> rows;
  std::vector<Column> columns;

  void Restart();
  void Descend(double threshold, int most_sweeps);
  void Reweight(absl::Span<const PathQueue> paths, const std::vector<size_t>& of_path, double huber);
  std::vector<double> Errors(const std::vector<size_t>& support) const;
  bool DropLeast(double threshold);
};

void Fit::Restart() {
  for (Row& row : rows) row.rest_ns = row.queue_ns;
  for (Column& column : columns) column.link.queue_ns = 0;
}

// Coordinate descent: each column in turn takes the best value given all others. threshold: deviations by which the
// values are shrunk.
void Fit::Descend(double threshold, int most_sweeps) {
  for (int sweep = 0; sweep < most_sweeps; ++sweep) {
    double moved_ns = 0;
    for (Column& column : columns) {
      if (!column.allowed) continue;
      double weights = 0, sum = 0;
      for (const size_t r : column.rows) {
        weights += rows[r].weight;
        sum += rows[r].weight * (rows[r].rest_ns + column.link.queue_ns);
      }
      const double next_ns = std::max(0.0, (sum - threshold * std::sqrt(weights)) / weights);
      const double change_ns = next_ns - column.link.queue_ns;
      if (change_ns == 0) continue;
      for (const size_t r : column.rows) rows[r].rest_ns -= change_ns;
      column.link.queue_ns = next_ns;
      moved_ns = std::max(moved_ns, std::abs(change_ns));
    }
    if (moved_ns <= kStillNs) return;
  }
}

void Fit::Reweight(absl::Span<const PathQueue> paths, const std::vector<size_t>& of_path, double huber) {
  for (size_t r = 0; r < rows.size(); ++r) {
    const double error_ns = paths[of_path[r]].error_ns;
    const double off = std::abs(rows[r].rest_ns) / error_ns;
    rows[r].weight = std::min(1.0, huber / std::max(off, 1e-9)) / (error_ns * error_ns);
  }
}

// Standard errors of the columns in `support`: the diagonal of the inverse of their normal matrix, by Gauss and Jordan.
// A column that others explain as well has an infinite one.
std::vector<double> Fit::Errors(const std::vector<size_t>& support) const {
  const size_t n = support.size();
  std::map<size_t, size_t> place;
  for (size_t i = 0; i < n; ++i) place[support[i]] = i;
  std::vector<std::vector<double>> m(n, std::vector<double>(2 * n));
  for (size_t i = 0; i < n; ++i) m[i][n + i] = 1;
  for (const Row& row : rows) {
    std::vector<size_t> here;
    for (const size_t c : row.columns) {
      if (const auto found = place.find(c); found != place.end()) here.push_back(found->second);
    }
    for (const size_t a : here) {
      for (const size_t b : here) m[a][b] += row.weight;
    }
  }
  std::vector<double> errors(n, HUGE_VAL);
  for (size_t i = 0; i < n; ++i) {
    double whole = 0;
    for (const size_t r : columns[support[i]].rows) whole += rows[r].weight;
    if (m[i][i] <= 1e-9 * whole) return errors;
    const double pivot = m[i][i];
    for (double& v : m[i]) v /= pivot;
    for (size_t j = 0; j < n; ++j) {
      if (j == i || m[j][i] == 0) continue;
      const double factor = m[j][i];
      for (size_t k = i; k < 2 * n; ++k) m[j][k] -= factor * m[i][k];
    }
  }
  for (size_t i = 0; i < n; ++i) errors[i] = std::sqrt(std::max(0.0, m[i][n + i]));
  return errors;
}

// What the penalty took from a long queue shows up as short ones beside it: of the columns that are still allowed, the
// one that stands out least goes, if by less than the threshold. Sets the errors of the others. false: none went.
bool Fit::DropLeast(double threshold) {
  std::vector<size_t> support;
  for (size_t c = 0; c < columns.size(); ++c) {
    columns[c].link.error_ns = 0;
    columns[c].allowed &= columns[c].link.queue_ns > 0;
    if (columns[c].allowed) support.push_back(c);
  }
  const std::vector<double> errors = Errors(support);
  size_t least = columns.size();
  double least_times = threshold;
  for (size_t i = 0; i < support.size(); ++i) {
    LinkQueue& link = columns[support[i]].link;
    link.error_ns = errors[i];
    if (link.queue_ns >= least_times * errors[i]) continue;
    least = support[i];
    least_times = link.queue_ns / errors[i];
  }
  if (least == columns.size()) return false;
  Column& dropped = columns[least];
  for (const size_t r : dropped.rows) rows[r].rest_ns += dropped.link.queue_ns;
  dropped.link.queue_ns = 0;
  dropped.allowed = false;
  return true;
}

// of_path: the path of each row.
Fit Arrange(absl::Span<const PathQueue> paths, std::vector<size_t>& of_path) {
  Fit fit;
  std::map<uint64_t, std::vector<size_t>> rows_of;
  for (size_t p = 0; p < paths.size(); ++p) {
    const PathQueue& path = paths[p];
    if (!(path.error_ns > 0) || !std::isfinite(path.queue_ns) || path.links.empty()) continue;
    for (const uint64_t link : path.links) rows_of[link].push_back(fit.rows.size());
    fit.rows.push_back({path.queue_ns, 1 / (path.error_ns * path.error_ns), path.queue_ns, {}});
    of_path.push_back(p);
  }
  std::map<std::vector<size_t>, size_t> column_of;
  for (auto& [link, rows] : rows_of) {
    const auto [found, fresh] = column_of.try_emplace(rows, fit.columns.size());
    if (fresh) {
      fit.columns.push_back({});
      fit.columns.back().link.paths = static_cast<int>(rows.size());
      fit.columns.back().rows = rows;
      for (const size_t r : rows) fit.rows[r].columns.push_back(found->second);
    }
    fit.columns[found->second].link.links.push_back(link);
  }
  return fit;
}

}  // namespace

std::vector<LinkQueue> FitLinkQueues(absl::Span<const PathQueue> paths, const LinkQueueRules& rules) {
  std::vector<size_t> of_path;
  Fit fit = Arrange(paths, of_path);
  const auto count = static_cast<double>(std::max<size_t>(fit.columns.size(), 2));
  const double threshold = rules.threshold * std::sqrt(2 * std::log(count));
  for (int i = 0; i <= rules.reweightings; ++i) {
    fit.Restart();
    fit.Descend(threshold, rules.most_sweeps);
    if (i < rules.reweightings) fit.Reweight(paths, of_path, rules.huber);
  }
  for (Fit::Column& column : fit.columns) column.allowed = column.link.queue_ns > 0;
  while (true) {
    fit.Descend(0, rules.most_sweeps);
    if (!fit.DropLeast(threshold)) break;
  }
  std::vector<LinkQueue> found;
  for (Fit::Column& column : fit.columns) found.push_back(std::move(column.link));
  std::sort(found.begin(), found.end(), [](const LinkQueue& a, const LinkQueue& b) {
    return a.queue_ns != b.queue_ns ? a.queue_ns > b.queue_ns : a.links < b.links;
  });
  return found;
}

}  // namespace cw::control
