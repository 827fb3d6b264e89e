// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/experiment_contention.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "userspace/lab/experiment_failover.h"
#include "userspace/model/addr.h"
#include "userspace/model/flow.h"

namespace cw::lab {
namespace {

constexpr uint32_t kPathMtu = 4096;
constexpr uint64_t kMessageBytes = 1 << 20;

constexpr double kSettledShare = 0.95;
constexpr double kSettleWindowS = 2;
// Agents read of moves so much later at the most; and for so long a move may cost order.
constexpr int64_t kToldLateNs = 30'000'000;
constexpr int64_t kMoveIsFeltNs = 100'000'000;
constexpr double kSlowSpine = 0.5;  // of the rate: kAsymmetric

// From leaf 0 to leaf 1, which is what shares the spines.
int FlowCount(const ContentionSpec& spec) {
  const int hosts = spec.testbed.fabric.hosts_per_leaf;
  if (spec.workload == Workload::kAllToAll) return hosts * hosts;
  if (spec.workload != Workload::kTwoAllToAll) return hosts * spec.flows_per_sender;
  return (hosts / 2) * (hosts / 2) + (hosts - hosts / 2) * (hosts - hosts / 2);
}

// Of one direction between two leaves. Flows one after the other where they then get most: with few spines and whole
// flows that is the best assignment.
class BestSpines {
 public:
  explicit BestSpines(const ContentionSpec& spec)
      : rate_(static_cast<size_t>(spec.testbed.fabric.spines), spec.testbed.fabric.link_mbps), flows_(rate_.size()) {
    if (spec.workload == Workload::kAsymmetric) rate_.back() *= kSlowSpine;
  }
  int Next() {
    size_t best = 0;
    for (size_t s = 1; s < rate_.size(); ++s) {
      if (rate_[s] / (flows_[s] + 1) > rate_[best] / (flows_[best] + 1)) best = s;
    }
    ++flows_[best];
    least_ = std::min(least_, rate_[best] / flows_[best]);
    return static_cast<int>(best);
  }
  double least_mbps() const { return least_; }

