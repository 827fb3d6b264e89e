// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_sim.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/sim/fleet_run.h"

namespace cw::sim {
namespace {

using Kind = FleetFault::Kind;
constexpr size_t kMostKept = 60;

void AppendRow(std::string& out, const std::string& name, FleetScore& s) {
  absl::StrAppendFormat(&out, "| %s | %d | %.1f %% | %d | %.2f | %d | %.1f | %.1f |\n", name, s.faults,
                        100.0 * s.found / s.faults, s.false_findings, static_cast<double>(s.findings) / s.faults,
                        s.ended, s.Quantile(0.5), s.Quantile(0.99));
}

}  // namespace

double FleetScore::Quantile(double p) {
  if (seconds.empty()) return 0;
  std::sort(seconds.begin(), seconds.end());
  return seconds[static_cast<size_t>(p * static_cast<double>(seconds.size() - 1))];
}

void FleetScore::Add(const FleetScore& more) {
  faults += more.faults;
  found += more.found;
  false_findings += more.false_findings;
  findings += more.findings;
  ended += more.ended;
  seconds.insert(seconds.end(), more.seconds.begin(), more.seconds.end());
}

void FleetSimResult::Add(const FleetSimResult& more) {
  for (size_t k = 0; k < by_kind.size(); ++k) by_kind[k].Add(more.by_kind[k]);
  for (const auto& [name, score] : more.by_shape) by_shape[name].Add(score);
  for (size_t c = 0; c < right.size(); ++c) {
    right[c] += more.right[c];
    wrong[c] += more.wrong[c];
  }
  for (const std::string& complaint : more.complaints) {
    if (complaints.size() < kMostKept) complaints.push_back(complaint);
  }
  seconds += more.seconds;
  evaluations += more.evaluations;
  evaluate_ms += more.evaluate_ms;
  refused += more.refused;
}

double FleetSimResult::Precision(fleet::Cause cause) const {
  const int all = right[static_cast<size_t>(cause)] + wrong[static_cast<size_t>(cause)];
  return all == 0 ? 1 : static_cast<double>(right[static_cast<size_t>(cause)]) / all;
}

double FleetSimResult::LeastRecall() const {
  double least = 1;
  for (size_t k = 0; k < by_kind.size(); ++k) {
    const FleetScore& s = by_kind[k];
    if (s.faults == 0 || static_cast<Kind>(k) == Kind::kNone) continue;
    least = std::min(least, static_cast<double>(s.found) / s.faults);
  }
  return least;
}

double FleetSimResult::LeastPrecision() const {
  double least = 1;
  for (int c = 1; c <= fleet::kFleetCauses; ++c) least = std::min(least, Precision(static_cast<fleet::Cause>(c)));
  return least;
}

std::string FleetSimResult::Table() {
  const std::string head =
      " | faults | recall | false findings | findings per fault | ended | s to finding: p50 | p99 |\n"
      "|---|---|---|---|---|---|---|---|\n";
  std::string out = "| fault" + head;
  for (int k = 0; k < FleetFault::kKinds; ++k) {
    FleetScore& s = by_kind[static_cast<size_t>(k)];
    if (s.faults > 0) AppendRow(out, FaultName(static_cast<Kind>(k)), s);
  }
  out += "| fabric" + head;
  for (auto& [name, score] : by_shape) {
    if (score.faults > 0) AppendRow(out, name, score);
  }
  out += "| cause | right | wrong | precision |\n|---|---|---|---|\n";
  for (int c = 1; c <= fleet::kFleetCauses; ++c) {
    const auto cause = static_cast<fleet::Cause>(c);
    absl::StrAppendFormat(&out, "| %s | %d | %d | %.1f %% |\n", fleet::CauseName(cause), right[static_cast<size_t>(c)],
                          wrong[static_cast<size_t>(c)], 100 * Precision(cause));
  }
  absl::StrAppendFormat(&out, "%.0f s simulated, %d evaluations of %.2f ms, %d batches refused\n", seconds, evaluations,
                        evaluate_ms / std::max(evaluations, 1), refused);
  return out;
}

FleetSimResult SimulateFleet(const std::vector<FleetShape>& shapes, int faults_of_kind, uint64_t seed,
                             const std::vector<int>& kinds) {
  struct Task {
    FleetShape shape;
    Kind kind;
    uint64_t seed;
    FleetSimResult result;
  };
  std::vector<Task> tasks;
  std::mt19937_64 random(seed);
  for (int i = 0; i < faults_of_kind; ++i) {
    for (int k = 1; k < FleetFault::kKinds; ++k) {
      const auto kind = static_cast<Kind>(k);
      // Each kind begins at another fabric, so that a few faults of each kind see all of them.
      size_t at = static_cast<size_t>(i + 3 * k) % shapes.size();
      for (size_t n = 0; n < shapes.size() && !Applies(kind, shapes[at]); ++n) at = (at + 1) % shapes.size();
      const uint64_t task_seed = random();
      if (!Applies(kind, shapes[at]) || (!kinds.empty() && std::count(kinds.begin(), kinds.end(), k) == 0)) continue;
      tasks.push_back({.shape = shapes[at], .kind = kind, .seed = task_seed, .result = {}});
      tasks.back().shape.liar = i % 2 == 1;
    }
  }
  std::atomic<size_t> next{0};
  std::vector<std::thread> workers;
  for (unsigned w = 0; w < std::max(1U, std::thread::hardware_concurrency()); ++w) {
    workers.emplace_back([&] {
      for (size_t t = next++; t < tasks.size(); t = next++)
        tasks[t].result = FleetRun(tasks[t].shape, tasks[t].seed).Do(tasks[t].kind);
    });
  }
  for (std::thread& worker : workers) worker.join();
  FleetSimResult result;
  for (const Task& task : tasks) result.Add(task.result);
  return result;
}

FleetSimResult SimulateHealthy(const FleetShape& shape, int seconds, uint64_t seed) {
  return FleetRun(shape, seed).Healthy(seconds);
}

}  // namespace cw::sim
