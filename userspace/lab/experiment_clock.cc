// SPDX-License-Identifier: Apache-2.0
#include "userspace/lab/experiment_clock.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "libcwclock/cwclock.h"
#include "userspace/api/client.h"
#include "userspace/lab/agent_launcher.h"
#include "userspace/lab/monotonic.h"

namespace cw::lab {
namespace {

constexpr int kFlowsPerPair = 8;

JobSpec LoadJob(const JobPair& pair, int qps, double ceiling_bps, double link_bps, uint8_t timeout = 14) {
  JobSpec job;
  job.name = "load";
  job.pairs = {pair};
  job.qps_per_pair = qps;
  job.message_bytes = 1 << 20;
  job.duration = absl::Hours(1);
  job.rate = RateConfig::ForLine(link_bps);
  job.rate.line_bps = ceiling_bps;
  job.timeout = timeout;
  return job;
}

std::vector<JobPair> CrossLeafPairs(const Fabric& fabric) {
  std::vector<JobPair> pairs;
  const int per_leaf = fabric.spec().hosts_per_leaf;
  for (int source = 0; source < fabric.hosts(); ++source) {
    const int leaf = (fabric.HostLeaf(source) + 1) % fabric.spec().leaves;
    pairs.push_back({source, leaf * per_leaf + source % per_leaf});
  }
  return pairs;
}

// Spine of each flow that this seed gives, in the order in which flows are made; found with an emulator that never
// runs.
absl::StatusOr<std::vector<int>> SpinesOfSeed(const Fabric& fabric, const std::vector<JobPair>& pairs, uint64_t seed) {
  EmulatorConfig config = EmulatedHosts(fabric, /*agents=*/false);
  config.seed = seed;
  absl::StatusOr<std::unique_ptr<Emulator>> emulator = Emulator::Create(config);
  if (!emulator.ok()) return emulator.status();
  for (const JobPair& pair : pairs) {
    if (absl::StatusOr<int> job = (*emulator)->AddJob(LoadJob(pair, kFlowsPerPair, 1e6, 1e6)); !job.ok())
      return job.status();
  }
  std::vector<int> spines;
  for (const FlowReport& flow : (*emulator)->TakeSnapshot().flows) {
    absl::StatusOr<int> spine = fabric.PathOf(flow.source, flow.destination, flow.source_port);
    if (!spine.ok()) return spine.status();
    spines.push_back(*spine);
  }
  return spines;
}

// Flows that share an uplink: by {leaf of the source, spine}.
std::map<std::pair<int, int>, int> FlowsPerLink(const Fabric& fabric, const std::vector<JobPair>& pairs,
                                                const std::vector<int>& spines) {
  std::map<std::pair<int, int>, int> count;
  for (size_t i = 0; i < spines.size(); ++i) {
    ++count[{fabric.HostLeaf(pairs[i / kFlowsPerPair].source), spines[i]}];
  }
  return count;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Emulator>> StartEvenLoad(const Fabric& fabric, bool agents, double share, uint64_t seed,
                                                        uint8_t timeout) {
  const std::vector<JobPair> pairs = CrossLeafPairs(fabric);
  const double link_bps = fabric.spec().link_mbps * 1e6;
  const auto links = static_cast<size_t>(fabric.spec().leaves * fabric.spec().spines);
  for (int attempt = 0; attempt < 50; ++attempt, ++seed) {
    absl::StatusOr<std::vector<int>> spines = SpinesOfSeed(fabric, pairs, seed);
    if (!spines.ok()) return spines.status();
    const auto count = FlowsPerLink(fabric, pairs, *spines);
    const bool all =
        count.size() == links && std::all_of(count.begin(), count.end(), [](const auto& c) { return c.second >= 2; });
    if (!all) continue;
    EmulatorConfig config = EmulatedHosts(fabric, agents);
    config.seed = seed;
    config.realtime = true;
    absl::StatusOr<std::unique_ptr<Emulator>> emulator = Emulator::Create(config);
    if (!emulator.ok()) return emulator.status();
    for (size_t i = 0; i < spines->size(); ++i) {
      const JobPair& pair = pairs[i / kFlowsPerPair];
      const double ceiling_bps = share * link_bps / count.at({fabric.HostLeaf(pair.source), (*spines)[i]});
      if (absl::StatusOr<int> job = (*emulator)->AddJob(LoadJob(pair, 1, ceiling_bps, link_bps, timeout)); !job.ok())
        return job.status();
    }
    if (absl::Status status = (*emulator)->Start(); !status.ok()) return status;
    return std::move(*emulator);
  }
  return absl::InternalError("no seed in 50 gives every leaf-spine link two flows");
}

std::vector<std::pair<int64_t, uint64_t>> LoadMeter::Read() const {
  std::vector<std::pair<int64_t, uint64_t>> readings;
  for (const LinkCounters& counters : fabric_.Links()) {
    if (counters.link.tier == LinkDirection::Tier::kSpine) readings.emplace_back(MonotonicNs(), counters.carried_bytes);
  }
  return readings;
}

void LoadMeter::Restart() { start_ = Read(); }

std::vector<double> LoadMeter::Shares() const {
  const auto now = Read();
  std::vector<double> shares;
  for (size_t i = 0; i < now.size(); ++i) {
    const double seconds = static_cast<double>(now[i].first - start_[i].first) / 1e9;
    shares.push_back(static_cast<double>(now[i].second - start_[i].second) * 8 / seconds /
                     (fabric_.spec().link_mbps * 1e6));
  }
  return shares;
}

absl::StatusOr<Truth> Truth::Read(const Fabric& fabric) {
  Truth truth;
  for (int host = 0; host < fabric.hosts(); ++host) {
    absl::StatusOr<cw_lab_clock> clock = ReadHiddenClock(fabric, host);
    if (!clock.ok()) return clock.status();
    truth.clocks_.push_back(*clock);
  }
  return truth;
}

int64_t Truth::LocalNs(int host, int64_t true_ns) const {
  return true_ns + HiddenClockError(clocks_.at(static_cast<size_t>(host)), static_cast<uint64_t>(true_ns));
}

int64_t Truth::TrueNs(int host, int64_t local_ns) const {
  // Each step leaves at most |drift| of the distance: 10^9 ns are right after four. Before its first segment a clock
  // has no error, which would be a second solution: begin behind it.
  int64_t true_ns = std::max(local_ns, static_cast<int64_t>(clocks_.at(static_cast<size_t>(host)).start_ns[0]));
  for (int i = 0; i < 6; ++i) true_ns += local_ns - LocalNs(host, true_ns);
  return true_ns;
}

int64_t Truth::OffsetNs(int from, int to, int64_t true_ns) const {
  return LocalNs(to, true_ns) - LocalNs(from, true_ns);
}

// Smaller changes of a drift are a crystal's own and no step.
constexpr int64_t kWanderPpb = 1000;

absl::Duration Truth::SinceDriftStep(int from, int to, int64_t true_ns) const {
  int64_t newest_ns = 0;
  for (int host : {from, to}) {
    const cw_lab_clock& clock = clocks_.at(static_cast<size_t>(host));
    for (uint32_t i = 0; i < clock.segments; ++i) {
      const auto start_ns = static_cast<int64_t>(clock.start_ns[i]);
      const bool jumped = i == 0 || std::llabs(clock.drift_ppb[i] - clock.drift_ppb[i - 1]) > kWanderPpb;
      if (jumped && start_ns <= true_ns) newest_ns = std::max(newest_ns, start_ns);
    }
  }
  return absl::Nanoseconds(true_ns - newest_ns);
}

ClockSampler::ClockSampler(Testbed& testbed, const Truth& truth, absl::Duration period)
    : testbed_(testbed), truth_(truth), hosts_(static_cast<size_t>(testbed.fabric().hosts())) {
  for (int host = 0; host < testbed.fabric().hosts(); ++host) {
    threads_.emplace_back([this, host, period] { Run(host, period); });
  }
}

ClockSampler::~ClockSampler() { Stop(); }

void ClockSampler::Stop() {
  stop_.store(true);
  for (std::thread& thread : threads_) {
    if (thread.joinable()) thread.join();
  }
  for (Host& host : hosts_) {
    pairs_.insert(pairs_.end(), host.pairs.begin(), host.pairs.end());
    if (!host.failure.empty()) failures_.push_back(host.failure);
  }
  hosts_.clear();
}

void ClockSampler::Run(int host, absl::Duration period) {
  api::Client client(DescribeAgentHost(testbed_.fabric(), host).socket);  // the testbed's belong to its thread
  for (absl::Time next = absl::Now(); !stop_.load(); next += period) {
    absl::SleepFor(next - absl::Now());
    absl::Status status = AskPairs(host, client);
    if (!status.ok())
      hosts_[static_cast<size_t>(host)].failure = absl::StrCat("h", host, ": ", std::string(status.message()));
  }
}

absl::Status ClockSampler::AskPairs(int host, api::Client& client) {
  absl::StatusOr<api::v1::PathsReply> reply = client.Paths({});
  if (!reply.ok()) return reply.status();
  for (const auto& pair : reply->pairs()) {
    int peer = 0;
    if (pair.peer().size() < 2 || !absl::SimpleAtoi(pair.peer().substr(1), &peer)) continue;
    const auto& clock = pair.clock();
    PairSample sample{.host = host, .peer = peer, .synced = clock.state() == api::v1::PeerClock::STATE_SYNCED};
    sample.true_ns = truth_.TrueNs(host, clock.local_ns());
    sample.error_ns = static_cast<double>(clock.offset_ns() - truth_.OffsetNs(host, peer, sample.true_ns));
    sample.error_est_ns = clock.error_est_ns();
    sample.bound_ns = clock.bound_ns();
    sample.since_step_s = absl::ToDoubleSeconds(truth_.SinceDriftStep(host, peer, sample.true_ns));
    hosts_[static_cast<size_t>(host)].pairs.push_back(sample);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FleetSampler>> FleetSampler::Start(Testbed& testbed, const Truth& truth,
                                                                  absl::Duration period) {
  std::vector<cw_clock*> pages;
  absl::Status status;
  for (int host = 0; status.ok() && host < testbed.fabric().hosts(); ++host) {
    const std::string path = DescribeAgentHost(testbed.fabric(), host).run_dir + "/clock";
    cw_clock* page = nullptr;
    if (const int error = cw_clock_open(path.c_str(), &page); error != 0) {
      status = absl::InternalError(absl::StrCat(path, ": ", cw_clock_strerror(error)));
    } else {
      pages.push_back(page);
    }
  }
  if (!status.ok()) {
    for (cw_clock* page : pages) cw_clock_close(page);
    return status;
  }
  std::unique_ptr<FleetSampler> sampler(new FleetSampler(truth, std::move(pages)));
  sampler->thread_ = std::thread([self = sampler.get(), period] { self->Run(period); });
  return sampler;
}

FleetSampler::~FleetSampler() {
  Stop();
  for (cw_clock* page : pages_) cw_clock_close(page);
}

void FleetSampler::Stop() {
  stop_.store(true);
  if (thread_.joinable()) thread_.join();
}

void FleetSampler::Run(absl::Duration period) {
  for (absl::Time next = absl::Now(); !stop_.load(); next = std::max(next, absl::Now() - period) + period) {
    absl::SleepFor(next - absl::Now());
    ReadAll();
  }
}

void FleetSampler::ReadAll() {
  const int64_t true_ns = MonotonicNs();
  const int hosts = static_cast<int>(pages_.size());
  std::vector<cw_clock_time> times(pages_.size());
  std::vector<bool> usable(pages_.size());
  bool refused = false;
  for (size_t host = 0; host < pages_.size(); ++host) {
    const int error = cw_clock_convert(pages_[host], CLOCK_MONOTONIC, true_ns, &times[host]);
    usable[host] = error == 0;
    if (error != 0) refusal_ = cw_clock_strerror(error);
    refused |= error != 0;
  }
  for (int host = 0; host < hosts; ++host) {
    for (int other = 0; other < hosts; ++other) {
      if (other == host || !usable[static_cast<size_t>(host)] || !usable[static_cast<size_t>(other)]) continue;
      const cw_clock_time &mine = times[static_cast<size_t>(host)], &theirs = times[static_cast<size_t>(other)];
      if (mine.timeline != theirs.timeline) {
        refusal_ = "two timelines";
        refused = true;
        continue;
      }
      pairs_.push_back({.host = host,
                        .other = other,
                        .true_ns = true_ns,
                        .difference_ns = static_cast<double>(mine.fleet_ns - theirs.fleet_ns),
                        .error_est_ns = static_cast<double>(mine.error_est_ns + theirs.error_est_ns),
                        .bound_ns = static_cast<double>(mine.latest_ns - mine.earliest_ns) / 2,
                        .since_step_s = absl::ToDoubleSeconds(truth_.SinceDriftStep(host, other, true_ns))});
    }
  }
  ++readings_;
  refused_ += refused ? 1 : 0;
}

absl::StatusOr<int> FleetReference(Testbed& testbed) {
  std::set<std::string> names;
  for (int host = 0; host < testbed.fabric().hosts(); ++host) {
    absl::StatusOr<api::v1::ClockReply> reply = testbed.agent(host).Clock();
    if (!reply.ok()) return reply.status();
    names.insert(reply->tracking().reference());
  }
  int reference = 0;
  if (names.size() != 1 || names.begin()->size() < 2 || !absl::SimpleAtoi(names.begin()->substr(1), &reference)) {
    return absl::UnavailableError(absl::StrCat("the hosts name ", names.size(), " references"));
  }
  return reference;
}

}  // namespace cw::lab
