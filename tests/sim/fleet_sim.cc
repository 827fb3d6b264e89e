// SPDX-License-Identifier: Apache-2.0
#include "tests/sim/fleet_sim.h"

#include <algorithm>
#include <chrono>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "userspace/fleet/findings/findings.h"

namespace cw::sim {
namespace {

using Kind = FleetFault::Kind;
constexpr int kWarmS = 25, kEndS = 60;
constexpr size_t kMostComplaints = 40;
constexpr int64_t kOneSecondNs = 1'000'000'000;

int SecondsOf(Kind kind) {
  if (kind == Kind::kFlapping) return 260;
  if (kind == Kind::kClock || kind == Kind::kAgent || kind == Kind::kSettings) return 120;
  return 90;
}

class Run {
 public:
  Run(FleetWorld& world, FleetSimResult& result) : world_(world), result_(result) {}

  void Do(const FleetFault& fault, const std::string& what) {
    FleetScore& score = result_.by_kind[static_cast<size_t>(fault.kind)];
    Pass(kWarmS, nullptr, score, what);
    world_.Begin(fault);
    begun_ns_ = world_.now_ns();
    ++score.faults;
    Pass(SecondsOf(fault.kind), &fault, score, what);
    world_.End();
    Pass(kEndS, &fault, score, what);
    if (fault.kind == Kind::kNone) return;
    if (!found_) Complain(absl::StrCat(what, ": not found"));
    score.found += found_;
    score.ended += found_ && over_;
  }

 private:
  void Complain(const std::string& text) {
    if (result_.complaints.size() < kMostComplaints) result_.complaints.push_back(text);
  }

  void Pass(int seconds, const FleetFault* fault, FleetScore& score, const std::string& what) {
    const int64_t end_ns = world_.now_ns() + seconds * kOneSecondNs;
    // What a fault's beginning or end made agents say is heard at once.
    for (bool said = fault != nullptr && !world_.picture().events.empty(); world_.now_ns() < end_ns; said = false) {
      if (!said && !world_.Tick() && world_.now_ns() < findings_.NextNs()) continue;
      const auto begin = std::chrono::steady_clock::now();
      const std::vector<fleet::Finding> changed = findings_.Evaluate(world_.picture());
      result_.evaluate_ms +=
          std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
      ++result_.evaluations;
      for (const fleet::Finding& f : changed) Take(f, fault, score, what);
    }
    result_.seconds += seconds;
  }

  void Take(const fleet::Finding& f, const FleetFault* fault, FleetScore& score, const std::string& what) {
    const bool right = fault != nullptr && f.cause == fault->cause && fault->scopes.contains(f.scope);
    if (right) over_ = f.end_ns != 0;
    // A finding that goes on under another cause is one.
    if (f.end_ns != 0 || !seen_.insert({f.id, f.cause}).second) return;
    if (ids_.insert(f.id).second) ++score.findings;
    // A link that flaps is dead at times.
    const bool part = fault != nullptr && fault->kind == Kind::kFlapping && f.cause == fleet::Cause::kLinkDead &&
                      fault->scopes.contains(f.scope);
    if (right) {
      if (!found_) score.seconds.push_back(static_cast<double>(world_.now_ns() - begun_ns_) / 1e9);
      found_ = true;
      ++result_.right[static_cast<size_t>(f.cause)];
    } else if (!part && !world_.IsOfLiar(f.scope) &&
               !world_.IsOfLate(f)) {  // nobody can check what a host says of itself
      ++score.false_findings;
      ++result_.wrong[static_cast<size_t>(f.cause)];
      Complain(absl::StrFormat("%s: %s at %s, %.0f s after the fault: %s", what, fleet::CauseName(f.cause), f.scope,
                               static_cast<double>(world_.now_ns() - begun_ns_) / 1e9,
                               absl::StrJoin(f.evidence, "; ")));
    }
  }

