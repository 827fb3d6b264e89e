// SPDX-License-Identifier: Apache-2.0
//
// What libcwverbs costs per post and per poll, over a provider that does nothing: a process with the library and one
// without in turn, so that the machine's own swings meet both. "added" is the difference within a pair. And what a
// probe by verbs costs the thread that turns it round, without the device. moves_N: N queue pairs of one process moved
// through the library, from the agent's order to the end of the last change, of 200 us each in the provider.
#include <algorithm>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/bench/verbs_moves.h"
#include "tests/bench/verbs_turn.h"
#include "userspace/lab/bench_result.h"

namespace cw::bench {
namespace {

constexpr int kPairs = 20;
constexpr int kTurns = 20000;
constexpr int kMoveRounds = 50;

struct Costs {
  std::vector<double> post_ns, poll_ns;
};

bool RunOnce(const std::string& environment, Costs* costs) {
  FILE* pipe = popen(
      ("env LD_LIBRARY_PATH=" CW_FAKE_DIR " CWFABRIC_INPROC_SOCKET=/nonexistent " + environment + " " CW_VERBS_COST)
          .c_str(),
      "r");
  if (pipe == nullptr) return false;
  double post = 0, poll = 0;
  while (std::fscanf(pipe, "%lf %lf", &post, &poll) == 2) {
    costs->post_ns.push_back(post);
    costs->poll_ns.push_back(poll);
  }
  return pclose(pipe) == 0 && !costs->post_ns.empty();
}

double Median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2), values.end());
  return values[values.size() / 2];
}

void Append(const std::vector<double>& from, std::vector<double>* to) {
  to->insert(to->end(), from.begin(), from.end());
}

absl::Status AddMoves(Report& report) {
  for (const int queue_pairs : {1, 8, 64, 256}) {
    const absl::StatusOr<MoveTimes> times = MoveRounds(queue_pairs, kMoveRounds);
    if (!times.ok()) return times.status();
    const std::string name = absl::StrCat("moves_", queue_pairs);
    report.Add(name, "cwfabric", "recovery", "ms", times->recovery_ms);
    report.Add(name, "cwfabric", "answered", "ms", times->answered_ms);
    report.Add(name, "provider", "change", "us", times->change_us);
  }
  return absl::OkStatus();
}

int Run(const std::string& out) {
  Costs with, without, added;
  for (int pair = 0; pair < kPairs; ++pair) {
    Costs ours, plain;
    const bool first = pair % 2 == 0;  // each goes first in half of the pairs
    bool ok = first ? RunOnce("LD_PRELOAD=" CW_VERBS_LIB, &ours) : RunOnce("", &plain);
    ok = ok && (first ? RunOnce("", &plain) : RunOnce("LD_PRELOAD=" CW_VERBS_LIB, &ours));
    if (!ok) {
      std::fprintf(stderr, "verbs_cost failed\n");
      return 1;
    }
    added.post_ns.push_back(Median(ours.post_ns) - Median(plain.post_ns));
    added.poll_ns.push_back(Median(ours.poll_ns) - Median(plain.poll_ns));
    Append(ours.post_ns, &with.post_ns);
    Append(ours.poll_ns, &with.poll_ns);
    Append(plain.post_ns, &without.post_ns);
    Append(plain.poll_ns, &without.poll_ns);
  }
  const absl::StatusOr<std::vector<double>> turns = TurnRounds(kTurns);
  if (!turns.ok()) {
    std::fprintf(stderr, "%s\n", turns.status().ToString().c_str());
    return 1;
  }
  Report report("verbs");
  report.Add("probe_turned", "cwfabric", "cost", "ns", *turns);
  report.Add("post", "libibverbs", "cost", "ns", without.post_ns);
  report.Add("post", "cwfabric", "cost", "ns", with.post_ns);
  report.Add("post", "cwfabric", "added", "ns", added.post_ns);
  report.Add("poll", "libibverbs", "cost", "ns", without.poll_ns);
  report.Add("poll", "cwfabric", "cost", "ns", with.poll_ns);
  report.Add("poll", "cwfabric", "added", "ns", added.poll_ns);
  if (const absl::Status moves = AddMoves(report); !moves.ok()) {
    std::fprintf(stderr, "%s\n", moves.ToString().c_str());
    return 1;
  }
  std::printf("%s", report.Table().c_str());
  const absl::Status written = report.Write(out);
  if (!written.ok()) std::fprintf(stderr, "%s\n", written.ToString().c_str());
  return written.ok() ? 0 : 1;
}

}  // namespace
}  // namespace cw::bench

int main(int argc, char** argv) { return cw::bench::Run(cw::bench::OutPath(argc, argv, "build/bench/verbs.json")); }
