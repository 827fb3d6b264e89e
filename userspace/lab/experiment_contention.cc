// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/experiment_contention.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/lab/experiment_failover.h"

namespace cw::lab {
namespace {

constexpr uint32_t kPathMtu = 4096;
constexpr uint64_t kMessageBytes = 1 << 20;

int FlowCount(const ContentionSpec& spec) { return spec.testbed.fabric.hosts_per_leaf * spec.flows_per_sender; }

JobSpec PairwiseJob(const ContentionSpec& spec) {
  JobSpec job;
  job.name = "pairwise";
  for (int k = 0; k < spec.testbed.fabric.hosts_per_leaf; ++k) {
    job.pairs.push_back({k, spec.testbed.fabric.hosts_per_leaf + k});
  }
  job.qps_per_pair = spec.flows_per_sender;
  job.message_bytes = kMessageBytes;
  const double bytes = BestGoodputMbps(spec) * 1e6 / 8 * absl::ToDoubleSeconds(spec.best_duration);
  job.messages = static_cast<uint64_t>(bytes / static_cast<double>(kMessageBytes)) + 1;
  job.path_mtu = kPathMtu;
  job.rate = RateConfig::ForLine(spec.testbed.fabric.link_mbps * 1e6);
  return job;
}

std::vector<int> SpinesByEcmp(const Fabric& fabric, const Snapshot& snapshot) {
  std::vector<int> count(static_cast<size_t>(fabric.spec().spines));
  for (const FlowReport& flow : snapshot.flows) {
    absl::StatusOr<int> spine = fabric.PathOf(flow.source, flow.destination, flow.source_port);
    if (spine.ok() && *spine >= 0) ++count[static_cast<size_t>(*spine)];
  }
  return count;
}

double GoodputMbps(const FlowReport& flow, int64_t origin_ns, int64_t bin_ns, int64_t from_ns, int64_t until_ns) {
  const auto& bins = flow.receive.bins();
  double bytes = 0;
  for (size_t i = 0; i < bins.size(); ++i) {
    const int64_t bin_start_ns = origin_ns + static_cast<int64_t>(i) * bin_ns;
    if (bin_start_ns >= from_ns && bin_start_ns + bin_ns <= until_ns) bytes += static_cast<double>(bins[i]);
  }
  return until_ns > from_ns ? bytes * 8e3 / static_cast<double>(until_ns - from_ns) : 0;
}

void Summarise(const ContentionSpec& spec, const Snapshot& snapshot, int64_t start_ns, ContentionResult& result) {
  const int64_t from_ns = start_ns + absl::ToInt64Nanoseconds(spec.measure_from);
  // Until the first flow is done: from then on the others have more room than any assignment would give them.
  int64_t until_ns = INT64_MAX;
  for (const FlowReport& flow : snapshot.flows) until_ns = std::min(until_ns, flow.receive.last_ns());
  std::vector<double> delays_us;
  for (const FlowReport& flow : snapshot.flows) {
    result.goodput_mbps.push_back(GoodputMbps(flow, snapshot.origin_ns, snapshot.bin_ns, from_ns, until_ns));
    const double seconds = static_cast<double>(flow.send.last_done_ns - start_ns) / 1e9;
    result.completion_s = std::max(result.completion_s, seconds);
    result.naks += flow.requester.naks_received;
    if (flow.dead) ++result.flows_lost;
    for (const OneWayDelay& delay : flow.delays) {
      delays_us.push_back(static_cast<double>(delay.received_realtime_ns - delay.sent_realtime_ns) / 1e3);
    }
  }
  result.goodput_min_mbps = *std::min_element(result.goodput_mbps.begin(), result.goodput_mbps.end());
  result.owd_p50_us = Quantile(delays_us, 0.5);
  result.owd_p99_us = Quantile(delays_us, 0.99);
  result.icrc_errors = snapshot.Total().icrc_errors;
}

double WorstLinkShare(const ContentionSpec& spec, const Chart& load, double from_s, double until_s) {
  double worst = 0;
  for (const Series& series : load.series) {
    double sum = 0;
    int samples = 0;
    for (size_t i = 0; i < series.values.size(); ++i) {
      if (series.at_s[i] < from_s || series.at_s[i] > until_s) continue;
      sum += series.values[i];
      ++samples;
    }
    if (samples > 0) worst = std::max(worst, sum / samples / spec.testbed.fabric.link_mbps);
  }
  return worst;
}

// Which spine each flow's data crossed last.
std::vector<int> SpinesNow(const Testbed& testbed, const Snapshot& snapshot) {
  std::vector<int> count(static_cast<size_t>(testbed.spec().fabric.spines));
  for (const FlowReport& flow : snapshot.flows) {
    const int spine = testbed.SpineOf(flow, 0);
    if (spine >= 0) ++count[static_cast<size_t>(spine)];
  }
  return count;
}

}  // namespace

double BestGoodputMbps(const ContentionSpec& spec) {
  const int flows = FlowCount(spec);
  const int per_spine = (flows + spec.testbed.fabric.spines - 1) / spec.testbed.fabric.spines;
  // Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4: what the shaper counts besides the payload.
  const double efficiency = static_cast<double>(kPathMtu) / (kPathMtu + 58);
  return spec.testbed.fabric.link_mbps * efficiency / per_spine;
}

absl::StatusOr<ContentionResult> RunContention(const ContentionSpec& spec) {
  absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec.testbed);
  if (!up.ok()) return up.status();
  Testbed& testbed = **up;
  absl::StatusOr<std::unique_ptr<Emulator>> made = testbed.NewEmulator(spec.seed, /*stamp_every=*/32);
  if (!made.ok()) return made.status();
  Emulator& emulator = **made;
  if (absl::StatusOr<int> job = emulator.AddJob(PairwiseJob(spec)); !job.ok()) return job.status();