  FleetWorld& world_;
  FleetSimResult& result_;
  fleet::Findings findings_;
  std::set<std::pair<uint64_t, fleet::Cause>> seen_;
  std::set<uint64_t> ids_;
  int64_t begun_ns_ = 0;
  bool found_ = false, over_ = false;
};

}  // namespace

double FleetScore::Quantile(double p) {
  if (seconds.empty()) return 0;
  std::sort(seconds.begin(), seconds.end());
  return seconds[static_cast<size_t>(p * static_cast<double>(seconds.size() - 1))];
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
  std::string out =
      "| fault | faults | recall | false findings | findings per fault | ended | s to finding: p50 | p99 |\n"
      "|---|---|---|---|---|---|---|---|\n";
  for (int k = 0; k < FleetFault::kKinds; ++k) {
    FleetScore& s = by_kind[static_cast<size_t>(k)];
    if (s.faults == 0) continue;
    absl::StrAppendFormat(&out, "| %s | %d | %.1f %% | %d | %.2f | %d | %.1f | %.1f |\n",
                          FaultName(static_cast<Kind>(k)), s.faults, 100.0 * s.found / s.faults, s.false_findings,
                          static_cast<double>(s.findings) / s.faults, s.ended, s.Quantile(0.5), s.Quantile(0.99));
  }
  out += "| cause | right | wrong | precision |\n|---|---|---|---|\n";
  for (int c = 1; c <= fleet::kFleetCauses; ++c) {
    const auto cause = static_cast<fleet::Cause>(c);
    absl::StrAppendFormat(&out, "| %s | %d | %d | %.1f %% |\n", fleet::CauseName(cause), right[static_cast<size_t>(c)],
                          wrong[static_cast<size_t>(c)], 100 * Precision(cause));
  }
  absl::StrAppendFormat(&out, "%.0f s simulated, %d evaluations of %.2f ms\n", seconds, evaluations,
                        evaluate_ms / std::max(evaluations, 1));
  return out;
}

FleetSimResult SimulateFleet(const std::vector<FleetShape>& shapes, int faults_of_kind, uint64_t seed) {
  FleetSimResult result;
  std::mt19937_64 random(seed);
  for (int i = 0; i < faults_of_kind; ++i) {
    FleetShape shape = shapes[static_cast<size_t>(i) % shapes.size()];
    shape.liar = i % 2 == 1;
    for (int k = 1; k < FleetFault::kKinds; ++k) {
      const uint64_t world_seed = random();
      FleetWorld world(shape, world_seed);
      const FleetFault fault = world.Choose(static_cast<Kind>(k));
      Run(world, result)
          .Do(fault, absl::StrFormat("%s of %s, shape %d, loss %.3f%s", FaultName(fault.kind),
                                     absl::StrJoin(fault.scopes, " or "), static_cast<size_t>(i) % shapes.size(),
                                     fault.loss, shape.liar ? ", with a liar" : ""));
    }
  }
  return result;
}

FleetSimResult SimulateHealthy(const FleetShape& shape, int seconds, uint64_t seed) {
  FleetSimResult result;
  FleetWorld world(shape, seed);
  fleet::Findings findings;
  for (const int64_t end_ns = world.now_ns() + seconds * kOneSecondNs; world.now_ns() < end_ns;) {
    while (!world.Tick()) {
    }
    const auto begin = std::chrono::steady_clock::now();
    const std::vector<fleet::Finding> changed = findings.Evaluate(world.picture());
    result.evaluate_ms += std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
    ++result.evaluations;
    for (const fleet::Finding& f : changed) {
      if (world.IsOfLiar(f.scope) || world.IsOfLate(f)) continue;
      ++result.wrong[static_cast<size_t>(f.cause)];
      result.complaints.push_back(
          absl::StrCat(fleet::CauseName(f.cause), " at ", f.scope, ": ", absl::StrJoin(f.evidence, "; ")));
    }
  }
  result.seconds = seconds;
  return result;
}

}  // namespace cw::sim