 private:
  std::vector<double> rate_;
  std::vector<int> flows_;
  double least_ = 1e18;
};

double BestShareMbps(const ContentionSpec& spec) {
  BestSpines spines(spec);
  for (int f = 0; f < FlowCount(spec); ++f) spines.Next();
  return spines.least_mbps();
}

// The next port after the flow's own that takes it to its best spine.
PortChoice BestPorts(const ContentionSpec& spec, const Fabric& fabric) {
  const int hosts = fabric.spec().hosts_per_leaf;
  const auto directions = std::make_shared<std::map<std::pair<int, int>, BestSpines>>();  // leaves, from and to
  return [=, &fabric](int source, int destination, uint16_t native) {
    const std::pair leaves(source / hosts, destination / hosts);
    if (leaves.first == leaves.second) return native;
    const int wanted = directions->try_emplace(leaves, spec).first->second.Next();
    uint16_t port = native;
    for (int tried = 0; tried < 1 << 14; ++tried, port = static_cast<uint16_t>((port + 1) | 0xc000)) {
      if (fabric.PathOf(source, destination, port).value_or(-1) == wanted) return port;
    }
    return native;
  };
}

// Messages that bring `seconds` of the best assignment's goodput.
uint64_t MessagesFor(const ContentionSpec& spec, double seconds, uint64_t message_bytes) {
  const double bytes = BestGoodputMbps(spec) * 1e6 / 8 * seconds;
  return static_cast<uint64_t>(bytes / static_cast<double>(message_bytes)) + 1;
}

std::vector<JobSpec> AllToAllJobs(const ContentionSpec& spec) {
  std::vector<JobSpec> jobs(spec.workload == Workload::kAllToAll ? 1 : 2);
  for (size_t j = 0; j < jobs.size(); ++j) {
    JobSpec& job = jobs[j];
    job.name = absl::StrCat("alltoall", j);
    job.kind = JobKind::kAllToAll;
    for (size_t h = j; h < 2 * static_cast<size_t>(spec.testbed.fabric.hosts_per_leaf); h += jobs.size())
      job.hosts.push_back(static_cast<int>(h));
    job.rounds = spec.rounds;
    job.message_bytes = kMessageBytes / 4;
    job.messages = MessagesFor(spec, absl::ToDoubleSeconds(spec.best_duration) / spec.rounds, job.message_bytes);
    job.path_mtu = kPathMtu;
    job.rate = RateConfig::ForLine(spec.testbed.fabric.link_mbps * 1e6);
  }
  return jobs;
}

JobSpec PairsJob(const ContentionSpec& spec) {
  JobSpec job;
  const bool ring = spec.workload == Workload::kRing;
  job.name = ring ? "ring" : "pairwise";
  const int hosts = spec.testbed.fabric.hosts_per_leaf;
  for (int k = 0; k < hosts; ++k) {
    job.pairs.push_back({k, hosts + k});
    if (ring) job.pairs.push_back({hosts + k, (k + 1) % hosts});
  }
  job.qps_per_pair = spec.flows_per_sender;
  job.message_bytes = kMessageBytes;
  job.messages = MessagesFor(spec, absl::ToDoubleSeconds(spec.best_duration), kMessageBytes);
  job.path_mtu = kPathMtu;
  job.rate = RateConfig::ForLine(spec.testbed.fabric.link_mbps * 1e6);
  return job;
}

absl::Status AddJobs(const ContentionSpec& spec, Emulator& emulator) {
  if (!HasRounds(spec.workload)) return emulator.AddJob(PairsJob(spec)).status();
  absl::Status status;
  for (const JobSpec& job : AllToAllJobs(spec)) status.Update(emulator.AddJob(job).status());
  return status;
}

absl::Status SlowDownASpine(Fabric& fabric) {
  const int spine = fabric.spec().spines - 1;
  absl::Status status;
  for (int leaf = 0; leaf < fabric.spec().leaves; ++leaf) {
    for (const LinkDirection& link :
         {LinkDirection::LeafToSpine(leaf, spine), LinkDirection::SpineToLeaf(spine, leaf)}) {
      status.Update(fabric.SetLinkRate(link, kSlowSpine * fabric.spec().link_mbps).status());
    }
  }
  return status;
}

bool BetweenLeaves(const ContentionSpec& spec, const FlowReport& flow) {
  const int hosts = spec.testbed.fabric.hosts_per_leaf;
  return flow.source / hosts != flow.destination / hosts;
}

// Whole bins until the first flow is done.
std::vector<std::vector<double>> BinsMbps(const Snapshot& snapshot, int64_t start_ns, int64_t until_ns) {
  std::vector<std::vector<double>> all;
  const auto first = static_cast<size_t>(std::max<int64_t>(0, start_ns - snapshot.origin_ns) / snapshot.bin_ns);
  const auto last = static_cast<size_t>(std::max<int64_t>(0, until_ns - snapshot.origin_ns) / snapshot.bin_ns);
  for (const FlowReport& flow : snapshot.flows) {
    std::vector<double>& mbps = all.emplace_back();
    const auto& bins = flow.receive.bins();
    for (size_t i = first; i < last; ++i) {
      mbps.push_back(i < bins.size() ? static_cast<double>(bins[i]) * 8e3 / static_cast<double>(snapshot.bin_ns) : 0);
    }
  }
  return all;
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

void SummariseContention(const ContentionSpec& spec, const Snapshot& snapshot, int64_t start_ns,
                         ContentionResult& result) {
  const int64_t from_ns = start_ns + absl::ToInt64Nanoseconds(spec.measure_from);
  // Until the first flow is done: from then on the others have more room than any assignment would give them.
  int64_t until_ns = INT64_MAX;
  for (const FlowReport& flow : snapshot.flows) until_ns = std::min(until_ns, flow.receive.last_ns());
  std::vector<double> delays_us;
  for (const FlowReport& flow : snapshot.flows) {
    // Between barriers flows stand, so that what they got is what their job took.
    if (!HasRounds(spec.workload)) {
      result.goodput_mbps.push_back(GoodputMbps(flow, snapshot.origin_ns, snapshot.bin_ns, from_ns, until_ns));
    } else if (BetweenLeaves(spec, flow)) {
      result.goodput_mbps.push_back(static_cast<double>(flow.receive.bytes()) * 8e3 /
                                    static_cast<double>(flow.send.last_done_ns - start_ns));
    }
    const double seconds = static_cast<double>(flow.send.last_done_ns - start_ns) / 1e9;
    result.completion_s = std::max(result.completion_s, seconds);
    result.naks += flow.requester.naks_received;
    if (flow.dead) ++result.flows_lost;
    for (const OneWayDelay& delay : flow.delays) {
      delays_us.push_back(static_cast<double>(delay.received_realtime_ns - delay.sent_realtime_ns) / 1e3);
    }
  }
  if (!HasRounds(spec.workload) && spec.best_mbps > 0) {
    const double bin_s = static_cast<double>(snapshot.bin_ns) / 1e9;
    result.settle_s =
        SettleSeconds(BinsMbps(snapshot, start_ns, until_ns), bin_s,
                      static_cast<int>(std::max(1.0, kSettleWindowS / bin_s)), kSettledShare * spec.best_mbps);
  }
  result.goodput_min_mbps = *std::min_element(result.goodput_mbps.begin(), result.goodput_mbps.end());
  result.owd_p50_us = Quantile(delays_us, 0.5);
  result.owd_p99_us = Quantile(delays_us, 0.99);
  result.icrc_errors = snapshot.Total().icrc_errors;
}

std::vector<MadeMove> MadeMoves(Testbed& testbed, int64_t since_ns) {
  const int64_t wall_minus_monotonic_ns = absl::GetCurrentTimeNanos() - MonotonicNs();
  std::vector<MadeMove> moves;
  for (int host = 0; testbed.spec().agents && host < testbed.fabric().hosts(); ++host) {
    api::v1::EventsRequest request;
    request.set_type("move");
    (void)testbed.agent(host).Events(request, [&](const api::v1::Event& event) {
      MadeMove move{.at_ns = event.time_unix_ns() - wall_minus_monotonic_ns, .flow = event.flow(), .reason = ""};
      for (const api::v1::Evidence& evidence : event.evidence()) {
        if (evidence.name() == "reason") move.reason = evidence.value();
      }
      if (move.at_ns >= since_ns && !move.reason.empty()) moves.push_back(std::move(move));
      return true;
    });
  }
  return moves;
}

std::map<std::string, std::vector<int64_t>> NaksByFlow(const Fabric& fabric, const Snapshot& snapshot) {
  std::map<std::string, std::vector<int64_t>> naks;
  for (const FlowReport& flow : snapshot.flows) {
    const absl::StatusOr<Addr> from = Addr::Parse(fabric.HostAddr(flow.source));
    const absl::StatusOr<Addr> to = Addr::Parse(fabric.HostAddr(flow.destination));
    if (!from.ok() || !to.ok()) continue;
    naks[FlowKey{*from, *to, flow.destination_qpn}.Id().ToString()] = flow.send.naks_ns;
  }
  return naks;
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

bool HasRounds(Workload workload) { return workload == Workload::kTwoAllToAll || workload == Workload::kAllToAll; }

double BestGoodputMbps(const ContentionSpec& spec) {
  // Ethernet 14, IPv4 20, UDP 8, BTH 12, ICRC 4: what the shaper counts besides the payload.
  const double efficiency = static_cast<double>(kPathMtu) / (kPathMtu + 58);
  return BestShareMbps(spec) * efficiency;
}

double SettleSeconds(const std::vector<std::vector<double>>& mbps, double bin_s, int window, double wanted_mbps) {
  if (mbps.empty() || static_cast<int>(mbps.front().size()) < window) return -1;
  const int windows = static_cast<int>(mbps.front().size()) - window + 1;
  int settled = windows;  // the first window from which on all are good
  for (int w = windows - 1; w >= 0; --w) {
    const bool good = std::all_of(mbps.begin(), mbps.end(), [&](const std::vector<double>& flow) {
      return std::accumulate(flow.begin() + w, flow.begin() + w + window, 0.0) >= wanted_mbps * window;
    });
    if (!good) break;
    settled = w;
  }
  return settled < windows ? settled * bin_s : -1;
}

std::map<std::string, MovesOfKind> CountByKind(std::vector<MadeMove> moves,
                                               const std::map<std::string, std::vector<int64_t>>& naks_ns) {
  std::sort(moves.begin(), moves.end(), [](const MadeMove& a, const MadeMove& b) { return a.at_ns < b.at_ns; });
  std::map<std::string, MovesOfKind> kinds;
  std::map<std::string, int64_t> next_ns;  // of the flow, while going backwards
  for (auto move = moves.rbegin(); move != moves.rend(); ++move) {
    MovesOfKind& kind = kinds[move->reason];
    ++kind.moves;
    const auto next = next_ns.try_emplace(move->flow, INT64_MAX).first;
    const int64_t from_ns = move->at_ns - kToldLateNs;
    const int64_t until_ns = std::min(move->at_ns + kMoveIsFeltNs, next->second);
    next->second = from_ns;
    const auto naks = naks_ns.find(move->flow);
    if (naks == naks_ns.end()) continue;
    kind.naks += static_cast<uint64_t>(std::count_if(
        naks->second.begin(), naks->second.end(), [&](int64_t at_ns) { return at_ns >= from_ns && at_ns < until_ns; }));
  }
  return kinds;
}

absl::StatusOr<ContentionResult> RunContention(const ContentionSpec& spec) {
  absl::StatusOr<std::unique_ptr<Testbed>> up = Testbed::Up(spec.testbed);
  if (!up.ok()) return up.status();
  Testbed& testbed = **up;
  absl::StatusOr<std::unique_ptr<Emulator>> made = testbed.NewEmulator(
      spec.seed, /*stamp_every=*/32, spec.best_static ? BestPorts(spec, testbed.fabric()) : nullptr);
  if (!made.ok()) return made.status();
  Emulator& emulator = **made;
  if (absl::Status status = AddJobs(spec, emulator); !status.ok()) return status;
  if (spec.workload == Workload::kAsymmetric) {
    if (absl::Status status = SlowDownASpine(testbed.fabric()); !status.ok()) return status;
  }
  if (spec.flowlet_gap > absl::ZeroDuration()) {
    if (absl::Status status = testbed.fabric().SpreadFlowlets(spec.flowlet_gap); !status.ok()) return status;
  }

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

  SummariseContention(spec, snapshot, start_ns, result);
  result.goodput = Goodput(snapshot, -1, start_ns, absl::Milliseconds(100));
  result.phase.charts.push_back(load.LinkLoad(start_ns));
  if (delay) result.phase.charts.push_back(delay->PathDelay(start_ns));
  result.phase.marks = testbed.Events(start_ns, "move");
  result.moves = result.phase.marks.size();
  result.kinds = CountByKind(MadeMoves(testbed, start_ns), NaksByFlow(testbed.fabric(), snapshot));
  result.decisions = testbed.Events(start_ns, "decision");
  result.worst_link_share = WorstLinkShare(spec, result.phase.charts[0], absl::ToDoubleSeconds(spec.measure_from),
                                           absl::ToDoubleSeconds(spec.best_duration));
  result.phase.name = absl::StrFormat(
      "%s, seed %d: %s flows per spine at first, %s in the end",
      spec.testbed.agents                       ? "cwfabric"
      : spec.best_static                        ? "best assignment"
      : spec.flowlet_gap > absl::ZeroDuration() ? absl::StrCat("flowlets of ", absl::FormatDuration(spec.flowlet_gap))
                                                : std::string("kernel ECMP"),
      spec.seed, absl::StrJoin(result.initial_flows_per_spine, "+"), absl::StrJoin(result.final_flows_per_spine, "+"));
  return result;
}

}  // namespace cw::lab