  ContentionResult result{.seed = spec.seed};
  result.initial_flows_per_spine = SpinesByEcmp(testbed.fabric(), emulator.TakeSnapshot());
  if (spec.testbed.agents) absl::SleepFor(spec.agents_first);
  LoadSampler load(testbed.fabric(), absl::Milliseconds(100));
  std::unique_ptr<DelaySampler> delay;
  if (spec.testbed.agents) delay = std::make_unique<DelaySampler>(testbed, 0, absl::Milliseconds(500));
  const int64_t start_ns = MonotonicNs();
  if (absl::Status status = emulator.Start(); !status.ok()) return status;
  absl::SleepFor(spec.best_duration * 0.9);  // no flow can have finished yet
  result.final_flows_per_spine = SpinesNow(testbed, emulator.TakeSnapshot());
  const bool done = emulator.WaitDone(spec.best_duration * 8);
  const Snapshot snapshot = emulator.TakeSnapshot();
  load.Stop();
  if (delay) delay->Stop();
  emulator.Stop();
  if (!done) return absl::DeadlineExceededError("flows did not finish in nine times the best time");

  Summarise(spec, snapshot, start_ns, result);
  result.phase.charts.push_back(load.LinkLoad(start_ns));
  if (delay) result.phase.charts.push_back(delay->PathDelay(start_ns));
  result.phase.marks = testbed.Events(start_ns, "move");
  result.moves = result.phase.marks.size();
  result.decisions = testbed.Events(start_ns, "decision");
  result.worst_link_share = WorstLinkShare(spec, result.phase.charts[0], absl::ToDoubleSeconds(spec.measure_from),
                                           absl::ToDoubleSeconds(spec.best_duration));
  result.phase.name = absl::StrFormat(
      "%s, seed %d: %s flows per spine at first, %s in the end", spec.testbed.agents ? "cwfabric" : "kernel ECMP",
      spec.seed, absl::StrJoin(result.initial_flows_per_spine, "+"), absl::StrJoin(result.final_flows_per_spine, "+"));
  return result;
}

absl::StatusOr<uint64_t> FindBestSeed(const ContentionSpec& spec, uint64_t from) {
  TestbedSpec plain = spec.testbed;
  plain.agents = false;
  absl::StatusOr<std::unique_ptr<Testbed>> testbed = Testbed::Up(plain);
  if (!testbed.ok()) return testbed.status();
  const int spines = plain.fabric.spines;
  const int most = (FlowCount(spec) + spines - 1) / spines;
  for (uint64_t seed = from; seed < from + 20000; ++seed) {
    absl::StatusOr<std::unique_ptr<Emulator>> emulator = (*testbed)->NewEmulator(seed);
    if (!emulator.ok()) return emulator.status();
    if (absl::StatusOr<int> job = (*emulator)->AddJob(PairwiseJob(spec)); !job.ok()) return job.status();
    const std::vector<int> count = SpinesByEcmp((*testbed)->fabric(), (*emulator)->TakeSnapshot());
    if (*std::max_element(count.begin(), count.end()) <= most) return seed;
  }
  return absl::NotFoundError("no seed spreads the flows perfectly");
}

}  // namespace cw::lab
